//! A directory of the host, made visible in a sandbox of this machine. The sandbox cannot do it: it has no
//! name for the host's files. So the helper (`host::helper`) takes the directory along into the sandbox's
//! mount namespace (and into its user namespace first, where it has one), and ends there.
//!
//! [`Bind::make`] is the bridge's side. [`Bind::carry`] is the helper process, which has one thread and does
//! nothing else, because entering namespaces changes the whole process. [`Bind::lay`] does the same for a
//! process that stays where it is and shares its view with a virtual machine. The directory, its
//! subdirectories and the target are opened without following links, and once: anyone who can write there may
//! replace them meanwhile.

use std::ffi::OsString;
use std::fs::File;
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

use super::running::init_of;
use super::sealed::Sealed;
use crate::identity::parent_of;
use crate::limits::{BIND_DEADLINE, BIND_WORDS_MAX};
use crate::supervisor::Supervisor;
use host::agent::find_agent;
use host::helper::find_helper;

/// The hidden verb of the process that carries a directory over.
pub const VERB: &str = "__bind";

/// The verb of the agent that maps the owners of files.
const MAP_OWNERS: &str = "map-owners";

const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A directory of the host, and where it is visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    pub directory: PathBuf,
    /// The path in the sandbox: an existing directory.
    pub target: String,
    pub read_only: bool,
    /// Directories below it that may be written to although it is read-only.
    pub write: Vec<String>,
}

impl Bind {
    /// Makes the mount in a sandbox that runs nothing yet.
    pub(super) async fn make(&self, supervisor: &Supervisor) -> io::Result<()> {
        let init = init_of(supervisor).ok_or_else(|| io::Error::other("its agent is gone"))?;
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
        let message = String::from_utf8_lossy(&ended.stderr);
        let message: String = message.trim().chars().take(BIND_WORDS_MAX).collect();
        Err(io::Error::other(if message.is_empty() { ended.status.to_string() } else { message }))
    }

    /// Does it, for the process of this number whose parent is `supervisor`.
    pub fn carry(&self, init: u32, supervisor: u32) -> Result<(), BindError> {
        let pid = i32::try_from(init).ok().and_then(Pid::from_raw).ok_or(BindError::Gone)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| BindError::Gone)?;
        // The pid may have been another process's when it was opened; from here on it cannot be.
        let parent = parent_of(init);
        if parent != Some(supervisor) {
            return Err(BindError::Another { init, parent, supervisor });
        }
        let failed = |action| {
            move |errno: nix::errno::Errno| BindError::Call { action, source: errno.into() }
        };
        let has_own_users = namespace("self", "user") != namespace(&init.to_string(), "user");
        let users =
            if !has_own_users {
                None
            } else if nix::unistd::geteuid().is_root() {
                // Its mounts would be the host root's, and expose files to its users.
                let users = File::open(format!("/proc/{init}/ns/user"));
                Some(users.map_err(|source| BindError::Call {
                    action: "open the sandbox's users",
                    source,
                })?)
            } else {
                // An ordinary user's sandbox owns its mounts.
                setns(&process, CloneFlags::CLONE_NEWUSER)
                    .map_err(failed("enter the sandbox's user namespace"))?;
                None
            };
        keep_apart()?;
        let trees = self.take_along(users.as_ref())?;
        setns(&process, CloneFlags::CLONE_NEWNS)
            .map_err(failed("enter the sandbox's mount namespace"))?;
        self.put_down(&trees)
    }

    /// Makes the mounts for this single-threaded process and what it executes: nobody else ever sees them,
    /// and they end with it.
    pub(crate) fn lay(&self) -> Result<(), BindError> {
        keep_apart()?;
        self.put_down(&self.take_along(None)?)
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

    /// Detached copies of the mounts, already as they will be seen: with owners mapped for `users`, if those
    /// are not the host's.
    fn take_along(&self, users: Option<&File>) -> Result<Vec<OwnedFd>, BindError> {
        let mut copies = Vec::new();
        for (place, (path, directory)) in self.open()?.iter().enumerate() {
            let read_only = self.read_only || (place == 0 && !self.write.is_empty());
            let failed = |source| BindError::Directory { path: (*path).to_owned(), source };
            copies.push(sealed(directory, read_only, users).map_err(failed)?);
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

/// Copies one mount without the mounts inside it: nobody asked for what else the host has mounted there.
fn copy(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(directory, "", flags)
}

/// Makes a copy that has its flags before anybody sees it. Only an attached mount can be given flags, so it
/// is put over its own directory for that, in this process's namespace.
fn sealed(directory: &OwnedFd, read_only: bool, users: Option<&File>) -> io::Result<OwnedFd> {
    let mounted = copy(directory)?;
    put(&mounted, directory)?;
    seal(&mounted, read_only)?;
    let copy = copy(&mounted)?;
    if let Some(users) = users {
        map_owners(&copy, users)?;
    }
    Ok(copy)
}

/// Maps the owners of a copy's files to the users of a user namespace, each to the same number.
fn map_owners(copy: &OwnedFd, users: &File) -> io::Result<()> {
    let agent = find_agent().map_err(io::Error::other)?;
    let launch = Sealed::default().command(&agent)?;
    let mut command = launch.command.into_std();
    // No safe call does this; the agent has one, and this process has one thread.
    command.arg(MAP_OWNERS).env_clear();
    command.stdin(copy.try_clone()?).stdout(users.try_clone()?);
    let ended = command.stderr(Stdio::piped()).output()?;
    if ended.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&ended.stderr);
    Err(io::Error::other(format!(
        "its owners cannot be mapped to the sandbox's users: {}",
        why.trim()
    )))
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
    for (given, same) in [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        if has.contains(given) {
            flags |= same;
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
    #[error("the sandbox is gone: process {init} has the parent {parent:?}, not {supervisor}")]
    Another { init: u32, parent: Option<u32>, supervisor: u32 },
    #[error("could not {action}: {source}")]
    Call { action: &'static str, source: io::Error },
    #[error(
        "{path:?} cannot be mounted (it must be a directory, reached through no link): {source}"
    )]
    Directory { path: String, source: io::Error },
    #[error("could not mount at {place:?} of the sandbox: {source}")]
    Place { place: PathBuf, source: io::Error },
}
