//! `usage`: show what namespaces and programs have used, for billing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::values::{Since, human_bytes, human_duration};
use super::{all_nodes, output, table};
use control::{AllNodes, Client, NamespaceCost, NodeAnswer, Request};
use host::instant::now_ms;
use sandbox::Name;
use sandbox::costs::{self, Cost, ProgramUse};

/// Show what namespaces have used
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge usage
  host-bridge usage --namespace ci --since 24h
  host-bridge usage --programs             what programs, runs and apps have cost
  host-bridge usage --all-nodes            the sums of the whole fleet
  host-bridge usage --json | jq '.[] | {namespace, cpu_us}'

Use is kept by the hour, for 400 days, and includes that of removed sandboxes. CPU time and memory are what the
agents report, at most 10 seconds ago, or a minute where nothing runs; NETWORK is what was exchanged
with the outside. With --programs there is one line for each day and name of what has ended by now, which are
programs by their file names, runs by their contexts, and apps; PEAK GIB SECONDS is the most memory that each has had,
times its time.")]
pub struct Usage {
    /// Show only this namespace (default: all)
    #[arg(long, value_name = "NAME")]
    namespace: Option<Name>,

    /// Count from the hour of this time: an age as in 24h, or a date
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,

    /// Count up to the hour of this time: an age as in 24h, or a date
    #[arg(long, value_name = "TIME")]
    until: Option<Since>,

    /// Show programs, runs of contexts and apps, by day and name
    #[arg(long)]
    programs: bool,

    /// Add up what all nodes of the fleet have
    #[arg(long)]
    all_nodes: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const HEAD: [&str; 6] = ["NAMESPACE", "TIME", "CPU", "GIB SECONDS", "DISK", "NETWORK"];

const PROGRAMS_HEAD: [&str; 9] =
    ["DAY", "NAMESPACE", "KIND", "NAME", "ENDS", "TIME", "CPU", "PEAK GIB SECONDS", "DISK"];

impl Usage {
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let now_ms = now_ms();
        let from_ms = self.since.map_or(0, |since| since.resolve(now_ms));
        let to_ms = self.until.map_or(now_ms, |until| until.resolve(now_ms));
        let mut daemon = context.daemon().await?;
        if self.programs {
            let namespace = self.namespace;
            let request = Request::ProgramUsage { namespace, from_ms, to_ms };
            return programs(&mut daemon, request, self.all_nodes, self.json).await;
        }
        let request = Request::Usage { namespace: self.namespace, from_ms, to_ms };
        let (costs, unanswered) = if self.all_nodes {
            let AllNodes { nodes, unanswered } = daemon.ask_all(request).await?;
            (sums(nodes), unanswered)
        } else {
            (daemon.ask(&request).await?, Vec::new())
        };
        if self.json {
            output::print_json(&costs)?;
        } else {
            let rows: Vec<_> = costs.iter().map(line).collect();
            output::print(&table::align(HEAD, &rows))?;
        }
        Ok(all_nodes::report("sums", &unanswered))
    }
}

/// Prints what programs, runs and apps have cost.
async fn programs(
    daemon: &mut Client,
    request: Request,
    all_nodes: bool,
    json: bool,
) -> Result<Exit> {
    let (rows, unanswered): (Vec<ProgramUse>, _) = if all_nodes {
        let AllNodes { nodes, unanswered } = daemon.ask_all(request).await?;
        let rows = nodes.into_iter().flat_map(|node: NodeAnswer<Vec<ProgramUse>>| node.answer);
        (costs::sum(rows), unanswered)
    } else {
        (daemon.ask(&request).await?, Vec::new())
    };
    if json {
        output::print_json(&rows)?;
    } else {
        let rows: Vec<_> = rows.iter().map(program_line).collect();
        output::print(&table::align(PROGRAMS_HEAD, &rows))?;
    }
    Ok(all_nodes::report("sums", &unanswered))
}

fn program_line(ProgramUse { of, cost }: &ProgramUse) -> [String; 9] {
    let bytes = cost.read_bytes.saturating_add(cost.written_bytes);
    [
        of.date(),
        output::printable(&of.namespace),
        of.kind.name().to_owned(),
        output::printable(&of.name),
        cost.ends.to_string(),
        human_duration(Duration::from_micros(cost.run_us)),
        format!("{:.2} s", cost.cpu_seconds()),
        format!("{:.2}", cost.peak_gib_seconds()),
        if of.kind.has_bytes() { human_bytes(bytes) } else { "-".to_owned() },
    ]
}

/// What all nodes have together, by namespace.
fn sums(nodes: Vec<NodeAnswer<Vec<NamespaceCost>>>) -> Vec<NamespaceCost> {
    let mut sums: BTreeMap<String, Cost> = BTreeMap::new();
    for NamespaceCost { namespace, cost } in nodes.into_iter().flat_map(|node| node.answer) {
        *sums.entry(namespace).or_default() += cost;
    }
    sums.into_iter().map(|(namespace, cost)| NamespaceCost { namespace, cost }).collect()
}

fn line(NamespaceCost { namespace, cost }: &NamespaceCost) -> [String; 6] {
    let both = |one: u64, other: u64| human_bytes(one.saturating_add(other));
    [
        output::printable(namespace),
        human_duration(Duration::from_millis(cost.run_ms)),
        format!("{:.1} s", cost.cpu_seconds()),
        format!("{:.1}", cost.gib_seconds()),
        both(cost.read_bytes, cost.written_bytes),
        both(cost.sent_bytes, cost.received_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_units() {
        let cost = Cost {
            run_ms: 90_000,
            cpu_us: 1_540_000,
            memory_kib_ms: 512 * 1024 * 90_000,
            read_bytes: 1024,
            written_bytes: 1024,
            ..Cost::default()
        };
        let row = line(&NamespaceCost { namespace: "ci".to_owned(), cost });
        let duration = human_duration(Duration::from_secs(90));
        assert_eq!(row, ["ci", &duration, "1.5 s", "45.0", "2.0 KiB", "0 B"]);
    }
}
