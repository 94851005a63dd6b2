//! Which files of a fork differ from those that it began with.
//!
//! The fork's state keeps an index of its layer, made before anything ran in it: a mark for each path. The
//! layer is read again later, and the two are compared.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use archive::{Entry, Kind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::contents::each_entry;
use crate::limits::INDEX_BYTES_MAX;
use host::paths::write_durably;
use image::digest::Digest;

const INDEX: &str = "layer.index";

/// What is known of each path of a layer.
pub(crate) type Index = BTreeMap<Vec<u8>, Mark>;

/// An entry of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub is_removal: bool,
    pub is_directory: bool,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of its content, or of what it points to.
    digest: Digest,
}

/// How a file differs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum ChangeKind {
    #[serde(rename = "A")]
    Added,
    #[serde(rename = "M")]
    Modified,
    #[serde(rename = "D")]
    Deleted,
}

impl ChangeKind {
    pub fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Modified => 'M',
            Self::Deleted => 'D',
        }
    }
}

/// One file or directory that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    pub path: String,
    pub change: ChangeKind,
}

/// What differs, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    pub changes: Vec<FileChange>,
    /// How many more there are.
    pub more: u64,
}

/// The index of a layer's archive.
pub(crate) fn index(archive: impl Read) -> io::Result<Index> {
    let mut index = Index::new();
    each_entry(archive, |entry, content| {
        let mark = Mark::of(&entry, content);
        index.insert(entry.path, mark);
    })?;
    Ok(index)
}

impl Mark {
    fn of(entry: &Entry, content: Digest) -> Self {
        // The first letter keeps kinds apart.
        let digest = match &entry.kind {
            Kind::Symlink { target } => Digest::of(&[b"l", target.as_slice()].concat()),
            Kind::HardLink { target } => Digest::of(&[b"h", target.as_slice()].concat()),
            Kind::Fifo => Digest::of(b"p"),
            Kind::CharDevice { .. } => Digest::of(b"c"),
            Kind::BlockDevice { .. } => Digest::of(b"b"),
            Kind::File { .. } | Kind::Directory => content,
        };
        Self {
            is_removal: entry.kind == (Kind::CharDevice { major: 0, minor: 0 }),
            is_directory: entry.kind == Kind::Directory,
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            digest,
        }
    }
}

/// Keeps the index of a fork in its state directory.
pub(crate) fn write_index(state: &Path, index: &Index) -> io::Result<()> {
    let bytes = rmp_serde::to_vec(index).map_err(io::Error::other)?;
    write_durably(state, INDEX, &bytes)
}

/// The index that was kept; `None` of a sandbox for which none was.
pub(crate) fn read_index(state: &Path) -> io::Result<Option<Index>> {
    let file = match File::open(state.join(INDEX)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(INDEX_BYTES_MAX).read_to_end(&mut bytes)?;
    rmp_serde::from_slice(&bytes).map(Some).map_err(io::Error::other)
}

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    Is(ChangeKind),
    /// Only the later layer has it. If the root below has it too, it was changed, or, a directory that looks the
    /// same, only entered.
    Below(Mark),
}

/// All paths that differ, in order.
pub(crate) fn compare(before: &Index, after: &Index) -> Vec<(Vec<u8>, Difference)> {
    let mut found = Vec::new();
    for (path, new) in after {
        let difference = match before.get(path) {
            Some(old) if old == new => continue,
            Some(old) if old.is_removal && new.is_removal => continue,
            Some(old) if old.is_removal => Difference::Is(ChangeKind::Added),
            _ if new.is_removal => Difference::Is(ChangeKind::Deleted),
            Some(_) => Difference::Is(ChangeKind::Modified),
            None => Difference::Below(*new),
        };
        found.push((path.clone(), difference));
    }
    let gone = before.iter().filter(|(path, old)| !old.is_removal && !after.contains_key(*path));
    found.extend(gone.map(|(path, _)| (path.clone(), Difference::Is(ChangeKind::Deleted))));
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

#[cfg(test)]
mod tests {
    use super::ChangeKind::{Added, Deleted, Modified};
    use super::*;

    fn mark(content: u8) -> Mark {
        let digest = Digest::of(&[content]);
        Mark { is_removal: false, is_directory: false, mode: 0o644, uid: 0, gid: 0, digest }
    }

    fn removal() -> Mark {
        Mark { is_removal: true, mode: 0, ..mark(0) }
    }

    #[test]
    fn each_way_to_differ_is_found_once_and_in_order() {
        let layer = |entries: &[(&str, Mark)]| -> Index {
            entries.iter().map(|(path, mark)| (path.as_bytes().to_vec(), *mark)).collect()
        };
        let before = layer(&[
            ("back", removal()),
            ("gone", mark(1)),
            ("gone-below", removal()),
            ("new", mark(1)),
            ("same", mark(1)),
            ("whited", mark(1)),
        ]);
        let after = layer(&[
            ("back", mark(2)),
            ("fresh", mark(3)),
            ("gone-below", removal()),
            ("new", mark(2)),
            ("removed", removal()),
            ("same", mark(1)),
            ("whited", removal()),
        ]);
        let is = |path: &str, kind| (path.as_bytes().to_vec(), Difference::Is(kind));
        let expected = [
            is("back", Added),
            (b"fresh".to_vec(), Difference::Below(mark(3))),
            is("gone", Deleted),
            is("new", Modified),
            is("removed", Deleted),
            is("whited", Deleted),
        ];
        assert_eq!(compare(&before, &after), expected);
    }
}
