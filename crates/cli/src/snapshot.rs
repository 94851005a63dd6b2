//! `snapshot`: save a running sandbox, list and remove snapshots, and take them to other hosts.

mod travel;

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use super::values::{human_bytes, human_duration};
use super::{failure, output, table};
use control::{ClientError, Request};
use host::instant::now_ms;
use sandbox::{ListedSnapshot, Name, SandboxRef};
use travel::{Export, Import};

/// Save a running sandbox as a snapshot
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  host-bridge snapshot work base           save programs, memory and files
  host-bridge start --snapshot base        start another sandbox from it
  host-bridge snapshot ls
  host-bridge snapshot rm base
  host-bridge snapshot export base base.tar
  host-bridge snapshot import base.tar     on another host with the same kit

The sandbox keeps running. A snapshot contains the memory of the programs and any secrets in it. It can
only be started on the same kernel, image and machine."
)]
pub struct Snapshot {
    #[command(subcommand)]
    verb: Option<Verb>,

    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "SANDBOX")]
    which: Option<SandboxRef>,

    /// The name of the snapshot, in the sandbox's namespace
    #[arg(required = true, value_name = "NAME")]
    name: Option<Name>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List snapshots
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove snapshots, but no sandboxes
    Rm {
        /// The snapshots: NAME or NAMESPACE/NAME
        #[arg(required = true, value_name = "SNAPSHOT")]
        which: Vec<SandboxRef>,
    },
    Export(Export),
    Import(Import),
    /// Remove snapshots that the configuration drops
    Prune {
        /// Only list them
        #[arg(long)]
        dry_run: bool,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl Snapshot {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        match (&self.verb, &self.which, &self.name) {
            (Some(Verb::Ls { json }), ..) => list(context, *json).await,
            (Some(Verb::Rm { which }), ..) => remove(context, which).await,
            (Some(Verb::Export(export)), ..) => export.run(context).await,
            (Some(Verb::Import(import)), ..) => import.run(context).await,
            (Some(Verb::Prune { dry_run, json }), ..) => prune(context, *dry_run, *json).await,
            (None, Some(which), Some(name)) => {
                let request = Request::Snapshot { sandbox: which.clone(), name: name.clone() };
                match context.daemon().await?.ask::<sandbox::Snapshot>(&request).await {
                    Ok(snapshot) => output::print_line(&snapshot.which().to_string())?,
                    Err(error) => return Err(context.explain(which, error).await),
                }
                Ok(Exit::SUCCESS)
            }
            // The parser lets nothing else through.
            (None, ..) => Ok(Exit::FAILED_ITSELF),
        }
    }
}

async fn list(context: &Context, json: bool) -> Result<Exit> {
    let request = Request::Snapshots {};
    let snapshots: Vec<_> = context.daemon().await?.ask(&request).await?;
    show(&snapshots, json)
}

async fn prune(context: &Context, dry_run: bool, json: bool) -> Result<Exit> {
    let request = Request::PruneSnapshots { dry_run };
    let snapshots: Vec<_> = context.daemon().await?.ask(&request).await?;
    show(&snapshots, json)
}

fn show(snapshots: &[ListedSnapshot], json: bool) -> Result<Exit> {
    if json {
        output::print_json(&snapshots)?;
    } else {
        let now_ms = now_ms();
        let rows: Vec<_> = snapshots.iter().map(|listed| row(listed, now_ms)).collect();
        let head = ["NAME", "SANDBOX", "MACHINE", "IMAGE", "SIZE", "AGE", "REMOVED"];
        output::print(&table::align(head, &rows))?;
    }
    Ok(Exit::SUCCESS)
}

fn row(ListedSnapshot { snapshot, removal }: &ListedSnapshot, now_ms: u64) -> [String; 7] {
    let since = |at_ms: u64| human_duration(Duration::from_millis(now_ms.saturating_sub(at_ms)));
    let removed = removal.map(|removal| {
        let option = removal.why.option();
        match removal.at_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0) {
            Some(left_ms) => {
                format!("in {} ({option})", human_duration(Duration::from_millis(left_ms)))
            }
            None => format!("now ({option})"),
        }
    });
    [
        snapshot.which().to_string(),
        snapshot.sandbox.to_string(),
        snapshot.machine.to_string(),
        snapshot.image.as_deref().map_or_else(|| "-".to_owned(), output::printable),
        human_bytes(snapshot.bytes),
        since(snapshot.here_since_ms()),
        removed.unwrap_or_else(|| "-".to_owned()),
    ]
}

async fn remove(context: &Context, all: &[SandboxRef]) -> Result<Exit> {
    let mut daemon = context.daemon().await?;
    let mut exit = Exit::SUCCESS;
    for which in all {
        let request = Request::RemoveSnapshot { snapshot: which.clone() };
        match daemon.ask::<sandbox::Snapshot>(&request).await {
            Ok(_) => output::print_line(&which.to_string())?,
            // A refusal of one does not concern the next; a lost bridge does.
            Err(error @ ClientError::Refused(_)) => exit = failure::report(&error.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(exit)
}
