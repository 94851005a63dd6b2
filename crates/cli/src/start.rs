//! `start`: start a sandbox that keeps running and is owned by the daemon. Also the options that
//! `run` and `start` share.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use super::machine_kind::{self, KindParser};
use super::output;
use super::values::{
    parse_cpu_millis, parse_duration, parse_memory_mib, parse_size, resolve_variable,
};
use agent_client::link::Address;
use image::Pull;
use machine::MachineKind;
use sandbox::{Name, SandboxRef, Spec, label};

/// The options of a new sandbox.
#[derive(Debug, Args)]
pub struct SandboxArguments {
    /// Name the sandbox: NAME or NAMESPACE/NAME (default: a generated name)
    #[arg(long, value_name = "NAME")]
    name: Option<SandboxRef>,

    /// Set the root file system, which is read-only below a writable layer: an image from `image ls`,
    /// or a directory on the process machine (default: the host's root), or an image of the kit or a
    /// file on the other machines (default: full)
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,

    /// When to pull the image from its registry: never, missing (if it is not stored here) or always
    /// (default: never; for `start`, the daemon's setting)
    #[arg(long, value_name = "WHEN")]
    pull: Option<Pull>,

    #[arg(long, value_name = "MACHINE", env = "BURROW_MACHINE", hide_env_values = true,
          help = machine_kind::help(), value_parser = KindParser, hide_possible_values = true)]
    machine: Option<MachineKind>,

    /// Set the size of the writable layer, as in 512M or 4G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    scratch: Option<u64>,

    /// Limit the memory of all processes together, in MiB or as in 2G
    #[arg(long, value_name = "MIB", value_parser = parse_memory_mib)]
    memory: Option<u64>,

    /// Limit the number of CPUs, as in 2 or 0.5
    #[arg(long, value_name = "N", value_parser = parse_cpu_millis)]
    cpus: Option<u32>,

    /// Allow connections to a host: HOST, *.HOST for its subdomains, HOST:PORT, public for the whole
    /// internet, or none; repeatable (default: none; for `start`, the daemon's setting)
    #[arg(long, value_name = "HOST")]
    egress: Vec<String>,

    /// Pass a configured secret as an environment variable; repeatable
    #[arg(long = "secret", value_name = "NAME")]
    secrets: Vec<String>,

    /// Copy a directory to /workspace and copy changes back: a configured workspace, or a path
    #[arg(long, value_name = "NAME|PATH")]
    workspace: Option<PathBuf>,

    /// Mount the directory instead of copying it: writes appear at once and no limit applies (process
    /// and qemu machines only; for a configured workspace, set it in the configuration)
    #[arg(long, requires = "workspace")]
    mount: bool,
}

impl SandboxArguments {
    pub fn spec(&self) -> Result<Spec> {
        let which = match &self.name {
            Some(which) => which.clone(),
            None => SandboxRef { namespace: Name::default_namespace(), name: Name::generate()? },
        };
        let mut spec = Spec::new(which);
        if let Some(machine) = self.machine {
            spec.machine = machine;
        }
        let is_virtual = spec.machine.is_virtual();
        spec.image = match &self.image {
            Some(image) if is_name(image, is_virtual) => Some(image.display().to_string()),
            image => image.as_deref().map(absolute).transpose()?,
        };
        spec.pull = self.pull;
        spec.scratch_bytes = self.scratch;
        spec.memory_mib = self.memory;
        spec.cpu_millis = self.cpus;
        spec.egress = (!self.egress.is_empty()).then(|| self.egress.clone());
        spec.secrets.clone_from(&self.secrets);
        spec.workspace = match &self.workspace {
            Some(name) if is_workspace_name(name) => Some(name.display().to_string()),
            path => path.as_deref().map(straight).transpose()?,
        };
        spec.mount = self.mount;
        Ok(spec)
    }
}

/// Whether an image is given by name: text that looks like a path, or exists as one, is a path.
fn is_name(image: &Path, is_virtual: bool) -> bool {
    let mut components = image.components();
    let is_plain = matches!(components.next(), Some(Component::Normal(_)));
    // A name of the kit is no path, whatever lies about here.
    is_plain && ((is_virtual && components.next().is_none()) || !image.exists())
}

