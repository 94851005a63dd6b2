//! `rm`: remove stopped sandboxes and their logs. Their names become free.

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::{failure, output};
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
        let mut daemon = context.daemon().await?;
        let mut exit = Exit::SUCCESS;
        for which in &self.which {
            match daemon.remove(which, self.force).await {
                Ok(_) => output::print_line(&which.to_string())?,
                Err(error) => exit = failure::report(&context.explain(which, error).await),
            }
        }
        Ok(exit)
    }
}
