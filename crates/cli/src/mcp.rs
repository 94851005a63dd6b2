//! `mcp`: this process's input and output as a session of MCP, for the clients that start it.
//!
//! The daemon serves the session when there is one, and this only carries its lines; otherwise this
//! process does, with sandboxes that end with it. Nothing but the protocol goes to stdout.

use anyhow::Result;
use clap::Args;
use futures_util::StreamExt as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook_tokio::Signals;
use tokio::io::AsyncWriteExt;

use super::context::Context;
use super::exit::Exit;
use super::output;
use super::sandbox_options::{HEADING, SandboxOptions};
use super::session::read_environment;
use crate::servers::Servers;
use control::{Client, ClientError};
use sandbox::Name;
use sandbox::Preset;

/// Serve MCP on stdin and stdout
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  claude mcp add burrow -- host-bridge mcp
  host-bridge mcp --namespace agents --machine qemu
  host-bridge mcp --egress @pypi --workspace ./project
  npx @modelcontextprotocol/inspector host-bridge mcp

An MCP client starts this command. If the daemon runs, the daemon owns the sandboxes and `host-bridge ps`
lists them; the session's own sandbox is removed at its end. Without the daemon all sandboxes belong to
this process and are removed when it ends.")]
pub struct Mcp {
    /// Set the namespace of the sandboxes (default: default)
    #[arg(long, value_name = "NAME")]
    namespace: Option<Name>,

    #[command(flatten)]
    sandbox: SandboxOptions,

    /// Set an environment variable for all programs; NAME alone passes the current value
    #[arg(short, long, value_name = "NAME=VALUE", help_heading = HEADING)]
    env: Vec<String>,

    /// Set the default working directory of programs (default: the workspace, the image's, or /sandbox)
    #[arg(short = 'w', long, visible_alias = "cwd", value_name = "DIR", help_heading = HEADING)]
    workdir: Option<String>,

    /// Set the default user: NAME, NAME:GROUP, UID or UID:GID (default: the image's user)
    #[arg(short, long, value_name = "USER", help_heading = HEADING)]
    user: Option<String>,
}

impl Mcp {
    pub async fn run<S: Servers>(&self, context: &Context) -> Result<Exit> {
        let preset = self.preset()?;
        match context.running().await {
            Ok(daemon) => carry(daemon, preset).await,
            Err(error) if is_absent(&error) => embed::<S>(context, preset).await,
            Err(error) => Err(error),
        }
    }

    fn preset(&self) -> Result<Preset> {
        let preset = self.sandbox.preset(self.namespace.clone())?;
        let env = read_environment(&[], &self.env)?;
        let (workdir, user) = (self.workdir.clone(), self.user.clone());
        Ok(Preset { env, workdir, user, ..preset })
    }
}

/// Whether the error only means that no daemon runs.
fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<ClientError>(), Some(ClientError::NotRunning { .. }))
}

/// Copies lines both ways until either end closes.
async fn carry(daemon: Client, preset: Preset) -> Result<Exit> {
    let (mut from_daemon, mut to_daemon) = daemon.mcp(preset).await?;
    let asking = async {
        let mut input = tokio::io::stdin();
        let copied = tokio::io::copy(&mut input, &mut to_daemon).await;
        // The answers to the last requests are still to come.
        let _ = to_daemon.shutdown().await;
        copied
    };
    let answering = async {
        let mut to_client = tokio::io::stdout();
        let copied = tokio::io::copy(&mut from_daemon, &mut to_client).await;
        to_client.flush().await.and(copied)
    };
    let mut is_asked = false;
    tokio::pin!(asking, answering);
    loop {
        tokio::select! {
            // A client that is gone is an end like any other.
            _ = &mut asking, if !is_asked => is_asked = true,
            _ = &mut answering => break,
        }
    }
    if is_asked {
        return Ok(Exit::SUCCESS);
    }
    output::note("the daemon ended the session");
    Ok(Exit::FAILED_ITSELF)
}

/// Serves the session here.
async fn embed<S: Servers>(context: &Context, preset: Preset) -> Result<Exit> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let interrupted = async { signals.next().await.map_or(Exit::SUCCESS, Exit::signalled) };
    let served = S::serve_tools(&context.paths, context.audit()?, preset, interrupted).await?;
    Ok(served.unwrap_or(Exit::SUCCESS))
}
