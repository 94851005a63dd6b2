//! Control groups (version 2), one for each session and interpreter: with them the kernel knows its
//! processes, kills them at once, limits them and accounts for them.
//!
//! `ground` hands them out and `metrics` reads their files. The next group is made ahead, so that no start
//! waits for it. Without a usable hierarchy the agent works without groups, and reports why.
//!
//! Everything goes through descriptors of the group's directory, never through a path: in a sandbox
//! the agent alone has a writable view of the hierarchy, opened before the sandbox was closed.

mod account;
mod directory;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::unistd::Pid;

use crate::sys::mountinfo;
use account::field;
pub use account::{Account, parse_pressure};
pub use directory::Directory;

#[cfg(test)]
mod tests;

/// The leaf that the agent itself lives in: a group whose children have controllers may hold no
/// process of its own.
pub const AGENT_LEAF: &str = "agent";

/// The controllers that sessions are limited and measured by.
const CONTROLLERS_WANTED: [&str; 4] = ["cpu", "memory", "io", "pids"];

/// Groups that wait for their last process to be gone before they can be removed. More are given
/// up: they hold no process, or one that cannot be killed.
const RETIRED_MAX: usize = 1024;

/// Whether sessions have groups.
pub enum CgroupSupport {
    Available(Groups),
    Unavailable { reason: String },
}

/// Why there is no group.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("no cgroup2 file system is mounted")]
    NotMounted,
    #[error("the agent's own control group is not within what is mounted at {}", .0.display())]
    OutOfSight(PathBuf),
    #[error("{step} failed: {source}")]
    Failed { step: &'static str, source: io::Error },
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> CgroupError {
    move |source| CgroupError::Failed { step, source }
}

/// The groups of this agent.
pub struct Groups {
    root: Directory,
    /// The root was made for this agent, and nobody else lives in it.
    is_ours: bool,
    controllers: Vec<String>,
    /// Distinguishes the groups of this agent; a name is never used twice.
    next: u64,
    spare: Option<SessionGroup>,
    retired: Vec<SessionGroup>,
}

/// What a session may use. A limit without its controller fails the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLimits {
    pub memory_bytes: Option<u64>,
    pub pids: Option<u32>,
    /// Thousandths of one processor.
    pub cpu_millis: Option<u32>,
}

impl From<protocol::requests::GroupLimits> for GroupLimits {
    fn from(asked: protocol::requests::GroupLimits) -> Self {
        let narrow = |count: u64| count.min(u64::from(u32::MAX)) as u32;
        Self {
            memory_bytes: asked.memory_bytes,
            pids: asked.processes.map(narrow),
            cpu_millis: asked.cpu_millis.map(narrow),
        }
    }
}

impl CgroupSupport {
    /// Finds the hierarchy and moves the agent into a leaf of it; or takes the directory that `boot`
    /// has made, in whose leaf the agent is already.
    pub fn discover(made: Option<Directory>) -> Self {
        let groups = match made {
            Some(root) => Groups::below(root, true),
            None => own_directory().and_then(|path| {
                let root =
                    Directory::open(&path).map_err(failed("opening the agent's control group"))?;
                enter_leaf(&root)?;
                Groups::below(root, false)
            }),
        };
        match groups {
            Ok(groups) => Self::Available(groups),
            Err(error) => Self::Unavailable { reason: error.to_string() },
        }
    }
}

/// The directory of the group that this process is in.
pub fn own_directory() -> Result<PathBuf, CgroupError> {
    let read = |path: &'static str| std::fs::read(path).map_err(failed("reading /proc/self"));
    let mounts = mountinfo::parse(&read("/proc/self/mountinfo")?);
    own_path(&mounts, &String::from_utf8_lossy(&read("/proc/self/cgroup")?))
}

/// Where this process's group is to be seen, whether the hierarchy is the only one or stands beside
/// version 1.
fn own_path(mounts: &[mountinfo::Mount], memberships: &str) -> Result<PathBuf, CgroupError> {
    // The one line of version 2 is `0::/path`.
    let own = memberships.lines().find_map(|line| line.strip_prefix("0::"));
    let own = Path::new(own.ok_or(CgroupError::NotMounted)?);
    let mut candidates = mounts.iter().filter(|mount| mount.kind == "cgroup2").peekable();
    let first = candidates.peek().ok_or(CgroupError::NotMounted)?.point.clone();
    candidates
        .filter(|mount| !mount.read_only)
        .find_map(|mount| Some(mount.point.join(own.strip_prefix(&mount.root).ok()?)))
        .ok_or(CgroupError::OutOfSight(first))
}

