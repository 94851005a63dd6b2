//! The lock that lets one process at a time write to the log.
//!
//! Each process takes the lock on the file `lock` in the log's directory for the few lines that it
//! writes, and waits at most [`TURN_WAIT`] for another. The file stores the number of the next
//! record, so a process sees at once whether others have written since its last turn, and the
//! options of the running bridge, so that other processes keep the log the same way. A process that
//! dies while it holds the lock leaves the number zero, and the next one reads the log itself.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Options;
use super::limits::{MARK_BYTES, MARK_BYTES_MAX, TURN_PAUSE, TURN_WAIT};
use host::paths::PRIVATE_FILE;

const FILE: &str = "lock";

/// The content of the lock file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogState {
    /// The number of the next record; zero while somebody writes.
    pub next_seq: u64,
    /// The options of the running bridge, or of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,
}

/// One process's handle of the lock.
#[derive(Clone, Debug)]
pub struct WriteLock(Arc<File>);

/// The held lock; released when dropped.
#[derive(Debug)]
pub struct WriteGuard(Arc<File>);

impl WriteLock {
    pub fn open(directory: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        Ok(Self(Arc::new(options.open(directory.join(FILE))?)))
    }

    /// Waits for the lock, up to a limit.
    pub fn take(&self) -> io::Result<WriteGuard> {
        let since = Instant::now();
        loop {
            match flock(&*self.0, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(WriteGuard(Arc::clone(&self.0))),
                Err(Errno::WOULDBLOCK) if since.elapsed() < TURN_WAIT => {
                    std::thread::sleep(TURN_PAUSE);
                }
                Err(Errno::WOULDBLOCK) => {
                    let seconds = TURN_WAIT.as_secs();
                    let what = format!("another process has held it for {seconds} s");
                    return Err(io::Error::new(ErrorKind::TimedOut, what));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How to keep the log, as the file has it at the moment. It waits for no turn: what somebody
    /// is just writing cannot be read, and says nothing.
    pub fn options(&self) -> Option<Options> {
        read(&self.0).options
    }
}

impl WriteGuard {
    /// The state that the previous holder left. An unreadable state is the default one.
    pub fn mark(&self) -> LogState {
        read(&self.0)
    }

    pub fn leave(&self, mark: &LogState) -> io::Result<()> {
        let mut text = serde_json::to_vec(mark)?;
        // Always as long, so that no longer text has to be cut off.
        text.resize(text.len().max(MARK_BYTES), b' ');
        self.0.write_all_at(&text, 0)
    }
}

fn read(file: &File) -> LogState {
    let mut bytes = vec![0; MARK_BYTES_MAX];
    let count = file.read_at(&mut bytes, 0).unwrap_or(0);
    serde_json::from_slice(&bytes[..count]).unwrap_or_default()
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        // A process that cannot give it back gives it back with its end.
        let _ = flock(&*self.0, FlockOperation::Unlock);
    }
}
