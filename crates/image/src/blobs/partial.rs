//! A content that is being written to the disk.
//!
//! ```text
//!   begin ──▶ locked, hashed as far as it is there ──▶ write … ──▶ finish ──▶ renamed
//!     │                                                  │             └─ wrong: removed
//!     └─ somebody has the lock: look again               ├─ disk full: removed
//!                                                        └─ dropped: kept for the next attempt
//! ```
//!
//! The kernel holds the lock, on the open file, so it ends with its holder in any case. After waiting, a lock
//! may be on a file that was renamed or removed meanwhile; this is checked once the lock is held.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::{BlobError, Blobs};
use crate::digest::{Digest, Digester};
use crate::limits::{HASH_PIECE_BYTES, LOCK_LOOK_PAUSE};
use host::paths::PRIVATE_FILE;

/// The state of a content when a download begins.
#[derive(Debug)]
pub enum BlobState {
    /// It exists, perhaps because somebody else has just fetched it.
    Whole,
    Partial(Partial),
}

/// A content of which the first [`Partial::offset`] bytes are here. Writing blocks: give it to a
/// thread that may.
#[derive(Debug)]
pub struct Partial {
    blobs: Blobs,
    digest: Digest,
    size: u64,
    path: PathBuf,
    /// Locked as long as it is open.
    file: File,
    /// Boxed, because it is large and moved often.
    digester: Box<Digester>,
}

/// The result of one attempt to take the lock.
enum LockAttempt {
    Begun(BlobState),
    /// Somebody else has the lock.
    Taken,
}

pub(super) async fn begin(blobs: Blobs, digest: Digest, size: u64) -> Result<BlobState, BlobError> {
    loop {
        let blobs = blobs.clone();
        // Existing bytes are hashed, which takes seconds for gigabytes.
        let look = tokio::task::spawn_blocking(move || look(&blobs, digest, size));
        match look.await.expect("a look does not panic")? {
            LockAttempt::Begun(begun) => return Ok(begun),
            LockAttempt::Taken => tokio::time::sleep(LOCK_LOOK_PAUSE).await,
        }
    }
}

fn look(blobs: &Blobs, digest: Digest, size: u64) -> Result<LockAttempt, BlobError> {
    if blobs.has(&digest) {
        return Ok(LockAttempt::Begun(BlobState::Whole));
    }
    let path = blobs.partial().join(digest.hex());
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE);
    let file = options.open(&path).map_err(|error| BlobError::writing(&digest, 0, &path, error))?;
    if !is_locked_by_us(&file).map_err(|error| BlobError::io(&path, error))? {
        return Ok(LockAttempt::Taken);
    }
    if blobs.has(&digest) {
        // It was finished between the two looks, and this is a new and empty file.
        remove_locked(&path, &file);
        return Ok(LockAttempt::Begun(BlobState::Whole));
    }
    if !is_at(&path, &file) {
        return Ok(LockAttempt::Taken);
    }
    let digester = Box::<Digester>::default();
    let mut partial = Partial { blobs: blobs.clone(), digest, size, path, file, digester };
    partial.take_up()?;
    Ok(LockAttempt::Begun(BlobState::Partial(partial)))
}

/// Tries to lock a file; false if somebody else has it.
pub(super) fn is_locked_by_us(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes the one that is open and locked. What cannot be removed, the next sweep finds.
pub(super) fn remove_locked(path: &Path, file: &File) {
    if is_at(path, file) {
        let _ = fs::remove_file(path);
    }
}

/// Whether a path still leads to the file that was opened there.
pub(super) fn is_at(path: &Path, file: &File) -> bool {
    let (Ok(there), Ok(open)) = (fs::symlink_metadata(path), file.metadata()) else { return false };
    (there.dev(), there.ino()) == (open.dev(), open.ino())
}

impl Partial {
    /// Hashes the existing bytes, and starts again if there are too many.
    fn take_up(&mut self) -> Result<(), BlobError> {
        let mut piece = vec![0; HASH_PIECE_BYTES];
        loop {
            let read = self.file.read(&mut piece);
            let count = match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|error| BlobError::io(&self.path, error))?,
            };
            if count == 0 {
                return Ok(());
            }
            self.digester.update(&piece[..count]);
            if self.digester.bytes() > self.size {
                return self.start_again();
            }
        }
    }

    /// Discards the existing bytes: the source does not continue from there.
    pub fn start_again(&mut self) -> Result<(), BlobError> {
        let emptied = self.file.set_len(0).and_then(|()| io::Seek::rewind(&mut self.file));
        emptied.map_err(|error| BlobError::io(&self.path, error))?;
        *self.digester = Digester::default();
        Ok(())
    }

    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The size of the whole content.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes that are here: where to continue.
    pub fn offset(&self) -> u64 {
        self.digester.bytes()
    }

    /// Appends bytes. An error discards everything.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        let found = self.offset().saturating_add(bytes.len() as u64);
        if found > self.size {
            self.discard();
            return Err(BlobError::Length { digest: self.digest, wanted: self.size, found });
        }
        if let Err(error) = self.file.write_all(bytes) {
            self.discard();
            return Err(BlobError::writing(&self.digest, self.offset(), &self.path, error));
        }
        self.digester.update(bytes);
        Ok(())
    }

    /// Verifies the content, and gives it its name once it is on disk. A partial one is kept for the next
    /// attempt; a wrong one is removed.
    pub fn finish(self) -> Result<(), BlobError> {
        let Self { digest, size, .. } = self;
        if self.offset() != size {
            return Err(BlobError::Length { digest, wanted: size, found: self.offset() });
        }
        let found = Digester::clone(&self.digester).finish();
        if found != digest {
            self.discard();
            return Err(BlobError::Digest { wanted: digest, found });
        }
        if let Err(error) = self.file.sync_all() {
            // Bytes that the disk refused may be missing, whatever the file shows now.
            self.discard();
            return Err(BlobError::writing(&digest, size, &self.path, error));
        }
        let whole = self.blobs.path(&digest);
        let named = fs::rename(&self.path, &whole).and_then(|()| {
            for directory in [self.blobs.whole(), self.blobs.partial()] {
                File::open(directory)?.sync_all()?;
            }
            Ok(())
        });
        named.map_err(|error| BlobError::writing(&digest, size, &whole, error))
    }

    /// Removes the file while its lock is held, so that nobody else uses it.
    fn discard(&self) {
        remove_locked(&self.path, &self.file);
    }
}
