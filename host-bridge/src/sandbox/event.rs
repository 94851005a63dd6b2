//! What happens to sandboxes, for whoever watches the bridge: a terminal, a journal, a test.

use std::fmt;
use std::sync::Arc;

use super::pool::PoolEvent;
use super::{SandboxRef, State};
use crate::egress::EgressEvent;
use crate::workspace::Report;

/// Takes events as they happen. It must not block: the task that owns the sandbox calls it.
pub type EventSink = Arc<dyn Fn(&Event) + Send + Sync>;

/// Something that an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The control socket, or the door for programs, takes connections.
    Listening { on: String },
    /// A sandbox has come into another state.
    State { which: SandboxRef, state: State },
    /// A machine that an earlier bridge had started was found again.
    Adopted { which: SandboxRef },
    /// What an earlier bridge left half-made was removed.
    Cleaned { id: String, why: String },
    /// A sandbox and all that was kept of it is gone.
    Removed { which: SandboxRef },
    /// Something did not work and the bridge went on without it.
    Trouble { which: Option<SandboxRef>, what: String },
    /// Something was decided about what a sandbox may reach.
    Egress { which: SandboxRef, event: EgressEvent },
    /// Something of a workspace has come back, or could not.
    Workspace { which: SandboxRef, event: WorkspaceEvent },
    /// Something happened to a machine that nobody has.
    Pool(PoolEvent),
    /// The bridge ends; so many sandboxes run on.
    Ending { running: usize },
}

/// What an exchange with a workspace has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceEvent {
    pub name: String,
    pub report: Report,
}

impl fmt::Display for WorkspaceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { written, deleted, conflicts, refused, untold } = &self.report;
        write!(f, "{:?}: {} written, {} deleted, ", self.name, written.len(), deleted.len())?;
        write!(f, "{} in conflict, {} refused", conflicts.len(), refused.len())?;
        if *untold > 0 {
            write!(f, ", {untold} more")?;
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listening { on } => write!(f, "listening on {on}"),
            Self::State { which, state } => write!(f, "{which}: {state}"),
            Self::Adopted { which } => write!(f, "{which}: adopted from an earlier bridge"),
            Self::Cleaned { id, why } => write!(f, "removed what was left of {id}: {why}"),
            Self::Removed { which } => write!(f, "{which}: removed"),
            Self::Trouble { which: Some(which), what } => write!(f, "{which}: {what}"),
            Self::Trouble { which: None, what } => f.write_str(what),
            Self::Egress { which, event } => write!(f, "{which}: egress: {event}"),
            Self::Workspace { which, event } => write!(f, "{which}: workspace {event}"),
            Self::Pool(event) => event.fmt(f),
            Self::Ending { running } => write!(f, "ending; {running} sandboxes run on"),
        }
    }
}

impl Event {
    /// Whether somebody should look into it.
    pub fn is_trouble(&self) -> bool {
        match self {
            Self::Trouble { .. } => true,
            Self::Pool(event) => event.is_trouble(),
            _ => false,
        }
    }

    /// The sandbox that it happens to.
    pub fn which(&self) -> Option<&SandboxRef> {
        match self {
            Self::State { which, .. }
            | Self::Adopted { which }
            | Self::Removed { which }
            | Self::Egress { which, .. }
            | Self::Workspace { which, .. } => Some(which),
            Self::Trouble { which, .. } => which.as_ref(),
            Self::Listening { .. } | Self::Cleaned { .. } | Self::Pool(_) | Self::Ending { .. } => {
                None
            }
        }
    }
}

/// For those who do not watch.
pub fn nobody() -> EventSink {
    Arc::new(|_| {})
}
