//! What happens to sandboxes, for observers of the bridge: a terminal, a journal, the stream of events, a
//! test.

mod kind;

use std::fmt;
use std::sync::Arc;

use super::pool::PoolEvent;
use super::{Labels, Record, SandboxRef, State};
use egress::EgressEvent;
use image::digest::Digest;
use machine::SandboxId;
use workspace::Report;

pub use kind::{Facts, Kind, UnknownKind, of_change};

/// Receives events as they happen. It must not block: the task that owns the sandbox calls it.
pub type EventSink = Arc<dyn Fn(&Event) + Send + Sync>;

/// The sandbox that an event is about. It is more than a name, because names are reused, and an event may be
/// read when nothing else is left of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub which: SandboxRef,
    pub id: SandboxId,
    pub image: Option<String>,
    pub image_digest: Option<Digest>,
    pub labels: Labels,
    /// The id of the key that has made it.
    pub key: Option<String>,
}

impl Record {
    /// The sandbox as events are about it.
    pub(super) fn subject(&self) -> Arc<Subject> {
        Arc::new(Subject {
            which: self.which(),
            id: self.id.clone(),
            image: self.image.clone(),
            image_digest: self.image_digest,
            labels: self.labels.clone(),
            key: self.key.clone(),
        })
    }
}

/// Something that an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The control socket, or the door for programs, takes connections.
    Listening { on: String },
    /// A sandbox has come into another state.
    State { of: Arc<Subject>, state: State },
    /// A row of the table of kinds, for the stream of events.
    Happened { of: Arc<Subject>, kind: Kind, facts: Box<Facts> },
    /// A machine that an earlier bridge had started was found again.
    Adopted { of: Arc<Subject> },
    /// What an earlier bridge left half-made was removed.
    Cleaned { id: String, why: String },
    /// A sandbox and all that was kept of it is gone.
    Removed { of: Arc<Subject> },
    /// Something failed and the bridge continued without it.
    Trouble { which: Option<SandboxRef>, what: String },
    /// A decision about what a sandbox may reach.
    Egress { of: Arc<Subject>, event: EgressEvent },
    /// Something of a workspace has come back, or could not.
    Workspace { of: Arc<Subject>, event: WorkspaceEvent },
    /// An event of an unclaimed pooled machine.
    Pool(PoolEvent),
    /// The bridge ends; so many sandboxes run on.
    Ending { running: usize },
}

/// The outcome of an exchange with a workspace.
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
            Self::State { of, state } => write!(f, "{}: {state}", of.which),
            Self::Happened { of, kind, .. } => write!(f, "{}: {kind}", of.which),
            Self::Adopted { of } => write!(f, "{}: adopted from an earlier bridge", of.which),
            Self::Cleaned { id, why } => write!(f, "removed the remains of {id}: {why}"),
            Self::Removed { of } => write!(f, "{}: removed", of.which),
            Self::Trouble { which: Some(which), what } => write!(f, "{which}: {what}"),
            Self::Trouble { which: None, what } => f.write_str(what),
            Self::Egress { of, event } => write!(f, "{}: egress: {event}", of.which),
            Self::Workspace { of, event } => write!(f, "{}: workspace {event}", of.which),
            Self::Pool(event) => event.fmt(f),
            Self::Ending { running } => write!(f, "stopping; {running} sandboxes keep running"),
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
            Self::Trouble { which, .. } => which.as_ref(),
            _ => self.subject().map(|of| &of.which),
        }
    }

    /// The sandbox, with what distinguishes it from others of the same name.
    pub fn subject(&self) -> Option<&Subject> {
        match self {
            Self::State { of, .. }
            | Self::Happened { of, .. }
            | Self::Adopted { of }
            | Self::Removed { of }
            | Self::Egress { of, .. }
            | Self::Workspace { of, .. } => Some(of),
            Self::Trouble { .. }
            | Self::Listening { .. }
            | Self::Cleaned { .. }
            | Self::Pool(_)
            | Self::Ending { .. } => None,
        }
    }
}

/// For those who do not watch.
pub fn nobody() -> EventSink {
    Arc::new(|_| {})
}
