//! Finds the differences between the files and the ledger. It compares them again each time, so a change
//! that failed is found again.

use std::collections::BTreeSet;
use std::io;

use super::ledger::{Ledger, Object};
use crate::manifest::{Digest, HostStamp, Kind};
use crate::tree::{MODE_KEPT, Tree, TreeEntry, is_temporary};
use host::byte_path::join;

/// A file that the bucket does not have so.
#[derive(Clone, Debug)]
pub struct Change {
    pub path: String,
    pub stamp: HostStamp,
    pub mode: u32,
    pub digest: Digest,
}

/// The differences between the files and the ledger.
#[derive(Debug, Default)]
pub struct Changes {
    pub files: Vec<Change>,
    /// Unchanged, except for the file's stamp.
    pub touched: Vec<(String, HostStamp)>,
    pub gone: Vec<String>,
    pub left_out: Vec<(Vec<u8>, &'static str)>,
    /// Files that cannot be read, with the reasons.
    pub unread: Vec<(String, io::Error)>,
}

/// Compares the files with the ledger; reads those with another stamp. `path_bytes_max` is the room for paths
/// in a key.
pub fn changes(tree: &Tree, ledger: &Ledger, path_bytes_max: usize) -> io::Result<Changes> {
    let mut changes = Changes::default();
    // Paths that exist: their objects in the bucket are not deletions.
    let mut taken = BTreeSet::new();
    let mut waiting = vec![Vec::new()];
    while let Some(directory) = waiting.pop() {
        for found in tree.list(&directory)? {
            let path = join(&directory, &found.name);
            if is_temporary(&found.name) {
                continue;
            }
            let text = String::from_utf8(path.clone()).ok();
            match (found.kind, text) {
                (Some(Kind::Directory), _) => waiting.push(path),
                (Some(Kind::File), Some(text)) if text.len() <= path_bytes_max => {
                    if let Err(error) = compare(tree, ledger, text.clone(), &found, &mut changes) {
                        changes.unread.push((text.clone(), error));
                    }
                    taken.insert(text);
                }
                (Some(Kind::File), text) => {
                    let long = "its path is too long for an object key";
                    let why = text
                        .map_or("its name is not valid UTF-8, which object keys must be", |_| long);
                    changes.left_out.push((path, why));
                }
                (Some(Kind::Link), text) => {
                    taken.extend(text);
                    changes
                        .left_out
                        .push((path, "a bucket cannot hold links; the object there is kept"));
                }
                (None, _) => {}
            }
        }
    }
    let before = ledger.known.keys().chain(ledger.intended.keys());
    let gone: BTreeSet<_> = before.filter(|path| !taken.contains(*path)).cloned().collect();
    changes.gone = gone.into_iter().collect();
    Ok(changes)
}

fn compare(
    tree: &Tree,
    ledger: &Ledger,
    path: String,
    found: &TreeEntry,
    changes: &mut Changes,
) -> io::Result<()> {
    let known = ledger.known.get(&path);
    if known.is_some_and(|object| object.stamp == found.stamp) {
        return Ok(());
    }
    let digest = tree.digest(path.as_bytes(), found.kind)?.unwrap_or_default();
    let (stamp, mode) = (found.stamp, found.mode & MODE_KEPT);
    let is_same = |object: &Object| object.digest == digest && object.mode == mode;
    // What another exchange may have written without getting an answer must be compared.
    if known.is_some_and(is_same) && !ledger.intended.contains_key(&path) {
        changes.touched.push((path, stamp));
    } else {
        changes.files.push(Change { path, stamp, mode, digest });
    }
    Ok(())
}
