//! Records on a byte stream: a MessagePack body, and its length as a big-endian `u32` before it.
//!
//! [`watch`](crate::watch) and [`repl`](crate::repl) define their bodies and the longest one. Pure.

use serde::Serialize;

use crate::msgpack;

/// The length field of a record.
pub const LENGTH_BYTES: usize = 4;

/// A record that is longer than its stream allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    pub bytes: usize,
}

/// Appends one record.
pub fn encode<T: Serialize>(body: &T, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    msgpack::encode(body, out);
    let length = (out.len() - start - LENGTH_BYTES) as u32;
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// The length of the record at the beginning of `input`, its length field included; `None` while
/// that is missing. A body beyond `bytes_max` is refused before it has arrived.
pub fn length(input: &[u8], bytes_max: usize) -> Result<Option<usize>, TooLong> {
    let Some(field) = input.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let bytes = u32::from_be_bytes(*field) as usize;
    if bytes > bytes_max {
        return Err(TooLong { bytes });
    }
    Ok(Some(LENGTH_BYTES + bytes))
}

/// The body of the first record of `input` and how many bytes the record took; `None` while it is
/// not all there.
pub fn parse(input: &[u8], bytes_max: usize) -> Result<Option<(&[u8], usize)>, TooLong> {
    let Some(length) = length(input, bytes_max)? else { return Ok(None) };
    Ok(input.get(LENGTH_BYTES..length).map(|body| (body, length)))
}
