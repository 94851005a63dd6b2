//! `machine-config`: the configuration drive of a machine that is started by somebody else.

use std::io::{IsTerminal, Write, stdout};

use anyhow::{Result, ensure};
use clap::Args;
use protocol::ids::is_name;

use super::exit::Exit;
use super::values::{parse_size, resolve_variable};
use machine::drive::Drive;

/// Write the configuration drive of a machine that you start yourself
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge machine-config --hostname web -e CI=1 > drive.img
  host-bridge machine-config --hostname web --scratch-bytes 2G > drive.img

Give the machine the file as a read-only disk and name that on its kernel command line:
burrow.config=/dev/vdb. Its agent then needs nobody to ask; reach it with
`host-bridge start --machine external --address hybrid:/path:1024`.")]
pub struct MachineConfig {
    /// The machine's name for itself
    #[arg(long, value_name = "NAME")]
    hostname: String,

    /// Set an environment variable for everything in the machine; NAME alone passes ours on
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// The size of what can be written, where that is in memory
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
    scratch_bytes: u64,

    /// A path that programs in the machine must not see
    #[arg(long, value_name = "PATH")]
    hide: Vec<String>,
}

impl MachineConfig {
    pub fn run(self) -> Result<Exit> {
        ensure!(is_name(&self.hostname, b"._-"), "{:?} is not a host name", self.hostname);
        ensure!(!stdout().is_terminal(), "a drive is no text; redirect it into a file");
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
