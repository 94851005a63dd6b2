//! The states of a sandbox.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a sandbox stands. Only the task that owns the sandbox changes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Its directories are made and its machine starts. A bridge that finds this in a record was
    /// cut off in the midst of it, and removes everything.
    Creating,
    /// Its agent has answered.
    Running,
    /// Its machine stands still since then, with all that is in it.
    Paused { since_ms: u64 },
    /// A stop was asked for, and the grace of its processes runs.
    Stopping,
    /// Its machine is gone; record and logs are left to read, and the name to be given up.
    Stopped { why: StopReason, at_ms: u64 },
    /// Its machine lives, but the agent no longer answers. It can be killed, nothing else.
    Lost { reason: String },
}

/// Why a sandbox has stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Somebody asked for it.
    Asked,
    /// Somebody killed it, or it was killed for not stopping when asked.
    Killed,
    /// Its machine ended by itself, and this is how.
    Ended { detail: String },
    /// Its time to live was over.
    Expired { kind: ExpiryKind },
    /// Its machine ended while no bridge was there to see how.
    BridgeAway,
}

/// Which time to live was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpiryKind {
    /// Nothing had been at work in it for so long.
    Idle,
    /// It had lived for so long.
    Age,
    /// Its namespace or its key had run what it may on one day.
    RunTime,
    /// It had said what it may on one day.
    Output,
}

/// A [`State`] without its particulars, for those who look for sandboxes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Creating,
    Running,
    Paused,
    Stopping,
    Stopped,
    Lost,
}

impl Phase {
    pub const ALL: [Self; 6] =
        [Self::Creating, Self::Running, Self::Paused, Self::Stopping, Self::Stopped, Self::Lost];

    /// The word in records and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
        }
    }
}

/// No state is called that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a state; the states are creating, running, paused, stopping, stopped and lost"
)]
pub struct UnknownPhase(pub String);

impl FromStr for Phase {
    type Err = UnknownPhase;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|phase| phase.name() == text);
        known.ok_or_else(|| UnknownPhase(text.chars().take(UNKNOWN_CHARS_SHOWN).collect()))
    }
}

/// Enough of a wrong word to be recognized.
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
        }
    }

    /// The word in records and replies.
    pub fn name(&self) -> &'static str {
        self.phase().name()
    }

    /// Whether there is no machine any more.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Stopped { .. })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Creating | Self::Running | Self::Paused { .. } | Self::Stopping => {
                f.write_str(self.name())
            }
            Self::Stopped { why, .. } => write!(f, "stopped ({why})"),
            Self::Lost { reason } => write!(f, "lost ({reason})"),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("as asked"),
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
