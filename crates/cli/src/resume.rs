//! `resume`: continue paused sandboxes.

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use control::Request;
use sandbox::SandboxRef;

/// Resume paused sandboxes
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge resume work
  host-bridge resume ci/job-7 ci/job-8")]
pub struct Resume {
    /// The sandboxes: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "SANDBOX")]
    which: Vec<SandboxRef>,
}

impl Resume {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        context.for_each(&self.which, |sandbox| Request::Resume { sandbox }).await
    }
}
