//! The output log of a sandbox: what its sessions wrote, on disk, bounded, and readable without the
//! daemon and after the machine is gone.
//!
//! ```text
//!  log/0000000007.seg   head: number, bytes rotated away, sessions with their next offsets
//!                       started · output · output · gap · exited · …
//!  log/0000000008.seg   head · output · …  ◀── appended here; the oldest segment goes when this fills
//! ```
//!
//! What is removed with the oldest segment is carried into the next, up to each session's share
//! ([`carry`]): one session's flood does not remove what another has written.
//!
//! Every segment begins with the whole state of the writer, so opening reads only the newest, and a
//! reader that finds segments missing knows how many bytes of output they contained. A record that
//! was cut off by a crash is removed when the log is opened again; its bytes were not acknowledged,
//! so the agent still has them. Nothing is lost silently: what could not be written, because the
//! disk was full, is recorded as a gap as soon as possible.
//!
//! What is typed is beside it, in files of its own ([`input`]), if the sandbox's policy says so. So is, always, what was put
//! in and how programs and runs ended, as lengths, digests and costs ([`provenance`]).

mod append;
mod carry;
mod input;
mod known;
mod playback;
mod provenance;
mod reader;
mod record;
mod recording;
mod room;
mod runs;
mod segment;
mod verify;
mod writer;

use std::io;
use std::path::{Path, PathBuf};

use protocol::message::Channel;
use protocol::{ExitRecord, SessionId};
use serde::{Deserialize, Serialize};

pub use agent_client::guest::{
    BegunInput, Content, DisplayedForm, ProgramEnd, Provenance, ReceivedFile, RunRecord, SentInput,
};
pub(super) use input::input_directory;
pub use input::{InputLog, InputReader, InputStep, Typed};
pub use known::{AllSessions, Extent, OneSession, RecordedSession};
pub use playback::{Only, Playback};
pub(super) use provenance::provenance_directories;
pub use provenance::{EndsPosition, ProvenanceExtent, ProvenanceLog};
pub use reader::{From, InvalidMark, Mark, Reader, Step};
pub use record::Run;
pub(super) use record::{bounded, checksum};
pub use recording::Recording;
pub use room::ReadBudget;
pub use verify::{Comparison, Finding, Missing, MissingBecause, OutputComparison, verify};
pub use writer::Writer;

use super::record::{Record, StoredRecord};
use super::{SandboxError, SandboxRef};
use host::paths::Paths;

/// The directory of the log in a sandbox's state directory.
const LOG_DIRECTORY: &str = "log";

/// One thing that the log has recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Wall clock of the host when it was recorded, milliseconds since 1970.
    pub time_ms: u64,
    pub event: Event,
}

/// The content of an [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Started {
        session: SessionId,
        command: String,
        started_at_ms: u64,
    },
    Output {
        session: SessionId,
        channel: Channel,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Output that was never recorded: dropped by the session's policy, or by a full disk here.
    Gap {
        session: SessionId,
        channel: Channel,
        from: u64,
        to: u64,
    },
    /// The size of the session's terminal from here on, as far as the bridge has seen it.
    Resized {
        session: SessionId,
        rows: u16,
        columns: u16,
    },
    Exited {
        session: SessionId,
        record: ExitRecord,
    },
    /// This many bytes of output were recorded here and have been rotated away since.
    Missing {
        bytes: u64,
    },
    /// This many bytes of the log's files are damaged; the output in them is lost.
    Damaged {
        bytes: u64,
    },
    /// The sandbox has ended; nothing follows.
    Closed {
        why: String,
    },
}

impl Event {
    /// The session that it is about, if it is about one.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Started { session, .. }
            | Self::Output { session, .. }
            | Self::Gap { session, .. }
            | Self::Resized { session, .. }
            | Self::Exited { session, .. } => Some(session),
            Self::Missing { .. } | Self::Damaged { .. } | Self::Closed { .. } => None,
        }
    }
}

/// Why a log cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("could not {action} the log {path:?}: {source}")]
    Files { action: &'static str, path: PathBuf, source: io::Error },
    #[error("the log does not know the session {session}")]
    UnknownSession { session: SessionId },
    #[error("{sessions} sessions are being recorded, which is the limit")]
    TooManySessions { sessions: usize },
    #[error("a record of {bytes} bytes is over the limit")]
    TooLong { bytes: usize },
}

/// The log of the sandbox whose state directory is `directory`.
pub fn log_directory(directory: &Path) -> PathBuf {
    directory.join(LOG_DIRECTORY)
}

/// Finds a sandbox's log by its name, from the records on disk; no daemon is asked.
pub fn find_log(paths: &Paths, which: &SandboxRef) -> Result<PathBuf, SandboxError> {
    find_record(paths, which).map(|(_, log)| log)
}

/// The same, with the sandbox's record.
pub fn find_record(paths: &Paths, which: &SandboxRef) -> Result<(Record, PathBuf), SandboxError> {
    let boxes = paths.state_boxes();
    let not_found = || SandboxError::NotFound { which: which.clone() };
    let entries = match std::fs::read_dir(&boxes) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_found()),
        Err(source) => {
            return Err(SandboxError::Files { action: "look through", path: boxes, source });
        }
    };
    let directories = entries.flatten().map(|entry| entry.path());
    let mut records = directories.filter_map(|directory| {
        let stored = StoredRecord::read(&directory).ok()?;
        Some((stored.record, log_directory(&directory)))
    });
    records.find(|(record, _)| record.which() == *which).ok_or_else(not_found)
}

#[cfg(test)]
mod tests;
