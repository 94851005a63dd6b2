//! What the fleet's buckets hold: the forms, and the keys that they are under. The transport stores them as
//! JSON; this knows neither.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{Incarnation, Name, NodeId, Session};
use crate::quota::Counter;

/// What a sandbox takes, or a node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    pub sandboxes: u32,
    pub memory_mib: u64,
    pub cpu_millis: u64,
}

impl Room {
    pub fn holds(&self, needed: &Self) -> bool {
        self.sandboxes >= needed.sandboxes
            && self.memory_mib >= needed.memory_mib
            && self.cpu_millis >= needed.cpu_millis
    }

    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sandboxes: self.sandboxes + other.sandboxes,
            memory_mib: self.memory_mib + other.memory_mib,
            cpu_millis: self.cpu_millis + other.cpu_millis,
        }
    }

    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self {
            sandboxes: self.sandboxes.saturating_sub(other.sandboxes),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
            cpu_millis: self.cpu_millis.saturating_sub(other.cpu_millis),
        }
    }
}

/// Whether a node takes new sandboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readiness {
    #[default]
    Ready,
    /// Takes no new sandboxes; those it has stay.
    Cordoned,
    /// The same, and those it has are on their way out.
    Draining,
}

impl Readiness {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
        }
    }
}

/// What a node says of itself. It is written when it joins and when it changes, not with each renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Where the other bridges reach it.
    pub address: String,
    pub version: String,
    pub room: Room,
    pub labels: BTreeMap<String, String>,
    pub machines: BTreeSet<String>,
    pub images: BTreeSet<String>,
    pub readiness: Readiness,
    /// The public half of what the bridge signs calls to the others with, in base64.
    #[serde(default)]
    pub key: String,
}

/// The lease of a node, by which it is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Lease {
    Alive {
        /// The write by which it joined; `None` in that write itself.
        session: Option<Session>,
        /// Which installation it is: another with the same id must not renew it.
        #[serde(with = "crate::ids::shared_text")]
        installation: Arc<str>,
        used: Room,
    },
    /// It ran out, and somebody has made sure that it can't be renewed.
    Buried {
        /// Whether every name of the node has been declared lost.
        swept: bool,
    },
}

/// What has become of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRecord {
    pub incarnation: Incarnation,
    pub node: NodeId,
    pub session: Session,
    /// The idempotency key of the create.
    #[serde(with = "crate::ids::shared_text")]
    pub request: Arc<str>,
    pub needs: Room,
    /// The namespace has a quota, and this sandbox is counted in it.
    pub counted: bool,
    /// It is made again when it is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
    pub state: NameState,
}

impl NameRecord {
    /// Its sandbox is lost, and waits to be made again.
    pub fn waits(&self) -> bool {
        self.returns && self.state == NameState::Lost
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameState {
    /// `node` owns it.
    Owned,
    /// Its node is gone, or no longer has it. The name is free for another incarnation.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Lease(NodeId),
    Node(NodeId),
    Name(Name),
    Quota(Arc<str>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Lease(Lease),
    Node(Arc<NodeRecord>),
    Name(NameRecord),
    Quota(Counter),
}
