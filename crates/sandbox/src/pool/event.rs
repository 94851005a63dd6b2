//! What happens in a pool, for observers of the bridge.

use std::fmt;
use std::time::Duration;

use machine::SandboxId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolEvent {
    /// A machine is on its shelf.
    Ready { id: SandboxId, image: String },
    /// A machine that an earlier bridge had ready is ready again.
    Recovered { id: SandboxId },
    /// A machine that an earlier bridge had ready is of no use to this one, and is gone.
    Cleared { id: SandboxId },
    /// An unclaimed machine is ended; the next is not started before the pause is over.
    Replaced { id: SandboxId, why: String, pause: Option<Duration> },
    /// No snapshot was written of a machine of a template, so that others are booted.
    NotWritten { image: String, why: String },
    /// A machine could not be restored from its template's snapshot, and is booted.
    NotRestored { image: String, why: String },
    /// A machine did not start.
    Failed { image: String, why: String, pause: Duration },
}

impl PoolEvent {
    /// Whether somebody should look into it.
    pub fn is_trouble(&self) -> bool {
        matches!(
            self,
            Self::NotWritten { .. }
                | Self::NotRestored { .. }
                | Self::Failed { .. }
                | Self::Replaced { pause: Some(_), .. }
        )
    }
}

impl fmt::Display for PoolEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { id, image } => write!(f, "pool: {id} is ready for {image}"),
            Self::Recovered { id } => {
                write!(f, "pool: {id}, taken over from an earlier bridge, is ready")
            }
            Self::Cleared { id } => write!(f, "pool: {id} of an earlier bridge is removed"),
            Self::Replaced { id, why, pause: None } => write!(f, "pool: {id} is replaced: {why}"),
            Self::Replaced { id, why, pause: Some(pause) } => {
                write!(f, "pool: {id} is replaced in {pause:?}: {why}")
            }
            Self::NotWritten { image, why } => {
                write!(
                    f,
                    "pool: no snapshot of {image} is written, and its machines are booted: {why}"
                )
            }
            Self::NotRestored { image, why } => write!(
                f,
                "pool: a machine for {image} is booted, because its snapshot cannot be restored: {why}"
            ),
            Self::Failed { image, why, pause } => {
                write!(
                    f,
                    "pool: cannot start a machine for {image}, trying again in {pause:?}: {why}"
                )
            }
        }
    }
}
