//! Holds a sandbox to the memory and the processors that it was granted, by control groups.
//!
//! The supervisor is put into a group of its own before it is told what to become, so that all that
//! it starts is born there. The group is named `burrow-<id>` and made below the one in which the
//! bridge runs, in whichever version of control groups has the controller; `cgroup::remove` finds
//! and removes it. What no hierarchy here can hold is not held, and that is said: a sandbox without
//! its bound is worth more than none, as long as nobody takes it for bounded.

use std::error::Error as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cgroups_rs::cpu::CpuController;
use cgroups_rs::memory::MemController;
use cgroups_rs::{CgroupPid, Controller};

use crate::SandboxId;
use crate::limits::CPU_PERIOD_US;

/// What the names of all groups of sandboxes begin with; the agent's `launch` uses the same.
pub const PREFIX: &str = "burrow-";

/// What every group of a sandbox is called.
pub fn group_name(id: &SandboxId) -> String {
    format!("{PREFIX}{id}")
}

/// What a sandbox may use; all that there is when absent.
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

/// Why a bound is not held.
#[derive(Debug, thiserror::Error)]
enum Unheld {
    #[error("this host has no {controller} controller in its control groups")]
    NoController { controller: &'static str },
    #[error("could not {action} {path:?}: {source}")]
    Refused { action: &'static str, path: PathBuf, source: io::Error },
}

/// Puts the process, and with it all that it will start, under the bounds. Returns what of them is
/// not held, in words for whoever asked for it.
pub async fn hold(id: &SandboxId, pid: u32, bounds: Bounds) -> Vec<String> {
    if bounds == Bounds::default() {
        return Vec::new();
    }
    let name = group_name(id);
    // The kernel may take milliseconds to move a process.
    let held = tokio::task::spawn_blocking(move || hold_now(&name, pid, bounds));
    held.await.unwrap_or_else(|_| vec!["memory_mib and cpus are not enforced".to_owned()])
}

fn hold_now(name: &str, pid: u32, bounds: Bounds) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let find = |controller| {
        let parents = parents_of(&mounts, &memberships, controller);
        parents.into_iter().find(|parent| parent.offers(controller))
    };
    let asked_for = [
        ("memory_mib", bounds.memory_bytes.map(Bound::MemoryBytes)),
        ("cpus", bounds.cpu_millis.map(Bound::CpuMillis)),
    ];
    let mut warnings = Vec::new();
    for (field, bound) in asked_for {
        let Some(bound) = bound else { continue };
        let controller = bound.controller();
        let held = match find(controller) {
            Some(parent) => parent.bind(name, pid, bound),
            None => Err(Unheld::NoController { controller }),
        };
        if let Err(error) = held {
            warnings.push(format!("{field} is not enforced: {error}"));
        }
    }
    warnings
}

/// The controllers by which whole sandboxes can be bounded here, as far as that shows without making a
/// group.
pub fn holdable() -> Vec<&'static str> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
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
}

impl Bound {
    fn controller(self) -> &'static str {
        match self {
            Self::MemoryBytes(_) => "memory",
            Self::CpuMillis(_) => "cpu",
        }
    }
}

/// What the kernel answered. The crate wraps it in words of its own.
pub(super) fn answer(error: cgroups_rs::error::Error) -> io::Error {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let code = cause.and_then(io::Error::raw_os_error);
    code.map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error)
}

impl Parent {
    /// Whether groups below this one have the controller, after asking for it where that is needed.
    fn offers(&self, controller: &str) -> bool {
        match self.version {
            Version::One => self.path.is_dir(),
            Version::Two => {
                let switch = self.path.join("cgroup.subtree_control");
                let has = || {
                    let on = fs::read_to_string(&switch).unwrap_or_default();
                    on.split_ascii_whitespace().any(|name| name == controller)
                };
                // A group with processes of its own refuses, unless it is the hierarchy's top.
                has() || (fs::write(&switch, format!("+{controller}")).is_ok() && has())
            }
        }
    }

    fn is_writable(&self) -> bool {
        nix::unistd::access(&self.path, nix::unistd::AccessFlags::W_OK).is_ok()
    }

    /// Makes the group if it is not there yet, writes the bound and moves the process into the group.
    fn bind(&self, name: &str, pid: u32, bound: Bound) -> Result<(), Unheld> {
        let group = self.path.join(name);
        // `Controller::create` would make the missing directories above it too, and so leave plain
        // directories where a hierarchy is no longer mounted.
        match fs::create_dir(&group) {
            // It was made for another controller a moment ago.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(refused("make", group.clone()))?,
        }
        match bound {
            Bound::MemoryBytes(bytes) => self.bind_memory(&group, pid, bytes),
            Bound::CpuMillis(millis) => self.bind_cpu(&group, pid, millis),
        }
    }

