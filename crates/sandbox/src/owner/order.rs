//! What an owner can be told to do.

use std::time::Duration;

use tokio::sync::oneshot;

use super::suspend::{CommitReply, SnapshotReply};
use super::workspace::SyncReply;
use crate::snapshot::Draft;
use crate::{ExpiryKind, Record, SandboxError, SandboxRef, State};
use image::Image;
use machine::BoxFuture;

/// The answer to an order.
pub(crate) type Reply = oneshot::Sender<Result<Record, SandboxError>>;

/// What an owner can be told to do.
pub(crate) enum Order {
    Stop {
        grace: Duration,
        reply: Reply,
    },
    Kill {
        reply: Reply,
    },
    Remove {
        force: bool,
        reply: Reply,
    },
    /// Give a living sandbox other times to live; see [`crate::Registry::extend`].
    Extend {
        ttl_ms: Option<u64>,
        idle_ttl_ms: Option<u64>,
        reply: Reply,
    },
    /// Stand still, go on, or be written down; see [`crate::Registry::pause`].
    Pause {
        reply: Reply,
    },
    Resume {
        reply: Reply,
    },
    Snapshot {
        draft: Box<Draft>,
        reply: SnapshotReply,
    },
    /// Become an image. Programs stand still meanwhile, so nobody else may make them do so or go on.
    Commit {
        work: BoxFuture<'static, Result<Image, SandboxError>>,
        reply: CommitReply,
    },
    /// End it: its namespace or key has had what it may have of this day.
    Spent {
        kind: ExpiryKind,
    },
    /// Bring back what has changed in the workspace; see [`crate::Registry::sync`].
    Sync {
        reply: SyncReply,
    },
    /// Let go of the machine, for the next bridge to find.
    Leave {
        reply: Reply,
    },
}

impl Order {
    /// Answers that there is no machine yet that could do it.
    pub(super) fn refuse(self, which: &SandboxRef) {
        let (which, state) = (which.clone(), State::Creating);
        match self {
            Self::Remove { reply, .. } => {
                let _ = reply.send(Err(SandboxError::StillRunning { which, state }));
            }
            Self::Snapshot { reply, .. } => {
                let _ = reply.send(Err(SandboxError::NotRunning { which, state }));
            }
            Self::Commit { reply, .. } => {
                let _ = reply.send(Err(SandboxError::NotRunning { which, state }));
            }
            Self::Stop { reply, .. }
            | Self::Kill { reply }
            | Self::Extend { reply, .. }
            | Self::Pause { reply }
            | Self::Resume { reply }
            | Self::Leave { reply } => {
                let _ = reply.send(Err(SandboxError::NotRunning { which, state }));
            }
            Self::Sync { reply } => {
                let _ = reply.send(Err(SandboxError::NotRunning { which, state }));
            }
            // Nothing runs yet; it is said again as long as it holds.
            Self::Spent { .. } => {}
        }
    }
}
