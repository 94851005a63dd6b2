//! `ps`: list sandboxes.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::all_nodes;
use super::context::Context;
use super::exit::Exit;
use super::values::{human_bytes, human_cpus, human_duration, human_labels};
use super::{instant, output, table};
use control::{AllNodes, List, NodeAnswer, Request};
use sandbox::{Name, Record, Selector, State};

/// List sandboxes
#[derive(Debug, Args)]
#[command(
    visible_alias = "ls",
    after_help = "Examples:
  host-bridge ps
  host-bridge ps -a                        include stopped ones
  host-bridge rm -f $(host-bridge ps -aq)
  host-bridge ps --label team=a --label ci
  host-bridge ps --all-nodes               of the whole fleet, with their nodes
  host-bridge ps --json | jq -r '.[].name'"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct Ps {
    /// Include stopped sandboxes
    #[arg(short, long)]
    all: bool,

    /// Print names only
    #[arg(short, long)]
    quiet: bool,

    /// List only this namespace (default: all)
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<Name>,

    /// List only sandboxes with this label; repeatable, and all must match
    #[arg(long, value_name = "KEY[=VALUE]")]
    label: Vec<Selector>,

    /// List the sandboxes of all nodes of the fleet
    #[arg(long)]
    all_nodes: bool,

    /// Add columns for limits, expiry and labels
    #[arg(long, conflicts_with = "quiet")]
    wide: bool,

    /// Print the whole records as JSON
    #[arg(long, conflicts_with_all = ["quiet", "wide"])]
    json: bool,
}

impl Ps {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let list =
            List { namespace: self.namespace.clone(), all: self.all, labels: self.label.clone() };
        if self.all_nodes {
            return self.all_nodes(context.daemon().await?.ask_all(Request::List(list)).await?);
        }
        let mut records = context.daemon().await?.list(list).await?;
        records.sort_by_key(|record| (record.created_at_ms, record.which()));
        if self.json {
            output::print_json(&records)?;
        } else if self.quiet {
            for record in &records {
                output::print_line(&record.which().to_string())?;
            }
        } else {
            let now_ms = instant::now_ms();
            let rows = records.iter().map(|record| row(record, now_ms));
            let text = if self.wide {
                let rows: Vec<_> =
                    rows.zip(&records).map(|(row, record)| wide_row(row, record, now_ms)).collect();
                table::align(WIDE_HEAD, &rows)
            } else {
                table::align(HEAD, &rows.collect::<Vec<_>>())
            };
            output::print(&text)?;
        }
        Ok(Exit::SUCCESS)
    }

    /// Prints what all nodes have. A node that did not answer is named, and fails the verb: what it has is missing.
    fn all_nodes(&self, list: AllNodes<Vec<Record>>) -> Result<Exit> {
        let AllNodes { nodes, unanswered } = list;
        let mut all: Vec<(String, Record)> = Vec::new();
        for NodeAnswer { node, answer, .. } in nodes {
            all.extend(answer.into_iter().map(|record| (node.clone(), record)));
        }
        all.sort_by_cached_key(|(node, record)| {
            (node.clone(), record.created_at_ms, record.which())
        });
        if self.json {
            let shown: Vec<_> =
                all.iter().map(|(node, record)| NodeRecord { node, record }).collect();
            output::print_json(&shown)?;
        } else if self.quiet {
            for (_, record) in &all {
                output::print_line(&record.which().to_string())?;
            }
        } else {
            let now_ms = instant::now_ms();
            let rows = all.iter().map(|(node, record)| (node.clone(), record, row(record, now_ms)));
            let text = if self.wide {
                let wide = |(node, record, row)| with_node(node, wide_row(row, record, now_ms));
                table::align::<10>(
                    with_node("NODE", WIDE_HEAD),
                    &rows.map(wide).collect::<Vec<_>>(),
                )
            } else {
                let narrow = |(node, _, row)| with_node(node, row);
                table::align::<6>(with_node("NODE", HEAD), &rows.map(narrow).collect::<Vec<_>>())
            };
            output::print(&text)?;
        }
        Ok(all_nodes::report("sandboxes", &unanswered))
    }
}

/// A record with the node that has it.
#[derive(Serialize)]
struct NodeRecord<'a> {
    node: &'a str,
    #[serde(flatten)]
    record: &'a Record,
}

/// A row with one more column before the others.
pub fn with_node<T, const N: usize, const M: usize>(node: impl Into<T>, row: [T; N]) -> [T; M] {
    let mut cells = std::iter::once(node.into()).chain(row);
    std::array::from_fn(|_| cells.next().expect("M is N and one more"))
}

const HEAD: [&str; 5] = ["NAME", "MACHINE", "STATE", "AGE", "IMAGE"];
const WIDE_HEAD: [&str; 9] =
    ["NAME", "MACHINE", "STATE", "AGE", "MEMORY", "CPUS", "ENDS", "LABELS", "IMAGE"];

/// The columns of `row`, with the additional ones before the last.
fn wide_row(row: [String; 5], record: &Record, now_ms: u64) -> [String; 9] {
    let none = || "-".to_owned();
    let [name, machine, state, age, image] = row;
    let memory = record.memory_mib.map_or_else(none, |mib| human_bytes(mib * 1024 * 1024));
    let cpus = record.cpu_millis.map_or_else(none, human_cpus);
    let end_ms = [record.expires_at_ms, record.idle_expires_at_ms].into_iter().flatten().min();
    let ends = end_ms.filter(|_| !record.state.is_over()).map_or_else(none, |at_ms| {
        format!("in {}", human_duration(Duration::from_millis(at_ms.saturating_sub(now_ms))))
    });
    let labels = if record.labels.is_empty() { none() } else { human_labels(&record.labels) };
    [name, machine, state, age, memory, cpus, ends, output::printable(&labels), image]
}

/// The root of a sandbox as one word. What a damaged record had is not known.
pub fn root_of(record: &Record) -> String {
    if matches!(record.state, State::Damaged { .. }) {
        return "(unknown)".to_owned();
    }
    record.image.clone().unwrap_or_else(|| record.machine.profile().root.to_string())
}

/// The state in a few words. Why a record is damaged takes a line of its own, which `inspect` has.
fn state_of(state: &State) -> String {
    match state {
        State::Damaged { .. } => "damaged".to_owned(),
        state => output::printable(&state.to_string()),
    }
}

fn row(record: &Record, now_ms: u64) -> [String; 5] {
    let age = Duration::from_millis(now_ms.saturating_sub(record.created_at_ms));
    [
        record.which().to_string(),
        record.machine.to_string(),
        state_of(&record.state),
        human_duration(age),
        root_of(record),
    ]
}
