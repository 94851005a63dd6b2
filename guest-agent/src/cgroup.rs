//! Control groups (version 2), one for each session and interpreter: with them the kernel knows its
//! processes, kills them at once, limits them and accounts for them.
//!
//! `ground` hands them out and `metrics` reads their files. The next group is made ahead, so that no start
//! waits for it. If no controller has counters that cannot be reset, and nobody else can change a group, an
//! empty group is reused. Without a usable hierarchy the agent works without groups, and reports why.
//!
//! Everything goes through descriptors of the group's directory, never through a path: in a sandbox
//! the agent alone has a writable view of the hierarchy, opened before the sandbox was closed.

mod account;
mod directory;
mod older;

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::Pid;

use crate::sys::mountinfo;
use account::field;
pub use account::{Account, AccountFiles, parse_pressure};
pub use directory::Directory;
pub use older::OlderGroups;

#[cfg(test)]
mod tests;

/// The leaf that contains the agent itself: a group whose children have controllers may not contain
/// a process.
pub const AGENT_LEAF: &str = "agent";

/// The controllers that sessions are limited and measured by.
const CONTROLLERS_WANTED: [&str; 4] = ["cpu", "memory", "io", "pids"];

/// Groups that wait for their last process to end before they can be removed. Beyond this, groups
/// are abandoned: they contain no process, or one that cannot be killed.
const RETIRED_MAX: usize = 1024;

/// Empty groups that are kept for reuse: about as many as programs that end together.
const SPARES_MAX: usize = 16;

/// What there is of control groups.
pub struct CgroupSupport {
    /// Those of sessions, or why there are none.
    pub groups: Result<Groups, String>,
    /// What version 1 holds of the sandbox.
    pub older: OlderGroups,
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
    /// The root was made for this agent, and nobody else uses it.
    is_ours: bool,
    controllers: Vec<String>,
    /// Distinguishes the groups of this agent; a name is never used twice.
    next: u64,
    /// Empty groups for the next starts.
    spares: Vec<SessionGroup>,
    retired: Vec<SessionGroup>,
}

/// The limits of a session. A limit without its controller fails the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLimits {
    pub memory_bytes: Option<u64>,
    pub pids: Option<u32>,
    /// Thousandths of one processor.
    pub cpu_millis: Option<u32>,
}

impl From<protocol::requests::GroupLimits> for GroupLimits {
    fn from(limits: protocol::requests::GroupLimits) -> Self {
        let narrow = |count: u64| count.min(u64::from(u32::MAX)) as u32;
        Self {
            memory_bytes: limits.memory_bytes,
            pids: limits.processes.map(narrow),
            cpu_millis: limits.cpu_millis.map(narrow),
        }
    }
}

impl CgroupSupport {
    /// Finds the hierarchy and moves the agent into a leaf of it; or takes the directory that `boot`
    /// has made, in whose leaf the agent is already.
    pub fn discover(made: Option<Directory>, older: OlderGroups) -> Self {
        let groups = match made {
            Some(root) => Groups::below(root, true),
            None => own_directory().and_then(|path| {
                let root =
                    Directory::open(&path).map_err(failed("opening the agent's control group"))?;
                enter_leaf(&root)?;
                Groups::below(root, false)
            }),
        };
        Self { groups: groups.map_err(|error| error.to_string()), older }
    }
}

/// The directory of the group that this process is in.
pub fn own_directory() -> Result<PathBuf, CgroupError> {
    let read = |path: &'static str| std::fs::read(path).map_err(failed("reading /proc/self"));
    let mounts = mountinfo::parse(&read("/proc/self/mountinfo")?);
    own_path(&mounts, &String::from_utf8_lossy(&read("/proc/self/cgroup")?))
}

/// Where this process's group is visible, whether the hierarchy is the only one or stands beside
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

