//! The on-disk format of a log's records.
//!
//! ```text
//! 0        4          8
//! +--------+----------+------------------------+
//! | length | checksum | body (MessagePack map) |
//! +--------+----------+------------------------+
//!   u32 BE   u32 BE     length bytes
//! ```
//!
//! The checksum detects what a crash can do to the tail of a file, which is to truncate it or to
//! fill it with zeros. Without it, a record whose last bytes became zeros would be read as output.

use std::borrow::Cow;
use std::fmt;

use agent_client::guest::Provenance;
use protocol::exit::Cause;
use protocol::fault::clip;
use protocol::limits::SURVIVORS_LISTED_MAX;
use protocol::message::Channel;
use protocol::{ExitRecord, SessionId};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::LogError;
use crate::limits::LOG_RECORD_BYTES_MAX;

/// Length and checksum before each record.
pub(super) const PREFIX_BYTES: usize = 8;
/// A session has at most so many outputs.
const CHANNELS_MAX: usize = 3;
/// Of SHA-256, in hexadecimal.
const SHA256_DIGITS: usize = 64;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record<'a> {
    pub time_ms: u64,
    pub what: RecordBody<'a>,
    /// For a record that was carried from a removed segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<CarriedFrom>,
}

/// The original position of a carried record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CarriedFrom {
    pub segment: u64,
    pub position: u64,
    /// The run of the session that it is about.
    pub run: Run,
}

impl<'a> Record<'a> {
    pub fn new(time_ms: u64, what: RecordBody<'a>) -> Self {
        Self { time_ms, what, carried: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordBody<'a> {
    /// The first of every segment.
    Head(Head),
    Started(Started),
    Output {
        session: SessionId,
        channel: Channel,
        offset: u64,
        bytes: Blob<'a>,
    },
    Gap {
        session: SessionId,
        channel: Channel,
        from: u64,
        to: u64,
    },
    /// Its terminal has this size from here on.
    Resized {
        session: SessionId,
        rows: u16,
        columns: u16,
    },
    /// What was typed into it; only in the files of that.
    Input {
        session: SessionId,
        bytes: Blob<'a>,
        /// So many bytes before these could not be recorded, of whatever session.
        #[serde(default)]
        lost: u64,
    },
    /// Only in the files of that.
    Provenance(Provenance),
    Exited {
        session: SessionId,
        record: ExitRecord,
    },
    /// The session was released, and its name may come again as another.
    Released {
        session: SessionId,
    },
    Closed {
        why: String,
    },
}

impl RecordBody<'_> {
    /// The session that it is about, if it is about one.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Started(started) => Some(&started.session),
            Self::Output { session, .. }
            | Self::Gap { session, .. }
            | Self::Resized { session, .. }
            | Self::Input { session, .. }
            | Self::Exited { session, .. }
            | Self::Released { session } => Some(session),
            Self::Head(_) | Self::Provenance(_) | Self::Closed { .. } => None,
        }
    }
}

/// The writer's state at the beginning of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// Bytes of output in all segments before this one.
    pub bytes_before: u64,
    pub sessions: Vec<Tracked>,
    /// The records of segments that are gone, which stand between this head and the segment's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<CarriedPart>,
}

/// The carried records of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CarriedPart {
    /// Their bytes in the file.
    pub bytes: u64,
    /// Their bytes of output.
    pub output_bytes: u64,
    /// Where the segment's own records began originally: [`Mark`](super::Mark)s from that time stay valid.
    pub own_start: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    pub session: SessionId,
    pub command: String,
    pub run: Run,
}

/// Which of several sessions that had the same name one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    pub pid: u32,
    pub started_at_ms: u64,
}

/// A session that is being recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tracked {
    pub session: SessionId,
    pub run: Run,
    /// Whether its exit has been recorded.
    pub exited: bool,
    /// The next offset of each output that has any.
    pub next: Vec<(Channel, u64)>,
}

impl Tracked {
    pub fn is_of(&self, session: &SessionId, run: Run) -> bool {
        self.session == *session && self.run == run
    }
}

