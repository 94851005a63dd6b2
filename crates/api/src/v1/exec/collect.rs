//! The whole result of a program: the beginning of its output, and its end.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::ExecResult;
use super::limits::OUTPUT_BYTES_DEFAULT;
use crate::budget::{Share, unreadable_bytes};
use crate::forms::exit::Exit;
use crate::forms::ranges::check_range;
use crate::v1::value::lossy;
use agent_client::program::{Ended, Head, Outputs, Running};
use sandbox::refusal::Refusal;

pub use super::limits::OUTPUT_BYTES_MAX;

/// What is kept of each output.
pub fn output_bytes_max(requested: Option<u64>) -> Result<u64, Refusal> {
    check_range("output_bytes_max", requested, 0, OUTPUT_BYTES_MAX)?;
    Ok(requested.unwrap_or(OUTPUT_BYTES_DEFAULT))
}

/// Waits for the end. Output beyond `bytes_max` is read and left out, so that the program goes on. What
/// `memory` has no room for ends the call: the waiter learns it there.
pub async fn collect(
    mut running: Running,
    bytes_max: u64,
    memory: &Share,
) -> Result<ExecResult, Refusal> {
    let warnings = running.started().await?.warnings.clone();
    let mut outputs = Outputs::new(bytes_max as usize, memory.clone());
    let ended = running.collect(b"", &mut outputs).await?;
    result(running.session().to_string(), ended, outputs, warnings, memory)
}

fn result(
    session: String,
    ended: Ended,
    outputs: Outputs<Share>,
    warnings: Vec<String>,
    memory: &Share,
) -> Result<ExecResult, Refusal> {
    let missing_bytes = ended.missing_bytes;
    let exit = Exit::from(ended.record);
    let truncated = outputs.is_cut();
    let (stdout, stdout_base64) = shown(outputs.stdout, memory)?;
    let (stderr, stderr_base64) = shown(outputs.stderr, memory)?;
    Ok(ExecResult {
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
    })
}

/// As text, or as base64 if it is not UTF-8. A cut within a character does not make text binary.
fn shown(output: Head, memory: &Share) -> Result<(String, Option<String>), Refusal> {
    match String::from_utf8(output.into_characters()) {
        Ok(text) => Ok((text, None)),
        Err(error) => {
            let bytes = error.as_bytes();
            memory.grow(unreadable_bytes(bytes))?;
            Ok((lossy(bytes), Some(STANDARD.encode(bytes))))
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_client::program::Sink;
    use protocol::message::Channel;

    use super::*;
    use crate::limits::MEMORY_STEP_BYTES;

    fn collect(bytes_max: usize, pieces: &[&str]) -> (String, Option<String>, bool) {
        let memory = Share::within(0);
        let mut head = Head::new(bytes_max);
        for piece in pieces {
            head.add(piece.as_bytes(), &memory);
        }
        let is_cut = head.is_cut();
        let (text, base64) = shown(head, &memory).unwrap();
        (text, base64, is_cut)
    }

    #[test]
    fn an_output_counts_as_cut_exactly_when_a_byte_was_left_out() {
        assert_eq!(collect(4, &["ab", "cd"]), ("abcd".to_owned(), None, false));
        assert_eq!(collect(4, &["ab", "cde"]), ("abcd".to_owned(), None, true));
        assert_eq!(collect(0, &[]), (String::new(), None, false));
        assert_eq!(collect(0, &["a"]), (String::new(), None, true));
    }

    #[test]
    fn an_output_without_memory_for_it_is_cut_and_nothing_is_left_out_between() {
        let mut outputs = Outputs::new(usize::MAX, Share::within(0));
        outputs.add(Channel::Stdout, b"ab");
        outputs.add(Channel::Stdout, &vec![b'x'; MEMORY_STEP_BYTES as usize]);
        outputs.add(Channel::Stdout, b"c");
        outputs.add(Channel::Stderr, b"d");
        assert_eq!((outputs.stdout.bytes(), outputs.stdout.is_cut()), (b"ab".as_slice(), true));
        assert_eq!((outputs.stderr.bytes(), outputs.stderr.is_cut()), (b"d".as_slice(), false));
    }

    #[test]
    fn a_cut_within_a_character_leaves_the_characters_before_it() {
        assert_eq!(collect(4, &["a€€"]), ("a€".to_owned(), None, true));
    }

    #[test]
    fn bytes_that_are_no_text_are_there_as_they_are() {
        let (mut head, memory) = (Head::new(10), Share::within(0));
        head.add(b"\xffa", &memory);
        let shown = shown(head, &memory).unwrap();
        assert_eq!(shown, ("\u{fffd}a".to_owned(), Some("/2E=".to_owned())));
    }
}
