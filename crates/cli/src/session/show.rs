//! Writes one output of a session to a descriptor, until the output ends or everything is written
//! that the program had written when it ended.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use protocol::ExitRecord;
use protocol::message::Channel;
use tokio::sync::watch;

use super::super::output::{self, Sink};
use agent_client::guest::{Output, Piece};

/// How long the rest of the output may take to begin to arrive when the program has ended.
const REST_DEADLINE: Duration = Duration::from_secs(10);

/// How writing an output ended.
pub(super) enum OutputEnd {
    Everything,
    /// The descriptor has no reader.
    Unread,
}

/// Writes output from offset `at` on, until its end or until `goal`, which is how much the program had
/// written when it ended: processes that it left behind may keep the output open forever. `has_keyboard` says
/// whether our terminal may answer the program's queries.
pub(super) async fn show(
    mut stream: Output,
    mut at: u64,
    mut goal: watch::Receiver<Option<u64>>,
    sink: Sink,
    has_keyboard: impl AsRef<AtomicBool>,
) -> Result<OutputEnd> {
    loop {
        let ended = *goal.borrow_and_update();
        if ended.is_some_and(|goal| at >= goal) {
            return Ok(OutputEnd::Everything);
        }
        let piece = tokio::select! {
            piece = stream.next() => piece,
            Ok(()) = goal.changed() => continue,
            // The program has ended and its output does not arrive: the agent is at fault.
            () = tokio::time::sleep(REST_DEADLINE), if ended.is_some() => return Ok(OutputEnd::Everything),
        };
        match piece {
            Piece::Bytes { offset, bytes } => {
                at = offset + bytes.len() as u64;
                let has_keyboard = has_keyboard.as_ref().load(Ordering::Acquire);
                match sink.write_at(offset, bytes, has_keyboard).await {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                        return Ok(OutputEnd::Unread);
                    }
                    Err(error) => return Err(error).context("cannot write the output"),
                }
            }
            Piece::Gap { from, to } => {
                at = to;
                // A failed write is noticed at the next piece.
                let _ = sink.skip().await;
                output::note(&format!(
                    "skipped {} bytes, because the terminal was too slow",
                    to - from
                ));
            }
            Piece::End => return Ok(OutputEnd::Everything),
            Piece::Failed(error) => return Err(error.into()),
        }
    }
}

/// The offset up to which an output is shown after the program has ended.
pub(super) fn goal_of(record: &ExitRecord, channel: Channel) -> u64 {
    record.complete_at(channel).unwrap_or(u64::MAX)
}
