//! `machine-config`: write the configuration drive of a machine that somebody else starts.

use std::io::{IsTerminal, Write, stdout};

use anyhow::{Result, ensure};
use clap::Args;
use protocol::ids::is_name;

use super::exit::Exit;
use super::values::{parse_size, resolve_variable};
use machine::drive::Drive;

/// Write a configuration drive for a machine
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge machine-config --hostname web -e CI=1 > drive.img
  host-bridge machine-config --hostname web --scratch-bytes 2G > drive.img

For a machine that you start yourself: attach the file as a read-only disk and name the disk on the
kernel command line, as in burrow.config=/dev/vdb. The agent reads its configuration from it. Then use
`host-bridge start --machine external --address hybrid:/path:1024`.")]
pub struct MachineConfig {
    /// Set the machine's host name
    #[arg(long, value_name = "NAME")]
    hostname: String,

    /// Set an environment variable for all programs; NAME alone passes the current value; repeatable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// Set the size of the writable layer, if it is in memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    scratch_bytes: u64,

    /// Hide this path from programs in the machine; repeatable
    #[arg(long, value_name = "PATH")]
    hide: Vec<String>,
}

impl MachineConfig {
    pub fn run(self) -> Result<Exit> {
        ensure!(is_name(&self.hostname, b"._-"), "{:?} is not a host name", self.hostname);
        ensure!(
            !stdout().is_terminal(),
            "stdout is a terminal, which cannot show a drive; redirect it to a file"
        );
        let Self { hostname, env, scratch_bytes, hide } = self;
        let mut variables = Vec::new();
        for variable in &env {
            variables.extend(resolve_variable(variable, |name| std::env::var(name).ok())?);
        }
        let drive = Drive { hostname, env: variables, scratch_bytes, hide }.encode()?;
        stdout().write_all(&drive)?;
        Ok(Exit::SUCCESS)
    }
}
