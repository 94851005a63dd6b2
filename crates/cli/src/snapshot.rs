//! `snapshot`: save a running sandbox, and list and remove snapshots.

use anyhow::Result;
use clap::{Args, Subcommand};

use super::context::Context;
use super::exit::Exit;
use super::values::human_bytes;
use super::{failure, output, table};
use control::{ClientError, Request};
use sandbox::{Name, SandboxRef};

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
}

impl Snapshot {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        match (&self.verb, &self.which, &self.name) {
            (Some(Verb::Ls { json }), ..) => list(context, *json).await,
            (Some(Verb::Rm { which }), ..) => remove(context, which).await,
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
    let snapshots: Vec<sandbox::Snapshot> =
        context.daemon().await?.ask(&Request::Snapshots {}).await?;
    if json {
        output::print_json(&snapshots)?;
    } else {
        let rows: Vec<_> = snapshots.iter().map(row).collect();
        output::print(&table::align(["NAME", "SANDBOX", "MACHINE", "IMAGE", "SIZE"], &rows))?;
    }
    Ok(Exit::SUCCESS)
}

fn row(snapshot: &sandbox::Snapshot) -> [String; 5] {
    [
        snapshot.which().to_string(),
        snapshot.sandbox.to_string(),
        snapshot.machine.to_string(),
        snapshot.image.as_deref().map_or_else(|| "-".to_owned(), output::printable),
        human_bytes(snapshot.bytes),
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
