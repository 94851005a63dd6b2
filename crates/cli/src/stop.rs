//! `stop`: stop sandboxes.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::values::parse_duration;
use control::Request;
use sandbox::SandboxRef;

/// Stop sandboxes
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge stop work
  host-bridge stop --grace 30s work ci/job-7
  host-bridge stop $(host-bridge ps -q)

Sends SIGTERM to all processes, waits for --grace, then kills them. A stopped sandbox keeps its name and
logs until `host-bridge rm`.")]
pub struct Stop {
    /// Set how long processes may take to exit after SIGTERM (default: 3s)
    #[arg(long, visible_alias = "time", value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,

    /// The sandboxes: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "SANDBOX")]
    which: Vec<SandboxRef>,
}

impl Stop {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let grace_ms = self.grace.map(|grace| grace.as_millis() as u64);
        context.for_each(&self.which, |sandbox| Request::Stop { sandbox, grace_ms }).await
    }
}
