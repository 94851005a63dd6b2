//! Why a link could not be made, or has ended.
//!
//! Everything that waits on a link gets its end, so these errors are cheap to clone. Texts from the
//! guest in them are cut to a bound.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use protocol::Fault;
use protocol::codec::BodyError;
use protocol::fault::clip;
use protocol::frame::FrameError;
use protocol::hello::{Goodbye, GoodbyeReason, VERSION_MAX, VERSION_MIN};
use protocol::mux::ProtocolError;

use super::Address;

/// Why there is no link (any more).
#[derive(Clone, Debug, thiserror::Error)]
pub enum LinkError {
    #[error("{address} cannot be dialled: {source}")]
    Dial { address: Address, source: Arc<io::Error> },
    /// The machine monitor did not connect us; an empty reply usually means that nothing listens on
    /// that port.
    #[error("{address} did not answer with OK but with {reply:?}")]
    Handshake { address: Address, reply: String },
    #[error("the agent did not say welcome within {} ms", waited.as_millis())]
    NoWelcome { waited: Duration },
    #[error("the agent speaks version {spoken}, not one of {VERSION_MIN} to {VERSION_MAX}")]
    Version { spoken: u32 },
    /// The agent said goodbye.
    #[error("the agent ended the link ({}): {message}", reason_name(*.reason))]
    Refused { reason: GoodbyeReason, message: String },
    #[error("the agent broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    #[error("the agent broke the protocol: it answered {request:?} with {reply:?}")]
    WrongReply { request: &'static str, reply: &'static str },
    #[error("the agent broke the protocol: stream {stream} came in {pieces} pieces at once")]
    TooManyPieces { stream: u64, pieces: usize },
    #[error("the agent sent nothing for {} s", silence.as_secs())]
    Silent { silence: Duration },
    /// The other end closed the socket without a goodbye, or this end was closed on request.
    #[error("the link is closed")]
    Closed,
    #[error("the link broke: {0}")]
    Broken(Arc<io::Error>),
    #[error("the agent is a new one, or no longer knew what was under way when the link was cut")]
    ResumeRefused,
}

impl LinkError {
    /// Whether dialling again may help.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Dial { .. }
            | Self::Handshake { .. }
            | Self::NoWelcome { .. }
            | Self::Silent { .. }
            | Self::Closed
            | Self::Broken(_) => true,
            Self::Version { .. }
            | Self::Refused { .. }
            | Self::Protocol(_)
            | Self::WrongReply { .. }
            | Self::TooManyPieces { .. }
            | Self::ResumeRefused => false,
        }
    }

    /// Whether an existing link has ended, and neither end has broken the protocol.
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Silent { .. } | Self::Closed | Self::Broken(_) | Self::ResumeRefused => true,
            Self::Dial { .. } => self.is_absence(),
            Self::Refused { reason, .. } => *reason == GoodbyeReason::Stopping,
            Self::Handshake { .. }
            | Self::NoWelcome { .. }
            | Self::Version { .. }
            | Self::Protocol(_)
            | Self::WrongReply { .. }
            | Self::TooManyPieces { .. } => false,
        }
    }

    /// Whether the agent knows a newer link of the same client.
    pub(super) fn is_replaced(&self) -> bool {
        matches!(self, Self::Refused { reason: GoodbyeReason::Replaced, .. })
    }

    /// Whether the dialled socket has no listener any more: its owner has ended.
    pub(super) fn is_absence(&self) -> bool {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        match self {
            Self::Dial { source, .. } => matches!(source.kind(), NotFound | ConnectionRefused),
            _ => false,
        }
    }

    /// The message for the agent, if the end is its fault.
    pub(super) fn goodbye(&self) -> Option<Goodbye> {
        match self {
            Self::Protocol(error) => Some(error.goodbye()),
            Self::WrongReply { .. } | Self::TooManyPieces { .. } => {
                Some(Goodbye { reason: GoodbyeReason::Protocol, message: clip(self.to_string()) })
            }
            Self::Version { .. } => {
                Some(Goodbye { reason: GoodbyeReason::Version, message: clip(self.to_string()) })
            }
            _ => None,
        }
    }
}

impl From<Goodbye> for LinkError {
    fn from(goodbye: Goodbye) -> Self {
        Self::Refused { reason: goodbye.reason, message: clip(goodbye.message) }
    }
}

impl From<FrameError> for LinkError {
    fn from(error: FrameError) -> Self {
        Self::Protocol(error.into())
    }
}

impl From<BodyError> for LinkError {
    fn from(error: BodyError) -> Self {
        Self::Protocol(error.into())
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Broken(Arc::new(error))
    }
}

/// The words of the wire.
fn reason_name(reason: GoodbyeReason) -> &'static str {
    match reason {
        GoodbyeReason::Finished => "finished",
        GoodbyeReason::Stopping => "stopping",
        GoodbyeReason::Version => "version",
        GoodbyeReason::Protocol => "protocol",
        GoodbyeReason::Limit => "limit",
        GoodbyeReason::Replaced => "replaced",
        GoodbyeReason::BootFailed => "boot failed",
    }
}

/// Why one request or one stream failed: the agent refused it, or the link has ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Fault(Fault),
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl From<Fault> for Failure {
    /// A guest chooses the texts of its faults, so they are cut.
    fn from(mut fault: Fault) -> Self {
        fault.message = clip(fault.message);
        if let Some(spawn) = &mut fault.spawn {
            spawn.subject = clip(std::mem::take(&mut spawn.subject));
        }
        Self::Fault(fault)
    }
}
