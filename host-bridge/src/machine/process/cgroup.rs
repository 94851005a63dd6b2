//! Removes the control groups of a machine whose supervisor could not do it itself.
//!
//! A supervisor that ends in order removes its group. One that was killed leaves it behind, named
//! `burrow-<id>` somewhere below the group in which its bridge ran; so it is looked for by name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::limits::{CGROUP_DIRECTORIES_MAX, CGROUP_REMOVAL_DEADLINE, CGROUP_REMOVAL_PAUSE};
use crate::machine::BoxId;

/// Finds and removes what is left of the groups of `id`. What cannot be removed is left: an empty
/// group costs a few kilobytes of the kernel's memory and stands in nobody's way.
pub async fn remove(id: &BoxId) {
    let deadline = Instant::now() + CGROUP_REMOVAL_DEADLINE;
    let name = format!("burrow-{id}");
    for root in hierarchies() {
        for group in find(&root, &name) {
            // The agent died with its supervisor, and with the agent its namespace; this is for
            // the moment in which that is still going on.
            let _ = fs::write(group.join("cgroup.kill"), "1");
            while remove_tree(&group)
                .is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
                && Instant::now() < deadline
            {
                tokio::time::sleep(CGROUP_REMOVAL_PAUSE).await;
            }
        }
    }
}

/// Where version 2 of control groups is mounted.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    parse_hierarchies(&mounts)
}

fn parse_hierarchies(mounts: &str) -> Vec<PathBuf> {
    let mut fields = mounts.lines().map(str::split_ascii_whitespace);
    let mut roots = Vec::new();
    for line in &mut fields {
        let fields: Vec<&str> = line.take(3).collect();
        if let [_, point, "cgroup2"] = fields[..] {
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
            } else {
                waiting.push_back(child);
            }
        }
    }
    found
}

/// Removes a group with those below it. Files of a group cannot be removed and go with it.
fn remove_tree(group: &Path) -> io::Result<()> {
    for child in subdirectories(group) {
        remove_tree(&child)?;
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
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
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(parse_hierarchies(hybrid), [PathBuf::from("/sys/fs/cgroup/unified")]);
    }

    #[test]
    fn a_group_is_found_by_its_name_and_removed_with_those_below_it() {
        let root = std::env::temp_dir().join(format!("burrow-groups-{}", std::process::id()));
        fs::create_dir_all(root.join("user/burrow-0123456789ab/session-1")).unwrap();
        fs::create_dir_all(root.join("user/burrow-ffffffffffff")).unwrap();
        let found = find(&root, "burrow-0123456789ab");
        assert_eq!(found, [root.join("user/burrow-0123456789ab")]);
        remove_tree(&found[0]).unwrap();
        assert!(find(&root, "burrow-0123456789ab").is_empty());
        assert_eq!(find(&root, "burrow-ffffffffffff").len(), 1);
        fs::remove_dir_all(root).unwrap();
    }
}
