//! Private files that are read and replaced as a whole: after a crash, a reader finds either the
//! old or the new content. Blocking.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use super::KeysError;
use host::paths::PRIVATE_FILE;

/// The permissions that make a file readable by others.
const EXPOSING: u32 = 0o077;

/// Tells one content of a file from another without reading it. Each is a file of its own, so this
/// needs no clock finer than the file system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            file: (found.dev(), found.ino()),
            bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// None when there is no such file, or none that can be seen.
    pub fn at(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|found| Self::of(&found))
    }
}

/// Adds to an error what was tried.
pub fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeysError {
    let path = path.to_owned();
    move |source| KeysError::Files { action, path, source }
}

/// Reads a file that only its owner can read.
pub fn read(path: &Path, bytes_max: u64) -> Result<(Vec<u8>, Stamp), KeysError> {
    let file = File::open(path).map_err(failed("open", path))?;
    let found = file.metadata().map_err(failed("open", path))?;
    if found.mode() & EXPOSING != 0 {
        return Err(KeysError::Exposed { path: path.to_owned(), mode: found.mode() & 0o777 });
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed("read", path))?;
    if bytes.len() as u64 > bytes_max {
        return Err(KeysError::TooLarge { path: path.to_owned(), bytes_max });
    }
    Ok((bytes, Stamp::of(&found)))
}

/// Replaces a file durably.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), KeysError> {
    let new = path.with_extension("json.new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
    let mut file = options.open(&new).map_err(failed("create", &new))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed("write", &new))?;
    fs::rename(&new, path).map_err(failed("replace", path))?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(failed("write", directory))
}

/// Waits for the lock that keeps two writers apart. They hold it for the time of a write.
pub fn lock(path: &Path) -> Result<Flock<File>, KeysError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(PRIVATE_FILE);
    let file = options.open(path).map_err(failed("open", path))?;
    let locked = Flock::lock(file, FlockArg::LockExclusive);
    locked.map_err(|(_, errno)| failed("lock", path)(errno.into()))
}
