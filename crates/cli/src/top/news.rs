//! What the watcher has found, for the model.

use protocol::SessionId;
use protocol::metrics::Sample;

use sandbox::{Record, SandboxRef};

/// Something new.
#[derive(Debug)]
pub enum News {
    Listed(Vec<Record>),
    Sampled { which: SandboxRef, sample: Box<Sample> },
    Inside { which: SandboxRef, parts: Vec<Part>, at_ms: u64 },
    Trouble(String),
}

/// A session or a context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    pub name: String,
    /// The language, if it is a context.
    pub context: Option<String>,
    pub id: Option<SessionId>,
    /// What it runs, or how it has ended.
    pub what: String,
    pub state: String,
    pub is_alive: bool,
    pub started_at_ms: u64,
    pub cpu_us: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub processes: Option<u32>,
    /// The share of one CPU since the picture before.
    pub cpu_percent: Option<f64>,
}

impl Part {
    /// The session that it is, if it is one.
    pub fn session(&self) -> Option<&SessionId> {
        self.id.as_ref()
    }
}
