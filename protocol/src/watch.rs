//! The records of a watch stream: a [`WatchEvent`] as a MessagePack map with named fields, and its
//! length as a big-endian `u32` before it.
//!
//! The agent's `file` module writes them, the bridge reads them from a hostile guest. Pure.

use crate::fault;
use crate::limits::PATH_BYTES_MAX;
use crate::message::WatchEvent;
use crate::msgpack;

/// The length field of a record.
const LENGTH_BYTES: usize = 4;

/// The largest record, its length field aside: two paths and the words around them. A path below
/// a watched one may be longer than what a system call takes at once, but not by more than a name.
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
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    msgpack::encode(event, out);
    let length = (out.len() - start - LENGTH_BYTES) as u32;
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// The first record of `input` and how many bytes it took; `None` while it is not all there.
pub fn parse_record(input: &[u8]) -> Result<Option<(WatchEvent, usize)>, RecordError> {
    let Some((length, rest)) = input.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let bytes = u32::from_be_bytes(*length) as usize;
    if bytes > RECORD_BYTES_MAX {
        return Err(RecordError::TooLong { bytes });
    }
    let Some(body) = rest.get(..bytes) else { return Ok(None) };
    let event = msgpack::decode(body)
        .map_err(|error| RecordError::Malformed { reason: fault::clip(error.to_string()) })?;
    Ok(Some((event, LENGTH_BYTES + bytes)))
}

#[cfg(test)]
mod tests;
