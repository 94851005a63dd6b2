//! Holds a sandbox to the memory, the processors and the processes that it was granted, by control groups.
//!
//! The group is named `burrow-<id>`, in whichever version of control groups has the controller;
//! `cgroup::remove` finds and removes it. In version 2 it is made in a group that holds no process: the
//! bridge's own if that is the hierarchy's top, else the one above, beside the bridge. A process machine's
//! first process is started in it. In version 1 the supervisor is started by a thread that has entered the group
//! for that: to move a process, the kernel first waits until all processors have passed a quiet point, which takes
//! up to 18 ms. A thread that moves itself does not wait (since Linux 5.19). The monitors of virtual machines
//! are moved into it before they start anything, so that everything that they start is in the group. If no
//! hierarchy of this host can enforce a limit, the sandbox starts without it and reports that: a sandbox
//! without its limit is more useful than none, as long as nobody believes it to be limited.

use std::error::Error as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use cgroups_rs::cpu::CpuController;
use cgroups_rs::memory::MemController;
use cgroups_rs::pid::PidController;
use cgroups_rs::{CgroupPid, Controller, MaxValue};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::SandboxId;
use crate::limits::CPU_PERIOD_US;

/// The prefix of all sandboxes' groups; the agent's `launch` uses the same.
pub const PREFIX: &str = "burrow-";

/// The name of a sandbox's groups.
pub fn group_name(id: &SandboxId) -> String {
    format!("{PREFIX}{id}")
}

/// The controller of the number of processes.
const PROCESSES: &str = "pids";
/// The processes of a group.
const MEMBERS: &str = "cgroup.procs";
/// The threads of a group of version 1.
const THREADS: &str = "tasks";
/// The thread that starts a sandbox, as the kernel calls it.
const STARTER: &str = "starter";
/// The bridge's own group, where it must leave the one that it was started in.
const BRIDGE_LEAF: &str = "bridge";

/// What a sandbox may use; unlimited where absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub memory_bytes: Option<u64>,
    /// Thousandths of one processor.
    pub cpu_millis: Option<u32>,
}

/// One of the two versions of a controller's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A group below which groups can be made for a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parent {
    version: Version,
    path: PathBuf,
}

/// Why a limit is not enforced.
#[derive(Debug, thiserror::Error)]
enum NotEnforced {
    #[error("this host has no {controller} controller in its control groups")]
    NoController { controller: &'static str },
    #[error("could not {action} {path:?}: {source}")]
    Refused { action: &'static str, path: PathBuf, source: io::Error },
}

/// Which limits are enforced, and where.
#[derive(Debug, Default)]
pub struct Enforced {
    /// Limits that are not enforced, in words for the caller.
    pub warnings: Vec<String>,
    /// The group of version 2 in which a first process can be born.
    pub group: Option<PathBuf>,
    /// The groups of version 1 that the supervisor is started in, each with the field that it enforces.
    entered: Vec<(&'static str, PathBuf)>,
}

impl Enforced {
    /// Starts the supervisor of a sandbox, whose processes are born in its groups.
    pub async fn start(
        &mut self,
        start: impl FnOnce() -> io::Result<Child> + Send + 'static,
    ) -> io::Result<Child> {
        let (groups, runtime) = (std::mem::take(&mut self.entered), Handle::current());
        let (sender, started) = oneshot::channel();
        // A thread of its own, which ends with this: it is in the groups as long as it lives.
        thread::Builder::new().name(STARTER.to_owned()).spawn(move || {
            let _runtime = runtime.enter();
            let warnings: Vec<_> = groups.iter().filter_map(enter_by_thread).collect();
            let _ = sender.send((start().map(|child| Unclaimed(Some(child))), warnings));
        })?;
        let (child, warnings) = started.await.map_err(io::Error::other)?;
        self.warnings.extend(warnings);
        child.map(|mut child| child.0.take().expect("nobody else takes it"))
    }
}

/// A child on its way to who has asked for it. One whose start was given up is killed.
struct Unclaimed(Option<Child>);

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.start_kill();
        }
    }
}

/// Enters a group with this thread alone. Returns a warning if that is refused.
fn enter_by_thread((field, group): &(&'static str, PathBuf)) -> Option<String> {
    let threads = group.join(THREADS);
    let entered = fs::write(&threads, "0").map_err(refused("enter", threads));
    entered.err().map(|error| format!("{field} is not enforced: {error}"))
}

/// How processes come into a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// They are born in it.
    Born,
    /// The supervisor of this number is moved into it.
    Moved(u32),
}

