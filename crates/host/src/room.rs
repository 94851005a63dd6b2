//! Distinguishes a full disk from other failures.
//!
//! An answered change must be on disk, or the answer says that the disk is full: every door checks
//! its errors with this.

use std::error::Error;
use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// Whether a write failed because its file system or its quota is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The same for an error or one of its sources.
pub fn lacks_room(error: &(dyn Error + 'static)) -> bool {
    let mut reason = Some(error);
    while let Some(error) = reason {
        let Some(of_system) = error.downcast_ref::<io::Error>() else {
            reason = error.source();
            continue;
        };
        if is_full(of_system) {
            return true;
        }
        // `source` passes over the error that this one holds.
        reason = of_system.get_ref().map(|held| held as _);
    }
    false
}

/// The room that a file system has for its users.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    Ok(Room::at(path)?.free_bytes)
}

/// The room of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub free_bytes: u64,
    pub all_bytes: u64,
}

impl Room {
    pub fn at(path: &Path) -> io::Result<Self> {
        let disk = statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
        Ok(Self { free_bytes: bytes(disk.blocks_available()), all_bytes: bytes(disk.blocks()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the outer one: {0}")]
    struct Outer(#[source] io::Error);

    #[test]
    fn a_full_disk_is_found_below_other_errors() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        assert!(lacks_room(&Outer(full())));
        assert!(lacks_room(&io::Error::from(io::ErrorKind::QuotaExceeded)));
        assert!(lacks_room(&Outer(io::Error::other(Outer(full())))));
        assert!(!lacks_room(&Outer(io::Error::from(io::ErrorKind::NotFound))));
    }
}