/// Bytes that MessagePack stores unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob<'a>(pub Cow<'a, [u8]>);

/// Appends a record with its length to `out`.
pub(super) fn encode_record(record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), LogError> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    rmp_serde::encode::write_named(out, record)
        .expect("writing our own types to memory cannot fail");
    let bytes = out.len() - start - PREFIX_BYTES;
    if bytes > LOG_RECORD_BYTES_MAX {
        out.truncate(start);
        return Err(LogError::TooLong { bytes });
    }
    let sum = checksum(&out[start + PREFIX_BYTES..]);
    out[start..start + 4].copy_from_slice(&(bytes as u32).to_be_bytes());
    out[start + 4..start + PREFIX_BYTES].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// A checksum that depends on every word: each step is a bijection of the previous state, so the
/// change of a single word is always detected. It protects against accidents, not against
/// attackers.
pub(crate) fn checksum(body: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |sum: u64, word: u64| (sum.rotate_left(5) ^ word).wrapping_mul(ODD);
    let (words, rest) = body.as_chunks();
    let rest = rest.iter().fold(1, |rest, byte| rest << 8 | u64::from(*byte));
    let sum = words.iter().map(|word| u64::from_be_bytes(*word)).fold(body.len() as u64, step);
    let sum = step(step(sum, rest), 0);
    (sum >> 32) as u32
}

/// The result of parsing the beginning of a log's bytes.
pub(super) enum Parsed {
    Record(Box<Record<'static>>, usize),
    /// More bytes are needed.
    Incomplete,
    /// No record of ours.
    Damaged,
}

/// Reads the record at the beginning of `input`.
pub(super) fn parse_record(input: &[u8]) -> Parsed {
    let Some(&[l0, l1, l2, l3, c0, c1, c2, c3]) = input.first_chunk::<PREFIX_BYTES>() else {
        return Parsed::Incomplete;
    };
    let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    // A file system may fill the tail of a file with zeros when the power fails.
    if length == 0 || length > LOG_RECORD_BYTES_MAX {
        return Parsed::Damaged;
    }
    let Some(body) = input.get(PREFIX_BYTES..PREFIX_BYTES + length) else {
        return Parsed::Incomplete;
    };
    if checksum(body) != u32::from_be_bytes([c0, c1, c2, c3]) {
        return Parsed::Damaged;
    }
    match rmp_serde::from_slice(body) {
        Ok(record) => Parsed::Record(Box::new(record), PREFIX_BYTES + length),
        Err(_) => Parsed::Damaged,
    }
}

/// An exit record whose texts and lists are no longer than an honest agent makes them.
pub(crate) fn bounded(mut record: ExitRecord) -> ExitRecord {
    record.outputs.truncate(CHANNELS_MAX);
    for total in &mut record.outputs {
        total.sha256 = total.sha256.take().filter(|digits| is_digest(digits));
    }
    record.left_behind.truncate(SURVIVORS_LISTED_MAX);
    for survivor in &mut record.left_behind {
        survivor.command = clip(std::mem::take(&mut survivor.command));
    }
    match &mut record.cause {
        Cause::Killed { by, .. } => *by = clip(std::mem::take(by)),
        Cause::SpawnFailed { failure } => {
            failure.subject = clip(std::mem::take(&mut failure.subject));
        }
        Cause::Exited { .. }
        | Cause::Signaled { .. }
        | Cause::TimedOut { .. }
        | Cause::OutOfMemory { .. }
        | Cause::AgentStopping => {}
    }
    record
}

fn is_digest(digits: &str) -> bool {
    digits.len() == SHA256_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Serialize for Blob<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(BlobVisitor)
    }
}

struct BlobVisitor;

impl Visitor<'_> for BlobVisitor {
    type Value = Blob<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(Blob(Cow::Owned(bytes.to_vec())))
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Self::Value, E> {
        Ok(Blob(Cow::Owned(bytes)))
    }
}
