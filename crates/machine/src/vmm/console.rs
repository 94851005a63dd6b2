//! A machine's console: what its kernel and its agent say when there is no other way to say it.
//!
//! The monitor offers it at a socket, or writes it into a pipe. It is always read, because a guest must not stand still for
//! want of a reader, and always bounded, because a guest may say anything: the newest is kept, in
//! memory, and of a kept sandbox in two files that take turns.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{self, Receiver};
use tokio::sync::watch;

use crate::limits::{CONSOLE_BYTES_MAX, CONSOLE_TAIL_BYTES};
use crate::process::console::{CONSOLE_FILE, parse_tail};
use host::paths::PRIVATE_FILE;

/// What the file is called when it was full and another has begun.
const EARLIER: &str = "console.log.1";
/// What one read takes.
const READ_BYTES: usize = 16 * 1024;
/// How often the monitor's socket is looked for while it comes up.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// How long the last words of a machine that has failed are waited for.
const SETTLE_MAX: Duration = Duration::from_millis(500);

/// The newest of what a console said. Clones are the same tape.
#[derive(Clone)]
pub struct Tape {
    kept: Arc<Mutex<Kept>>,
    ended: watch::Sender<bool>,
}

struct Kept {
    newest: Vec<u8>,
    directory: Option<PathBuf>,
    file: Option<File>,
    file_bytes: u64,
}

impl Tape {
    /// One that also writes into `directory`, if there is one.
    pub fn new(directory: Option<PathBuf>) -> Self {
        let kept = Kept { newest: Vec::new(), directory, file: None, file_bytes: 0 };
        Self { kept: Arc::new(Mutex::new(kept)), ended: watch::Sender::new(false) }
    }

    /// Reads the console at this path until it closes. Ends by itself when nothing comes there and
    /// nobody has the tape any more.
    pub fn record(&self, path: PathBuf) {
        let tape = self.clone();
        tokio::spawn(async move {
            let is_pipe = fs::metadata(&path).is_ok_and(|found| found.file_type().is_fifo());
            if is_pipe {
                if let Ok(pipe) = pipe::OpenOptions::new().open_receiver(&path) {
                    tape.drain(pipe).await;
                }
            } else if let Some(console) = tape.connect(&path).await {
                tape.drain(console).await;
            }
            tape.ended.send_replace(true);
        });
    }

    /// Reads the console from this pipe until the machine has closed it.
    pub fn record_pipe(&self, console: Receiver) {
        let tape = self.clone();
        tokio::spawn(async move {
            tape.drain(console).await;
            tape.ended.send_replace(true);
        });
    }

    async fn drain(&self, mut console: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(count @ 1..) = console.read(&mut buffer).await {
            self.push(&buffer[..count]);
        }
    }

    async fn connect(&self, socket: &Path) -> Option<UnixStream> {
        loop {
            if let Ok(stream) = UnixStream::connect(socket).await {
                return Some(stream);
            }
            if Arc::strong_count(&self.kept) == 1 {
                return None;
            }
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
    }

    pub fn push(&self, bytes: &[u8]) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }

    /// The last lines.
    pub fn tail(&self) -> String {
        parse_tail(&self.kept.lock().unwrap_or_else(PoisonError::into_inner).newest)
    }

    /// The same, when everything has been read that there will be, or after a moment.
    pub async fn settled(&self) -> String {
        let mut ended = self.ended.subscribe();
        let _ = tokio::time::timeout(SETTLE_MAX, ended.wait_for(|ended| *ended)).await;
        self.tail()
    }
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.newest.extend_from_slice(bytes);
        // Cut seldom, so that a flood does not move the same bytes for each read.
        if self.newest.len() > 4 * CONSOLE_TAIL_BYTES {
            self.newest.drain(..self.newest.len() - 2 * CONSOLE_TAIL_BYTES);
        }
        // A full disk costs the file; the tail in memory is there all the same.
        let _ = self.write(bytes);
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let path = directory.join(CONSOLE_FILE);
        if self.file_bytes >= CONSOLE_BYTES_MAX {
            self.file = None;
            fs::rename(&path, directory.join(EARLIER))?;
        }
        let file = if let Some(file) = &mut self.file {
            file
        } else {
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(PRIVATE_FILE);
            let file = options.open(path)?;
            self.file_bytes = file.metadata()?.len();
            self.file.insert(file)
        };
        file.write_all(bytes)?;
        self.file_bytes += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_keeps_the_newest_and_two_bounded_files() {
        let directory = std::env::temp_dir().join(format!("burrow-tape-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let tape = Tape::new(Some(directory.clone()));
        for line in 0..200_000 {
            tape.push(format!("line {line}\n").as_bytes());
        }
        let tail = tape.tail();
        assert!(tail.ends_with("line 199999") && tail.starts_with("line "), "{tail}");
        assert!(tail.len() <= CONSOLE_TAIL_BYTES);
        let bytes = |name: &str| fs::metadata(directory.join(name)).unwrap().len();
        assert!(bytes(CONSOLE_FILE) <= CONSOLE_BYTES_MAX + 64);
        assert!(bytes(EARLIER) <= CONSOLE_BYTES_MAX + 64);
        let newest = fs::read_to_string(directory.join(CONSOLE_FILE)).unwrap();
        assert!(newest.ends_with("line 199999\n"));
        fs::remove_dir_all(directory).unwrap();
    }
}
