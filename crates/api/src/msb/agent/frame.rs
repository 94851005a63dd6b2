//! Frames: a length, a number, flags, and a message of CBOR. Pure.
//!
//! ```text
//!  length u32 │ number u32 │ flags u8 │ CBOR { v: generation, t: kind, p: bytes of CBOR }
//!             └──────────── length counts these ────────────┘        all numbers big-endian
//! ```

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::octets::Octets;
use crate::msb::limits::{FRAME_BYTES_MAX, REQUEST_BYTES_MAX};

/// The generation of the protocol that the greeting names: a client speaks the lower one of this and its
/// own. Generation 7 is the one of release 0.6.14; what came later moves bytes in other ways, and is not
/// needed for what is offered here.
pub const GENERATION: u8 = 7;
/// The numbers that a client may give to what it begins.
const NUMBERS: (u32, u32) = (1, 1 << 28);
const LENGTH_BYTES: usize = 4;
const HEAD_BYTES: usize = 5;
/// The last frame of its number.
const TERMINAL: u8 = 1;

/// Why a connection cannot go on: the next frame would not be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {bytes} bytes exceeds the limit of {FRAME_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("a frame of {bytes} bytes is shorter than its head of {HEAD_BYTES}")]
    TooShort { bytes: usize },
}

/// Why a message is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("the message is not CBOR with v, t and p: {0}")]
    Malformed(String),
    #[error("the payload of {kind} is not what it must be: {reason}")]
    Payload { kind: String, reason: String },
    #[error("a message of {bytes} bytes exceeds the limit of {REQUEST_BYTES_MAX} for {kind}")]
    TooLong { kind: String, bytes: usize },
}

/// A frame as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub number: u32,
    body: Bytes,
}

/// A message of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: String,
    payload: Vec<u8>,
}

#[derive(Deserialize)]
struct Envelope {
    t: String,
    p: Octets,
}

#[derive(Serialize)]
struct Sent<'a> {
    v: u8,
    t: &'a str,
    p: Octets,
}

/// The bytes of a connection, cut into frames.
#[derive(Debug, Default)]
pub struct Frames(BytesMut);

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// What is kept until the frame is whole.
    pub fn held_bytes(&self) -> usize {
        self.0.len()
    }

    /// The next whole frame.
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(length) = self.0.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let bytes = u32::from_be_bytes(*length) as usize;
        if bytes > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong { bytes });
        }
        if bytes < HEAD_BYTES {
            return Err(FrameError::TooShort { bytes });
        }
        if self.0.len() < LENGTH_BYTES + bytes {
            return Ok(None);
        }
        self.0.advance(LENGTH_BYTES);
        let mut body = self.0.split_to(bytes).freeze();
        let number = body.get_u32();
        // The flags say what the kind says, too.
        body.advance(1);
        Ok(Some(Frame { number, body }))
    }
}

impl Frame {
    pub fn message(&self) -> Result<Message, MessageError> {
        let read = ciborium::from_reader::<Envelope, _>(&self.body[..]);
        let Envelope { t: kind, p } =
            read.map_err(|error| MessageError::Malformed(error.to_string()))?;
        Ok(Message { kind, payload: p.0 })
    }
}

impl Message {
    /// What is asked for. Only bytes of a file or an input may be long: all else is decoded into more than
    /// it is.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, MessageError> {
        let bytes = self.payload.len();
        if bytes > REQUEST_BYTES_MAX {
            return Err(MessageError::TooLong { kind: self.kind.clone(), bytes });
        }
        self.decode()
    }

    /// The bytes in a message that has nothing else.
    pub fn data(&self) -> Result<Vec<u8>, MessageError> {
        #[derive(Deserialize)]
        struct Data {
            data: Octets,
        }
        Ok(self.decode::<Data>()?.data.0)
    }

    fn decode<T: DeserializeOwned>(&self) -> Result<T, MessageError> {
        ciborium::from_reader(&self.payload[..]).map_err(|error| MessageError::Payload {
            kind: self.kind.clone(),
            reason: error.to_string(),
        })
    }
}

/// Whether nothing follows a message of this kind under its number.
fn is_terminal(kind: &str) -> bool {
    const LAST: [&str; 7] = [
        "core.pong",
        "core.touched",
        "core.error",
        "core.exec.exited",
        "core.exec.failed",
        "core.fs.response",
        "core.tcp.failed",
    ];
    LAST.contains(&kind)
}

