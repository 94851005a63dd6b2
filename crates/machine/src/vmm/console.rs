//! A machine's console: messages of its kernel and its agent for which there is no other channel.
//!
//! The monitor offers it at a socket or writes it to a pipe. The bridge always reads it, because a guest
//! whose console nobody reads would block. It keeps only the newest output, because a guest may write any
//! amount: in memory, and for a kept sandbox also in two files that take turns.

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

/// The name of the older file, which is full.
const EARLIER: &str = "console.log.1";
/// The size of one read.
const READ_BYTES: usize = 16 * 1024;
/// How often to look for the monitor's socket while it starts.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// How long to wait for the last output of a machine that has failed.
const SETTLE_MAX: Duration = Duration::from_millis(500);

/// The newest output of a console. Clones are the same tape.
#[derive(Clone)]
pub struct Tape {
    output: Arc<Mutex<Output>>,
    ended: watch::Sender<bool>,
}

struct Output {
    newest: Vec<u8>,
    directory: Option<PathBuf>,
    file: Option<File>,
    file_bytes: u64,
}

impl Tape {
    /// One that also writes into `directory`, if there is one.
    pub fn new(directory: Option<PathBuf>) -> Self {
        let output = Output { newest: Vec::new(), directory, file: None, file_bytes: 0 };
        Self { output: Arc::new(Mutex::new(output)), ended: watch::Sender::new(false) }
    }

    /// Reads the console at this path until it closes. Gives up if the socket never appears and the tape was
    /// dropped.
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
            if Arc::strong_count(&self.output) == 1 {
                return None;
            }
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
    }

    pub fn push(&self, bytes: &[u8]) {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }

    /// The last lines.
    pub fn tail(&self) -> String {
        parse_tail(&self.output.lock().unwrap_or_else(PoisonError::into_inner).newest)
    }

    /// The tail after the end of the console, or after a moment if it does not end.
    pub async fn settled(&self) -> String {
        let mut ended = self.ended.subscribe();
        let _ = tokio::time::timeout(SETTLE_MAX, ended.wait_for(|ended| *ended)).await;
        self.tail()
    }
}

impl Output {
    fn push(&mut self, bytes: &[u8]) {
        self.newest.extend_from_slice(bytes);
        // Cut rarely, so that a flood does not move the same bytes for each read.
        if self.newest.len() > 4 * CONSOLE_TAIL_BYTES {
            self.newest.drain(..self.newest.len() - 2 * CONSOLE_TAIL_BYTES);
        }
        // A full disk costs the file, but not the tail in memory.
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
