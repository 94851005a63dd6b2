//! Locks that allow only one bridge per directory.
//!
//! The kernel drops a lock with its holder, so a killed bridge leaves none. The runtime and the
//! state directory have one lock each, because either one could be shared with another bridge.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::paths::{PRIVATE_FILE, Paths};

/// The longest process id in decimal, with room to spare.
const PID_TEXT_BYTES_MAX: u64 = 32;

/// Held as long as this bridge serves.
#[derive(Debug)]
pub struct Locks {
    _runtime: Flock<File>,
    _state: Flock<File>,
}

/// Why the lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another bridge{} already serves {directory:?}; stop it, or set other directories with BURROW_RUNTIME_DIR and BURROW_STATE_DIR", of_process(pid.as_deref()))]
    Served { directory: PathBuf, pid: Option<String> },
    #[error("cannot lock {path:?}: {source}")]
    Files { path: PathBuf, source: io::Error },
}

fn of_process(pid: Option<&str>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl Locks {
    pub fn take(paths: &Paths) -> Result<Self, LockError> {
        Ok(Self {
            _runtime: take(&paths.runtime, &paths.runtime_lock())?,
            _state: take(&paths.state, &paths.state_lock())?,
        })
    }
}

/// Held while this process starts the daemon, or is it: others wait instead of starting another. Its
/// holder may still find that another process serves.
#[derive(Debug)]
pub struct Starting {
    _lock: Flock<File>,
}

impl Starting {
    /// `None` while somebody else has it.
    pub fn try_take(paths: &Paths) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        let file = options.open(paths.start_lock())?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(Self { _lock: lock })),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(errno.into()),
        }
    }
}

fn take(directory: &Path, path: &Path) -> Result<Flock<File>, LockError> {
    let failed = |source| LockError::Files { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE);
    let file = options.open(path).map_err(failed)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            write_pid(&mut lock).map_err(failed)?;
            Ok(lock)
        }
        Err((file, Errno::EWOULDBLOCK)) => {
            let (directory, pid) = (directory.to_owned(), read_pid(&file));
            Err(LockError::Served { directory, pid })
        }
        Err((_, errno)) => Err(failed(errno.into())),
    }
}

/// For people; only the lock counts.
fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())
}

fn read_pid(file: &File) -> Option<String> {
    let mut text = String::new();
    file.take(PID_TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    let pid = text.trim();
    pid.parse::<u32>().ok().map(|pid| pid.to_string())
}
