//! The whole result of a program: the beginning of what it said, and its end.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::ExecResult;
use super::limits::OUTPUT_BYTES_DEFAULT;
use super::program::check_range;
use crate::budget::Share;
use crate::problem::Problem;
use crate::v1::exit::Exit;
use crate::v1::value::lossy;
use agent_client::program::{Ended, Head, Outputs, Running};

pub use super::limits::OUTPUT_BYTES_MAX;

/// What is kept of each output.
pub fn output_bytes_max(asked: Option<u64>) -> Result<u64, Problem> {
    check_range("output_bytes_max", asked, 0, OUTPUT_BYTES_MAX)?;
    Ok(asked.unwrap_or(OUTPUT_BYTES_DEFAULT))
}

/// Waits for the end. Output beyond `bytes_max`, or that `memory` has no room for, is read and left
/// out, so that the program goes on.
pub async fn collect(
    mut running: Running,
    bytes_max: u64,
    memory: &Share,
) -> Result<ExecResult, Problem> {
    let warnings = running.started().await?.warnings.clone();
    let mut outputs = Outputs::new(bytes_max as usize, memory.clone());
    let ended = running.collect(b"", &mut outputs).await?;
    Ok(result(running.session().to_string(), ended, outputs, warnings))
}

fn result(
    session: String,
    ended: Ended,
    outputs: Outputs<Share>,
    warnings: Vec<String>,
) -> ExecResult {
    let missing_bytes = ended.missing_bytes;
    let exit = Exit::from(ended.record);
    let truncated = outputs.is_cut();
    let (stdout, stdout_base64) = shown(outputs.stdout);
    let (stderr, stderr_base64) = shown(outputs.stderr);
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

/// As text, and as base64 where it is none. A cut within a character does not make bytes of text.
fn shown(output: Head) -> (String, Option<String>) {
    match String::from_utf8(output.into_characters()) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.as_bytes();
            (lossy(bytes), Some(STANDARD.encode(bytes)))
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_client::program::Sink;
    use protocol::message::Channel;

    use super::*;
    use crate::budget::Budget;
    use crate::limits::MEMORY_STEP_BYTES;

    fn kept(bytes_max: usize, pieces: &[&str]) -> (String, Option<String>, bool) {
        let memory = Budget::new(0).share();
        let mut head = Head::new(bytes_max);
        for piece in pieces {
            head.add(piece.as_bytes(), &memory);
        }
        let is_cut = head.is_cut();
        let (text, base64) = shown(head);
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
        let mut outputs = Outputs::new(usize::MAX, Budget::new(0).share());
        outputs.add(Channel::Stdout, b"ab");
        outputs.add(Channel::Stdout, &vec![b'x'; MEMORY_STEP_BYTES as usize]);
        outputs.add(Channel::Stdout, b"c");
        outputs.add(Channel::Stderr, b"d");
        assert_eq!((outputs.stdout.bytes(), outputs.stdout.is_cut()), (b"ab".as_slice(), true));
        assert_eq!((outputs.stderr.bytes(), outputs.stderr.is_cut()), (b"d".as_slice(), false));
    }

    #[test]
    fn a_cut_within_a_character_leaves_the_characters_before_it() {
        assert_eq!(kept(4, &["a€€"]), ("a€".to_owned(), None, true));
    }

    #[test]
    fn bytes_that_are_no_text_are_there_as_they_are() {
        let mut head = Head::new(10);
        head.add(b"\xffa", &Budget::new(0).share());
        assert_eq!(shown(head), ("\u{fffd}a".to_owned(), Some("/2E=".to_owned())));
    }
}
