//! A node as people and programs see it.

use std::collections::{BTreeMap, BTreeSet};

use fleet::records::Readiness;
use serde::{Deserialize, Serialize};

use crate::Node;

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    pub name: String,
    /// It is the one that answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub here: bool,
    /// Where its bridge is reached.
    pub address: String,
    pub version: String,
    pub readiness: Readiness,
    /// What sandboxes may be promised there together.
    pub sandboxes: u32,
    pub memory_mib: u64,
    pub cpu_millis: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub machines: BTreeSet<String>,
    /// Why it is not in the fleet at the moment; only the node that answers knows it of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Node {
    /// All nodes that have described themselves, by name. The one that answers is among them in any case.
    pub async fn rows(&self) -> Vec<NodeRow> {
        let trouble = self.standing().err();
        let mut nodes = self.nodes().await;
        if !nodes.iter().any(|about| about.is_here) {
            nodes.push(self.about());
        }
        let row = |about: crate::About| NodeRow {
            name: about.id.to_string(),
            here: about.is_here,
            address: about.record.address.clone(),
            version: about.record.version.clone(),
            readiness: about.record.readiness,
            sandboxes: about.record.room.sandboxes,
            memory_mib: about.record.room.memory_mib,
            cpu_millis: about.record.room.cpu_millis,
            labels: about.record.labels.clone(),
            machines: about.record.machines.clone(),
            trouble: trouble.clone().filter(|_| about.is_here),
        };
        let mut rows: Vec<_> = nodes.into_iter().map(row).collect();
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        rows
    }
}
