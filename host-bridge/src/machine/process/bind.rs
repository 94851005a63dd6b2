//! A directory of the host, made visible in a sandbox of this machine. The sandbox cannot do it: it has no
//! name for the host's files. So a process of the bridge's own program takes the directory along into the
//! sandbox's mount namespace (and into its user namespace first, where it has one), and ends there.
//!
//! [`Bind::make`] is the bridge's side. [`Bind::carry`] is that process, which has one thread and is nothing
//! else: entering namespaces changes who does it. What is below the directory is looked up through no link,
//! and what is in the sandbox is looked up with the sandbox's root as the root.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::process::Command;

use crate::limits::{BIND_DEADLINE, BIND_WORDS_MAX};
use crate::machine::identity::parent_of;
use crate::machine::supervisor::Supervisor;

/// The hidden verb of the process that carries a directory over.
pub const VERB: &str = "__bind";

const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// What is to be seen where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    pub directory: PathBuf,
    /// Where it is in the sandbox: a directory that is there.
    pub target: String,
    pub read_only: bool,
    /// Directories below it that may be written to although it is read-only.
    pub write: Vec<String>,
}

impl Bind {
    /// Has it done for a sandbox that nothing runs in yet.
    pub(super) async fn make(&self, supervisor: &Supervisor) -> io::Result<()> {
        let init = supervisor.children().into_iter().next();
        let init = init.ok_or_else(|| io::Error::other("its agent is gone"))?;
        let mut command = Command::new("/proc/self/exe");
        command.env_clear().current_dir("/").arg(VERB);
        command.arg(init.pid.to_string()).arg(supervisor.identity().pid.to_string());
        command.arg(if self.read_only { "ro" } else { "rw" }).arg(&self.target);
        command.arg(&self.directory).args(&self.write);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let ended = tokio::time::timeout(BIND_DEADLINE, command.output()).await;
        let ended = ended.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if ended.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let said: String = said.trim().chars().take(BIND_WORDS_MAX).collect();
        Err(io::Error::other(if said.is_empty() { ended.status.to_string() } else { said }))
    }

    /// Does it, for the process of this number whose parent is `supervisor`.
    pub fn carry(&self, init: u32, supervisor: u32) -> Result<(), BindError> {
        let pid = i32::try_from(init).ok().and_then(Pid::from_raw).ok_or(BindError::Gone)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| BindError::Gone)?;
        // The number may have been another's when it was opened, and is not from here on.
        if parent_of(init) != Some(supervisor) {
            return Err(BindError::Gone);
        }
        let failed = |action| {
            move |errno: nix::errno::Errno| BindError::Call { action, source: errno.into() }
        };
        if namespace("self", "user") != namespace(&init.to_string(), "user") {
            setns(&process, CloneFlags::CLONE_NEWUSER)
                .map_err(failed("enter the sandbox's user namespace"))?;
        }
        // Mounts of our own, which no change of the host's reaches and which reaches none.
        unshare(CloneFlags::CLONE_NEWNS).map_err(failed("make a mount namespace"))?;
        let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
            .map_err(failed("keep the mounts apart"))?;
        let trees = self.take_along()?;
        setns(&process, CloneFlags::CLONE_NEWNS)
            .map_err(failed("enter the sandbox's mount namespace"))?;
        self.put_down(&trees)
    }

    /// Copies of the mounts, which belong to no place.
    fn take_along(&self) -> Result<Vec<OwnedFd>, BindError> {
        let opened = |path: &str, errno: rustix::io::Errno| BindError::Directory {
            path: path.to_owned(),
            source: errno.into(),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(&self.directory, flags, Mode::empty());
        let top = top.map_err(|errno| opened(".", errno))?;
        let mut trees = vec![copy(&top).map_err(|errno| opened(".", errno))?];
        for path in &self.write {
            let directory = rustix::fs::openat2(&top, path.as_str(), flags, Mode::empty(), INSIDE);
            let directory = directory.map_err(|errno| opened(path, errno))?;
            trees.push(copy(&directory).map_err(|errno| opened(path, errno))?);
        }
        Ok(trees)
    }

    fn put_down(&self, trees: &[OwnedFd]) -> Result<(), BindError> {
        let target = Path::new(&self.target);
        let places = [(target.to_owned(), self.read_only || !self.write.is_empty())]
            .into_iter()
            .chain(self.write.iter().map(|path| (target.join(path), self.read_only)));
        for (tree, (place, read_only)) in trees.iter().zip(places) {
            let failed = |source| BindError::Place { place: place.clone(), source };
            attach(tree, &place).map_err(failed)?;
            seal(&place, read_only).map_err(failed)?;
        }
        Ok(())
    }
}

fn namespace(process: &str, kind: &str) -> Option<OsString> {
    let link = std::fs::read_link(format!("/proc/{process}/ns/{kind}")).ok()?;
    Some(link.into_os_string())
}

/// One mount, without those that are within it: what else the host has mounted there was not asked for.
fn copy(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(directory, "", flags)
}

/// Puts a copy at a place that is reached through no link.
fn attach(tree: &OwnedFd, place: &Path) -> io::Result<()> {
    let root =
        rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let inner = place.strip_prefix("/").unwrap_or(place);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let target =
        rustix::fs::openat2(&root, inner.as_os_str().as_bytes(), flags, Mode::empty(), INSIDE)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree.as_fd(), "", target.as_fd(), "", flags)?)
}

/// No set-id programs and no devices. The flags that the mount has already are kept, because in a user
/// namespace the kernel refuses to drop those that came from outside.
fn seal(place: &Path, read_only: bool) -> io::Result<()> {
    let has = statvfs(place)?.flags();
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    for (given, kept) in [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        if has.contains(given) {
            flags |= kept;
        }
    }
    if read_only {
        flags |= MsFlags::MS_RDONLY;
    }
    Ok(mount(None::<&str>, place, None::<&str>, flags, None::<&str>)?)
}

/// Why a directory is not there.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("the sandbox is gone")]
    Gone,
    #[error("could not {action}: {source}")]
    Call { action: &'static str, source: io::Error },
    #[error(
        "{path:?} cannot be mounted (it must be a directory, reached through no link): {source}"
    )]
    Directory { path: String, source: io::Error },
    #[error("could not mount at {place:?} of the sandbox: {source}")]
    Place { place: PathBuf, source: io::Error },
}