/// Makes the groups of a sandbox, with its bounds.
pub async fn hold(
    id: &SandboxId,
    members: Members,
    bounds: Bounds,
    processes_max: u64,
) -> Enforced {
    if bounds == Bounds::default() && matches!(members, Members::Moved(_)) {
        return Enforced::default();
    }
    let name = group_name(id);
    // The kernel may take milliseconds to move a process.
    let held = tokio::task::spawn_blocking(move || hold_now(&name, members, bounds, processes_max));
    held.await.unwrap_or_else(|_| Enforced {
        warnings: vec!["memory_mib and cpus are not enforced".to_owned()],
        ..Enforced::default()
    })
}

/// Bounds a sandbox's processes by version 1: moves its first process into a group, and with it all that it
/// will start. The error is the reason in words.
pub(super) async fn hold_processes(
    id: &SandboxId,
    first: u32,
    processes_max: u64,
) -> Result<(), String> {
    let name = group_name(id);
    let held = tokio::task::spawn_blocking(move || {
        let (mounts, memberships) = (read("/proc/self/mounts"), read("/proc/self/cgroup"));
        let parents = parents_of(&mounts, &memberships, PROCESSES);
        let parent = parents
            .into_iter()
            .find(|parent| parent.version == Version::One && parent.offers(PROCESSES))
            .ok_or(NotEnforced::NoController { controller: PROCESSES })?;
        parent.bind(&name, Members::Moved(first), Bound::Processes(processes_max))
    });
    match held.await {
        Ok(held) => held.map_err(|error: NotEnforced| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn hold_now(name: &str, members: Members, bounds: Bounds, processes_max: u64) -> Enforced {
    let (mounts, memberships) = (read("/proc/self/mounts"), read("/proc/self/cgroup"));
    let find = |controller| {
        let parents = parents_of(&mounts, &memberships, controller);
        parents.into_iter().find(|parent| parent.offers(controller))
    };
    let asked_for = [
        ("memory_mib", bounds.memory_bytes.map(Bound::MemoryBytes)),
        ("cpus", bounds.cpu_millis.map(Bound::CpuMillis)),
    ];
    let mut held = Enforced::default();
    for (field, bound) in asked_for {
        let Some(bound) = bound else { continue };
        let controller = bound.controller();
        let bound = match find(controller) {
            Some(parent) => parent.bind(name, members, bound).map(|()| parent),
            None => Err(NotEnforced::NoController { controller }),
        };
        match bound {
            Ok(parent) if members == Members::Born && parent.version == Version::One => {
                held.entered.push((field, parent.path.join(name)));
            }
            Ok(_) => {}
            Err(error) => held.warnings.push(format!("{field} is not enforced: {error}")),
        }
    }
    if members == Members::Born
        && let Some(parent) = parent_to_be_born_below(&mounts, &memberships)
    {
        held.group = parent.make_group(name).ok();
        if held.group.is_some() && processes_max > 0 && parent.offers(PROCESSES) {
            // The kernel counts the users' processes as well, so this is not the only bound.
            let bound = parent.bind(name, members, Bound::Processes(processes_max));
            let warning = |error| format!("no control group bounds the processes: {error}");
            held.warnings.extend(bound.err().map(warning));
        }
    }
    held
}

/// The version 2 group below which a sandbox's first process can be started in a group of its own. If there is
/// none, the supervisor makes a group without controllers.
fn parent_to_be_born_below(mounts: &str, memberships: &str) -> Option<Parent> {
    let parents = parents_of(mounts, memberships, PROCESSES);
    parents.into_iter().find(|parent| {
        parent.version == Version::Two && parent.can_be_shared_out() && parent.is_writable()
    })
}

/// Leaves a group that was given to this bridge alone for a leaf of it, so that the group can be shared
/// out among sandboxes. systemd before 254 starts a service in the group itself.
pub fn make_room() {
    let (mounts, memberships) = (read("/proc/self/mounts"), read("/proc/self/cgroup"));
    let own = parents_of(&mounts, &memberships, "memory");
    let Some(own) = own.into_iter().find(|parent| parent.version == Version::Two) else { return };
    let alone = read(own.path.join(MEMBERS)).trim() == std::process::id().to_string();
    if own.is_top() || !alone || !is_delegated(&own.path) {
        return;
    }
    let leaf = own.path.join(BRIDGE_LEAF);
    if fs::create_dir(&leaf).is_ok() || leaf.is_dir() {
        fs::write(leaf.join(MEMBERS), "0").ok();
    }
}

/// Whether the host's administrator has delegated this group, as systemd marks it.
fn is_delegated(group: &Path) -> bool {
    let marked = |name| {
        let mut value = [0; 1];
        rustix::fs::getxattr(group, name, &mut value).is_ok() && value == *b"1"
    };
    marked("trusted.delegate") || marked("user.delegate")
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The controllers that can limit whole sandboxes here, as far as this can be known without making a group.
pub fn holdable() -> Vec<&'static str> {
    let (mounts, memberships) = (read("/proc/self/mounts"), read("/proc/self/cgroup"));
    let can = |controller: &&str| {
        let parents = parents_of(&mounts, &memberships, controller);
        parents.iter().any(|parent| parent.is_writable() && parent.offers(controller))
    };
    ["memory", "cpu"].into_iter().filter(can).collect()
}

/// One bound of a sandbox.
#[derive(Clone, Copy, Debug)]
enum Bound {
    MemoryBytes(u64),
    CpuMillis(u32),
    Processes(u64),
}

impl Bound {
    fn controller(self) -> &'static str {
        match self {
            Self::MemoryBytes(_) => "memory",
            Self::CpuMillis(_) => "cpu",
            Self::Processes(_) => PROCESSES,
        }
    }
}

/// The kernel's error. The crate wraps it in a message of its own.
pub(super) fn answer(error: cgroups_rs::error::Error) -> io::Error {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let code = cause.and_then(io::Error::raw_os_error);
    code.map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error)
}

impl Parent {
    /// Whether groups below this one have the controller, after enabling it if necessary.
    fn offers(&self, controller: &str) -> bool {
        match self.version {
            Version::One => self.path.is_dir(),
            Version::Two => {
                let has = |file| {
                    let listed = read(self.path.join(file));
                    listed.split_ascii_whitespace().any(|name| name == controller)
                };
                let switch = "cgroup.subtree_control";
                // To refuse one that is not there, the kernel takes a third of a millisecond.
                let enable = || {
                    has("cgroup.controllers")
                        && fs::write(self.path.join(switch), format!("+{controller}")).is_ok()
                };
                self.can_be_shared_out() && (has(switch) || (enable() && has(switch)))
            }
        }
    }

    /// Whether groups below this one can have both controllers and processes: only if this one has no
    /// process. With a process in it, the kernel still grants some controllers, but then no process can enter
    /// the groups below.
    fn can_be_shared_out(&self) -> bool {
        self.is_top()
            || (read(self.path.join("cgroup.type")).trim_end() == "domain"
                && read(self.path.join(MEMBERS)).is_empty())
    }

    /// Whether it is the top of its hierarchy, for which the rules for groups do not hold.
    fn is_top(&self) -> bool {
        self.path.join(MEMBERS).exists() && !self.path.join("cgroup.type").exists()
    }

    /// Whether groups can be made in it, and processes of this one's group moved there.
    fn is_writable(&self) -> bool {
        let write = nix::unistd::AccessFlags::W_OK;
        [self.path.clone(), self.path.join(MEMBERS)]
            .iter()
            .all(|path| nix::unistd::access(path, write).is_ok())
    }

    /// Makes the group of this name if it is not there yet.
    fn make_group(&self, name: &str) -> Result<PathBuf, NotEnforced> {
        let group = self.path.join(name);
        // `Controller::create` would make the missing directories above it too, and so leave plain
        // directories where a hierarchy is no longer mounted.
        match fs::create_dir(&group) {
            // It was made for another controller a moment ago.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(refused("make", group.clone()))?,
        }
        Ok(group)
    }

    /// Makes the group, writes the bound and moves the process into the group.
    fn bind(&self, name: &str, members: Members, bound: Bound) -> Result<(), NotEnforced> {
        let group = self.make_group(name)?;
        let moved = match members {
            Members::Born => None,
            Members::Moved(pid) => Some(pid),
        };
        match bound {
            Bound::MemoryBytes(bytes) => self.bind_memory(&group, moved, bytes),
            Bound::CpuMillis(millis) => self.bind_cpu(&group, moved, millis),
            Bound::Processes(max) => self.bind_processes(&group, moved, max),
        }
    }

    fn bind_processes(
        &self,
        group: &Path,
        moved: Option<u32>,
        max: u64,
    ) -> Result<(), NotEnforced> {
        let max = MaxValue::Value(i64::try_from(max).unwrap_or(i64::MAX));
        let pids = PidController::new(group.to_owned(), self.version == Version::Two);
        write(group, "pids.max", pids.set_pid_max(max))?;
        enter(&pids, group, moved)
    }

    /// Grants no swap beyond the memory: a sandbox may use exactly what it was granted.
    fn bind_memory(&self, group: &Path, moved: Option<u32>, bytes: u64) -> Result<(), NotEnforced> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // Version 1 counts memory and swap together, so the same number grants no swap.
        let (file, swap_file, swap) = match self.version {
            Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes),
            Version::Two => ("memory.max", "memory.swap.max", 0),
        };
        let memory = MemController::new(group.to_owned(), self.version == Version::Two);
        write(group, file, memory.set_limit(bytes))?;
        // Kernels that do not account swap have no file for it; then there is nothing to limit.
        if group.join(swap_file).exists() {
            write(group, swap_file, memory.set_memswap_limit(swap))?;
        }
        enter(&memory, group, moved)
    }

    fn bind_cpu(&self, group: &Path, moved: Option<u32>, millis: u32) -> Result<(), NotEnforced> {
        // The crate reads zero as no limit; the kernel refuses what it finds too little.
        let quota_us = (i64::from(millis) * CPU_PERIOD_US as i64 / 1000).max(1);
        let cpu = CpuController::new(group.to_owned(), self.version == Version::Two);
        let file = match self.version {
            Version::One => "cpu.cfs_quota_us",
            Version::Two => "cpu.max",
        };
        let set = cpu.set_cfs_quota_and_period(Some(quota_us), Some(CPU_PERIOD_US));
        write(group, file, set)?;
        enter(&cpu, group, moved)
    }
}