/// A group whose children have controllers may hold no process, unless it is the hierarchy's top.
fn enter_leaf(root: &Directory) -> Result<(), CgroupError> {
    let at_top = !root.has("cgroup.type");
    if at_top {
        return Ok(());
    }
    if !root.has(AGENT_LEAF) {
        root.make(AGENT_LEAF).map_err(failed("making the agent's leaf"))?;
    }
    root.open_below(AGENT_LEAF)
        .and_then(|leaf| leaf.write("cgroup.procs", "0"))
        .map_err(failed("entering the agent's leaf"))
}

impl Groups {
    /// Hands the controllers down, and makes the first spare, which proves that groups can be made.
    fn below(root: Directory, is_ours: bool) -> Result<Self, CgroupError> {
        let controllers = hand_down(&root);
        let mut groups =
            Self { root, is_ours, controllers, next: 0, spare: None, retired: Vec::new() };
        groups.spare = Some(groups.create()?);
        Ok(groups)
    }

    /// The controllers that sessions have.
    pub fn controllers(&self) -> &[String] {
        &self.controllers
    }

    /// What the kernel accounts to the agent and all of its sessions together. A group that others
    /// have made may be theirs too, or even the whole machine's, and says nothing of the agent.
    pub fn account(&self) -> Account {
        if self.is_ours { Account::read(&self.root) } else { Account::default() }
    }

    /// A group for a new session: the spare if there is one.
    pub fn take(&mut self, limits: &GroupLimits) -> Result<SessionGroup, CgroupError> {
        let group = match self.spare.take() {
            Some(group) => group,
            None => self.create()?,
        };
        match group.limit(limits) {
            Ok(()) => Ok(group),
            Err(error) => {
                self.retire(group);
                Err(error)
            }
        }
    }

    /// Makes the next spare. Called while no start waits.
    pub fn refill(&mut self) {
        if self.spare.is_none() {
            // A failure shows at the next `take`, which can report it.
            self.spare = self.create().ok();
        }
    }

    /// Removes a group, now or, while a process of it still lives or dies, in a later [`sweep`].
    ///
    /// [`sweep`]: Self::sweep
    pub fn retire(&mut self, group: SessionGroup) {
        if self.root.remove(&group.name).is_err() && self.retired.len() < RETIRED_MAX {
            self.retired.push(group);
        }
    }

    /// Tries again to remove what could not be removed, and says how many are left.
    pub fn sweep(&mut self) -> usize {
        let root = &self.root;
        self.retired.retain(|group| root.remove(&group.name).is_err());
        self.retired.len()
    }

    /// Freezes or thaws every process of every group, groups of forgotten sessions included. Returns how many
    /// groups there are. If one fails, the others are still frozen or thawed.
    pub fn freeze(&self, frozen: bool) -> io::Result<u32> {
        let value = if frozen { "1" } else { "0" };
        let mut result = Ok(0);
        for name in self.own()? {
            let written =
                self.root.open_below(&name).and_then(|group| group.write("cgroup.freeze", value));
            result = match written {
                // A kernel that cannot freeze has frozen nothing.
                Err(error) if !frozen && error.kind() == io::ErrorKind::NotFound => result,
                written => written.and(result.map(|count| count + 1)),
            };
        }
        result
    }

    /// Whether every process of every group is frozen. A group that cannot be read counts as not frozen.
    pub fn are_frozen(&self) -> bool {
        let stands = |name: &String| {
            let events = self.root.open_below(name).and_then(|group| group.read("cgroup.events"));
            events.is_ok_and(|text| field(&text, "frozen") == Some(1))
        };
        self.own().is_ok_and(|names| names.iter().all(stands))
    }

    /// The names of this agent's groups, which nobody else removes while they are gone through.
    fn own(&self) -> io::Result<Vec<String>> {
        let prefix = own_prefix();
        let mut names = self.root.children()?;
        names.retain(|name| name.starts_with(&prefix));
        Ok(names)
    }

