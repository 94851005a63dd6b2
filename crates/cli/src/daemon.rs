//! `daemon`: look at the daemon that owns the sandboxes, start it in the background, stop it.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;

use super::context::Context;
use super::exit::Exit;
use super::{background, output};
use control::{Client, ClientError, List, Version};
use host::paths::Paths;

/// Show, start or stop the daemon
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:
  host-bridge daemon status
  host-bridge daemon status --json | jq .pid
  host-bridge daemon stop
  host-bridge daemon stop --sandboxes

A verb that needs the daemon starts it, unless --no-daemon or BURROW_NO_DAEMON=1 forbids it. Such a daemon serves this user only, over its \
socket; `host-bridge serve` also serves the API, and takes over from it. It logs to daemon.log in the state directory, and ends by itself \
after ten minutes without a running sandbox (`server.idle_end`)."
)]
pub struct Daemon {
    #[command(subcommand)]
    verb: DaemonVerb,
}

#[derive(Debug, Subcommand)]
enum DaemonVerb {
    /// Show whether the daemon runs
    #[command(after_help = "Examples:
  host-bridge daemon status
  host-bridge daemon status --json | jq .sandboxes

The exit code is 0 if the daemon runs, and 1 if not.")]
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Start the daemon in the background
    #[command(after_help = "Examples:
  host-bridge daemon start
  host-bridge daemon start && host-bridge daemon status

Does nothing if it runs already.")]
    Start {},
    /// Stop the daemon
    #[command(after_help = "Examples:
  host-bridge daemon stop
  host-bridge daemon stop --sandboxes

Sandboxes keep running, and the next daemon takes them over.")]
    Stop {
        /// Stop all sandboxes too
        #[arg(long)]
        sandboxes: bool,
    },
}

/// No daemon runs.
const NOT_RUNNING: Exit = Exit(1);

impl Daemon {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let paths = &context.paths;
        match &self.verb {
            DaemonVerb::Status { json } => status(paths, *json).await,
            DaemonVerb::Start {} => {
                let version = background::reach(paths).await?.version().await?;
                output::print_line(&running(&version))?;
                Ok(Exit::SUCCESS)
            }
            DaemonVerb::Stop { sandboxes } => stop(paths, *sandboxes).await,
        }
    }
}

/// Connects to the daemon if one runs.
async fn connect(paths: &Paths) -> Result<Option<Client>> {
    match Client::connect(paths).await {
        Ok(client) => Ok(Some(client)),
        Err(ClientError::NotRunning { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn status(paths: &Paths, is_json: bool) -> Result<Exit> {
    let Some(mut client) = connect(paths).await? else {
        if is_json {
            output::print_json(&json!({ "running": false }))?;
        } else {
            output::print_line("no daemon is running")?;
        }
        return Ok(NOT_RUNNING);
    };
    let version = client.version().await?;
    let sandboxes = client.list(List::default()).await?.len();
    let log = version.unattended.then(|| paths.daemon_log());
    if is_json {
        output::print_json(&json!({
            "running": true,
            "pid": version.pid,
            "release": version.release,
            "unattended": version.unattended,
            "sandboxes": sandboxes,
            "socket": paths.control_socket(),
            "state": paths.state,
            "log": log,
        }))?;
        return Ok(Exit::SUCCESS);
    }
    output::print_line(&running(&version))?;
    output::print_line(&format!("sandboxes  {sandboxes} running"))?;
    output::print_line(&format!("socket     {}", paths.control_socket().display()))?;
    output::print_line(&format!("state      {}", paths.state.display()))?;
    if let Some(log) = log {
        output::print_line(&format!("log        {}", log.display()))?;
    }
    Ok(Exit::SUCCESS)
}

fn running(version: &Version) -> String {
    let how = if version.unattended { "started by itself" } else { "started by `serve`" };
    format!("daemon {}, process {}, {how}", version.release, version.pid)
}

async fn stop(paths: &Paths, stop_sandboxes: bool) -> Result<Exit> {
    let Some(mut client) = connect(paths).await? else {
        output::print_line("no daemon is running")?;
        return Ok(Exit::SUCCESS);
    };
    let sandboxes = if stop_sandboxes { 0 } else { client.list(List::default()).await?.len() };
    client.end(stop_sandboxes).await?;
    drop(client);
    background::wait_for_end(paths).await?;
    let left = match sandboxes {
        0 => String::new(),
        1 => "; 1 sandbox keeps running, and the next daemon takes it over".to_owned(),
        count => format!("; {count} sandboxes keep running, and the next daemon takes them over"),
    };
    output::print_line(&format!("stopped the daemon{left}"))?;
    Ok(Exit::SUCCESS)
}
