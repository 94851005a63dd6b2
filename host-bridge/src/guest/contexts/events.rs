//! A watch of a context: all that happens in it, whoever asked for it.

use protocol::repl::{Event, parse_record};

use super::clip;
use crate::guest::records::Records;
use crate::guest::{GuestError, Output, Piece};

/// A stream of a context's events. Dropping it ends the watch. It never holds anybody up, so what it
/// is too slow for comes as a gap.
#[derive(Debug)]
pub struct Events {
    output: Output,
    records: Records,
}

impl Events {
    pub(super) fn new(output: Output) -> Self {
        Self { output, records: Records::default() }
    }

    /// The next event; `None` when the context is closed. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Result<Option<Event>, GuestError> {
        loop {
            if let Some(event) = self.records.take(parse_record)? {
                return Ok(Some(clip::event(event)));
            }
            match self.output.next().await {
                Piece::Bytes { bytes, .. } => self.records.extend(&bytes),
                Piece::End if self.records.is_empty() => return Ok(None),
                Piece::End => return malformed("a stream of events that ends within one"),
                Piece::Gap { .. } => return malformed("a stream of events with a gap"),
                Piece::Failed(error) => return Err(error),
            }
        }
    }
}

fn malformed<T>(what: &'static str) -> Result<T, GuestError> {
    Err(GuestError::Malformed { what })
}