/// Whether a workspace is given by name: a directory is written with a slash or a dot.
fn is_workspace_name(name: &Path) -> bool {
    let mut components = name.components();
    matches!(components.next(), Some(Component::Normal(_)))
        && components.next().is_none()
        && !name.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Makes a path absolute, since the daemon has another working directory.
fn absolute(path: &Path) -> Result<String, CliError> {
    let failed = |source| CliError::Unreadable { path: path.to_path_buf(), source };
    let path = path.canonicalize().map_err(failed)?;
    Ok(path.display().to_string())
}

/// The same for a path that must not contain links. A path with one is passed on for the bridge to refuse.
fn straight(path: &Path) -> Result<String, CliError> {
    let real = absolute(path)?;
    let failed = |source| CliError::Unreadable { path: path.to_path_buf(), source };
    let mut said = PathBuf::new();
    for component in std::path::absolute(path).map_err(failed)?.components() {
        match component {
            Component::ParentDir => drop(said.pop()),
            other => said.push(other),
        }
    }
    if said == Path::new(&real) { Ok(real) } else { Ok(said.display().to_string()) }
}

/// Start a sandbox that keeps running
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge serve &                                  start the daemon once
  host-bridge start --name work                        prints the name
  host-bridge start --name ci/job-7 --image ./rootfs --scratch 4G -e CI=1
  host-bridge start --memory 512 --cpus 0.5 --label team=a --label ci=
  host-bridge start --egress pypi.org --egress '*.pythonhosted.org'
  host-bridge start --secret npm-token                 a secret from the configuration
  host-bridge start --workspace ./project              copied to /workspace and back
  host-bridge start --ttl 8h --idle 15m --keep 1d      stop by itself; remove a day later
  host-bridge start --name vm --machine external --address vsock:3:1024

On the process machine without --image, processes see the host's root file system read-only and write
to a layer of their own. The process machine shares the host's kernel: it does not protect against an
attack on the kernel.")]
pub struct Start {
    #[command(flatten)]
    sandbox: SandboxArguments,

    /// Set an environment variable for all programs; NAME alone passes the current value
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Set the default user: NAME, NAME:GROUP, UID or UID:GID (default: the image's user)
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,

    /// Set the host name (default: the sandbox's name)
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,

    /// Start from a snapshot in the same namespace, with its image, memory and CPUs, instead of booting
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["image", "address"])]
    snapshot: Option<Name>,

    /// Set the address of an external machine's agent: unix:PATH, hybrid:PATH:PORT or vsock:CID:PORT
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Address>,

    /// Add a label; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = label::parse)]
    label: Vec<(String, String)>,

    /// Stop the sandbox after this time (default: never)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    ttl: Option<Duration>,

    /// Stop the sandbox when nothing has run in it for this time (default: never)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    idle: Option<Duration>,

    /// Remove the sandbox this long after it stopped (default: never)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    keep: Option<Duration>,

    /// Print the whole record as JSON instead of the name
    #[arg(long)]
    json: bool,
}

impl Start {
    fn spec(&self) -> Result<Spec> {
        let mut spec = self.sandbox.spec()?;
        for variable in &self.env {
            spec.env.extend(resolve_variable(variable, |name| std::env::var(name).ok())?);
        }
        spec.snapshot.clone_from(&self.snapshot);
        spec.hostname.clone_from(&self.hostname);
        spec.user.clone_from(&self.user);
        spec.address.clone_from(&self.address);
        if spec.address.is_some() && self.sandbox.machine.is_none() {
            spec.machine = MachineKind::External;
        }
        spec.labels.extend(self.label.iter().cloned());
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        spec.ttl_ms = self.ttl.map(ms);
        spec.idle_ttl_ms = self.idle.map(ms);
        spec.keep_stopped_ms = self.keep.map(ms);
        Ok(spec)
    }

    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let spec = self.spec()?;
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
        let line = "start --memory 2G --cpus 0.5 --label team=a --label ci= --ttl 8h --idle 15m";
        let Line { start } = Line::try_parse_from(line.split(' ')).expect("a good line");
        let spec = start.spec().expect("a good spec");
        assert_eq!((spec.memory_mib, spec.cpu_millis), (Some(2048), Some(500)));
        assert_eq!((spec.ttl_ms, spec.idle_ttl_ms), (Some(28_800_000), Some(900_000)));
        assert_eq!(spec.labels.len(), 2);
        assert_eq!(spec.keep_stopped_ms, None);
    }

    #[test]
    fn an_image_is_a_name_unless_it_looks_like_a_path_or_is_one() {
        for (image, machine, expected) in [
            ("alpine:3", "process", Some("alpine:3")),
            ("team/app@sha256:x", "process", Some("team/app@sha256:x")),
            ("src", "qemu", Some("src")),
            ("full", "qemu", Some("full")),
            ("./nowhere", "process", None),
            ("../nowhere", "qemu", None),
            ("/usr", "process", Some("/usr")),
        ] {
            let line = ["start", "--image", image, "--machine", machine];
            let Line { start } = Line::try_parse_from(line).expect("a good line");
            let found = start.spec().ok().and_then(|spec| spec.image);
            assert_eq!(found.as_deref(), expected, "{image}");
        }
    }

    #[test]
    fn what_is_no_label_or_number_is_refused() {
        for line in ["start --label x", "start --label -=a", "start --cpus x", "start --ttl 1y"] {
            assert!(Line::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
