//! `version`: show the versions of this program, the protocol and the running daemon.

use anyhow::Result;
use clap::Args;
use protocol::hello::{VERSION_MAX, VERSION_MIN};
use serde_json::json;

use super::context::Context;
use super::exit::Exit;
use super::output;

/// Show the versions of program, protocol and daemon
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge version
  host-bridge version --json | jq -r .release")]
pub struct Version {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Version {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let release = env!("CARGO_PKG_VERSION");
        let daemon = match context.running().await {
            Ok(mut daemon) => daemon.version().await.ok(),
            Err(_) => None,
        };
        if self.json {
            output::print_json(&json!({
                "release": release,
                "protocol": { "min": VERSION_MIN, "max": VERSION_MAX },
                "daemon": daemon,
            }))?;
            return Ok(Exit::SUCCESS);
        }
        output::print_line(&format!(
            "host-bridge {release}, protocol {VERSION_MIN} to {VERSION_MAX}"
        ))?;
        let line = match daemon {
            Some(daemon) => format!("daemon {}, process {}", daemon.release, daemon.pid),
            None => "no daemon is running".to_owned(),
        };
        output::print_line(&line)?;
        Ok(Exit::SUCCESS)
    }
}