/// Where this process's group for a controller of version 1 is visible; `file` is one that only groups of this
/// controller have.
fn own_version_1(
    mounts: &[mountinfo::Mount],
    memberships: &str,
    controller: &str,
    file: &str,
) -> Option<PathBuf> {
    // A line is `4:memory:/path`; some controllers share a hierarchy.
    let own = memberships.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let is_its = fields.next()?.split(',').any(|name| name == controller);
        fields.next().filter(|_| is_its)
    })?;
    // Only the hierarchy of the controller has the group, whatever the name of its mount.
    mounts
        .iter()
        .filter(|mount| mount.kind == "cgroup")
        .filter_map(|mount| Some(mount.point.join(Path::new(own).strip_prefix(&mount.root).ok()?)))
        .find(|group| group.join(file).exists())
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
            Self { root, is_ours, controllers, next: 0, spares: Vec::new(), retired: Vec::new() };
        let first = groups.create()?;
        groups.spares.push(first);
        Ok(groups)
    }

    /// The controllers that sessions have.
    pub fn controllers(&self) -> &[String] {
        &self.controllers
    }

    /// The kernel's accounting for the agent and all of its sessions together. A group that others have made
    /// may contain other processes, or even the whole machine, and then says nothing about the agent.
    pub fn account_files(&self) -> Option<AccountFiles> {
        self.is_ours.then(|| AccountFiles::open(&self.root))
    }

    /// The memory limit of the whole sandbox, if it is less than the machine's memory.
    pub fn memory_limit(&self) -> Option<u64> {
        let newer = self.is_ours.then(|| self.root.read("memory.max").ok()).flatten();
        // `max` is no number.
        newer.and_then(|text| text.trim().parse().ok())
    }

    /// A group for a new session: the spare if there is one.
    pub fn take(&mut self, limits: &GroupLimits) -> Result<SessionGroup, CgroupError> {
        let group = match self.spares.pop() {
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
        if self.spares.is_empty() {
            // A failure shows at the next `take`, which can report it.
            let spare = self.create().ok();
            self.spares.extend(spare);
        }
    }

    /// Keeps a group for the next start or removes it, now or, while a process of it still lives or dies,
    /// in a later [`sweep`].
    ///
    /// [`sweep`]: Self::sweep
    pub fn retire(&mut self, mut group: SessionGroup) {
        if self.spares.len() < SPARES_MAX && group.renew() {
            self.spares.push(group);
        } else if self.root.remove(&group.name).is_err() && self.retired.len() < RETIRED_MAX {
            self.retired.push(group);
        }
    }

    /// Retries failed removals, and returns how many are left.
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

    /// The names of this agent's groups, which nobody else removes meanwhile.
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
                    let kind = match (self.controllers.as_slice(), self.is_ours) {
                        ([], true) => GroupKind::Renewable,
                        ([], false) => GroupKind::Bare,
                        _ => GroupKind::Controlled,
                    };
                    return Ok(SessionGroup {
                        name,
                        directory: Arc::new(directory),
                        kind,
                        cpu_us_before: 0,
                        files: None,
                        was_killed: Cell::new(false),
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("making a session's control group")(error)),
            }
        }
        Err(failed("making a session's control group")(io::ErrorKind::AlreadyExists.into()))
    }
}

/// The prefix of this agent's groups: the same directory may contain those of others.
fn own_prefix() -> String {
    format!("session-{}-", std::process::id())
}

/// All of a short file that stays open. A longer one comes in parts, which the kernel puts together.
pub fn read_again(file: &File) -> io::Result<String> {
    // Each sample reads a dozen files. Room from the allocator would be mapped and unmapped each time.
    let mut short = [0; SHORT_FILE_BYTES];
    let mut filled = file.read_at(&mut short, 0)?;
    let mut text = short[..filled].to_vec();
    // The kernel hands out a long file in parts of a page or more. What is shorter is all.
    while (SHORT_FILE_BYTES..FILE_BYTES_MAX).contains(&filled) {
        text.resize(filled + FILE_PART_BYTES, 0);
        let count = file.read_at(&mut text[filled..], filled as u64)?;
        filled += count;
        text.truncate(filled);
        if count == 0 {
            break;
        }
    }
    String::from_utf8(text).map_err(io::Error::other)
}

/// Room for any file of a group but a long list; `memory.stat` is the longest, with 800 to 1,700 bytes.
const SHORT_FILE_BYTES: usize = 2048;
/// How much of that is read at once.
const FILE_PART_BYTES: usize = 16 * 1024;
/// The longest that is read; `cgroup.procs` of a fork bomb is the longest.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Enables the available controllers for groups below `directory`, and returns the enabled ones. A controller
/// that version 1 has, or that another process beside us blocks, is not used. With such a process the kernel
/// would enable some, and then no group below could contain processes at all.
pub fn hand_down(directory: &Directory) -> Vec<String> {
    let at_top = !directory.has("cgroup.type");
    let is_empty = || directory.read("cgroup.procs").is_ok_and(|processes| processes.is_empty());
    if !at_top && !is_empty() {
        return Vec::new();
    }
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
        for spare in self.spares.drain(..) {
            self.root.remove(&spare.name).ok();
        }
        self.sweep();
    }
}

