//! `sync`: copy workspace changes back to the host now.

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output;
use control::Request;
use sandbox::SandboxRef;
use workspace::Report;

/// Copy workspace changes back to the host
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge sync work
  host-bridge sync --json ci/job-7

Changes are also copied back when a program or a run ends, and before the sandbox stops. One line is
printed per path: + written, - deleted, ! changed on both sides, x refused.")]
pub struct Sync {
    /// Print the whole report as JSON
    #[arg(long)]
    json: bool,

    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: SandboxRef,
}

impl Sync {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let mut daemon = context.daemon().await?;
        let request = Request::Sync { sandbox: self.which.clone() };
        let report = match daemon.ask::<Report>(&request).await {
            Ok(report) => report,
            Err(error) => return Err(context.explain(&self.which, error).await),
        };
        if self.json {
            output::print_json(&report)?;
            return Ok(Exit::SUCCESS);
        }
        let line = |mark: &str, path: &str| {
            output::print_line(&output::printable(&format!("{mark} {path}")))
        };
        for path in &report.written {
            line("+", path)?;
        }
        for path in &report.deleted {
            line("-", path)?;
        }
        for conflict in &report.conflicts {
            line("!", &conflict.path)?;
        }
        for refused in &report.refused {
            line("x", &refused.path)?;
        }
        for warning in report.warnings() {
            output::note(&output::printable(&warning));
        }
        if report.untold > 0 {
            output::note(&format!("{} more", report.untold));
        }
        Ok(Exit::SUCCESS)
    }
}
