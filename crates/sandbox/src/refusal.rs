//! Why something was not done, as every door says it.
//!
//! The errors of sandboxes and of lower layers become a [`Refusal`] here, those of `services` there: a code,
//! a reason, facts for programs, what may help, and when to retry. A door only adds its words for what may
//! help, and its form: an HTTP status, a JSON-RPC number, a word of the control socket.

mod code;
mod hint;
mod sandbox;

use std::time::Duration;

use protocol::FaultCode;
use serde_json::{Map, Value, json};

use crate::SandboxError;
use crate::limits::BUSY_PAUSE;
use ::image::ImageError;
use ::image::blobs::BlobError;
use agent_client::guest::GuestError;
use host::room::lacks_room;
use machine::{Blame, MachineError};

pub use code::Code;
pub use hint::Hint;

/// What to do about a full disk.
const NO_ROOM_HINT: &str =
    "free some space on the disk of the server's state directory, and try again";

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: Code,
    /// One sentence that says what was wrong.
    pub message: String,
    /// Distinguishes the cases of a code for programs. It is also in `details`.
    pub reason: Option<Reason>,
    /// An object: facts for programs. Most refusals have none, so it is boxed.
    pub details: Option<Box<Value>>,
    /// What may help. Each door words it.
    pub hint: Option<Box<Hint>>,
    /// When trying again may help.
    pub retry_after: Option<Duration>,
}

/// A case of a code. Reasons are only ever added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    NameTaken,
    PortTaken,
    StillRunning,
    UnsavedNotebooks,
    NotRunning,
    Paused,
    /// Something else is being done with it at the moment.
    Busy,
    InUse,
    NoWorkspace,
    HoldsSecrets,
    /// The creation was cancelled before it ended.
    CreationCancelled,
    /// It was killed and does not end.
    Stuck,
    /// Its agent no longer answers.
    Lost,
    NotCommitted,
    /// It was stopped while somebody waited for it.
    Stopped,
    /// The node that was asked has it no more.
    Moved,
    /// Its caller has disconnected.
    Abandoned,
    SandboxGone,
    /// No program listens on the port.
    NotListening,
    StateDamaged,
    /// The database of notebooks, artifacts and apps.
    Store,
}

impl Reason {
    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::NameTaken => "name_taken",
            Self::PortTaken => "port_taken",
            Self::StillRunning => "still_running",
            Self::UnsavedNotebooks => "unsaved_notebooks",
            Self::NotRunning => "not_running",
            Self::Paused => "paused",
            Self::Busy => "busy",
            Self::InUse => "in_use",
            Self::NoWorkspace => "no_workspace",
            Self::HoldsSecrets => "holds_secrets",
            Self::CreationCancelled => "creation_cancelled",
            Self::Stuck => "stuck",
            Self::Lost => "lost",
            Self::NotCommitted => "not_committed",
            Self::Stopped => "stopped",
            Self::Moved => "moved",
            Self::Abandoned => "abandoned",
            Self::SandboxGone => "sandbox_gone",
            Self::NotListening => "not_listening",
            Self::StateDamaged => "state_damaged",
            Self::Store => "store",
        }
    }
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message, reason: None, details: None, hint: None, retry_after: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::Invalid, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// A refusal with the words of an error.
    pub fn of(code: Code, error: &dyn std::error::Error) -> Self {
        Self::new(code, error.to_string())
    }

    /// Changes the code to that of a full disk, if the error comes from one.
    #[must_use]
    pub fn or_no_room(self, error: &(dyn std::error::Error + 'static)) -> Self {
        if lacks_room(error) { Self::no_room(self.message) } else { self }
    }

    /// The refusal of a full disk.
    pub fn no_room(message: impl Into<String>) -> Self {
        Self::new(Code::InsufficientStorage, message).hint(NO_ROOM_HINT)
    }

    #[must_use]
    pub fn because(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self.details(json!({ "reason": reason.name() }))
    }

    /// Adds the fields of `facts`, an object.
    #[must_use]
    pub fn details(mut self, facts: Value) -> Self {
        let details = self.details.get_or_insert_with(|| Box::new(Value::Object(Map::new())));
        if let (Value::Object(details), Value::Object(facts)) = (details.as_mut(), facts) {
            details.extend(facts);
        }
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(Box::new(hint.into()));
        self
    }

    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }
}

