//! The only place that writes to stdout and stderr, so that there is one rule for each: output for
//! scripts goes to stdout; messages for people go to stderr and begin with our name.
//!
//! A reader that has gone away is no error of ours.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde::Serialize;

use crate::terminal;
use agent_client::queries::QueryFilter;

/// The prefix of every message on stderr.
const OURSELVES: &str = "host-bridge: ";

/// Writes text to stdout unchanged. A closed stdout is success.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = stdout().lock();
    forgive_absence(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Writes a line to stdout.
pub fn print_line(text: &str) -> io::Result<()> {
    print(&format!("{text}\n"))
}

/// Writes a value to stdout as one JSON document for scripts.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    text.push('\n');
    print(&text)
}

/// Prints a message on stderr on a line of its own. A closed stderr is not an error.
pub fn note(text: &str) {
    // In raw mode nobody else moves the cursor back to the left, or off a half-written line.
    let (before, after) = if terminal::raw::is_on() { ("\r\n", "\r\n") } else { ("", "\n") };
    let _ = stderr().lock().write_all(format!("{before}{OURSELVES}{text}{after}").as_bytes());
}

/// Writes text to stderr without our prefix, for clap's usage errors.
pub fn note_verbatim(text: &str) {
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// Redraws a line on stderr.
pub fn draw_line(text: &str) {
    let _ = stderr().lock().write_all(format!("\r\x1b[K{text}").as_bytes());
}

/// Whether stderr is a terminal that can move its cursor.
pub fn stderr_is_screen() -> bool {
    stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Whether stdout is a terminal that wants colours.
pub fn stdout_has_colours() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let able = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    stdout().is_terminal() && able && !unwanted
}

/// Makes untrusted text, such as a guest's, harmless for a terminal: control characters are shown,
/// not executed.
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escape = c.is_control();
            escape.then(|| c.escape_default()).into_iter().flatten().chain((!escape).then_some(c))
        })
        .collect()
}

fn forgive_absence(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// A program's output on its way to one of our own descriptors: exact bytes, unbuffered, and
/// without blocking the event loop, however slow the reader is. Only a terminal does not get the
/// queries that it must not answer.
#[derive(Clone)]
pub struct Sink {
    file: Arc<File>,
    /// The filter for a terminal.
    filter: Option<Arc<Mutex<QueryFilter>>>,
}

impl Sink {
    pub fn stdout() -> io::Result<Self> {
        Self::over(stdout().as_fd())
    }

    pub fn stderr() -> io::Result<Self> {
        Self::over(stderr().as_fd())
    }

    fn over(descriptor: std::os::fd::BorrowedFd<'_>) -> io::Result<Self> {
        let filter = descriptor.is_terminal().then(|| Arc::new(Mutex::new(QueryFilter::new(0))));
        Ok(Self { file: Arc::new(File::from(descriptor.try_clone_to_owned()?)), filter })
    }

    /// For an output that is a replay before this offset.
    pub fn live_from(self, offset: u64) -> Self {
        let filter = self.filter.map(|_| Arc::new(Mutex::new(QueryFilter::new(offset))));
        Self { filter, ..self }
    }

    /// Returns when all of `bytes` are written. `BrokenPipe` means that the reader is gone.
    pub async fn write(&self, bytes: Vec<u8>) -> io::Result<()> {
        self.write_at(0, bytes, false).await
    }

    /// For bytes from an offset on. A terminal gets live output unchanged if its answers go to the
    /// program.
    pub async fn write_at(
        &self,
        offset: u64,
        bytes: Vec<u8>,
        has_keyboard: bool,
    ) -> io::Result<()> {
        let shown = self.filtered(|filter| filter.show(offset, &bytes, has_keyboard));
        self.write_shown(shown.unwrap_or(bytes)).await
    }

    /// The output continues somewhere else.
    pub async fn skip(&self) -> io::Result<()> {
        self.write_shown(self.filtered(QueryFilter::cut).unwrap_or_default()).await
    }

    fn filtered(&self, show: impl FnOnce(&mut QueryFilter) -> Vec<u8>) -> Option<Vec<u8>> {
        let filter = self.filter.as_ref()?;
        Some(show(&mut filter.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    async fn write_shown(&self, bytes: Vec<u8>) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        let written = tokio::task::spawn_blocking(move || write_all(&file, &bytes))
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the writing thread failed")));
        written.map_err(|error| match error.raw_os_error() {
            // A terminal that has been closed returns it.
            Some(nix::libc::EIO) if self.filter.is_some() => ErrorKind::BrokenPipe.into(),
            _ => error,
        })
    }
}

/// Like `write_all`, but it accepts descriptors that somebody has made non-blocking: the mode
/// belongs to the open file, so another program on our terminal or pipe may have set it.
fn write_all(mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                match nix::poll::poll(&mut polled, PollTimeout::NONE) {
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_text_cannot_move_the_cursor() {
        assert_eq!(printable("a\x1b[2Jb\r\n\tä\u{9b}"), "a\\u{1b}[2Jb\\r\\n\\tä\\u{9b}");
    }

    #[test]
    fn a_descriptor_that_does_not_block_still_takes_everything() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&writer, true).expect("a mode");
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
        let copy = sent.clone();
        let writing = std::thread::spawn(move || write_all(&file, &copy));
        let mut received = Vec::new();
        io::Read::read_to_end(&mut reader, &mut received).expect("the bytes");
        writing.join().expect("no panic").expect("written");
        assert!(received == sent);
    }
}
