//! `stats`: show what running sandboxes use at the moment.

use anyhow::Result;
use clap::Args;
use protocol::metrics::Sample;
use serde::Serialize;

use super::context::Context;
use super::exit::Exit;
use super::values::human_bytes;
use super::{failure, output, table};
use control::List;
use sandbox::{SandboxRef, State};

/// Show what running sandboxes use
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge stats
  host-bridge stats work ci/job-7
  host-bridge stats --json | jq '.[] | {sandbox, memory_bytes}'

CPU is that of the last second; 100% is one processor. The numbers are what the agent of each sandbox reports.
--json has more of them: user, system and throttled time, the peak of memory, cache, swap and kills.")]
pub struct Stats {
    /// Print the newest samples as JSON
    #[arg(long)]
    json: bool,

    /// The sandboxes: NAME or NAMESPACE/NAME (default: all that run)
    #[arg(value_name = "SANDBOX")]
    which: Vec<SandboxRef>,
}

#[derive(Serialize)]
struct Row {
    sandbox: String,
    #[serde(flatten)]
    sample: Sample,
}

const HEAD: [&str; 5] = ["NAME", "CPU", "MEMORY", "DISK", "PROCESSES"];

impl Stats {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let all = if self.which.is_empty() {
            let mut records = context.daemon().await?.list(List::default()).await?;
            records.retain(|record| matches!(record.state, State::Running));
            records.sort_by_key(|record| (record.created_at_ms, record.which()));
            records.iter().map(sandbox::Record::which).collect()
        } else {
            self.which.clone()
        };
        let (mut rows, mut exit) = (Vec::new(), Exit::SUCCESS);
        for which in all {
            match sample(context, &which).await {
                Ok(Some(sample)) => rows.push(Row { sandbox: which.to_string(), sample }),
                Ok(None) => {}
                // One that does not answer hides nothing of the others.
                Err(error) => exit = failure::report(&error),
            }
        }
        if self.json {
            output::print_json(&rows)?;
        } else if !rows.is_empty() || exit == Exit::SUCCESS {
            output::print(&table::align(HEAD, &rows.iter().map(cells).collect::<Vec<_>>()))?;
        }
        Ok(exit)
    }
}

async fn sample(context: &Context, which: &SandboxRef) -> Result<Option<Sample>> {
    let guest = context.look(which, "stats").await?;
    let samples = guest.newest_metrics(true).await?;
    guest.close().await;
    Ok(samples.newest().copied())
}

fn cells(row: &Row) -> [String; 5] {
    let Sample { memory_bytes, memory_bytes_max, disk_bytes, disk_bytes_max, .. } = row.sample;
    let of = |used: u64, bound: Option<u64>| match bound {
        Some(bound) => format!("{} of {}", human_bytes(used), human_bytes(bound)),
        None => human_bytes(used),
    };
    let none = || "-".to_owned();
    [
        row.sandbox.clone(),
        row.sample.cpu_percent().map_or_else(none, |percent| format!("{percent:.1}%")),
        of(memory_bytes, memory_bytes_max),
        disk_bytes.map_or_else(none, |used| of(used, disk_bytes_max)),
        row.sample.processes.to_string(),
    ]
}
