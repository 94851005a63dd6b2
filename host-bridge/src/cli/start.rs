//! `start`: a box that stays, owned by the daemon. Also what `run` and `start` ask of a box alike.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use super::output;
use super::values::{parse_size, resolve_variable};
use crate::link::Address;
use crate::machine::MachineKind;
use crate::sandbox::{Name, SandboxRef, Spec};

/// What a box is made of.
#[derive(Debug, Args)]
pub struct BoxArguments {
    /// Name the box: NAME or NAMESPACE/NAME (one is made up without)
    #[arg(long, value_name = "NAME")]
    name: Option<SandboxRef>,

    /// The directory that is its root, read-only below its own writable layer (default: the host's)
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,

    /// What it runs on: process, or external for an agent that somebody else has started
    #[arg(long, value_name = "MACHINE")]
    machine: Option<MachineKind>,

    /// Size of its writable layer, as in 512M or 4G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    scratch: Option<u64>,
}

impl BoxArguments {
    pub fn spec(&self) -> Result<Spec> {
        let which = match &self.name {
            Some(which) => which.clone(),
            None => SandboxRef { namespace: Name::default_namespace(), name: Name::generate()? },
        };
        let mut spec = Spec::new(which);
        if let Some(machine) = self.machine {
            spec.machine = machine;
        }
        spec.image = self.image.as_ref().map(|image| absolute(image)).transpose()?;
        spec.scratch_bytes = self.scratch;
        Ok(spec)
    }
}

/// The daemon has another working directory than we have.
fn absolute(path: &std::path::Path) -> Result<String, CliError> {
    let failed = |source| CliError::Unreadable { path: path.to_path_buf(), source };
    let path = path.canonicalize().map_err(failed)?;
    Ok(path.display().to_string())
}

/// Start a box that stays
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge serve &                                  the daemon, once
  host-bridge start --name work                        prints the box's name
  host-bridge start --name ci/job-7 --image ./rootfs --scratch 4G -e CI=1
  host-bridge start --name vm --machine external --address vsock:3:1024

Its processes see the host's own root file system read-only, and write to a layer of their own.
The process machine is no security boundary against a hostile kernel-level attacker.")]
pub struct Start {
    #[command(flatten)]
    sandbox: BoxArguments,

    /// Set an environment variable for everything in the box; NAME alone passes ours on
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Its host name (default: its name)
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,

    /// Where the agent of an external machine is: unix:PATH, hybrid:PATH:PORT or vsock:CID:PORT
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Address>,

    /// Print the whole record as JSON
    #[arg(long)]
    json: bool,
}

impl Start {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let mut spec = self.sandbox.spec()?;
        for variable in &self.env {
            spec.env.extend(resolve_variable(variable, |name| std::env::var(name).ok())?);
        }
        spec.hostname.clone_from(&self.hostname);
        spec.address.clone_from(&self.address);
        if spec.address.is_some() && self.sandbox.machine.is_none() {
            spec.machine = MachineKind::External;
        }
        let record = context.daemon().await?.start(spec).await?;
        if self.json {
            output::print_json(&record)?;
        } else {
            output::print_line(&record.which().to_string())?;
        }
        Ok(Exit::SUCCESS)
    }
}
