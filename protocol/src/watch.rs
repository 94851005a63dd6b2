//! The [records](record) of a watch stream: each a [`WatchEvent`].
//!
//! The agent's `file` module writes them, the bridge reads them from a hostile guest. Pure.

use crate::fault;
use crate::limits::PATH_BYTES_MAX;
use crate::message::WatchEvent;
use crate::msgpack;
use crate::record::{self, TooLong};

/// The largest record, without its length field: two paths and the words around them. A path below
/// a watched one may be longer than a system call accepts at once, but only by a name.
pub const RECORD_BYTES_MAX: usize = 4 * PATH_BYTES_MAX;

/// Why a watch stream cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("a watch record of {bytes} bytes exceeds the limit of {RECORD_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("a watch record is not valid: {reason}")]
    Malformed { reason: String },
}

/// Appends one record.
pub fn encode_record(event: &WatchEvent, out: &mut Vec<u8>) {
    record::encode(event, out);
}

/// The first record of `input` and how many bytes it took; `None` while it is not all there.
pub fn parse_record(input: &[u8]) -> Result<Option<(WatchEvent, usize)>, RecordError> {
    let parsed = record::parse(input, RECORD_BYTES_MAX)
        .map_err(|TooLong { bytes }| RecordError::TooLong { bytes })?;
    let Some((body, length)) = parsed else { return Ok(None) };
    let event = msgpack::decode(body)
        .map_err(|error| RecordError::Malformed { reason: fault::clip(error.to_string()) })?;
    Ok(Some((event, length)))
}

#[cfg(test)]
mod tests;
