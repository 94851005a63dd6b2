//! Freezes the control group of a process machine: the kernel stops every process in it, the agent
//! included, so that a paused sandbox takes no processor time at all.
//!
//! The group is the one named `burrow-<id>` of version 2, wherever it was made: by `bounds`, or by the
//! supervisor. It is found by the first process, which is in it. A frozen process can be killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use tokio::time::{Instant, sleep};

use super::bounds::group_name;
use crate::SandboxId;
use crate::limits::{FREEZE_DEADLINE, FREEZE_LOOK_PAUSE};

/// The switch of a group.
const SWITCH: &str = "cgroup.freeze";
/// What the kernel says of a group.
const EVENTS: &str = "cgroup.events";

/// Why a sandbox cannot be frozen.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    #[error(
        "it has no control group of version 2 of its own, which is what the kernel freezes; \
         `host-bridge doctor` says what this host's control groups can do"
    )]
    NoGroup,
    #[error("this bridge may not write {}", .0.display())]
    Forbidden(PathBuf),
    #[error("could not write {}: {source}", path.display())]
    Refused { path: PathBuf, source: io::Error },
    #[error(
        "a process in it did not stop within {} s: it waits in the kernel",
        FREEZE_DEADLINE.as_secs()
    )]
    Slow,
}

/// The control group of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Freezer(PathBuf);

impl Freezer {
    /// Finds the group of a sandbox by one of its processes, and makes sure that it can be frozen.
    pub fn find(id: &SandboxId, first: Option<u32>) -> Result<Self, FreezeError> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let membership = first.map(|pid| text(&format!("/proc/{pid}/cgroup"))).unwrap_or_default();
        let group = find_group(&text("/proc/self/mounts"), &membership, &group_name(id));
        let switch = group.as_ref().map(|group| group.join(SWITCH)).filter(|path| path.exists());
        let (Some(group), Some(switch)) = (group, switch) else {
            return Err(FreezeError::NoGroup);
        };
        match access(&switch, AccessFlags::W_OK) {
            Ok(()) => Ok(Self(group)),
            Err(_) => Err(FreezeError::Forbidden(switch)),
        }
    }

    /// Freezes everything, and returns when all have stopped. If one does not, nothing is frozen.
    pub async fn freeze(&self) -> Result<(), FreezeError> {
        self.switch("1")?;
        let give_up_at = Instant::now() + FREEZE_DEADLINE;
        while !self.has_stopped() {
            if Instant::now() >= give_up_at {
                self.thaw()?;
                return Err(FreezeError::Slow);
            }
            sleep(FREEZE_LOOK_PAUSE).await;
        }
        Ok(())
    }

    pub fn thaw(&self) -> Result<(), FreezeError> {
        self.switch("0")
    }

    /// Whether it is frozen, or is on the way there.
    pub fn is_frozen(&self) -> bool {
        fs::read_to_string(self.0.join(SWITCH)).is_ok_and(|text| text.trim() == "1")
    }

    fn has_stopped(&self) -> bool {
        let events = fs::read_to_string(self.0.join(EVENTS)).unwrap_or_default();
        events.lines().any(|line| line == "frozen 1")
    }

    fn switch(&self, value: &str) -> Result<(), FreezeError> {
        let path = self.0.join(SWITCH);
        fs::write(&path, value).map_err(|source| FreezeError::Refused { path, source })
    }
}

/// The group of this name that a process is in or below, at a mount of version 2.
fn find_group(mounts: &str, membership: &str, name: &str) -> Option<PathBuf> {
    let own = membership.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut within = PathBuf::new();
    for part in Path::new(own) {
        within.push(part);
        if part == name {
            return unified(mounts).map(|mount| mount.join(&within)).find(|group| group.is_dir());
        }
    }
    None
}

fn unified(mounts: &str) -> impl Iterator<Item = &Path> {
    mounts.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| Path::new(point))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_by_a_process_that_is_below_it() {
        let root = std::env::temp_dir().join(format!("burrow-freezer-{}", std::process::id()));
        fs::create_dir_all(root.join("unit/burrow-0123456789ab/agent")).unwrap();
        let mounts =
            format!("cgroup /c cgroup rw,freezer 0 0\ncgroup2 {} cgroup2 rw 0 0\n", root.display());
        let membership = "7:freezer:/\n0::/unit/burrow-0123456789ab/agent\n";
        let found = find_group(&mounts, membership, "burrow-0123456789ab");
        assert_eq!(found, Some(root.join("unit/burrow-0123456789ab")));
        assert_eq!(find_group(&mounts, membership, "burrow-ffffffffffff"), None);
        assert_eq!(find_group("", membership, "burrow-0123456789ab"), None);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_sandbox_without_a_group_says_what_it_lacks() {
        let id = "0123456789ab".parse().unwrap();
        let own = std::process::id();
        for first in [None, Some(own)] {
            let error = Freezer::find(&id, first).unwrap_err();
            assert!(error.to_string().contains("version 2"), "{error}");
        }
    }
}
