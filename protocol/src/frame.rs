//! The frame: the unit that is sent, and all that a relay has to understand.
//!
//! ```text
//! 0        4      5              13
//! +--------+------+--------------+----------------------+
//! | length | kind |      id      |  body (MessagePack)  |
//! +--------+------+--------------+----------------------+
//!   u32 BE    u8       u64 BE       length - 9 bytes
//! ```
//!
//! This layout never changes between versions: a guest frozen in a snapshot must be able to read
//! the frame in which a newer host says which versions it speaks.

use crate::limits::FRAME_BYTES_MAX;

/// Length, kind and id.
pub const HEADER_BYTES: usize = 13;
/// The part of the header that the length field counts.
pub const COUNTED_HEADER_BYTES: usize = 9;

/// The kind of a frame. The number is its byte on the wire; numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Host → agent, first: versions, who I am, which streams I take up again.
    Hello = 1,
    /// Agent → host, the answer: the version spoken, who I am, which streams I still have.
    Welcome = 2,
    /// Either way, last: why the link ends.
    Goodbye = 3,
    /// Host → agent; the id is the request's.
    Request = 4,
    /// Agent → host; the id is the request's.
    Reply = 5,
    /// Either way: bytes of a stream at an offset; the id is the stream's.
    Data = 6,
    /// Either way: how far the receiver has come and how far the sender may go.
    Ack = 7,
    /// Either way: the sender's stream ends at an offset.
    Fin = 8,
    /// Either way: bytes of a stream that no longer exist.
    Gap = 9,
    /// Either way: the stream is given up, with a fault.
    Reset = 10,
    /// Either way: are you there? The id comes back in the pong.
    Ping = 11,
    Pong = 12,
    /// Host → agent, before any hello, once: the sandbox to become.
    Boot = 13,
}

impl Kind {
    pub const ALL: [Self; 13] = [
        Self::Hello,
        Self::Welcome,
        Self::Goodbye,
        Self::Request,
        Self::Reply,
        Self::Data,
        Self::Ack,
        Self::Fin,
        Self::Gap,
        Self::Reset,
        Self::Ping,
        Self::Pong,
        Self::Boot,
    ];

    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// The word in PROTOCOL.md.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Welcome => "welcome",
            Self::Goodbye => "goodbye",
            Self::Request => "request",
            Self::Reply => "reply",
            Self::Data => "data",
            Self::Ack => "ack",
            Self::Fin => "fin",
            Self::Gap => "gap",
            Self::Reset => "reset",
            Self::Ping => "ping",
            Self::Pong => "pong",
            Self::Boot => "boot",
        }
    }
}

/// A frame whose header has been checked; the body is still bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: Kind,
    pub id: u64,
    pub body: &'a [u8],
}

/// Why bytes are not a frame. It costs the sender its link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {bytes} bytes exceeds the limit of {FRAME_BYTES_MAX}")]
    TooLong { bytes: u64 },
    #[error("a frame of {bytes} bytes is shorter than its header")]
    TooShort { bytes: u64 },
    #[error("frame kind {kind} is unknown")]
    UnknownKind { kind: u8 },
}

/// Appends a whole frame to `out`.
pub fn encode_frame(kind: Kind, id: u64, body: &[u8], out: &mut Vec<u8>) {
    let start = begin_frame(kind, id, out);
    out.extend_from_slice(body);
    finish_frame(start, out);
}

/// Appends a header whose length is not known yet; [`finish_frame`] fills it in.
pub fn begin_frame(kind: Kind, id: u64, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(kind as u8);
    out.extend_from_slice(&id.to_be_bytes());
    start
}

/// Fills in the length of the frame that began at `start` and ends where `out` ends.
pub fn finish_frame(start: usize, out: &mut [u8]) {
    let counted = out.len() - start - 4;
    debug_assert!(counted + 4 <= FRAME_BYTES_MAX, "frame of {counted} bytes");
    out[start..start + 4].copy_from_slice(&(counted as u32).to_be_bytes());
}

/// Reads the frame at the beginning of `input`: the frame and its length, or `None` if more bytes
/// are needed. Header faults are found as soon as the header has arrived, whatever follows.
pub fn parse_frame(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(length) = input.first_chunk::<4>() else { return Ok(None) };
    let counted = u32::from_be_bytes(*length) as usize;
    if counted + 4 > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong { bytes: counted as u64 + 4 });
    }
    if counted < COUNTED_HEADER_BYTES {
        return Err(FrameError::TooShort { bytes: counted as u64 + 4 });
    }
    let Some(&kind) = input.get(4) else { return Ok(None) };
    let kind = Kind::from_byte(kind).ok_or(FrameError::UnknownKind { kind })?;
    let Some(frame) = input.get(..counted + 4) else { return Ok(None) };
    let mut id = [0; 8];
    id.copy_from_slice(&frame[5..HEADER_BYTES]);
    Ok(Some((
        Frame { kind, id: u64::from_be_bytes(id), body: &frame[HEADER_BYTES..] },
        counted + 4,
    )))
}