    /// Grants no swap beside the memory: what a sandbox may have is what it was granted.
    fn bind_memory(&self, group: &Path, pid: u32, bytes: u64) -> Result<(), Unheld> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // Version 1 counts memory and swap together, so the same number grants no swap.
        let (file, swap_file, swap) = match self.version {
            Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes),
            Version::Two => ("memory.max", "memory.swap.max", 0),
        };
        let memory = MemController::new(group.to_owned(), self.version == Version::Two);
        write(group, file, memory.set_limit(bytes))?;
        // Kernels that do not account swap have no file for it; then there is none to bound.
        if group.join(swap_file).exists() {
            write(group, swap_file, memory.set_memswap_limit(swap))?;
        }
        enter(&memory, group, pid)
    }

    fn bind_cpu(&self, group: &Path, pid: u32, millis: u32) -> Result<(), Unheld> {
        // The crate takes zero for no bound at all; what the kernel finds too little, it refuses.
        let quota_us = (i64::from(millis) * CPU_PERIOD_US as i64 / 1000).max(1);
        let cpu = CpuController::new(group.to_owned(), self.version == Version::Two);
        let file = match self.version {
            Version::One => "cpu.cfs_quota_us",
            Version::Two => "cpu.max",
        };
        let set = cpu.set_cfs_quota_and_period(Some(quota_us), Some(CPU_PERIOD_US));
        write(group, file, set)?;
        enter(&cpu, group, pid)
    }
}

fn enter(controller: &impl Controller, group: &Path, pid: u32) -> Result<(), Unheld> {
    let members = group.join("cgroup.procs");
    let entered = controller.add_task_by_tgid(&CgroupPid::from(u64::from(pid)));
    entered.map_err(answer).map_err(refused("enter", members))
}

/// Names the file that a controller has written.
fn write(group: &Path, file: &str, written: cgroups_rs::error::Result<()>) -> Result<(), Unheld> {
    written.map_err(answer).map_err(refused("write", group.join(file)))
}

fn refused(action: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> Unheld {
    move |source| Unheld::Refused { action, path, source }
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
            // The bridge may have been put into a leaf, so that the group above can be shared out.
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

/// Where a group shows below a mount. In a container the mount may show the own group alone, and
/// the path be that of the host.
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
        fs::write(root.join("unit/cgroup.subtree_control"), "cpu memory\n").unwrap();
        assert!(parents[1].offers("memory") && !parents[0].path.join("x").exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_files_of_a_group_say_what_was_granted() {
        let root = std::env::temp_dir().join(format!("burrow-bound-{}", std::process::id()));
        for (version, files) in [
            (
                Version::Two,
                &[("memory.max", "1048576"), ("memory.swap.max", "0"), ("cpu.max", "5000 100000")]
                    [..],
            ),
            (
                Version::One,
                &[
                    ("memory.limit_in_bytes", "1048576"),
                    ("cpu.cfs_period_us", "100000"),
                    ("cpu.cfs_quota_us", "5000"),
                ],
            ),
        ] {
            fs::create_dir_all(&root).unwrap();
            // The kernel fills a new group with files; these are the ones that are looked at.
            fs::create_dir(root.join("g")).unwrap();
            if version == Version::Two {
                fs::write(root.join("g/cpu.max"), "max 100000\n").unwrap();
                fs::write(root.join("g/memory.swap.max"), "max\n").unwrap();
            }
            let parent = Parent { version, path: root.clone() };
            parent.bind("g", 7, Bound::MemoryBytes(1 << 20)).unwrap();
            parent.bind("g", 7, Bound::CpuMillis(50)).unwrap();
            for (file, text) in files.iter().chain(&[("cgroup.procs", "7")]) {
                assert_eq!(fs::read_to_string(root.join("g").join(file)).unwrap(), *text, "{file}");
            }
            assert!(!root.join("g/memory.memsw.limit_in_bytes").exists(), "it was made up");
            fs::remove_dir_all(&root).unwrap();
        }
    }

    #[test]
    fn what_is_not_held_is_said_with_its_reason() {
        let parent = Parent { version: Version::One, path: "/nowhere/at/all".into() };
        let error = parent.bind("g", 7, Bound::CpuMillis(1000)).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all/g"), "{error}");
        assert!(!parent.offers("cpu"));
    }
}