impl From<&ImageError> for Refusal {
    fn from(error: &ImageError) -> Self {
        let with = |code| Self::of(code, error);
        match error.inner() {
            ImageError::NotFound { .. } => with(Code::NotFound),
            ImageError::Pull { .. } | ImageError::PullTook { .. } => with(Code::PullFailed),
            ImageError::NotAllowed { .. } => with(Code::Unsupported),
            ImageError::InUse { .. } => with(Code::Conflict).because(Reason::InUse),
            ImageError::Busy => with(Code::Conflict).because(Reason::Busy),
            ImageError::TooLarge { .. }
            | ImageError::TooMany { .. }
            | ImageError::TooManyNames { .. }
            | ImageError::TooManyPulls { .. } => with(Code::LimitReached),
            ImageError::Name(_) | ImageError::Ambiguous { .. } => with(Code::Invalid),
            ImageError::Blob(BlobError::Full { .. }) => Self::no_room(error.to_string()),
            // What is wrong with the store is not the caller's.
            inner => with(Code::Internal).or_no_room(inner),
        }
    }
}

impl From<&MachineError> for Refusal {
    fn from(error: &MachineError) -> Self {
        let code = match error.blame() {
            Blame::Request => Code::Invalid,
            Blame::RequestTooLarge => Code::TooLarge,
            Blame::Unsupported => Code::Unsupported,
            Blame::Files => Code::Io,
            Blame::Guest => Code::GuestUnreachable,
            Blame::Start => Code::StartFailed,
        };
        let refusal = Self::of(code, error);
        match error.hint() {
            Some(hint) => refusal.hint(hint),
            None => refusal,
        }
    }
}

impl From<&GuestError> for Refusal {
    fn from(error: &GuestError) -> Self {
        let with = |code| Self::of(code, error);
        match error {
            GuestError::Fault(fault) => {
                let refusal = with(match fault.code {
                    FaultCode::Invalid => Code::Invalid,
                    FaultCode::NotFound => Code::NotFound,
                    FaultCode::Exists | FaultCode::Conflict | FaultCode::Stopping => Code::Conflict,
                    FaultCode::Limit => Code::LimitReached,
                    FaultCode::SpawnFailed => Code::SpawnFailed,
                    FaultCode::Io => Code::Io,
                    FaultCode::Gone => Code::Gone,
                    FaultCode::Unsupported => Code::Unsupported,
                    FaultCode::Denied => Code::Forbidden,
                });
                match (&fault.spawn, fault.errno) {
                    (Some(spawn), _) => refusal.details(json!({
                        "stage": spawn.stage, "errno": spawn.errno, "subject": spawn.subject
                    })),
                    (None, Some(errno)) => refusal.details(json!({ "errno": errno })),
                    (None, None) => refusal,
                }
            }
            GuestError::Link(_)
            | GuestError::Malformed { .. }
            | GuestError::Watch(_)
            | GuestError::Run(_) => with(Code::GuestUnreachable),
            GuestError::TooManyRequests(_) | GuestError::TooManyStreams(_) => {
                with(Code::LimitReached).retry_after(BUSY_PAUSE)
            }
            GuestError::TooLong { limit, .. } => {
                with(Code::Invalid).details(json!({ "limit": limit }))
            }
            GuestError::TooManyEntries => with(Code::TooLarge),
            GuestError::NotDurable(_) | GuestError::NotRecorded(_) | GuestError::NoEntropy => {
                with(Code::Unsupported)
            }
        }
    }
}

/// So that `?` makes a refusal of an error.
macro_rules! from_owned {
    ($($error:ty),*) => {$(
        impl From<$error> for Refusal {
            fn from(error: $error) -> Self {
                Self::from(&error)
            }
        }
    )*};
}

from_owned!(ImageError, MachineError, GuestError, SandboxError);

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_reason_is_a_detail_beside_the_others() {
        let refusal = Refusal::new(Code::Conflict, "taken");
        let refusal = refusal.details(json!({ "name": "x" })).because(Reason::NameTaken);
        let details = refusal.details.unwrap();
        assert_eq!(*details, json!({ "name": "x", "reason": "name_taken" }));
    }

    #[test]
    fn a_full_disk_has_one_code_whatever_met_it() {
        let full = |kind| ImageError::Files {
            action: "write",
            path: "/x".into(),
            source: io::Error::from(kind),
        };
        let code = |kind| Refusal::from(&full(kind)).code;
        assert_eq!(code(io::ErrorKind::StorageFull), Code::InsufficientStorage);
        assert_eq!(code(io::ErrorKind::NotFound), Code::Internal);
    }

    #[test]
    fn a_fault_of_the_store_is_a_failed_start_where_a_sandbox_was_to_start() {
        let fault = || ImageError::Files {
            action: "read",
            path: "/x".into(),
            source: io::Error::from(io::ErrorKind::NotFound),
        };
        assert_eq!(Refusal::from(fault()).code, Code::Internal);
        assert_eq!(Refusal::from(SandboxError::from(fault())).code, Code::StartFailed);
    }
}
