//! Records that arrive in pieces: bytes in, whole records out. Pure.

/// What is kept of the buffer while it is empty: a record of a hostile or chatty guest may be
/// megabytes, and most are some bytes.
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
