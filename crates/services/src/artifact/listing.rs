//! Lists the directories in which a run may leave something: paths, sizes and times, as a hostile guest
//! reports them. Bounded in entries, bytes, depth and time; a truncated listing says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::Text;
use protocol::message::{FileInfo, FileKind};
use tokio::time::{Instant, timeout_at};

use super::ignored::ignored;
use super::left_out::Reason;
use super::limits::{LISTING_BYTES_MAX, LISTING_DEPTH_MAX, LISTING_ENTRIES_MAX, LISTING_TIME_MAX};
use agent_client::guest::{Guest, GuestError};

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathContent {
    File {
        bytes: u64,
        modified_ms: i64,
    },
    /// Something that is never an artifact.
    Other(FileKind),
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Listing {
    /// In the order of the roots, and in each of the paths.
    found: BTreeMap<Text, PathContent>,
    directories: BTreeSet<Text>,
    /// Where it was truncated, and why.
    pub cuts: Vec<(Text, Reason)>,
    bytes: usize,
    entries: usize,
}

/// A directory that is still to be listed.
struct Pending {
    path: Text,
    depth: usize,
    /// Whether it is below the root of the file system, where only new directories are entered.
    is_system: bool,
}

impl Listing {
    /// Lists some directories. Directly below `/`, only directories that `before` lacks are
    /// entered: the others belong to the system.
    pub async fn make(guest: &Guest, roots: &[Text], before: Option<&Self>) -> Self {
        let mut listing = Self::default();
        let deadline = Instant::now() + LISTING_TIME_MAX;
        for root in roots {
            let pending = Pending { path: root.clone(), depth: 0, is_system: is_root(root) };
            let mut waiting = VecDeque::from([pending]);
            // The shallow ones first: when there is no room for all, results are rarely deep.
            while let Some(directory) = waiting.pop_front() {
                let looked = listing.look(guest, &directory, roots, before, &mut waiting);
                match timeout_at(deadline, looked).await {
                    Ok(true) => {}
                    Ok(false) => return listing,
                    Err(_) => {
                        listing.cuts.push((directory.path, Reason::NoTime));
                        return listing;
                    }
                }
            }
        }
        listing
    }

    pub fn is_cut(&self) -> bool {
        !self.cuts.is_empty()
    }

    pub fn get(&self, path: &Text) -> Option<PathContent> {
        self.found.get(path).copied()
    }

    pub fn into_found(self) -> BTreeMap<Text, PathContent> {
        self.found
    }

    /// Adds the content of one directory; returns whether there is room for another.
    async fn look(
        &mut self,
        guest: &Guest,
        directory: &Pending,
        roots: &[Text],
        before: Option<&Self>,
        waiting: &mut VecDeque<Pending>,
    ) -> bool {
        let mut after: Option<Text> = None;
        loop {
            let page = match guest.list_page(&directory.path, after.as_ref()).await {
                Ok(page) => page,
                // It was removed, or was never there.
                Err(error) if is_gone(&error) => return true,
                Err(error) => {
                    self.cuts.push((directory.path.clone(), error.into()));
                    return true;
                }
            };
            after = page.entries.last().map(|info| info.name.clone());
            for info in page.entries {
                if self.entries >= LISTING_ENTRIES_MAX || self.bytes >= LISTING_BYTES_MAX {
                    let reason = Reason::ListingFull { entries: self.entries };
                    self.cuts.push((directory.path.clone(), reason));
                    return false;
                }
                self.entries += 1;
                self.add(&info, directory, roots, before, waiting);
            }
            if !page.more {
                return true;
            }
        }
    }

    fn add(
        &mut self,
        info: &FileInfo,
        directory: &Pending,
        roots: &[Text],
        before: Option<&Self>,
        waiting: &mut VecDeque<Pending>,
    ) {
        if ignored(info.name.as_bytes()).is_some() {
            return;
        }
        let Some(path) = join(&directory.path, &info.name) else {
            self.cuts.push((directory.path.clone(), Reason::Name));
            return;
        };
        self.bytes += path.as_bytes().len();
        let found = match info.kind {
            FileKind::Directory => {
                self.descend(path, directory, roots, before, waiting);
                return;
            }
            FileKind::File => {
                PathContent::File { bytes: info.bytes, modified_ms: info.modified_ms }
            }
            other => PathContent::Other(other),
        };
        self.found.insert(path, found);
    }

    fn descend(
        &mut self,
        path: Text,
        directory: &Pending,
        roots: &[Text],
        before: Option<&Self>,
        waiting: &mut VecDeque<Pending>,
    ) {
        self.directories.insert(path.clone());
        let is_old = before.is_none_or(|before| before.directories.contains(&path));
        // Another root is listed separately.
        if roots.contains(&path) || (directory.is_system && is_old) {
            return;
        }
        if directory.depth == LISTING_DEPTH_MAX {
            self.cuts.push((path, Reason::TooDeep { depth_max: LISTING_DEPTH_MAX }));
            return;
        }
        waiting.push_back(Pending { path, depth: directory.depth + 1, is_system: false });
    }
}

fn is_root(path: &Text) -> bool {
    path.as_bytes().iter().all(|byte| *byte == b'/')
}

fn is_gone(error: &GuestError) -> bool {
    use protocol::FaultCode;
    error.fault_code() == Some(FaultCode::NotFound)
}

/// The path of an entry; `None` for an invalid name.
fn join(directory: &Text, name: &Text) -> Option<Text> {
    let name = name.as_bytes();
    let is_name = !name.is_empty() && name != b"." && name != b"..";
    if !is_name || name.contains(&b'/') || name.contains(&0) {
        return None;
    }
    let mut path = directory.as_bytes().to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Some(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_entry_names_have_no_path() {
        for name in ["", ".", "..", "a/b", "../x", "a\0b"] {
            assert_eq!(join(&"/work".into(), &name.into()), None, "{name:?}");
        }
        assert_eq!(join(&"/".into(), &"a".into()), Some("/a".into()));
        assert_eq!(join(&"/work/".into(), &"..a\n\"".into()), Some("/work/..a\n\"".into()));
    }
}
