//! Changes under a path of the guest, as they are reported.

use protocol::message::WatchEvent;
use protocol::watch::parse_record;

use super::records::Records;
use super::{GuestError, Output, Piece};

/// A stream of changes. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher {
    output: Output,
    records: Records,
}

impl Watcher {
    pub(super) fn new(output: Output) -> Self {
        Self { output, records: Records::default() }
    }

    /// The next change; `None` when the watched path is gone. Loses nothing when it is cancelled.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>, GuestError> {
        loop {
            if let Some(event) = self.records.take(parse_record)? {
                return Ok(Some(event));
            }
            match self.output.next().await {
                Piece::Bytes { bytes, .. } => self.records.extend(&bytes),
                Piece::End if self.records.is_empty() => return Ok(None),
                Piece::End => return malformed("a watch stream that ends within a record"),
                Piece::Gap { .. } => return malformed("a watch stream with a gap"),
                Piece::Failed(error) => return Err(error),
            }
        }
    }
}

fn malformed<T>(what: &'static str) -> Result<T, GuestError> {
    Err(GuestError::Malformed { what })
}
