//! The state of a pool, for people and monitoring programs.

use protocol::ContextName;
use serde::{Deserialize, Serialize};

use machine::MachineKind;

/// One entry of the pool, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShelfStatus {
    pub image: String,
    pub machine: MachineKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contexts: Vec<ContextName>,
    /// How many should be ready.
    pub wanted: usize,
    pub ready: usize,
    pub starting: usize,
    /// How many were restored from the snapshot of a machine that was ready, since the bridge began.
    #[serde(default, skip_serializing_if = "is_none")]
    pub restored: u64,
    /// The size of that snapshot on disk, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes: Option<u64>,
    #[serde(flatten)]
    pub counts: Counts,
    /// Why the last start failed, while none has succeeded since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Counts since the bridge began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Sandboxes that came from here.
    pub claimed: u64,
    /// Sandboxes that would have, had one been ready.
    pub missed: u64,
    /// Machines that were ended unclaimed: dead, silent, too old, or of no use in a claim.
    pub replaced: u64,
    /// Starts that failed, and machines that died right after their start.
    pub failed: u64,
}
