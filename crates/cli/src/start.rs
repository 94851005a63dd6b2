//! `start`: start a sandbox that keeps running and is owned by the daemon.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::command_line;
use super::context::Context;
use super::exit::Exit;
use super::output;
use super::sandbox_options::OwnedSandboxOptions;
use super::session::read_environment;
use super::values::parse_duration;
use agent_client::link::Address;
use machine::MachineKind;
use sandbox::{Durability, Name, OnIdle, OnLost, RecordPolicy, Spec, TemplateName, label};

/// Start a sandbox that keeps running
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge start --name work                        prints the name
  host-bridge start --name ci/job-7 --image ./rootfs --scratch 4G -e CI=1
  host-bridge start --memory 512 --cpus 0.5 --label team=a --label ci=
  host-bridge start --egress @pypi --egress '*.example.org'
  host-bridge start --pip pandas,matplotlib            installed once, for the host's Python
  host-bridge start --secret npm-token                 a secret from the configuration
  host-bridge start --workspace ./project              copied to /workspace and back
  host-bridge start --ttl 8h --idle 15m --keep 1d      stop by itself; remove a day later
  host-bridge start --template shop                    ready when its template says so
  host-bridge start --node-label zone=a                at a node of the fleet that has this label
  host-bridge start --name vm --machine external --address vsock:3:1024

On the process machine without --image, processes see the host's root file system read-only and write
to a layer of their own. The process machine shares the host's kernel: it does not protect against an
attack on the kernel.")]
pub struct Start {
    #[command(flatten)]
    sandbox: OwnedSandboxOptions,

    /// Set an environment variable for all programs; NAME alone passes the current value
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Read environment variables from a file, one per line; repeatable
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,

    /// Set the default working directory of programs (default: the workspace, the image's, or /sandbox)
    #[arg(short = 'w', long, visible_alias = "cwd", value_name = "DIR")]
    workdir: Option<String>,

    /// Set the default user: NAME, NAME:GROUP, UID or UID:GID (default: the image's user)
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,

    /// Start from a snapshot in the same namespace, with its image, memory and CPUs, instead of booting
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["image", "address"])]
    snapshot: Option<Name>,

    /// Make it of a template in the same namespace, and wait until its ready command says yes
    #[arg(long, value_name = "TEMPLATE", conflicts_with_all = ["image", "snapshot", "address", "pip", "npm"])]
    template: Option<TemplateName>,

    /// Set the address of an external machine's agent: unix:PATH, hybrid:PATH:PORT or vsock:CID:PORT
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Address>,

    /// Add a label; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = label::parse)]
    label: Vec<(String, String)>,

    /// Stop the sandbox after this time (default: never)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    ttl: Option<Duration>,

    /// Stop or pause the sandbox when nothing has run in it for this time (default: never)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    idle: Option<Duration>,

    /// Set what --idle does: stop, or until the next request pause, or snapshot to disk (default: stop)
    #[arg(long, value_name = "ACTION")]
    on_idle: Option<OnIdle>,

    /// Make it at a node of the fleet with this label: zone=a, or node=NAME; repeatable (default: any)
    #[arg(long, value_name = "KEY=VALUE", value_parser = label::parse)]
    node_label: Vec<(String, String)>,

    /// Set whether output outlives the host, in a fleet: off, async or sync (default: the configuration's)
    #[arg(long, value_name = "WHEN")]
    durability: Option<Durability>,

    /// Set what is recorded: off, on, or input to record what is typed too (default: the configuration's, on)
    #[arg(long, value_name = "WHAT")]
    record: Option<RecordPolicy>,

    /// Set what becomes of it when its node of a fleet is lost: lose, restart or restore (default: lose)
    #[arg(long, value_name = "ACTION")]
    on_lost: Option<OnLost>,

    /// Remove the sandbox this long after it stopped (default: never)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    keep: Option<Duration>,

    /// Remove the sandbox as soon as it stopped, as --keep 0 does
    #[arg(long, conflicts_with = "keep")]
    rm: bool,

    /// Print the whole record as JSON instead of the name
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    docker: command_line::DockerOptions,

    /// It is in the background anyway.
    #[arg(short, long, hide = true)]
    detach: bool,

    /// Refused with a hint what to write instead.
    #[arg(hide = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

impl Start {
    fn spec(&self) -> Result<Spec> {
        let mut spec = self.sandbox.spec()?;
        spec.env = read_environment(&self.env_file, &self.env)?;
        spec.workdir.clone_from(&self.workdir);
        spec.snapshot.clone_from(&self.snapshot);
        spec.template.clone_from(&self.template);
        spec.user.clone_from(&self.user);
        spec.address.clone_from(&self.address);
        if spec.address.is_some() && self.sandbox.machine().is_none() {
            spec.machine = Some(MachineKind::External);
        }
        spec.labels.extend(self.label.iter().cloned());
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        spec.ttl_ms = self.ttl.map(ms);
        spec.idle_ttl_ms = self.idle.map(ms);
        spec.on_idle = self.on_idle;
        spec.node_labels.extend(self.node_label.iter().cloned());
        spec.durability = self.durability;
        spec.record = self.record;
        spec.on_lost = self.on_lost;
        spec.keep_stopped_ms = if self.rm { Some(0) } else { self.keep.map(ms) };
        Ok(spec)
    }

    pub async fn run(&self, context: &Context) -> Result<Exit> {
        command_line::check_start(&self.words)?;
        self.docker.check()?;
        let mut spec = self.spec()?;
        self.sandbox.install_packages(context, &mut spec).await?;
        let record = context.daemon().await?.start(spec).await?;
        for warning in &record.warnings {
            output::note(&output::printable(warning));
        }
        if self.json {
            output::print_json(&record)?;
        } else {
            output::print_line(&record.which().to_string())?;
        }
        Ok(Exit::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        start: Start,
    }

    #[test]
    fn bounds_labels_and_times_are_taken_as_they_are_written() {
        let line = "start --memory 2G --cpus 0.5 --label team=a --label ci= --ttl 8h --idle 15m --on-idle pause";
        let Line { start } = Line::try_parse_from(line.split(' ')).expect("a good line");
        let spec = start.spec().expect("a good spec");
        assert_eq!((spec.memory_mib, spec.cpu_millis), (Some(2048), Some(500)));
        assert_eq!((spec.ttl_ms, spec.idle_ttl_ms), (Some(28_800_000), Some(900_000)));
        assert_eq!(spec.on_idle, Some(OnIdle::Pause));
        assert_eq!(spec.labels.len(), 2);
        assert_eq!(spec.keep_stopped_ms, None);
    }

    #[test]
    fn invalid_labels_and_numbers_are_refused() {
        for line in ["start --label x", "start --label -=a", "start --cpus x", "start --ttl 1y"] {
            assert!(Line::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
