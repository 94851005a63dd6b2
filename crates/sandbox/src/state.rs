//! The states of a sandbox.

use std::fmt;
use std::str::FromStr;

use machine::MachineExit;
use serde::{Deserialize, Serialize};

/// The state of a sandbox. Only the task that owns the sandbox changes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Its directories are being made and its machine starts. A bridge that finds this state in a
    /// record was interrupted, and removes everything.
    Creating,
    /// Its agent has answered.
    Running,
    /// Its machine is paused since then, with everything in it.
    Paused {
        since_ms: u64,
        /// It was idle, and the next request has it continue. Paused by hand, only a resumption does.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_idle: bool,
        /// Its node could not renew its lease in the fleet, and has it continue when it can.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_lease: bool,
        /// Its memory is on disk, and no process of this host is its machine.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        on_disk: bool,
    },
    /// A stop was asked for, and the grace of its processes runs.
    Stopping,
    /// Its machine is gone. Its record and logs can still be read, and its name is taken until its
    /// removal.
    Stopped { why: StopReason, at_ms: u64 },
    /// Its machine lives, but the agent no longer answers. It can only be killed.
    Lost { reason: String },
    /// Its record on disk cannot be read. It can only be killed and removed.
    Damaged { reason: String },
}

/// Why a sandbox has stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// On request.
    #[serde(rename = "asked")]
    Requested,
    /// It was killed on request, or because it did not stop.
    Killed,
    /// Its machine ended by itself, in this way.
    Ended { detail: String },
    /// Its time to live was over.
    Expired { kind: ExpiryKind },
    /// Its machine ended while no bridge was running.
    BridgeAway,
}

/// Which time to live was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpiryKind {
    /// It was idle for too long.
    Idle,
    /// It had lived for so long.
    Age,
    /// Its namespace or key has reached its daily run time.
    RunTime,
    /// Its namespace or key has reached its daily output.
    Output,
}

impl StopReason {
    /// Whether a machine died for want of memory.
    pub fn is_for_memory(exit: &MachineExit) -> bool {
        matches!(exit, MachineExit::Panicked { console } if console.contains(KERNEL_ON_MEMORY))
    }

    /// A machine ended by itself. One that died for want of memory says how much it had.
    pub fn ended(exit: &MachineExit, memory_mib: Option<u64>) -> Self {
        let mut detail = exit.to_string();
        if let Some(mib) = memory_mib.filter(|_| Self::is_for_memory(exit)) {
            detail = format!("{detail}; its memory limit is {mib} MiB");
        }
        Self::Ended { detail }
    }
}

/// A word in every message with which a kernel dies because no memory is left.
const KERNEL_ON_MEMORY: &str = "memory";

/// A [`State`] without details, for filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Creating,
    Running,
    Paused,
    Stopping,
    Stopped,
    Lost,
    Damaged,
}

impl Phase {
    pub const ALL: [Self; 7] = [
        Self::Creating,
        Self::Running,
        Self::Paused,
        Self::Stopping,
        Self::Stopped,
        Self::Lost,
        Self::Damaged,
    ];

    /// The word in records and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
            Self::Damaged => "damaged",
        }
    }
}

/// No state is called that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a state; the states are creating, running, paused, stopping, stopped, lost and \
    damaged"
)]
pub struct UnknownPhase(pub String);

impl FromStr for Phase {
    type Err = UnknownPhase;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|phase| phase.name() == text);
        known.ok_or_else(|| UnknownPhase(text.chars().take(UNKNOWN_CHARS_SHOWN).collect()))
    }
}

/// Enough of an unknown word to recognise it.
const UNKNOWN_CHARS_SHOWN: usize = 32;

impl State {
    pub fn phase(&self) -> Phase {
        match self {
            Self::Creating => Phase::Creating,
            Self::Running => Phase::Running,
            Self::Paused { .. } => Phase::Paused,
            Self::Stopping => Phase::Stopping,
            Self::Stopped { .. } => Phase::Stopped,
            Self::Lost { .. } => Phase::Lost,
            Self::Damaged { .. } => Phase::Damaged,
        }
    }

    /// The word in records and replies.
    pub fn name(&self) -> &'static str {
        self.phase().name()
    }

    /// Whether the next request has it continue.
    pub fn is_asleep(&self) -> bool {
        matches!(self, Self::Paused { by_idle: true, .. })
    }

    /// Whether its memory is on disk.
    pub fn is_on_disk(&self) -> bool {
        matches!(self, Self::Paused { on_disk: true, .. })
    }

    /// Whether it goes on when its node has a lease again.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Paused { by_lease: true, .. })
    }

    /// Since when nothing goes on in it, if that is so.
    pub fn still_since_ms(&self) -> Option<u64> {
        match self {
            Self::Paused { since_ms: at_ms, .. } | Self::Stopped { at_ms, .. } => Some(*at_ms),
            _ => None,
        }
    }

    /// Whether the machine is gone.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Stopped { .. })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { by_idle: true, on_disk: true, .. } => {
                f.write_str("paused (idle, on disk)")
            }
            Self::Paused { on_disk: true, .. } => f.write_str("paused (on disk)"),
            Self::Paused { by_idle: true, .. } => f.write_str("paused (idle)"),
            Self::Paused { by_lease: true, .. } => f.write_str("paused (its node has no lease)"),
            Self::Creating | Self::Running | Self::Paused { .. } | Self::Stopping => {
                f.write_str(self.name())
            }
            Self::Stopped { why, .. } => write!(f, "stopped ({why})"),
            Self::Lost { reason } => write!(f, "lost ({reason})"),
            Self::Damaged { reason } => write!(f, "damaged ({reason})"),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("as asked"),
            Self::Killed => f.write_str("killed"),
            Self::Ended { detail } => f.write_str(detail),
            Self::Expired { kind: ExpiryKind::Idle } => {
                f.write_str("expired: it was idle for too long")
            }
            Self::Expired { kind: ExpiryKind::Age } => {
                f.write_str("expired: it reached its time to live")
            }
            Self::Expired { kind: ExpiryKind::RunTime } => {
                f.write_str("expired: its namespace or key used all of its run time for today")
            }
            Self::Expired { kind: ExpiryKind::Output } => {
                f.write_str("expired: its namespace or key wrote all of its output for today")
            }
            Self::BridgeAway => f.write_str("ended while the bridge was away"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_died_for_want_of_memory_names_its_limit() {
        let died = |console: &str| {
            let console = format!("Kernel panic - not syncing: {console}");
            StopReason::ended(&MachineExit::Panicked { console }, Some(512)).to_string()
        };
        let reason = died("System is deadlocked on memory");
        assert!(reason.ends_with("deadlocked on memory; its memory limit is 512 MiB"), "{reason}");
        let reason = died("Out of memory: compulsory panic_on_oom is enabled");
        assert!(reason.ends_with("; its memory limit is 512 MiB"), "{reason}");
        let reason = died("Attempted to kill init!");
        assert!(!reason.contains("512"), "{reason}");
        let reason = StopReason::ended(&MachineExit::Exited { code: 1 }, Some(512)).to_string();
        assert_eq!(reason, "its agent exited with 1");
    }
}
