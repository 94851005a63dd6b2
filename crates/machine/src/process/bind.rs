//! A directory of the host, made visible in a sandbox of this machine. The sandbox cannot do it: it has no
//! name for the host's files. So the helper (`host::helper`) takes the directory along into the sandbox's
//! mount namespace (and into its user namespace first, where it has one), and ends there.
//!
//! [`Bind::make`] is the bridge's side. [`Bind::carry`] is that process, which has one thread and is nothing
//! else: entering namespaces changes who does it. [`Bind::lay`] is the same for a process that stays where it
//! is, and gives what it sees to a virtual machine. The directory, what is below it and where it goes are looked
//! up through no link, and once: whoever writes in it may put another in the place meanwhile.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::identity::parent_of;
use crate::limits::{BIND_DEADLINE, BIND_WORDS_MAX};
use crate::supervisor::Supervisor;
use host::helper::find_helper;

/// The hidden verb of the process that carries a directory over.
pub const VERB: &str = "__bind";

const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// What is to be seen where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        let helper = find_helper().map_err(io::Error::other)?;
        let mut command = Command::new(helper.program());
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
        keep_apart()?;
        let trees = self.take_along()?;
        setns(&process, CloneFlags::CLONE_NEWNS)
            .map_err(failed("enter the sandbox's mount namespace"))?;
        self.put_down(&trees)
    }

    /// Does it for this process alone, which has one thread, and for what it becomes: nobody else ever sees
    /// these mounts, and they end with it.
    pub(crate) fn lay(&self) -> Result<(), BindError> {
        keep_apart()?;
        self.put_down(&self.take_along()?)
    }

    /// Whether all of its directories are there, before anything is started for them.
    pub fn check(&self) -> Result<(), BindError> {
        self.open().map(drop)
    }

    /// The directory, and those in it that may be written to.
    fn open(&self) -> Result<Vec<(&str, OwnedFd)>, BindError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat2(
            rustix::fs::CWD,
            &self.directory,
            flags,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS,
        );
        let mut directories = vec![(".", top.map_err(|errno| unusable(".", errno))?)];
        for path in &self.write {
            let top = &directories[0].1;
            let found = rustix::fs::openat2(top, path.as_str(), flags, Mode::empty(), INSIDE);
            directories.push((path, found.map_err(|errno| unusable(path, errno))?));
        }
        Ok(directories)
    }

    /// Copies of the mounts, which belong to no place and are as they are to be seen.
    fn take_along(&self) -> Result<Vec<OwnedFd>, BindError> {
        let mut copies = Vec::new();
        for (place, (path, directory)) in self.open()?.iter().enumerate() {
            let read_only = self.read_only || (place == 0 && !self.write.is_empty());
            let failed = |source| BindError::Directory { path: (*path).to_owned(), source };
            copies.push(sealed(directory, read_only).map_err(failed)?);
        }
        Ok(copies)
    }

    fn put_down(&self, trees: &[OwnedFd]) -> Result<(), BindError> {
        let target = Path::new(&self.target);
        let below = self.write.iter().map(|path| target.join(path));
        for (tree, place) in trees.iter().zip([target.to_owned()].into_iter().chain(below)) {
            attach(tree, &place).map_err(|source| BindError::Place { place, source })?;
        }
        Ok(())
    }
}

/// Mounts of our own, which no change of the host's reaches and which reaches none.
fn keep_apart() -> Result<(), BindError> {
    let failed =
        |action| move |errno: nix::errno::Errno| BindError::Call { action, source: errno.into() };
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed("make a mount namespace"))?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
        .map_err(failed("keep the mounts apart"))
}

fn unusable(path: &str, errno: rustix::io::Errno) -> BindError {
    BindError::Directory { path: path.to_owned(), source: errno.into() }
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

/// A copy that has its flags before anybody sees it. Only a mount that is somewhere can be given them, so
/// it is put over its own directory for that, in this process's namespace.
fn sealed(directory: &OwnedFd, read_only: bool) -> io::Result<OwnedFd> {
    let mounted = copy(directory)?;
    put(&mounted, directory)?;
    seal(&mounted, read_only)?;
    Ok(copy(&mounted)?)
}

fn put(tree: &OwnedFd, place: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree.as_fd(), "", place.as_fd(), "", flags)
}

/// Puts a copy at a place that is reached through no link.
fn attach(tree: &OwnedFd, place: &Path) -> io::Result<()> {
    let root =
        rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let inner = place.strip_prefix("/").unwrap_or(place);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let target =
        rustix::fs::openat2(&root, inner.as_os_str().as_bytes(), flags, Mode::empty(), INSIDE)?;
    Ok(put(tree, &target)?)
}

/// No set-id programs and no devices. The flags that the mount has already are kept, because in a user
/// namespace the kernel refuses to drop those that came from outside.
fn seal(mounted: &OwnedFd, read_only: bool) -> io::Result<()> {
    let place = PathBuf::from(format!("/proc/self/fd/{}", mounted.as_raw_fd()));
    let has = statvfs(&place)?.flags();
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
    Ok(mount(None::<&str>, &place, None::<&str>, flags, None::<&str>)?)
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
