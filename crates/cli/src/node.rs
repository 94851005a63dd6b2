//! `node`: show the nodes of a fleet, and say which take sandboxes.

mod drain;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use super::values::{human_bytes, human_cpus};
use super::{output, table};
use control::{NodeRow, Readiness, Request};
use drain::Drain;

/// Show and mark nodes of the fleet
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge node ls
  host-bridge node inspect host2 | jq .address
  host-bridge node cordon host2            takes no new sandboxes; those it has stay
  host-bridge node ready host2             takes sandboxes again

A bridge is in a fleet when it is started with --fleet, or with `servers` in [fleet] of its configuration.")]
pub struct Node {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the nodes
    #[command(after_help = "Examples:
  host-bridge node ls
  host-bridge node ls --json | jq -r '.[] | select(.readiness == \"ready\") | .name'")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what a node says, as JSON
    #[command(after_help = "Examples:
  host-bridge node inspect host2
  host-bridge node inspect host2 | jq .labels")]
    Inspect(Named),
    /// Give a node no new sandboxes
    #[command(after_help = "Examples:
  host-bridge node cordon host2
  host-bridge node ready host2")]
    Cordon(Named),
    /// Mark a node as about to go
    #[command(after_help = "Examples:
  host-bridge node drain host2
  host-bridge node drain host2 --wait              until it has no sandbox
  host-bridge node drain host2 --deadline 30m      prints what is left after that
  host-bridge node drain host2 --deadline 30m --end

It takes no new sandboxes. Those that it has stay until they are removed, stopped ones with their logs.
None is moved, paused or snapshotted. With --end those that are left at the deadline are stopped in
order and removed, and those that cannot be stopped are killed.

The exit code is 0 when the node is marked and, with --wait or --deadline, has no sandbox; 124 when some
are left at the deadline, after --end too; 125 when the node is unknown or has left the fleet.")]
    Drain(Drain),
    /// Give a node sandboxes again
    #[command(after_help = "Examples:
  host-bridge node ready host2
  host-bridge node ls")]
    Ready(Named),
}

#[derive(Debug, Args)]
struct Named {
    /// Name the node
    name: String,
}

impl Node {
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let mut daemon = context.daemon().await?;
        let (name, readiness) = match self.what {
            What::Ls { json } => {
                let nodes: Vec<NodeRow> = daemon.ask(&Request::Nodes {}).await?;
                return ls(&nodes, json);
            }
            What::Inspect(Named { name }) => {
                let nodes: Vec<NodeRow> = daemon.ask(&Request::Nodes {}).await?;
                let Some(node) = nodes.iter().find(|node| node.name == name) else {
                    bail!(
                        "there is no node {name:?} in this fleet; `host-bridge node ls` lists them"
                    );
                };
                output::print_json(node)?;
                return Ok(Exit::SUCCESS);
            }
            What::Cordon(Named { name }) => (name, Readiness::Cordoned),
            What::Drain(drain) => return drain.run(context).await,
            What::Ready(Named { name }) => (name, Readiness::Ready),
        };
        let request = Request::MarkNode { node: name, readiness };
        let _: Vec<NodeRow> = daemon.ask(&request).await?;
        Ok(Exit::SUCCESS)
    }
}

fn ls(nodes: &[NodeRow], json: bool) -> Result<Exit> {
    if json {
        output::print_json(&nodes)?;
        return Ok(Exit::SUCCESS);
    }
    output::print(&table::align(HEAD, &nodes.iter().map(row).collect::<Vec<_>>()))?;
    for trouble in nodes.iter().filter_map(|node| node.trouble.as_ref()) {
        output::note(&output::printable(trouble));
    }
    Ok(Exit::SUCCESS)
}

const HEAD: [&str; 7] = ["NODE", "STATE", "SANDBOXES", "MEMORY", "CPUS", "LABELS", "ADDRESS"];

fn row(node: &NodeRow) -> [String; 7] {
    let labels: Vec<_> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let name = if node.here { format!("{} *", node.name) } else { node.name.clone() };
    [
        output::printable(&name),
        node.readiness.as_str().to_owned(),
        node.sandboxes.to_string(),
        human_bytes(node.memory_mib.saturating_mul(1024 * 1024)),
        human_cpus(u32::try_from(node.cpu_millis).unwrap_or(u32::MAX)),
        output::printable(&if labels.is_empty() { "-".to_owned() } else { labels.join(",") }),
        output::printable(&node.address),
    ]
}
