//! Locks of the store: many processes may build and start images at once, or one may remove some.
//!
//! The kernel holds the locks, on open files, so one ends with its holder in any case; and they work between
//! programs, because one-shots run without a daemon.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::limits::{STORE_BUSY_MAX, STORE_BUSY_PAUSE};
use super::{ImageError, Images, LOCKS};
use crate::digest::Digest;
use host::paths::PRIVATE_FILE;

/// The lock of the store as a whole.
const LOCK: &str = "lock";

/// While this is held, nothing is removed from the store.
#[derive(Debug)]
pub struct SharedLock(#[expect(dead_code, reason = "held for its lock")] File);

/// While this is held, nobody else uses the store.
#[derive(Debug)]
pub(super) struct ExclusiveLock(#[expect(dead_code, reason = "held for its lock")] File);

/// While this is held, nobody else makes the same thing.
#[derive(Debug)]
pub(super) struct BuildLock(#[expect(dead_code, reason = "held for its lock")] File);

impl Images {
    /// Waits for a running removal, and prevents others.
    pub fn share(&self) -> Result<SharedLock, ImageError> {
        let path = self.0.root.join(LOCK);
        wait(&path, FlockOperation::NonBlockingLockShared).map(SharedLock)
    }

    pub(super) fn alone(&self) -> Result<ExclusiveLock, ImageError> {
        let path = self.0.root.join(LOCK);
        wait(&path, FlockOperation::NonBlockingLockExclusive).map(ExclusiveLock)
    }

    /// Locks the store alone, unless somebody uses it.
    pub(super) fn alone_now(&self) -> Result<Option<ExclusiveLock>, ImageError> {
        let path = self.0.root.join(LOCK);
        Ok(attempt(&path, FlockOperation::NonBlockingLockExclusive)?.map(ExclusiveLock))
    }

    /// Makes one thing at a time: who comes second waits, and finds it made.
    pub(super) fn making(&self, _: &SharedLock, what: &Digest) -> Result<BuildLock, ImageError> {
        let path = self.path(LOCKS, what.hex());
        let file = open(&path)?;
        let locked = flock(&file, FlockOperation::LockExclusive);
        locked.map_err(|errno| ImageError::files("lock", &path)(errno.into()))?;
        Ok(BuildLock(file))
    }
}

fn wait(path: &Path, how: FlockOperation) -> Result<File, ImageError> {
    let until = Instant::now() + STORE_BUSY_MAX;
    loop {
        if let Some(file) = attempt(path, how)? {
            return Ok(file);
        }
        if Instant::now() > until {
            return Err(ImageError::Busy);
        }
        std::thread::sleep(STORE_BUSY_PAUSE);
    }
}

fn attempt(path: &Path, how: FlockOperation) -> Result<Option<File>, ImageError> {
    let file = open(path)?;
    match flock(&file, how) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(ImageError::files("lock", path)(errno.into())),
    }
}

fn open(path: &Path) -> Result<File, ImageError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE);
    options.open(path).map_err(ImageError::files("open", path))
}
