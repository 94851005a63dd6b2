//! Removes the control groups of a machine: those that `bounds` made, and the one that a supervisor
//! could not remove itself.
//!
//! A supervisor that ends in order removes its own group. One that was killed leaves it behind. Both are
//! named `burrow-<id>` and lie somewhere below the bridge's own group, so they are searched by name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cgroups_rs::Controller;
use cgroups_rs::memory::MemController;

use super::bounds;
use crate::SandboxId;
use crate::limits::{CGROUP_DIRECTORIES_MAX, CGROUP_REMOVAL_DEADLINE};

/// Finds and removes the remaining groups of `id`. A group that cannot be removed is left: an empty
/// one costs a few kilobytes of kernel memory and disturbs nothing.
pub async fn remove(id: &SandboxId) {
    let name = bounds::group_name(id);
    // A host may have thousands of groups, the kernel may still be emptying ours, and this thread is shared.
    let removed = tokio::task::spawn_blocking(move || {
        let deadline = Instant::now() + CGROUP_REMOVAL_DEADLINE;
        for group in hierarchies().iter().flat_map(|root| find(root, &name)) {
            // The agent died with its supervisor, and with the agent its namespace; this is for the
            // moment in which that is still going on. Only version 2 has the file.
            let kill = group.join("cgroup.kill");
            if kill.exists() {
                let _ = fs::write(kill, "1");
            }
            remove_tree(&group, deadline);
        }
    });
    let _ = removed.await;
}

/// Removes a group with those below it. Files of a group cannot be removed and go with it.
fn remove_tree(group: &Path, deadline: Instant) {
    // Removal is the same for every controller and in both versions; it pauses between its tries.
    let group = MemController::new(group.to_owned(), false);
    let is_busy = |error| bounds::answer(error).kind() == io::ErrorKind::ResourceBusy;
    while group.delete().is_err_and(is_busy) && Instant::now() < deadline {}
}

/// The controllers of version 1 that sandboxes are bounded by.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// Where the control-group hierarchies are mounted that may contain a sandbox's group.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    parse_hierarchies(&mounts)
}

fn parse_hierarchies(mounts: &str) -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
        let [_, point, kind, options] = fields[..] else { continue };
        let has_ours = || options.split(',').any(|option| CONTROLLERS.contains(&option));
        if kind == "cgroup2" || (kind == "cgroup" && has_ours()) {
            roots.push(PathBuf::from(point));
        }
    }
    roots
}

/// The directories called `name` below `root`, breadth first, as far as the bound reaches.
fn find(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = std::collections::VecDeque::from([root.to_owned()]);
    let mut looked_at = 0;
    while let Some(directory) = waiting.pop_front() {
        looked_at += 1;
        if looked_at > CGROUP_DIRECTORIES_MAX {
            break;
        }
        for child in subdirectories(&directory) {
            if child.ends_with(name) {
                found.push(child);
            } else if !is_of_a_sandbox(&child) {
                waiting.push_back(child);
            }
        }
    }
    found
}

/// Whether it is some sandbox's group. There are none of another sandbox below it.
fn is_of_a_sandbox(group: &Path) -> bool {
    group
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(bounds::PREFIX.as_bytes()))
}

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_of_the_hierarchy_are_found() {
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(parse_hierarchies(unified), [PathBuf::from("/sys/fs/cgroup")]);
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0\n\
                      cgroup /sys/fs/cgroup/pids cgroup rw,relatime,pids 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"]
            .map(PathBuf::from);
        assert_eq!(parse_hierarchies(hybrid), found);
    }

    #[test]
    fn a_group_is_found_by_its_name_and_removed_with_those_below_it() {
        let root = std::env::temp_dir().join(format!("burrow-groups-{}", std::process::id()));
        fs::create_dir_all(root.join("user/burrow-0123456789ab/session-1")).unwrap();
        fs::create_dir_all(root.join("user/burrow-ffffffffffff")).unwrap();
        let found = find(&root, "burrow-0123456789ab");
        assert_eq!(found, [root.join("user/burrow-0123456789ab")]);
        remove_tree(&found[0], Instant::now());
        assert!(find(&root, "burrow-0123456789ab").is_empty());
        assert_eq!(find(&root, "burrow-ffffffffffff").len(), 1);
        fs::remove_dir_all(root).unwrap();
    }
}