/// The control group of one session.
#[derive(Debug)]
pub struct SessionGroup {
    name: String,
    directory: Arc<Directory>,
    kind: GroupKind,
    /// The CPU time of its earlier users.
    cpu_us_before: u64,
    /// What is read for each of its users.
    files: Option<KeptFiles>,
    /// All its processes were killed at once. Linux 6.12 and later also kill processes that are born in such
    /// a group later, so it is not reused.
    was_killed: Cell<bool>,
}

/// Files of a group that stay open while it is used again and again.
#[derive(Debug)]
struct KeptFiles {
    events: File,
    processes: File,
    cpu: File,
}

/// The files of a group's directory, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupKind {
    /// It has controllers, whose counts the kernel does not set back.
    Controlled,
    /// It has none, and somebody else may make groups below it.
    Bare,
    /// It has none, and the agent alone can write to it.
    Renewable,
}

impl SessionGroup {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory, for a start that may outlast the group's use here.
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.clone()
    }

    /// Ends every process of the group and of groups below it, those that are being forked too.
    pub fn kill(&self) -> io::Result<()> {
        self.was_killed.set(true);
        self.directory.write("cgroup.kill", "1")
    }

    /// Its processes. Only [`kill`] reaches groups that a program has made below it.
    ///
    /// [`kill`]: Self::kill
    pub fn pids(&self) -> io::Result<Vec<Pid>> {
        let text = match &self.files {
            Some(files) => read_again(&files.processes)?,
            None => self.directory.read("cgroup.procs")?,
        };
        // A zero is a process of a namespace that we do not see.
        let pids = text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0);
        Ok(pids.map(Pid::from_raw).collect())
    }

    /// Whether a process lives in it or below it. What cannot be read counts as alive.
    pub fn is_populated(&self) -> bool {
        let text = match &self.files {
            Some(files) => read_again(&files.events),
            None => self.directory.read("cgroup.events"),
        };
        text.map_or(true, |text| field(&text, "populated") != Some(0))
    }

    /// How many of its processes the kernel has killed because memory ran out; `None` without the memory
    /// controller.
    pub fn oom_kills(&self) -> Option<u64> {
        field(&self.of_controllers("memory.events")?, "oom_kill")
    }

    /// The peak of its memory.
    pub fn memory_bytes_peak(&self) -> Option<u64> {
        self.of_controllers("memory.peak")?.trim().parse().ok()
    }

    /// A file that only a controller makes.
    fn of_controllers(&self, file: &str) -> Option<String> {
        if self.kind == GroupKind::Controlled { self.read(file).ok() } else { None }
    }

    /// Makes it as good as new for another user, if that can be.
    fn renew(&mut self) -> bool {
        if self.kind != GroupKind::Renewable || self.was_killed.get() {
            return false;
        }
        if self.files.is_none() {
            self.files = self.open_files().ok();
        }
        let Some(files) = self.files.as_ref().filter(|_| !self.is_populated()) else {
            return false;
        };
        let used = read_again(&files.cpu).ok().and_then(|text| field(&text, "usage_usec"));
        self.cpu_us_before = used.unwrap_or(0);
        used.is_some()
    }

    fn open_files(&self) -> io::Result<KeptFiles> {
        let open = |name| self.directory.open_to_read(name);
        let (events, processes) = (open("cgroup.events")?, open("cgroup.procs")?);
        Ok(KeptFiles { events, processes, cpu: open("cpu.stat")? })
    }

    /// The kernel's accounting for it.
    pub fn account(&self) -> Account {
        let mut account = AccountFiles::open(&self.directory).read();
        account.cpu_us = account.cpu_us.map(|us| us.saturating_sub(self.cpu_us_before));
        if self.cpu_us_before > 0 {
            // Only the sum is known of its earlier users.
            (account.user_us, account.system_us) = (None, None);
        }
        account
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
