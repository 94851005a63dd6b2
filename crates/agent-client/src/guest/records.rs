//! Records that arrive in pieces: bytes in, whole records out.

use super::{GuestError, Output, Piece};

/// How much of the buffer is kept while it is empty: a record of a hostile or chatty guest may be
/// megabytes, and most are a few bytes.
const IDLE_BYTES_MAX: usize = 256 * 1024;

/// Bytes that are not yet records: at most one record and one piece.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    taken: usize,
}

impl Records {
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(IDLE_BYTES_MAX);
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// The next whole record. `parse` bounds its length, says how long it was, and gives nothing
    /// while it is not all there.
    pub fn take<T, E>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<Option<T>, E> {
        let Some((record, length)) = parse(&self.bytes[self.taken..])? else { return Ok(None) };
        self.taken += length;
        Ok(Some(record))
    }
}

/// An output that consists of records and ends after one. Dropping it drops the output.
#[derive(Debug)]
pub struct RecordStream {
    output: Output,
    records: Records,
    faults: Faults,
}

/// What the guest has sent instead.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// It ended within a record.
    pub torn: &'static str,
    /// It left bytes out.
    pub gap: &'static str,
}

impl RecordStream {
    pub fn new(output: Output, faults: Faults) -> Self {
        Self { output, records: Records::default(), faults }
    }

    /// The next record; `None` at the end. Loses nothing when it is cancelled.
    pub async fn next<T, E>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>,
    ) -> Result<Option<T>, GuestError>
    where
        GuestError: From<E>,
    {
        loop {
            if let Some(record) = self.records.take(&parse)? {
                return Ok(Some(record));
            }
            match self.output.next().await {
                Piece::Bytes { bytes, .. } => self.records.extend(&bytes),
                Piece::End if self.records.is_empty() => return Ok(None),
                Piece::End => return Err(GuestError::Malformed { what: self.faults.torn }),
                Piece::Gap { .. } => return Err(GuestError::Malformed { what: self.faults.gap }),
                Piece::Failed(error) => return Err(error),
            }
        }
    }
}
