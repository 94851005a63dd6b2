//! Plans which objects become files, and under which paths. Others who write the bucket may be hostile: a
//! key that is not a path below the workspace is skipped and reported. Pure.

use std::collections::BTreeSet;

use super::client::ListedObject;
use crate::limits::{DEPTH_MAX, NAME_BYTES_MAX};
use crate::tree::is_temporary;
use crate::{Policy, WorkspaceError};

/// An object that is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFetch {
    pub key: String,
    /// The path in the workspace.
    pub path: String,
    pub bytes: u64,
}

/// What is fetched, and what is left out, with reasons.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub wanted: Vec<PlannedFetch>,
    pub left_out: Vec<(String, &'static str)>,
}

/// Judges all keys, and holds them against the limits of the workspace before any is fetched.
pub fn plan(
    prefix: &str,
    listed: Vec<ListedObject>,
    policy: &Policy,
) -> Result<Plan, WorkspaceError> {
    let mut plan = Plan::default();
    let mut directories = BTreeSet::new();
    for ListedObject { key, bytes } in listed {
        // Keys outside the requested prefix are ignored.
        let Some(path) = key.strip_prefix(prefix).map(str::to_owned) else { continue };
        // The prefix itself, which some programs make an object of.
        if path.is_empty() {
            continue;
        }
        if let Some(why) = refusal(&path) {
            plan.left_out.push((path, why));
            continue;
        }
        directories.extend(path.match_indices('/').map(|(at, _)| path[..at].to_owned()));
        plan.wanted.push(PlannedFetch { key, path, bytes });
        // Few keys can name many directories.
        if (plan.wanted.len() + directories.len()) as u64 > policy.entries_max.saturating_mul(2) {
            return Err(WorkspaceError::TooManyEntries { entries_max: policy.entries_max });
        }
    }
    let (files, hidden): (Vec<_>, Vec<_>) =
        plan.wanted.into_iter().partition(|wanted| !directories.contains(&wanted.path));
    let both = "its key is also a directory's";
    plan.left_out.extend(hidden.into_iter().map(|wanted| (wanted.path, both)));
    plan.wanted = files;
    let Policy { file_bytes_max, total_bytes_max, entries_max, .. } = *policy;
    let mut total = 0_u64;
    for wanted in &plan.wanted {
        if wanted.bytes > file_bytes_max {
            let (path, bytes) = (wanted.path.clone(), wanted.bytes);
            return Err(WorkspaceError::FileTooLarge { path, bytes, bytes_max: file_bytes_max });
        }
        total = total.saturating_add(wanted.bytes);
        if total > total_bytes_max {
            return Err(WorkspaceError::TooLarge { bytes_max: total_bytes_max });
        }
    }
    if (plan.wanted.len() + directories.len()) as u64 > entries_max {
        return Err(WorkspaceError::TooManyEntries { entries_max });
    }
    Ok(plan)
}

fn refusal(path: &str) -> Option<&'static str> {
    if path.ends_with('/') {
        return Some("its key names a directory");
    }
    let mut depth = 0;
    for name in path.split('/') {
        depth += 1;
        if matches!(name, "" | "." | "..") || name.contains('\0') {
            return Some("its key is not a valid file path");
        }
        if name.len() > NAME_BYTES_MAX {
            return Some("a name in its key is too long for a file");
        }
        if is_temporary(name.as_bytes()) {
            return Some("its name is reserved for files that are being written");
        }
    }
    (depth > DEPTH_MAX).then_some("it is too many directories deep")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(keys: &[&str]) -> Vec<ListedObject> {
        keys.iter().map(|key| ListedObject { key: (*key).to_owned(), bytes: 10 }).collect()
    }

    #[test]
    fn keys_that_are_no_files_are_left_out_and_reported() {
        let (long, deep) = ("n".repeat(256), "d/".repeat(64) + "f");
        let bad = [
            "../etc/passwd",
            "a/../b",
            "./c",
            "/abs",
            "x//y",
            "dir/",
            "nul\0",
            "a/..",
            &long,
            &deep,
            ".burrow-1-1.part",
            "both",
        ];
        let good = ["both/in", "plain", "a b/ü", "..a", "a/b..", "-"];
        let all: Vec<_> = bad.iter().chain(&good).map(|path| format!("p/{path}")).collect();
        let mut all: Vec<_> = all.iter().map(String::as_str).collect();
        all.extend(["p/", "elsewhere"]);
        let plan = plan("p/", listed(&all), &Policy::default()).unwrap();
        let paths: Vec<_> = plan.wanted.iter().map(|wanted| wanted.path.as_str()).collect();
        assert_eq!(paths, good);
        assert_eq!(plan.wanted[0].key, "p/both/in");
        let mut left: Vec<_> = plan.left_out.iter().map(|(path, _)| path.as_str()).collect();
        let mut bad = bad.to_vec();
        left.sort_unstable();
        bad.sort_unstable();
        assert_eq!(left, bad);
    }

    #[test]
    fn limits_are_counted_before_anything_is_fetched() {
        let with = |change: fn(&mut Policy)| {
            let mut policy = Policy::default();
            change(&mut policy);
            plan("", listed(&["a/b", "c"]), &policy)
        };
        assert!(matches!(with(|p| p.file_bytes_max = 9), Err(WorkspaceError::FileTooLarge { .. })));
        assert!(matches!(with(|p| p.total_bytes_max = 19), Err(WorkspaceError::TooLarge { .. })));
        assert!(matches!(with(|p| p.entries_max = 2), Err(WorkspaceError::TooManyEntries { .. })));
        let exactly =
            |p: &mut Policy| (p.file_bytes_max, p.total_bytes_max, p.entries_max) = (10, 20, 3);
        assert_eq!(with(exactly).unwrap().wanted.len(), 2);
    }
}
