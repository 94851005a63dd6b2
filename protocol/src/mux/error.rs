//! Why a peer loses its link, and why a stream cannot be opened.

use crate::codec::BodyError;
use crate::fault::{Fault, FaultCode};
use crate::frame;
use crate::hello::{Goodbye, GoodbyeReason};
use crate::limits::STREAMS_MAX;
use crate::stream::StreamError;

/// Why the peer loses its link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error(transparent)]
    Frame(#[from] frame::FrameError),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("a {kind} frame is not allowed here")]
    Unexpected { kind: &'static str },
    #[error("{bytes} bytes of answers wait, and the peer does not read them")]
    NotReading { bytes: usize },
}

impl ProtocolError {
    /// The goodbye for the peer.
    pub fn goodbye(&self) -> Goodbye {
        let reason = match self {
            Self::NotReading { .. } => GoodbyeReason::Limit,
            _ => GoodbyeReason::Protocol,
        };
        Goodbye { reason, message: crate::fault::clip(self.to_string()) }
    }
}

/// Why a stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("stream {0} is open already")]
    Taken(u64),
    #[error("{STREAMS_MAX} streams are open, which is the limit")]
    TooMany,
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        let code = match error {
            OpenError::Taken(_) => FaultCode::Exists,
            OpenError::TooMany => FaultCode::Limit,
        };
        Fault::new(code, error.to_string())
    }
}
