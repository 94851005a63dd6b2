//! The orders that an owner accepts.

use std::time::Duration;

use tokio::sync::oneshot;

use super::sleep::WakeReply;
use super::suspend::{CommitReply, ForkReply, SnapshotReply};
use super::workspace::SyncReply;
use crate::contents::Reading;
use crate::snapshot::Draft;
use crate::{ExpiryKind, Record, SandboxError, SandboxRef, State, Update};
use image::Image;
use machine::BoxFuture;

/// The answer to an order.
pub(crate) type Reply = oneshot::Sender<Result<Record, SandboxError>>;

/// An order to an owner.
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
    /// Change a living sandbox; see [`crate::Registry::update`].
    Update {
        update: Update,
        reply: Reply,
    },
    /// Pause, resume or take a snapshot; see [`crate::Registry::pause`].
    Pause {
        reply: Reply,
    },
    Resume {
        reply: Reply,
    },
    /// Pause until its node has a lease again; see [`crate::Registry::hold`].
    Hold {
        reply: Reply,
    },
    GoOn {
        reply: Reply,
    },
    /// Wait until one that is asleep is awake; see [`crate::Registry::visit`].
    Wake {
        reply: WakeReply,
    },
    Snapshot {
        draft: Box<Draft>,
        reply: SnapshotReply,
    },
    /// Save as an image. Programs are frozen meanwhile, so nobody else may freeze or thaw them.
    Commit {
        work: BoxFuture<'static, Result<Image, SandboxError>>,
        reply: CommitReply,
    },
    /// Read its files for a fork. Programs are frozen meanwhile, as for an image.
    Fork {
        work: BoxFuture<'static, Result<Reading, SandboxError>>,
        reply: ForkReply,
    },
    /// End it: its namespace or key has reached a daily limit.
    Spent {
        kind: ExpiryKind,
    },
    /// Copy changes in the workspace back; see [`crate::Registry::sync`].
    Sync {
        reply: SyncReply,
    },
    /// Release the machine, for the next bridge to find.
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
            Self::Fork { reply, .. } => {
                let _ = reply.send(Err(SandboxError::NotRunning { which, state }));
            }
            Self::Commit { reply, .. } => {
                let _ = reply.send(Err(SandboxError::NotRunning { which, state }));
            }
            Self::Stop { reply, .. }
            | Self::Kill { reply }
            | Self::Update { reply, .. }
            | Self::Pause { reply }
            | Self::Resume { reply }
            | Self::Hold { reply }
            | Self::GoOn { reply }
            | Self::Leave { reply } => {
                let _ = reply.send(Err(SandboxError::NotRunning { which, state }));
            }
            Self::Wake { reply } => {
                let _ = reply.send(Err(SandboxError::NotRunning { which, state }));
            }
            Self::Sync { reply } => {
                let _ = reply.send(Err(SandboxError::NotRunning { which, state }));
            }
            // Nothing runs yet; the order is repeated while it applies.
            Self::Spent { .. } => {}
        }
    }
}
