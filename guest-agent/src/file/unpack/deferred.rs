//! Attributes that directories get only when their content is complete: permissions, because they
//! may forbid writing, and times, because every entry changes them.

use std::os::fd::OwnedFd;

use archive::Entry;
use nix::errno::Errno;
use nix::sys::stat::fstat;
use protocol::Fault;
use protocol::sorted::sort_by;

use super::super::attributes::Attributes;
use super::super::limits::DEFERRED_BYTES_MAX;
use super::place::set_time;
use super::refused::refused_entry;
use crate::lookup::{self, DIRECTORY_TO_READ, Refused, Way};

/// The cost of one directory besides its path, which is stored twice.
const DIRECTORY_BYTES: usize = 256;

/// The directories that wait, in the order of the archive.
#[derive(Default)]
pub struct Deferred {
    directories: Vec<Directory>,
    bytes: usize,
}

struct Directory {
    /// Beneath the root, from safe components.
    path: Vec<u8>,
    entry: Entry,
    attributes: Attributes,
}

impl Directory {
    fn bytes(&self) -> usize {
        DIRECTORY_BYTES + self.path.len() + self.entry.path.len()
    }

    fn settle(&self, root: &OwnedFd) -> Result<(), Refused> {
        let path = self.path.as_slice();
        let directory = match lookup::open_at(root, path, DIRECTORY_TO_READ, Way::Beneath) {
            // A later entry, or somebody else, has replaced it; or it is the empty `/proc` of a whole
            // system's archive, and the existing one stays as it is.
            Err(
                Refused::Errno(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP)
                | Refused::KernelFileSystem(_),
            ) => return Ok(()),
            other => other?,
        };
        self.attributes.apply(&directory, &fstat(&directory)?)?;
        Ok(set_time(&directory, &self.entry)?)
    }
}

impl Deferred {
    /// Remembers a directory. When they become too many, those that the archive seems to have left
    /// are settled at once; an archive that comes back to them may change their times.
    pub fn add(
        &mut self,
        root: &OwnedFd,
        path: &[u8],
        entry: &Entry,
        attributes: Attributes,
    ) -> Result<(), Fault> {
        if self.bytes > DEFERRED_BYTES_MAX {
            let (open, left) = std::mem::take(&mut self.directories)
                .into_iter()
                .partition(|directory| contains(&directory.path, path));
            self.directories = left;
            let settled = self.settle_all(root);
            self.directories = open;
            self.bytes = self.directories.iter().map(Directory::bytes).sum();
            settled?;
        }
        let directory = Directory { path: path.to_vec(), entry: entry.clone(), attributes };
        self.bytes += directory.bytes();
        self.directories.push(directory);
        Ok(())
    }

    /// Sets the attributes of all, inner ones first, because an outer one may then deny access. For
    /// several entries of one directory the last one counts.
    pub fn settle_all(&mut self, root: &OwnedFd) -> Result<(), Fault> {
        let directories = std::mem::take(&mut self.directories);
        self.bytes = 0;
        // By path and, for the same path, in the order of the archive.
        let mut order: Vec<_> = directories.iter().enumerate().collect();
        sort_by(&mut order, |one, other| (&one.1.path, one.0) < (&other.1.path, other.0));
        let mut outcome = Ok(());
        let mut settled: Option<&[u8]> = None;
        for (_, directory) in order.into_iter().rev() {
            if settled == Some(&directory.path) {
                continue;
            }
            settled = Some(&directory.path);
            if let Err(why) = directory.settle(root) {
                outcome = outcome.and(Err(refused_entry(&directory.path, why)));
            }
        }
        outcome
    }
}

/// Whether `directory` is `path` or lies above it.
fn contains(directory: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
