//! The whole result of a program: the beginning of what it said, and its end.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::ExitRecord;
use protocol::message::Channel;

use super::ExecResult;
use super::begin::Begun;
use super::limits::OUTPUT_BYTES_DEFAULT;
use super::program::check_range;
use crate::budget::Share;
use crate::problem::Problem;
use crate::v1::exit::Exit;
use crate::v1::value::{Characters, lossy};
use agent_client::guest::GuestError;
use agent_client::guest::exec::Event;

pub use super::limits::OUTPUT_BYTES_MAX;

/// What is kept of each output.
pub fn output_bytes_max(asked: Option<u64>) -> Result<u64, Problem> {
    check_range("output_bytes_max", asked, 0, OUTPUT_BYTES_MAX)?;
    Ok(asked.unwrap_or(OUTPUT_BYTES_DEFAULT))
}

/// Waits for the end. Output beyond `bytes_max`, or that `memory` has no room for, is read and left
/// out, so that the program goes on.
pub async fn collect(begun: Begun, bytes_max: u64, memory: &Share) -> Result<ExecResult, Problem> {
    // An input that nobody fills is let go of, which a program that waits for it would notice.
    let Begun { mut execution, started, mut leash, writer: _writer } = begun;
    let (mut stdout, mut stderr) = (Kept::new(bytes_max), Kept::new(bytes_max));
    let mut missing_bytes = 0_u64;
    let record = loop {
        match execution.next().await? {
            Some(Event::Output { channel: Channel::Stderr, bytes, .. }) => {
                stderr.add(&bytes, memory);
            }
            Some(Event::Output { bytes, .. }) => stdout.add(&bytes, memory),
            Some(Event::Gap { from, to, .. }) => missing_bytes += to.saturating_sub(from),
            Some(Event::Exited(record)) => break record,
            Some(Event::Started(_)) => {}
            None => return Err(GuestError::Malformed { what: "no exit record" }.into()),
        }
    };
    leash.ended();
    let session = leash.session().to_string();
    Ok(result(session, stdout, stderr, missing_bytes, record, started.warnings))
}

fn result(
    session: String,
    stdout: Kept,
    stderr: Kept,
    missing_bytes: u64,
    record: ExitRecord,
    warnings: Vec<String>,
) -> ExecResult {
    let exit = Exit::from(record);
    let truncated = stdout.is_cut || stderr.is_cut;
    let (stdout, stdout_base64) = stdout.shown();
    let (stderr, stderr_base64) = stderr.shown();
    ExecResult {
        session,
        stdout,
        stderr,
        stdout_base64,
        stderr_base64,
        truncated,
        missing_bytes: (missing_bytes > 0).then_some(missing_bytes),
        exit_code: exit.exit_code,
        success: exit.success,
        cause: exit.cause,
        duration_us: exit.duration_us,
        usage: exit.usage,
        left_behind: exit.left_behind,
        left_behind_count: exit.left_behind_count,
        warnings,
        captured: None,
    }
}

/// The beginning of an output.
#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    bytes_max: u64,
    is_cut: bool,
}

impl Kept {
    fn new(bytes_max: u64) -> Self {
        Self { bytes: Vec::new(), bytes_max, is_cut: false }
    }

    fn add(&mut self, bytes: &[u8], memory: &Share) {
        if self.is_cut {
            return;
        }
        let room = self.bytes_max.saturating_sub(self.bytes.len() as u64);
        let mut taken = (bytes.len() as u64).min(room) as usize;
        if !memory.try_grow(taken) {
            taken = 0;
        }
        self.bytes.extend_from_slice(&bytes[..taken]);
        self.is_cut = taken < bytes.len();
    }

    /// As text, and as base64 where it is none. A cut within a character does not make bytes of
    /// text.
    fn shown(self) -> (String, Option<String>) {
        let bytes = if self.is_cut { Characters::default().take(&self.bytes) } else { self.bytes };
        match String::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(error) => {
                let bytes = error.as_bytes();
                (lossy(bytes), Some(STANDARD.encode(bytes)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::limits::MEMORY_STEP_BYTES;

    fn kept(bytes_max: u64, pieces: &[&str]) -> (String, Option<String>, bool) {
        let memory = Budget::new(0).share();
        let mut kept = Kept::new(bytes_max);
        for piece in pieces {
            kept.add(piece.as_bytes(), &memory);
        }
        let is_cut = kept.is_cut;
        let (text, base64) = kept.shown();
        (text, base64, is_cut)
    }

    #[test]
    fn an_output_counts_as_cut_exactly_when_a_byte_was_left_out() {
        assert_eq!(kept(4, &["ab", "cd"]), ("abcd".to_owned(), None, false));
        assert_eq!(kept(4, &["ab", "cde"]), ("abcd".to_owned(), None, true));
        assert_eq!(kept(0, &[]), (String::new(), None, false));
        assert_eq!(kept(0, &["a"]), (String::new(), None, true));
    }

    #[test]
    fn an_output_without_memory_for_it_is_cut_and_nothing_is_left_out_between() {
        let memory = Budget::new(0).share();
        let (mut stdout, mut stderr) = (Kept::new(u64::MAX), Kept::new(u64::MAX));
        stdout.add(b"ab", &memory);
        stdout.add(&vec![b'x'; MEMORY_STEP_BYTES as usize], &memory);
        stdout.add(b"c", &memory);
        stderr.add(b"d", &memory);
        assert_eq!((stdout.bytes.as_slice(), stdout.is_cut), (b"ab".as_slice(), true));
        assert_eq!((stderr.bytes.as_slice(), stderr.is_cut), (b"d".as_slice(), false));
    }

    #[test]
    fn a_cut_within_a_character_leaves_the_characters_before_it() {
        assert_eq!(kept(4, &["a€€"]), ("a€".to_owned(), None, true));
    }

    #[test]
    fn bytes_that_are_no_text_are_there_as_they_are() {
        let mut kept = Kept::new(10);
        kept.add(b"\xffa", &Budget::new(0).share());
        assert_eq!(kept.shown(), ("\u{fffd}a".to_owned(), Some("/2E=".to_owned())));
    }
}
