//! `fleet`: a fleet on this machine, for trying out.

mod child;
mod dev;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::exit::Exit;

pub use child::{Child, VERB as CHILD_VERB};

/// Try out a fleet of bridges
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge fleet dev
  host-bridge fleet dev --nodes 5 --json

A real fleet is bridges that `host-bridge serve --fleet nats://ADDRESS` starts, one on each host; `host-bridge node`
shows its nodes.")]
pub struct Fleet {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Start NATS and some bridges here
    #[command(after_help = "Examples:
  host-bridge fleet dev
  host-bridge fleet dev --nodes 5 --json | jq -r '.nodes[0].address'

The bridges ask for no keys and listen on loopback. Each has directories of its own, which are removed at the end.
It needs the program nats-server, 2.11 or newer: on PATH, or where BURROW_NATS_SERVER says. ctrl-c or SIGTERM ends
it with all that it has started; so does its death.")]
    Dev(dev::Dev),
}

impl Fleet {
    pub async fn run(self) -> Result<Exit> {
        let What::Dev(dev) = self.what;
        dev.run().await
    }
}
