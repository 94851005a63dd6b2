//! `restart`: stop a sandbox, and start it again as it was asked for.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::values::{parse_duration, resolve_variable};
use super::{failure, output};
use control::Request;
use sandbox::{Record, SandboxRef};

/// Start sandboxes again with the same options
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge restart work
  host-bridge restart --grace 30s work ci/job-7
  host-bridge restart -e TOKEN work        a variable that it was started with

The sandbox is stopped, removed and started under the same name with the same options. Its files, sessions, contexts and logs are gone; a \
workspace is copied back first. Values of variables are not kept, so give each one again with -e. A sandbox that was started from a snapshot \
boots from its image.")]
pub struct Restart {
    /// Set how long processes may take to exit after SIGTERM (default: 3s)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,

    /// Set an environment variable again; NAME alone passes the current value
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// The sandboxes: NAME or NAMESPACE/NAME
    #[arg(required = true, value_name = "SANDBOX")]
    which: Vec<SandboxRef>,
}

impl Restart {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let mut env = Vec::new();
        for variable in &self.env {
            env.extend(resolve_variable(variable, |name| std::env::var(name).ok())?);
        }
        let mut daemon = context.daemon().await?;
        let mut exit = Exit::SUCCESS;
        for which in &self.which {
            let grace_ms = self.grace.map(|grace| grace.as_millis() as u64);
            let request = Request::Restart { sandbox: which.clone(), grace_ms, env: env.clone() };
            match daemon.ask::<Record>(&request).await {
                Ok(record) => {
                    for warning in &record.warnings {
                        output::note(&output::printable(warning));
                    }
                    output::print_line(&which.to_string())?;
                }
                Err(error) => exit = failure::report(&context.explain(which, error).await),
            }
        }
        Ok(exit)
    }
}
