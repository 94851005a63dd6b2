//! Reads lines of stdin for code that asks for input. A thread reads one line per question, so that
//! the rest is left to other programs that share stdin, as far as buffering allows.

use std::io::{self, BufRead, IsTerminal, Read, stdin};
use std::sync::mpsc;

use anyhow::Result;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use tokio::sync::oneshot;

use super::super::failure::CliError;
use crate::terminal::{RawMode, TerminalError};
use agent_client::guest::limits::ANSWER_BYTES_MAX;

/// A requested line; `None` is the end of the input.
pub type Awaited = oneshot::Receiver<io::Result<Option<Vec<u8>>>>;

/// See the module's description.
pub struct Lines {
    questions: mpsc::Sender<oneshot::Sender<io::Result<Option<Vec<u8>>>>>,
}

impl Lines {
    pub fn new() -> Self {
        let (questions, lines_wanted) = mpsc::channel::<oneshot::Sender<_>>();
        std::thread::spawn(move || {
            while let Ok(answer) = lines_wanted.recv() {
                // The question may be gone, with the code that asked.
                let _ = answer.send(read_line(&mut stdin().lock()));
            }
        });
        Self { questions }
    }

    pub fn ask(&self) -> Awaited {
        let (answer, awaited) = oneshot::channel();
        // A thread that is gone drops the answer, which its reader sees.
        let _ = self.questions.send(answer);
        awaited
    }
}

/// The next line with its newline, if it has one.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.take(ANSWER_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
    if line.len() > ANSWER_BYTES_MAX {
        return Err(io::Error::other(CliError::LineTooLong { limit: ANSWER_BYTES_MAX }));
    }
    Ok((!line.is_empty()).then_some(line))
}

/// The terminal of stdin without its echo, until it is dropped.
pub struct EchoOff {
    _guard: RawMode,
}

impl EchoOff {
    /// `None` if stdin is not a terminal: then nothing is echoed anyway.
    pub fn keep() -> Result<Option<Self>, TerminalError> {
        if !stdin().is_terminal() {
            return Ok(None);
        }
        let failed = |action| move |source| TerminalError::Mode { action, source };
        let mut mode = tcgetattr(stdin()).map_err(failed("read"))?;
        // The guard knows the mode that was there, and restores it at any end of ours.
        let guard = RawMode::enter()?;
        mode.local_modes.remove(LocalModes::ECHO);
        mode.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(stdin(), OptionalActions::Drain, &mode).map_err(failed("set"))?;
        Ok(Some(Self { _guard: guard }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_by_one_and_then_the_end() {
        let mut input = &b"one\n\ntwo"[..];
        let mut next = || read_line(&mut input).expect("readable");
        assert_eq!(next().as_deref(), Some(&b"one\n"[..]));
        assert_eq!(next().as_deref(), Some(&b"\n"[..]));
        assert_eq!(next().as_deref(), Some(&b"two"[..]));
        assert_eq!(next(), None);
    }

    #[test]
    fn a_line_without_end_is_not_read_without_end() {
        let mut endless = io::BufReader::new(io::repeat(b'x'));
        assert!(read_line(&mut endless).is_err());
    }
}
