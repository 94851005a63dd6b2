//! `mcp`: this process's input and output as a session of MCP, for the clients that start it.
//!
//! The daemon serves the session when there is one, and this only carries its lines; otherwise this
//! process does, with sandboxes that end with it. Nothing but the protocol goes to stdout.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use futures_util::StreamExt as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook_tokio::Signals;
use tokio::io::AsyncWriteExt;

use super::context::Context;
use super::exit::Exit;
use super::machine_kind::{self, KindParser};
use super::output;
use crate::servers::Servers;
use control::{Client, ClientError};
use machine::MachineKind;
use sandbox::Name;
use sandbox::Preset;

/// Serve MCP on stdin and stdout
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  claude mcp add burrow -- host-bridge mcp
  host-bridge mcp --namespace agents --machine qemu
  npx @modelcontextprotocol/inspector host-bridge mcp

An MCP client starts this command. If the daemon runs, the daemon owns the sandboxes and `host-bridge ps`
lists them; the session's own sandbox is removed at its end. Without the daemon all sandboxes belong to
this process and are removed when it ends.")]
pub struct Mcp {
    /// Set the namespace of the sandboxes (default: default)
    #[arg(long, value_name = "NAME")]
    namespace: Option<Name>,

    #[arg(long, value_name = "MACHINE", env = "BURROW_MACHINE", hide_env_values = true,
          help = machine_kind::help_started("the session's own sandbox"), value_parser = KindParser,
          hide_possible_values = true)]
    machine: Option<MachineKind>,

    /// Set the image of the session's own sandbox: a directory, or an image by its name
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,
}

impl Mcp {
    pub async fn run<S: Servers>(&self, context: &Context) -> Result<Exit> {
        let preset = self.preset()?;
        match context.daemon().await {
            Ok(daemon) => carry(daemon, preset).await,
            Err(error) if is_absent(&error) => embed::<S>(context, preset).await,
            Err(error) => Err(error),
        }
    }

    fn preset(&self) -> Result<Preset> {
        let image = match &self.image {
            // A name is no path.
            Some(image) if image.components().count() == 1 => Some(image.clone()),
            // The daemon has another working directory than we have.
            Some(image) => {
                let real = image.canonicalize();
                Some(real.with_context(|| format!("cannot read {}", image.display()))?)
            }
            None => None,
        };
        let image = image.map(|image| image.display().to_string());
        Ok(Preset { namespace: self.namespace.clone(), machine: self.machine, image })
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
        // The answers to what was asked last are still to come.
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
