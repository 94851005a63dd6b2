//! Changes under a path of the guest, as they are reported.

use protocol::message::WatchEvent;
use protocol::watch::{RecordError, parse_record};

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
            if let Some(event) = self.records.take()? {
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

/// Bytes that are not yet records: at most one record and one piece.
#[derive(Debug, Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
    taken: usize,
}

impl Records {
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// The next whole record.
    pub(super) fn take(&mut self) -> Result<Option<WatchEvent>, RecordError> {
        let Some((event, length)) = parse_record(&self.bytes[self.taken..])? else {
            return Ok(None);
        };
        self.taken += length;
        Ok(Some(event))
    }
}

fn malformed<T>(what: &'static str) -> Result<T, GuestError> {
    Err(GuestError::Malformed { what })
}
