//! `rm`: remove stopped sandboxes and their logs. Their names become free.

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use control::Request;
use sandbox::SandboxRef;

/// Remove stopped sandboxes and their logs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge rm work
  host-bridge rm -f work                   even if it is running
  host-bridge rm -f $(host-bridge ps -aq)")]
pub struct Rm {
    /// Kill running sandboxes first
    #[arg(short, long)]
    force: bool,

    /// The sandboxes: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "SANDBOX")]
    which: Vec<SandboxRef>,
}

impl Rm {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let force = self.force;
        context
            .for_each(&self.which, |sandbox| Request::Remove { sandbox, force, moves: false })
            .await
    }
}