    fn create(&mut self) -> Result<SessionGroup, CgroupError> {
        // A predecessor of the same process id may have left directories with our names.
        for _ in 0..RETIRED_MAX {
            let name = format!("{}{}", own_prefix(), self.next);
            self.next += 1;
            match self.root.make(&name) {
                Ok(()) => {
                    let directory = self
                        .root
                        .open_below(&name)
                        .map_err(failed("opening a session's control group"))?;
                    return Ok(SessionGroup { name, directory });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("making a session's control group")(error)),
            }
        }
        Err(failed("making a session's control group")(io::ErrorKind::AlreadyExists.into()))
    }
}

/// How the names of this agent's groups begin: in the same directory may be those of others.
fn own_prefix() -> String {
    format!("session-{}-", std::process::id())
}

/// Gives the groups below `directory` the controllers that there are, and names those that it could.
/// One that version 1, or a stranger's process beside us, keeps from us is one that we do without.
pub fn hand_down(directory: &Directory) -> Vec<String> {
    let offered = directory.read("cgroup.controllers").unwrap_or_default();
    CONTROLLERS_WANTED
        .into_iter()
        .filter(|name| offered.split_whitespace().any(|known| known == *name))
        .filter(|name| directory.write("cgroup.subtree_control", &format!("+{name}")).is_ok())
        .map(str::to_owned)
        .collect()
}

impl Drop for Groups {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.take() {
            self.root.remove(&spare.name).ok();
        }
        self.sweep();
    }
}

/// The control group of one session.
#[derive(Debug)]
pub struct SessionGroup {
    name: String,
    directory: Directory,
}

impl SessionGroup {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Ends every process of the group and of groups below it, those that are being forked too.
    pub fn kill(&self) -> io::Result<()> {
        self.directory.write("cgroup.kill", "1")
    }

    /// Its processes. Groups that a program has made below it are reached by [`kill`] alone.
    ///
    /// [`kill`]: Self::kill
    pub fn pids(&self) -> io::Result<Vec<Pid>> {
        let text = self.directory.read("cgroup.procs")?;
        // A zero is a process of a namespace that we do not see.
        let pids = text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0);
        Ok(pids.map(Pid::from_raw).collect())
    }

    /// Whether a process lives in it or below it. What cannot be read counts as alive.
    pub fn is_populated(&self) -> bool {
        self.directory
            .read("cgroup.events")
            .map_or(true, |text| field(&text, "populated") != Some(0))
    }

    /// How many of its processes the kernel has killed because memory ran out; `None` without the memory
    /// controller.
    pub fn oom_kills(&self) -> Option<u64> {
        field(&self.read("memory.events").ok()?, "oom_kill")
    }

    /// The most memory that it has had at once.
    pub fn memory_bytes_peak(&self) -> Option<u64> {
        self.read("memory.peak").ok()?.trim().parse().ok()
    }

    /// What the kernel accounts to it.
    pub fn account(&self) -> Account {
        Account::read(&self.directory)
    }

    /// One of the group's files, such as `cpu.stat` or `memory.pressure`.
    pub fn read(&self, file: &str) -> io::Result<String> {
        self.directory.read(file)
    }

    fn limit(&self, limits: &GroupLimits) -> Result<(), CgroupError> {
        if let Some(bytes) = limits.memory_bytes {
            self.directory
                .write("memory.max", &bytes.to_string())
                .map_err(failed("limiting the session's memory"))?;
            // Without this the limit would only move pages to swap. Not every kernel has the file.
            self.directory.write("memory.swap.max", "0").ok();
        }
        if let Some(pids) = limits.pids {
            self.directory
                .write("pids.max", &pids.to_string())
                .map_err(failed("limiting the session's processes"))?;
        }
        if let Some(millis) = limits.cpu_millis {
            let quota_us = u64::from(millis) * CPU_PERIOD_US / 1_000;
            let value = format!("{} {CPU_PERIOD_US}", quota_us.max(CPU_QUOTA_US_MIN));
            self.directory
                .write("cpu.max", &value)
                .map_err(failed("limiting the session's processor time"))?;
        }
        Ok(())
    }
}

/// The kernel's default period of processor quotas.
const CPU_PERIOD_US: u64 = 100_000;
/// The least quota that the kernel accepts.
const CPU_QUOTA_US_MIN: u64 = 1_000;
