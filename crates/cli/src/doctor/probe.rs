//! Checks that must run in a separate process, because they change the process: entering
//! namespaces, and mounting in them. `doctor` runs this program again with a hidden verb for each.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::super::exit::Exit;
use super::super::output;

/// The hidden verb.
pub const VERB: &str = "__probe";

/// How long one probe may take: it is a few system calls.
const DEADLINE: Duration = Duration::from_secs(5);

/// Tries one feature. The exit code says whether it works, and stdout why not.
#[derive(Debug, Args)]
pub struct Probe {
    what: ProbeKind,
}

/// The feature to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProbeKind {
    /// A user namespace, with ourselves as its root.
    UserNamespace,
    /// The namespaces of a sandbox.
    Namespaces,
    /// An overlay over the host's root, in such namespaces.
    Overlay,
}

impl Probe {
    pub fn run(&self) -> Exit {
        match self.what.attempt() {
            Ok(()) => Exit::SUCCESS,
            Err(error) => {
                let _ = output::print(&format!("{error:#}"));
                Exit(1)
            }
        }
    }
}

impl ProbeKind {
    /// Tries it in a new process.
    pub async fn ask(self) -> Result<(), String> {
        let name = self.to_possible_value().map(|value| value.get_name().to_owned());
        let run = tokio::process::Command::new("/proc/self/exe")
            .arg(VERB)
            .args(name)
            .kill_on_drop(true)
            .output();
        match tokio::time::timeout(DEADLINE, run).await {
            Ok(Ok(output)) if output.status.success() => Ok(()),
            Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(Err(error)) => Err(format!("cannot run the probe: {error}")),
            Err(_) => Err("the probe did not end in time".to_owned()),
        }
    }

    fn attempt(self) -> Result<()> {
        match self {
            Self::UserNamespace => enter_user_namespace(),
            Self::Namespaces => enter_namespaces(),
            Self::Overlay => {
                enter_namespaces()?;
                mount_overlay()
            }
        }
    }
}

fn enter_user_namespace() -> Result<()> {
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    unshare(CloneFlags::CLONE_NEWUSER).context("unshare(CLONE_NEWUSER)")?;
    let write = |file: &str, line: &str| {
        std::fs::write(file, line).with_context(|| format!("writing {file}"))
    };
    write("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    // Without it the kernel refuses a map of groups to ordinary users.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/gid_map", &format!("0 {gid} 1"))
}

fn enter_namespaces() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        enter_user_namespace()?;
    }
    for (flag, name) in [
        (CloneFlags::CLONE_NEWNS, "mount"),
        (CloneFlags::CLONE_NEWPID, "PID"),
        (CloneFlags::CLONE_NEWUTS, "UTS"),
        (CloneFlags::CLONE_NEWIPC, "IPC"),
        (CloneFlags::CLONE_NEWNET, "network"),
    ] {
        unshare(flag).with_context(|| format!("a new {name} namespace"))?;
    }
    Ok(())
}

/// Mounts happen in a mount namespace that ends with this process, and are private to it.
fn mount_overlay() -> Result<()> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("making mounts private")?;
    let scratch = Path::new("/tmp");
    mount(Some("burrow"), scratch, Some("tmpfs"), MsFlags::empty(), none)
        .context("a tmpfs for the writable layer")?;
    for directory in ["upper", "work", "root"] {
        std::fs::create_dir(scratch.join(directory)).context("a directory on the tmpfs")?;
    }
    // An overlay in a user namespace needs userxattr, which is harmless for root.
    let options = "lowerdir=/,upperdir=/tmp/upper,workdir=/tmp/work,userxattr";
    mount(Some("overlay"), "/tmp/root", Some("overlay"), MsFlags::empty(), Some(options))
        .context("an overlay over /")?;
    std::fs::write("/tmp/root/burrow-probe", b"").context("a file on the overlay")
}
