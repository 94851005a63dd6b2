//! `pool`: show the pool of prepared machines.

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::values::{human_bytes, human_cpus};
use super::{output, table};
use control::Request;
use sandbox::pool::ShelfStatus;

/// Show the pool of prepared machines
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge serve --set 'pool.entries=python=4 contexts=python' &
  host-bridge pool
  host-bridge pool --json | jq '.[] | select(.ready < .wanted)'

A new sandbox takes a machine from the pool if its image, machine, memory, CPUs and writable layer match
an entry. Its name, environment, labels and lifetimes may differ.")]
pub struct Pool {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Pool {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let shelves: Vec<ShelfStatus> = context.daemon().await?.ask(&Request::Pool {}).await?;
        if self.json {
            output::print_json(&shelves)?;
        } else {
            output::print(&table::align(HEAD, &shelves.iter().map(row).collect::<Vec<_>>()))?;
            for shelf in &shelves {
                if let Some(failure) = &shelf.failure {
                    let failure = output::printable(failure);
                    output::note(&format!("{}: {failure}", output::printable(&shelf.image)));
                }
            }
        }
        Ok(Exit::SUCCESS)
    }
}

const HEAD: [&str; 10] = [
    "IMAGE", "MACHINE", "MEMORY", "CPUS", "CONTEXTS", "READY", "STARTING", "CLAIMED", "MISSED",
    "REPLACED",
];

fn row(shelf: &ShelfStatus) -> [String; 10] {
    let none = || "-".to_owned();
    let contexts: Vec<_> = shelf.contexts.iter().map(ToString::to_string).collect();
    [
        output::printable(&shelf.image),
        shelf.machine.to_string(),
        shelf.memory_mib.map_or_else(none, |mib| human_bytes(mib * 1024 * 1024)),
        shelf.cpu_millis.map_or_else(none, human_cpus),
        if contexts.is_empty() { none() } else { contexts.join("+") },
        format!("{}/{}", shelf.ready, shelf.wanted),
        shelf.starting.to_string(),
        shelf.counts.claimed.to_string(),
        shelf.counts.missed.to_string(),
        shelf.counts.replaced.to_string(),
    ]
}
