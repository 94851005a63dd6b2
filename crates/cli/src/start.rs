//! `start`: a box that stays, owned by the daemon. Also what `run` and `start` ask of a box alike.

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

/// What a box is made of.
#[derive(Debug, Args)]
pub struct BoxArguments {
    /// Name the box: NAME or NAMESPACE/NAME (one is made up without)
    #[arg(long, value_name = "NAME")]
    name: Option<SandboxRef>,

    /// What its root is, read-only below its own writable layer: an image of `image ls`; a directory
    /// on the process machine (default: the host's), an image of the kit or a file on the others
    /// (default: full)
    #[arg(long, value_name = "IMAGE")]
    image: Option<PathBuf>,

    /// Whether to pull the image from its registry: never, missing (when it is not here) or always
    #[arg(long, value_name = "WHEN")]
    pull: Option<Pull>,

    #[arg(long, value_name = "MACHINE", env = "BURROW_MACHINE", hide_env_values = true,
          help = machine_kind::help(), value_parser = KindParser, hide_possible_values = true)]
    machine: Option<MachineKind>,

    /// Size of its writable layer, as in 512M or 4G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    scratch: Option<u64>,

    /// The most memory of all its processes together, in MiB or as in 2G
    #[arg(long, value_name = "MIB", value_parser = parse_memory_mib)]
    memory: Option<u64>,

    /// Its share of processors, as in 2 or 0.5
    #[arg(long, value_name = "N", value_parser = parse_cpu_millis)]
    cpus: Option<u32>,

    /// What it may reach: a host, *.HOST for all below it, HOST:PORT, public for all of the internet,
    /// or none; may be given several times (default: nothing; of `start`, what the daemon has set)
    #[arg(long, value_name = "HOST")]
    egress: Vec<String>,
    /// Give it a secret of the configuration, as a variable; may be given several times
    #[arg(long = "secret", value_name = "NAME")]
    secrets: Vec<String>,

    /// Give it a copy of a directory at /workspace, and bring changes back: a workspace of the
    /// configuration, or a path
    #[arg(long, value_name = "NAME|PATH")]
    workspace: Option<PathBuf>,

    /// The directory itself instead of a copy: what the box writes is there at once, and no limit
    /// holds (process and qemu machines; of a workspace of the configuration, the configuration says it)
    #[arg(long, requires = "workspace")]
    mount: bool,
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

/// Whether an image is meant by its name: what looks like a path is one, and so is what is there.
fn is_name(image: &Path, is_virtual: bool) -> bool {
    let mut components = image.components();
    let is_plain = matches!(components.next(), Some(Component::Normal(_)));
    // A name of the kit is no path, whatever lies about here.
    is_plain && ((is_virtual && components.next().is_none()) || !image.exists())
}

/// Whether a workspace is meant by its name: a directory is said with a slash or a dot.
fn is_workspace_name(name: &Path) -> bool {
    let mut components = name.components();
    matches!(components.next(), Some(Component::Normal(_)))
        && components.next().is_none()
        && !name.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// The daemon has another working directory than we have.
fn absolute(path: &Path) -> Result<String, CliError> {
    let failed = |source| CliError::Unreadable { path: path.to_path_buf(), source };
    let path = path.canonicalize().map_err(failed)?;
    Ok(path.display().to_string())
}

/// The same where no link may be on the way. One is left to the bridge to refuse.
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

/// Start a box that stays
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge serve &                                  the daemon, once
  host-bridge start --name work                        prints the box's name
  host-bridge start --name ci/job-7 --image ./rootfs --scratch 4G -e CI=1
  host-bridge start --memory 512 --cpus 0.5 --label team=a --label ci=
  host-bridge start --egress pypi.org --egress '*.pythonhosted.org'
  host-bridge start --secret npm-token                 a value that only the daemon knows
  host-bridge start --workspace ./project              a copy at /workspace; changes come back
  host-bridge start --ttl 8h --idle 15m --keep 1d      gone by itself, and forgotten a day later
  host-bridge start --name vm --machine external --address vsock:3:1024

Its processes see the host's own root file system read-only, and write to a layer of their own.
The process machine is no security boundary against a hostile kernel-level attacker.")]
pub struct Start {
    #[command(flatten)]
    sandbox: BoxArguments,

    /// Set an environment variable for everything in the box; NAME alone passes ours on
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Run programs as NAME, NAME:GROUP, UID or UID:GID that name no user (default: the image's)
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,

    /// Its host name (default: its name)
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,

    /// Go on from a snapshot of its namespace, instead of booting; image, memory and CPUs are that's
    #[arg(long, value_name = "SNAPSHOT", conflicts_with_all = ["image", "address"])]
    snapshot: Option<Name>,

    /// Where the agent of an external machine is: unix:PATH, hybrid:PATH:PORT or vsock:CID:PORT
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Address>,

    /// Write a label on it, to find it by; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = label::parse)]
    label: Vec<(String, String)>,

    /// Stop it after so long, whatever it is doing then
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    ttl: Option<Duration>,

    /// Stop it when nothing has run in it for so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    idle: Option<Duration>,

    /// Remove it when it has been over for so long (default: when you do)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    keep: Option<Duration>,

    /// Print the whole record as JSON
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