fn enter(
    controller: &impl Controller,
    group: &Path,
    moved: Option<u32>,
) -> Result<(), NotEnforced> {
    let Some(pid) = moved else { return Ok(()) };
    let members = group.join(MEMBERS);
    let entered = controller.add_task_by_tgid(&CgroupPid::from(u64::from(pid)));
    entered.map_err(answer).map_err(refused("enter", members))
}

/// Names the file that a controller has written.
fn write(
    group: &Path,
    file: &str,
    written: cgroups_rs::error::Result<()>,
) -> Result<(), NotEnforced> {
    written.map_err(answer).map_err(refused("write", group.join(file)))
}

fn refused(action: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> NotEnforced {
    move |source| NotEnforced::Refused { action, path, source }
}

/// The groups that may be tried as the parent for a controller, best first.
fn parents_of(mounts: &str, memberships: &str, controller: &str) -> Vec<Parent> {
    let mut parents = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
        let [_, point, kind, options] = fields[..] else { continue };
        let point = Path::new(point);
        if kind == "cgroup" && options.split(',').any(|option| option == controller) {
            let path = seen_from(point, own_path(memberships, Some(controller)));
            parents.insert(0, Parent { version: Version::One, path });
        } else if kind == "cgroup2" {
            let path = seen_from(point, own_path(memberships, None));
            // The bridge may have been put into a leaf, so that the group above can hold other
            // groups.
            let above = path.parent().filter(|above| above.starts_with(point)).map(Path::to_owned);
            parents.push(Parent { version: Version::Two, path });
            parents.extend(above.map(|path| Parent { version: Version::Two, path }));
        }
    }
    parents
}

