//! Holds a sandbox to the memory and the processors that it was granted, by control groups.
//!
//! The supervisor is put into a group of its own before it is told what to become, so that all that
//! it starts is born there. The group is named `burrow-<id>` and made below the one in which the
//! bridge runs, in whichever version of control groups has the controller; `cgroup::remove` finds
//! and removes it. What no hierarchy here can hold is not held, and that is said: a sandbox without
//! its bound is worth more than none, as long as nobody takes it for bounded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::SandboxId;
use crate::limits::CPU_PERIOD_US;

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
    let name = super::cgroup::group_name(id);
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
    let memory = bounds.memory_bytes.map(memory_files);
    let cpu = bounds.cpu_millis.map(cpu_files);
    let asked_for = [
        ("memory_mib", "memory", memory.as_ref().map(<[Setting; 4]>::as_slice)),
        ("cpus", "cpu", cpu.as_ref().map(<[Setting; 3]>::as_slice)),
    ];
    let mut warnings = Vec::new();
    for (field, controller, files) in asked_for {
        let Some(files) = files else { continue };
        let held = match find(controller) {
            Some(parent) => parent.bind(name, pid, files),
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

/// A file of a group, the text for it, and whether a group may be without it.
struct Setting {
    version: Version,
    file: &'static str,
    text: String,
    /// Kernels that do not account swap have no file for it; then there is none to bound.
    optional: bool,
}

/// No swap beside the memory: what a sandbox may have is what it was granted.
fn memory_files(bytes: u64) -> [Setting; 4] {
    let setting = |version, file, text: u64, optional| Setting {
        version,
        file,
        text: text.to_string(),
        optional,
    };
    [
        setting(Version::Two, "memory.max", bytes, false),
        setting(Version::Two, "memory.swap.max", 0, true),
        setting(Version::One, "memory.limit_in_bytes", bytes, false),
        // Memory and swap together, so the same number grants no swap.
        setting(Version::One, "memory.memsw.limit_in_bytes", bytes, true),
    ]
}

fn cpu_files(millis: u32) -> [Setting; 3] {
    let quota_us = u64::from(millis) * CPU_PERIOD_US / 1000;
    let setting = |version, file, text| Setting { version, file, text, optional: false };
    [
        setting(Version::Two, "cpu.max", format!("{quota_us} {CPU_PERIOD_US}")),
        setting(Version::One, "cpu.cfs_period_us", CPU_PERIOD_US.to_string()),
        setting(Version::One, "cpu.cfs_quota_us", quota_us.to_string()),
    ]
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

    fn bind(&self, name: &str, pid: u32, settings: &[Setting]) -> Result<(), Unheld> {
        let group = self.path.join(name);
        let refused = |action, path: &Path| {
            let path = path.to_owned();
            move |source| Unheld::Refused { action, path, source }
        };
        match fs::create_dir(&group) {
            // It was made for another controller a moment ago.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(refused("make", &group))?,
        }
        for setting in settings.iter().filter(|setting| setting.version == self.version) {
            let file = group.join(setting.file);
            if !setting.optional || file.exists() {
                fs::write(&file, &setting.text).map_err(refused("write", &file))?;
            }
        }
        let members = group.join("cgroup.procs");
        fs::write(&members, pid.to_string()).map_err(refused("enter", &members))
    }
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
            (Version::Two, [("memory.max", "1048576"), ("cpu.max", "5000 100000")]),
            (Version::One, [("memory.limit_in_bytes", "1048576"), ("cpu.cfs_quota_us", "5000")]),
        ] {
            fs::create_dir_all(&root).unwrap();
            let parent = Parent { version, path: root.clone() };
            parent.bind("g", 7, &memory_files(1 << 20)).unwrap();
            parent.bind("g", 7, &cpu_files(50)).unwrap();
            for (file, text) in files.into_iter().chain([("cgroup.procs", "7")]) {
                assert_eq!(fs::read_to_string(root.join("g").join(file)).unwrap(), text, "{file}");
            }
            assert!(!root.join("g/memory.memsw.limit_in_bytes").exists(), "it was made up");
            fs::remove_dir_all(&root).unwrap();
        }
    }

    #[test]
    fn what_is_not_held_is_said_with_its_reason() {
        let parent = Parent { version: Version::One, path: "/nowhere/at/all".into() };
        let error = parent.bind("g", 7, &cpu_files(1000)).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all/g"), "{error}");
        assert!(!parent.offers("cpu"));
    }
}