/// A frame as it is sent.
pub fn encode(number: u32, kind: &str, payload: &impl Serialize) -> Bytes {
    let cbor = |value: &dyn Fn(&mut Vec<u8>) -> bool| {
        let mut bytes = Vec::new();
        assert!(value(&mut bytes), "memory takes all that is written");
        bytes
    };
    let payload = cbor(&|bytes| ciborium::into_writer(payload, bytes).is_ok());
    let sent = Sent { v: GENERATION, t: kind, p: Octets(payload) };
    let body = cbor(&|bytes| ciborium::into_writer(&sent, bytes).is_ok());
    let mut frame = Vec::with_capacity(LENGTH_BYTES + HEAD_BYTES + body.len());
    let length = u32::try_from(HEAD_BYTES + body.len()).expect("a frame is a piece of a file");
    frame.extend(length.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.push(if is_terminal(kind) { TERMINAL } else { 0 });
    frame.extend(body);
    frame.into()
}

/// What a client hears first: its numbers, and that the agent is ready.
pub fn greeting() -> Bytes {
    // Times since the boot, which nobody reads.
    let times = ["boot_time_ns", "init_time_ns", "ready_time_ns"];
    let ready: BTreeMap<&str, u64> = times.map(|time| (time, 0)).into();
    let (first, end) = NUMBERS;
    let ready = encode(0, "core.ready", &ready);
    [&first.to_be_bytes()[..], &end.to_be_bytes()[..], &ready[..]].concat().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Data {
        data: Octets,
    }

    fn frames(bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let mut frames = Frames::default();
        frames.push(bytes);
        let mut found = Vec::new();
        while let Some(frame) = frames.next()? {
            found.push(frame);
        }
        Ok(found)
    }

    #[test]
    fn lengths_that_no_frame_has_end_the_connection() {
        assert_eq!(frames(&[0xff; 9]), Err(FrameError::TooLong { bytes: 0xffff_ffff }));
        let more = (FRAME_BYTES_MAX as u32 + 1).to_be_bytes();
        assert_eq!(frames(&more), Err(FrameError::TooLong { bytes: FRAME_BYTES_MAX + 1 }));
        for short in 0..5_u8 {
            let bytes = usize::from(short);
            assert_eq!(frames(&[0, 0, 0, short]), Err(FrameError::TooShort { bytes }));
        }
        assert_eq!(frames(&[0, 0, 0]), Ok(Vec::new()));
    }

    #[test]
    fn a_message_that_claims_more_than_it_has_is_malformed_and_costs_nothing() {
        // An array, a text, bytes and a map of 2^60 parts, and arrays within arrays.
        let deep = vec![0x81; 100_000];
        for body in [
            &b"\x9b\x10\0\0\0\0\0\0\0"[..],
            b"\x7b\x10\0\0\0\0\0\0\0",
            b"\x5b\x10\0\0\0\0\0\0\0",
            b"\xbb\x10\0\0\0\0\0\0\0",
            b"",
            b"\xff",
            &deep,
        ] {
            let frame = Frame { number: 1, body: Bytes::copy_from_slice(body) };
            assert!(matches!(frame.message(), Err(MessageError::Malformed(_))), "{body:?}");
        }
    }

    #[test]
    fn a_long_message_is_taken_for_bytes_alone() {
        let sent = encode(7, "core.fs.data", &Data { data: Octets(vec![1; REQUEST_BYTES_MAX]) });
        let message = frames(&sent).unwrap()[0].message().unwrap();
        assert_eq!(message.data().unwrap().len(), REQUEST_BYTES_MAX);
        assert!(matches!(message.payload::<Data>(), Err(MessageError::TooLong { .. })));
    }

    #[test]
    fn the_greeting_is_a_range_of_numbers_and_a_frame() {
        let greeting = greeting();
        assert_eq!(greeting[..8], [0, 0, 0, 1, 0x10, 0, 0, 0]);
        let frames = frames(&greeting[8..]).unwrap();
        assert_eq!(frames[0].number, 0);
        assert_eq!(frames[0].message().unwrap().kind, "core.ready");
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_however_it_is_split(
            data in prop::collection::vec(any::<u8>(), 0..3000),
            number in any::<u32>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let sent = encode(number, "core.exec.stdout", &Data { data: Octets(data.clone()) });
            let mut frames = Frames::default();
            let cut = cut.index(sent.len());
            frames.push(&sent[..cut]);
            prop_assert_eq!(frames.next(), Ok(None));
            frames.push(&sent[cut..]);
            let frame = frames.next().unwrap().unwrap();
            prop_assert_eq!(frame.number, number);
            let message = frame.message().unwrap();
            prop_assert_eq!(&message.kind, "core.exec.stdout");
            prop_assert_eq!(message.data().unwrap(), data);
            prop_assert_eq!(frames.held_bytes(), 0);
        }

        #[test]
        fn strangers_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let frame = Frame { number: 1, body: Bytes::from(bytes.clone()) };
            if let Ok(message) = frame.message() {
                let _ = message.data();
            }
            let _ = frames(&bytes);
        }
    }
}
