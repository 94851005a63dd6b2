//! `pause`: pause sandboxes and all their processes.

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use control::Request;
use sandbox::SandboxRef;

/// Pause sandboxes and all their processes
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge pause work
  host-bridge pause $(host-bridge ps -q)

A paused sandbox keeps its state, but nothing in it runs. `host-bridge resume` continues it and corrects
its clock. Its --ttl keeps counting; its --idle time does not. `host-bridge doctor` shows which machines
can pause.")]
pub struct Pause {
    /// The sandboxes: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "SANDBOX")]
    which: Vec<SandboxRef>,
}

impl Pause {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        context.for_each(&self.which, |sandbox| Request::Pause { sandbox }).await
    }
}
