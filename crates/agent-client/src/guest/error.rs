//! Why something asked of a guest did not happen.

use protocol::calls::TooManyRequests;
use protocol::mux::OpenError;
use protocol::{Fault, FaultCode};

use super::limits::LIST_ENTRIES_MAX;
use crate::link::{Failure, LinkError, RequestError};

/// See the module's description.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GuestError {
    /// The agent refused this one request, or gave this one stream up.
    #[error(transparent)]
    Fault(Fault),
    /// The link has ended, or was cut and this could not be resumed.
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    TooManyRequests(TooManyRequests),
    #[error(transparent)]
    TooManyStreams(OpenError),
    /// The request does not fit the protocol, and was not sent.
    #[error("{what}: {length} exceeds the limit of {limit}")]
    TooLong { what: &'static str, length: usize, limit: usize },
    #[error("the directory has more than {LIST_ENTRIES_MAX} entries, which is the limit")]
    TooManyEntries,
    #[error("this host has no random numbers")]
    NoEntropy,
    #[error(transparent)]
    Watch(#[from] protocol::watch::RecordError),
    #[error(transparent)]
    Run(#[from] protocol::repl::RecordError),
    /// Its output must be durable, and this could not make it so.
    #[error("{0}")]
    NotDurable(&'static str),
    /// What is typed must be recorded, and this could not do so.
    #[error("{0}")]
    NotRecorded(&'static str),
    /// The guest sent what the protocol allows and this request does not.
    #[error("the guest sent {what}")]
    Malformed { what: &'static str },
}

impl GuestError {
    /// The agent's code, when it was the agent that refused.
    pub fn fault_code(&self) -> Option<FaultCode> {
        match self {
            Self::Fault(fault) => Some(fault.code),
            _ => None,
        }
    }
}

impl From<Failure> for GuestError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Fault(fault) => Self::Fault(fault),
            Failure::Link(error) => Self::Link(error),
        }
    }
}

impl From<RequestError> for GuestError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::TooMany(error) => Self::TooManyRequests(error),
            RequestError::Stream(error) => Self::TooManyStreams(error),
            RequestError::Link(error) => Self::Link(error),
        }
    }
}
