//! Bytes ↔ frames and bodies ↔ MessagePack.
//!
//! [`FrameBuffer`] holds what has arrived and was not taken yet; it never holds more than one frame
//! and one read beyond it. Bodies are encoded with named fields (unknown ones are ignored when
//! read) and decoded with a depth limit.

use std::ops::Range;

use serde::Serialize;

use crate::fault;
use crate::frame::{self, Frame, FrameError, Kind};
#[cfg(test)]
use crate::limits::BODY_DEPTH_MAX;
use crate::limits::FRAME_BYTES_MAX;
use crate::msgpack::{self, Decode};

/// Why a body is invalid for its kind. The sender loses its link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body of a {kind} frame is not valid: {reason}")]
pub struct BodyError {
    pub kind: &'static str,
    pub reason: String,
}

/// Arrived bytes that are not yet frames.
///
/// The owner reads into [`FrameBuffer::space`], reports how much with [`FrameBuffer::filled`], and
/// takes frames with [`FrameBuffer::take`] until there is none.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    /// The part of `bytes` that has arrived and was not taken.
    live: Range<usize>,
}

/// How much is read from the kernel at once: a full chunk and the frames around it.
const READ_BYTES: usize = 128 * 1024;
/// The same until more than that has arrived at once. An idle link has a heartbeat's answer to read now and
/// then, and hundreds of links are idle.
const READ_BYTES_FIRST: usize = 4 * 1024;

impl FrameBuffer {
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for the next read, never empty.
    pub fn space(&mut self) -> &mut [u8] {
        let was_filled = !self.bytes.is_empty() && self.live.end == self.bytes.len();
        let is_large = was_filled || self.bytes.len() > READ_BYTES_FIRST;
        if self.live.is_empty() {
            self.live = 0..0;
        }
        let wanted = self.missing().max(if is_large { READ_BYTES } else { READ_BYTES_FIRST });
        if self.bytes.len() - self.live.end < wanted.min(READ_BYTES / 2) {
            self.bytes.copy_within(self.live.clone(), 0);
            self.live = 0..self.live.len();
            if self.bytes.len() < self.live.end + wanted {
                self.bytes.resize(self.live.end + wanted, 0);
            }
        }
        &mut self.bytes[self.live.end..]
    }

    /// Says that the first `count` bytes of the last [`FrameBuffer::space`] have been written.
    pub fn filled(&mut self, count: usize) {
        assert!(self.live.end + count <= self.bytes.len(), "filled more than there was space for");
        self.live.end += count;
    }

    /// Copies `input` in; for owners that already hold the bytes.
    pub fn extend(&mut self, input: &[u8]) {
        let mut rest = input;
        while !rest.is_empty() {
            let space = self.space();
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            self.filled(count);
            rest = &rest[count..];
        }
    }

    /// Takes the next whole frame, if there is one.
    pub fn take(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        match frame::parse_frame(&self.bytes[self.live.clone()])? {
            Some((frame, length)) => {
                self.live.start += length;
                Ok(Some(frame))
            }
            None => Ok(None),
        }
    }

    /// Whether nothing of a further frame has arrived.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Drops what has arrived, for a new link, and frees large memory.
    pub fn clear(&mut self) {
        self.live = 0..0;
        self.bytes = Vec::new();
    }

    /// How many bytes the current frame still lacks, as far as its header tells.
    fn missing(&self) -> usize {
        let live = &self.bytes[self.live.clone()];
        match live.first_chunk::<4>() {
            Some(length) => {
                let total = (u32::from_be_bytes(*length) as usize + 4).min(FRAME_BYTES_MAX);
                total.saturating_sub(live.len())
            }
            None => 0,
        }
    }
}

/// Appends a frame with `body` as named MessagePack.
pub fn encode_message<T: Serialize>(kind: Kind, id: u64, body: &T, out: &mut Vec<u8>) {
    let start = frame::begin_frame(kind, id, out);
    msgpack::encode(body, out);
    frame::finish_frame(start, out);
}

/// A body on its own, for owners that check its size before they send it.
pub fn encode_body<T: Serialize>(body: &T) -> Vec<u8> {
    let mut out = Vec::new();
    msgpack::encode(body, &mut out);
    out
}

/// Reads a body; trailing bytes are an error, because they mean that the ends disagree.
pub fn decode_body<T: Decode>(kind: Kind, body: &[u8]) -> Result<T, BodyError> {
    msgpack::decode(body)
        .map_err(|error| BodyError { kind: kind.name(), reason: fault::clip(error.to_string()) })
}

#[cfg(test)]
mod tests;