/// The path of the bridge's own group in the hierarchy of a controller, or in that of version 2.
fn own_path<'a>(memberships: &'a str, controller: Option<&str>) -> Option<&'a str> {
    memberships.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let ours = match controller {
            Some(controller) => controllers.split(',').any(|name| name == controller),
            None => controllers.is_empty(),
        };
        ours.then_some(path)
    })
}

/// Where a group is visible below a mount. In a container the mount may show only the own group,
/// while the path is the host's.
fn seen_from(point: &Path, own: Option<&str>) -> PathBuf {
    let path = point.join(own.unwrap_or_default().trim_start_matches('/'));
    if path.is_dir() { path } else { point.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "cgroup /c/cpu cgroup rw,relatime,cpu 0 0\n\
                          cgroup /c/memory cgroup rw,memory 0 0\n\
                          cgroup2 /c/unified cgroup2 rw 0 0\n";

    #[test]
    fn version_1_is_taken_where_it_has_the_controller() {
        let memberships = "4:memory:/own\n1:cpu,cpuacct:/\n0::/\n";
        let memory = parents_of(MOUNTS, memberships, "memory");
        assert_eq!(memory[0], Parent { version: Version::One, path: "/c/memory".into() });
        assert_eq!(own_path(memberships, Some("memory")), Some("/own"));
        assert_eq!(own_path(memberships, Some("cpu")), Some("/"));
        assert_eq!(own_path(memberships, None), Some("/"));
        let other = parents_of(MOUNTS, memberships, "pids");
        assert!(other.iter().all(|parent| parent.version == Version::Two), "{other:?}");
    }

    #[test]
    fn a_bridge_in_a_leaf_shares_out_the_group_above() {
        let root = std::env::temp_dir().join(format!("burrow-bounds-{}", std::process::id()));
        fs::create_dir_all(root.join("unit/bridge")).unwrap();
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", root.display());
        let parents = parents_of(&mounts, "0::/unit/bridge\n", "memory");
        let paths: Vec<_> = parents.iter().map(|parent| parent.path.clone()).collect();
        assert_eq!(paths, [root.join("unit/bridge"), root.join("unit")]);
        for (file, text) in
            [("subtree_control", "cpu memory\n"), ("type", "domain\n"), ("procs", "")]
        {
            fs::write(root.join(format!("unit/cgroup.{file}")), text).unwrap();
        }
        assert!(parents[1].offers("memory") && !parents[0].path.join("x").exists());
        // With a process in it, the groups below could have none.
        fs::write(root.join("unit/cgroup.procs"), "7\n").unwrap();
        assert!(!parents[1].offers("memory"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_files_of_a_group_say_what_was_granted() {
        let root = std::env::temp_dir().join(format!("burrow-bound-{}", std::process::id()));
        for (version, files) in [
            (
                Version::Two,
                &[
                    ("memory.max", "1048576"),
                    ("memory.swap.max", "0"),
                    ("cpu.max", "5000 100000"),
                    ("pids.max", "64"),
                ][..],
            ),
            (
                Version::One,
                &[
                    ("memory.limit_in_bytes", "1048576"),
                    ("cpu.cfs_period_us", "100000"),
                    ("cpu.cfs_quota_us", "5000"),
                    ("pids.max", "64"),
                ],
            ),
        ] {
            fs::create_dir_all(&root).unwrap();
            // The kernel fills a new group with files; these are the ones that are read.
            fs::create_dir(root.join("g")).unwrap();
            if version == Version::Two {
                fs::write(root.join("g/cpu.max"), "max 100000\n").unwrap();
                fs::write(root.join("g/memory.swap.max"), "max\n").unwrap();
            }
            let parent = Parent { version, path: root.clone() };
            parent.bind("g", Members::Moved(7), Bound::MemoryBytes(1 << 20)).unwrap();
            parent.bind("g", Members::Moved(7), Bound::CpuMillis(50)).unwrap();
            parent.bind("g", Members::Moved(7), Bound::Processes(64)).unwrap();
            for (file, text) in files.iter().chain(&[("cgroup.procs", "7")]) {
                assert_eq!(fs::read_to_string(root.join("g").join(file)).unwrap(), *text, "{file}");
            }
            assert!(!root.join("g/memory.memsw.limit_in_bytes").exists(), "it was made up");
            fs::remove_dir_all(&root).unwrap();
        }
    }

    #[tokio::test]
    async fn a_supervisor_is_started_by_a_thread_that_has_entered_its_groups() {
        let group = std::env::temp_dir().join(format!("burrow-entered-{}", std::process::id()));
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join(THREADS), "").unwrap();
        let mut held = Enforced {
            entered: vec![("memory_mib", group.clone()), ("cpus", "/nowhere/at/all".into())],
            ..Enforced::default()
        };
        let threads = group.join(THREADS);
        let started = held.start(move || {
            assert_eq!(fs::read_to_string(threads).unwrap(), "0", "it is entered before");
            tokio::process::Command::new("true").spawn()
        });
        assert!(started.await.unwrap().wait().await.unwrap().success());
        let [warning] = &held.warnings[..] else { panic!("{:?}", held.warnings) };
        assert!(warning.starts_with("cpus is not enforced: could not enter"), "{warning}");
        let refused = held.start(|| Err(io::ErrorKind::NotFound.into())).await;
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(group).unwrap();
    }

    #[test]
    fn unenforced_limits_are_reported_with_a_reason() {
        let parent = Parent { version: Version::One, path: "/nowhere/at/all".into() };
        let error = parent.bind("g", Members::Moved(7), Bound::CpuMillis(1000)).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all/g"), "{error}");
        assert!(!parent.offers("cpu"));
    }
}
