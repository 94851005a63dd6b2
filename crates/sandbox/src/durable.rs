//! Output that outlives its host: what a sandbox asks for, and the log of a fleet that keeps it.
//!
//! ```text
//!  off     agent ─▶ log on this disk
//!  async   agent ─▶ log on this disk ─▶ log of the fleet           readers do not wait for it
//!  sync    agent ─▶ log of the fleet ─▶ log on this disk ─▶ readers, and the agent forgets
//! ```
//!
//! The recorder of a sandbox writes to it; `node` implements it. A bridge of its own has none.

use std::sync::Arc;

use machine::BoxFuture;
use protocol::message::Channel;
use protocol::{ExitRecord, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SandboxRef;
use crate::log::Run;
use crate::words::words;

/// Whether the output of a sandbox's programs outlives its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// It is on the host's disk.
    #[default]
    Off,
    /// It is also in the fleet's log, a moment later.
    Async,
    /// Nobody sees it before the fleet's log has it.
    Sync,
}

impl Durability {
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

words!(Durability, "a durability", { Off: "off", Async: "async", Sync: "sync" });

/// The logs of a fleet.
pub trait DurableLogs: Send + Sync {
    /// Why nothing can be made durable at the moment.
    fn ready(&self) -> BoxFuture<'_, Result<(), String>>;

    /// The log of one life of a sandbox.
    fn open(&self, which: &SandboxRef, incarnation: &str) -> Arc<dyn DurableLog>;
}

/// The log of one life of a sandbox, whose name is this bridge's. What does not answer is tried again, however long
/// that takes: each of these ends when the log has it, or never will.
pub trait DurableLog: Send + Sync {
    /// Adds a line to the history of the sandbox.
    fn note(&self, line: Line) -> BoxFuture<'static, Result<(), NotAppended>>;

    /// Adds bytes to an output at this offset, or without any says that there are none until `to`. What the log has
    /// already is left out. One output is appended to by one caller at a time.
    fn append(
        &self,
        output: OutputId,
        part: OutputPart,
    ) -> BoxFuture<'static, Result<(), NotAppended>>;

    /// Where an output ends in the log.
    fn end(&self, output: OutputId) -> BoxFuture<'static, Result<u64, NotAppended>>;

    /// Nothing more will be appended to the outputs of a session.
    fn finished(&self, session: &SessionId, run: Run);

    /// Removes it, as far as it can be reached now.
    fn remove(&self) -> BoxFuture<'static, ()>;
}

/// An output of one run of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutputId {
    pub session: SessionId,
    pub run: Run,
    pub channel: Channel,
}

/// Bytes, or a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPart {
    pub offset: u64,
    pub to: u64,
    /// As many as there are from the offset on, or none.
    pub bytes: Vec<u8>,
}

/// A line in the history of a sandbox: what its log on disk says as well, without the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    Started { session: SessionId, run: Run, command: String, is_terminal: bool },
    Exited { session: SessionId, run: Run, record: Box<ExitRecord> },
    Closed { why: String },
}

/// Nothing is appended any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fleet's log takes no more of it: {why}")]
pub struct NotAppended {
    pub why: String,
}
