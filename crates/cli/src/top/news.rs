//! What the watcher has found, for the model.

use std::collections::BTreeMap;

use protocol::SessionId;
use protocol::metrics::Sample;

use control::{AllNodes, NodeAnswer, UnansweredNode};
use sandbox::{Record, SandboxRef};

/// Something new.
#[derive(Debug)]
pub enum News {
    Listed(Listing),
    Sampled { which: SandboxRef, sample: Box<Sample> },
    Inside { which: SandboxRef, parts: Vec<Part>, at_ms: u64 },
    Trouble(String),
}

/// All sandboxes that there are.
#[derive(Debug, Default)]
pub struct Listing {
    pub records: Vec<Record>,
    /// The node of each, where all nodes of a fleet were asked.
    pub nodes: BTreeMap<SandboxRef, String>,
    /// The nodes that did not answer.
    pub unanswered: Vec<UnansweredNode>,
}

impl From<Vec<Record>> for Listing {
    fn from(records: Vec<Record>) -> Self {
        Self { records, ..Self::default() }
    }
}

impl From<AllNodes<Vec<Record>>> for Listing {
    fn from(all: AllNodes<Vec<Record>>) -> Self {
        let AllNodes { nodes, unanswered } = all;
        let mut listing = Self { unanswered, ..Self::default() };
        for NodeAnswer { node, answer, .. } in nodes {
            listing.nodes.extend(answer.iter().map(|record| (record.which(), node.clone())));
            listing.records.extend(answer);
        }
        listing
    }
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
