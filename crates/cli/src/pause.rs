//! `pause`: boxes stand still, with all that is in them.

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::{failure, output};
use sandbox::SandboxRef;

/// Let boxes stand still, with all that runs in them
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge pause work
  host-bridge pause $(host-bridge ps -q)

Nothing in a paused box is lost, and nothing runs. `host-bridge resume` lets it go on, with its clock set
right. Its time to live goes on; its idle time does not. What machine can do this: `host-bridge doctor`.")]
pub struct Pause {
    /// The boxes: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "BOX")]
    which: Vec<SandboxRef>,
}

impl Pause {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let mut daemon = context.daemon().await?;
        let mut exit = Exit::SUCCESS;
        for which in &self.which {
            // One that cannot be paused must not keep the others running.
            match daemon.pause(which).await {
                Ok(_) => output::print_line(&which.to_string())?,
                Err(error) => exit = failure::report(&context.explain(which, error).await),
            }
        }
        Ok(exit)
    }
}
