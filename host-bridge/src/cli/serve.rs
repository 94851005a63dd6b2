//! `serve`: the daemon, which owns the boxes that stay.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::output;
use crate::control::{self, ServeError, ServeOptions};

/// Run the daemon that owns the boxes that stay
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge serve &
  host-bridge serve --stop-boxes
  BURROW_RUNTIME_DIR=/tmp/b BURROW_STATE_DIR=/tmp/b-state host-bridge serve

It listens on control.sock in the runtime directory, for this user alone. When it ends, boxes go on
and the next daemon takes them over; with --stop-boxes they are stopped. ctrl-c or SIGTERM ends it
in order, a second one at once.")]
pub struct Serve {
    /// Stop all boxes at the end, instead of leaving them for the next daemon
    #[arg(long)]
    stop_boxes: bool,
}

impl Serve {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let options = ServeOptions {
            paths: context.paths.clone(),
            stop_sandboxes: self.stop_boxes,
            events: Arc::new(|event| output::note(&output::printable(&event.to_string()))),
        };
        match control::serve(options).await {
            Ok(()) => Ok(Exit::SUCCESS),
            Err(ServeError::Hurried) => Ok(Exit::signalled(nix::libc::SIGINT)),
            Err(error) => Err(error.into()),
        }
    }
}
