//! The states of a sandbox.

use std::fmt;

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
    /// A stop was asked for, and the grace of its processes runs.
    Stopping,
    /// Its machine is gone; record and logs are left to read, and the name to be given up.
    Stopped { why: Why, at_ms: u64 },
    /// Its machine lives, but the agent no longer answers. It can be killed, nothing else.
    Lost { reason: String },
}

/// Why a sandbox has stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Somebody asked for it.
    Asked,
    /// Somebody killed it, or it was killed for not stopping when asked.
    Killed,
    /// Its machine ended by itself, and this is how.
    Ended { detail: String },
    /// Its machine ended while no bridge was there to see how.
    BridgeAway,
}

impl State {
    /// The word in records and replies.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped { .. } => "stopped",
            Self::Lost { .. } => "lost",
        }
    }

    /// Whether there is no machine any more.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Stopped { .. })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Creating | Self::Running | Self::Stopping => f.write_str(self.name()),
            Self::Stopped { why, .. } => write!(f, "stopped ({why})"),
            Self::Lost { reason } => write!(f, "lost ({reason})"),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("as asked"),
            Self::Killed => f.write_str("killed"),
            Self::Ended { detail } => f.write_str(detail),
            Self::BridgeAway => f.write_str("ended while the bridge was away"),
        }
    }
}
