//! The refusals of what is built on sandboxes. They are here together: in the parts that have the errors,
//! each would import the whole table.

use std::io;

use serde_json::json;

use crate::app::AppError;
use crate::artifact::{self, ArtifactError};
use crate::build::packages::PackagesError;
use crate::forwards::{ForwardError, ReachError};
use crate::notebook::NotebookError;
use crate::store::StoreError;
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Hint, Reason, Refusal};

impl From<&StoreError> for Refusal {
    fn from(error: &StoreError) -> Self {
        let with = |code| Refusal::of(code, error);
        match error {
            StoreError::Full { .. } => Refusal::no_room(error.to_string()),
            StoreError::Open { .. }
            | StoreError::Make { .. }
            | StoreError::Newer { .. }
            | StoreError::Damaged { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Unavailable { .. }
            | StoreError::Closed => with(Code::Unavailable)
                .retry_after(BUSY_PAUSE)
                .because(Reason::Store)
                .hint("sandboxes work without it; `host-bridge doctor` says what is wrong"),
            StoreError::Busy { .. } => with(Code::Unavailable).retry_after(BUSY_PAUSE),
            StoreError::Sql(_) | StoreError::Column { .. } => with(Code::Internal),
        }
    }
}

impl From<&NotebookError> for Refusal {
    fn from(error: &NotebookError) -> Self {
        let with = |code| Refusal::of(code, error);
        let refusal = match error {
            NotebookError::Sandbox(error) => error.into(),
            NotebookError::Guest(error) => error.into(),
            NotebookError::Store(error) => error.into(),
            NotebookError::Seal(_) => with(Code::Internal),
            NotebookError::Unknown { .. } => with(Code::NotFound).hint(Hint::ListNotebooks),
            NotebookError::Name { .. } | NotebookError::CacheKey { .. } => with(Code::Invalid),
            NotebookError::Place { .. } => with(Code::Invalid)
                .hint("make a sandbox with it, and open the notebook with that `sandbox`"),
            NotebookError::Language { .. } => {
                with(Code::Unsupported).hint("use a context, which runs it but keeps nothing")
            }
            NotebookError::OtherLanguage { .. } => {
                with(Code::Conflict).hint("choose another name, or leave the language out")
            }
            NotebookError::Full { .. } => with(Code::LimitReached),
            NotebookError::SandboxGone { .. } => with(Code::Conflict)
                .because(Reason::SandboxGone)
                .hint("open the notebook with a running sandbox; its variables are restored there"),
            NotebookError::Elsewhere { .. } => with(Code::Conflict).retry_after(BUSY_PAUSE),
            NotebookError::Busy => with(Code::LimitReached).retry_after(BUSY_PAUSE),
            NotebookError::Closed => with(Code::Unavailable).retry_after(BUSY_PAUSE),
            NotebookError::Damaged { .. } => {
                with(Code::Gone).because(Reason::StateDamaged).hint(Hint::ResetNotebook)
            }
            NotebookError::Keeper { .. }
            | NotebookError::InterpreterEnded
            | NotebookError::NotSaved { .. }
            | NotebookError::Manifest(_) => with(Code::GuestUnreachable),
        };
        refusal.or_no_room(error)
    }
}

impl From<&ArtifactError> for Refusal {
    fn from(error: &ArtifactError) -> Self {
        let with = |code| Refusal::of(code, error);
        let refusal = match error {
            ArtifactError::NotFound { .. } => with(Code::NotFound).hint(Hint::ListArtifacts),
            ArtifactError::Store(error) => error.into(),
            ArtifactError::Content { .. } | ArtifactError::Damaged { .. } => {
                with(Code::Io).hint("its file on the host was changed or removed")
            }
            ArtifactError::Directory { .. }
            | ArtifactError::Digest { .. }
            | ArtifactError::Task(_) => with(Code::Internal),
        };
        refusal.or_no_room(error)
    }
}

/// For a file that a caller names, and that is not kept.
impl From<&artifact::Reason> for Refusal {
    fn from(reason: &artifact::Reason) -> Self {
        use artifact::Reason as Why;

        let message = format!("the file was not kept: {reason}");
        let code = match reason {
            Why::Host { lacks_room: true, .. } => return Refusal::no_room(message),
            Why::Kind { .. } | Why::Name => Code::Invalid,
            Why::TooLarge { .. } | Why::RunFull { .. } => Code::TooLarge,
            Why::NamespaceFull { .. } | Why::TooMany { .. } => Code::LimitReached,
            Why::Changed { .. } => Code::Conflict,
            Why::NoTime => Code::DeadlineExceeded,
            Why::Malformed { .. }
            | Why::Refused { .. }
            | Why::Host { .. }
            | Why::ListingFull { .. }
            | Why::TooDeep { .. }
            | Why::NothingMatches
            | Why::TooMuchShown { .. } => Code::Io,
        };
        Refusal::new(code, message)
    }
}

/// What to do about too many forwards.
const END_ONE: &str = "end one that is no longer needed";

impl From<&ForwardError> for Refusal {
    fn from(error: &ForwardError) -> Self {
        let with = |code| Refusal::of(code, error);
        let taken = |port: u16| {
            with(Code::Conflict)
                .because(Reason::PortTaken)
                .details(json!({ "port": port }))
                .hint(Hint::OtherHostPort)
        };
        match error {
            ForwardError::Listen { source, address }
                if source.kind() == io::ErrorKind::AddrInUse =>
            {
                taken(address.port())
            }
            ForwardError::Listen { source, .. } => with(Code::Io)
                .details(json!({ "errno": source.raw_os_error() }))
                .hint(Hint::AnyHostPort),
            ForwardError::Taken { port } => taken(*port),
            ForwardError::OutOfRange { port, first, last } => with(Code::Forbidden)
                .details(json!({ "port": port, "first": first, "last": last }))
                .hint(Hint::AnyHostPort),
            ForwardError::NoneFree { .. } => {
                with(Code::LimitReached).retry_after(BUSY_PAUSE).hint(END_ONE)
            }
            ForwardError::TooManyOfSandbox { limit, .. } | ForwardError::TooMany { limit } => {
                with(Code::LimitReached)
                    .details(json!({ "limit": limit }))
                    .retry_after(BUSY_PAUSE)
                    .hint(END_ONE)
            }
        }
    }
}

impl From<&ReachError> for Refusal {
    fn from(error: &ReachError) -> Self {
        let with = |code| Refusal::of(code, error);
        match error {
            ReachError::Full { limit } => with(Code::LimitReached)
                .details(json!({ "limit": limit }))
                .retry_after(BUSY_PAUSE)
                .hint("close some of them, and try again"),
            ReachError::NobodyListens { port } => with(Code::PortUnreachable)
                .because(Reason::NotListening)
                .details(json!({ "port": port }))
                .hint(format!(
                    "start a program in the sandbox that listens on port {port} of 127.0.0.1 \
                         or 0.0.0.0"
                )),
            ReachError::Slow { port } => with(Code::PortUnreachable)
                .details(json!({ "port": port }))
                .retry_after(BUSY_PAUSE)
                .hint("the program that listens there has more connections than it accepts"),
            ReachError::Guest(error) => error.into(),
        }
    }
}

impl From<&AppError> for Refusal {
    fn from(error: &AppError) -> Self {
        let with = |code| Refusal::of(code, error);
        let refusal = match error {
            AppError::Sandbox(error) => error.into(),
            AppError::Guest(error) => error.into(),
            AppError::Forward(error) => error.into(),
            AppError::NotFound { .. } => with(Code::NotFound).hint(Hint::ListApps),
            AppError::NameTaken { name, .. } => with(Code::Conflict)
                .because(Reason::NameTaken)
                .details(json!({ "app": name }))
                .hint(Hint::OtherAppName),
            AppError::TooManyOfSandbox { limit, .. } | AppError::TooMany { limit } => {
                with(Code::LimitReached)
                    .details(json!({ "limit": limit }))
                    .retry_after(BUSY_PAUSE)
                    .hint(Hint::EndApp)
            }
            AppError::CodeTooLong { limit, .. } => with(Code::TooLarge)
                .details(json!({ "limit": limit }))
                .hint("upload the files and start a `command`"),
            AppError::ReadyPath { .. } => {
                with(Code::Invalid).details(json!({ "field": "ready_path" }))
            }
            AppError::ReadyTimeout { .. } => {
                with(Code::Invalid).details(json!({ "field": "ready_timeout_ms" }))
            }
            AppError::PortTaken { port, .. } => with(Code::Conflict)
                .because(Reason::PortTaken)
                .details(json!({ "port": port }))
                .hint("choose another port, or leave it out to get a free one in $PORT"),
            AppError::NoPort { .. } => with(Code::LimitReached).retry_after(BUSY_PAUSE),
            AppError::Missing { python, modules, .. } => with(Code::ModuleMissing)
                .details(json!({ "python": python, "modules": modules }))
                .hint(format!(
                    "use an image that has it, or, if the sandbox has egress, first run \
                    `{python} -m pip install {}` in it",
                    modules.join(" ")
                )),
            AppError::NoInterpreter { python, .. } => with(Code::SpawnFailed)
                .details(json!({ "subject": python }))
                .hint("use an image that has it, or name another interpreter with `python`"),
            AppError::Interpreter { python, .. } => with(Code::SpawnFailed)
                .details(json!({ "subject": python }))
                .hint("name another interpreter with `python`"),
            AppError::Failed { log, .. } => with(Code::AppFailed)
                .details(json!({ "log": log }))
                .hint("its log says why; the app must stay in the foreground"),
            AppError::NotReady { port, elsewhere, log, .. } => with(Code::AppNotReady)
                .details(json!({ "port": port, "listens_on": elsewhere, "log": log }))
                .hint(
                    "the app was ended: let it listen on 127.0.0.1 and $PORT, or give it more time",
                ),
            AppError::Stopped => with(Code::Conflict).because(Reason::Stopped),
            AppError::Abandoned => with(Code::Gone).because(Reason::Abandoned),
            AppError::SandboxGone => with(Code::Gone).because(Reason::SandboxGone),
            AppError::Ending => with(Code::Unavailable).retry_after(BUSY_PAUSE),
            AppError::Draw(_) | AppError::Note { .. } => with(Code::Internal),
        };
        refusal.or_no_room(error)
    }
}

impl From<&PackagesError> for Refusal {
    fn from(error: &PackagesError) -> Self {
        let code = match error {
            PackagesError::Name(_) | PackagesError::TooMany { .. } => Code::Invalid,
            PackagesError::NoImage
            | PackagesError::NotStored { .. }
            | PackagesError::NoPlace(_) => Code::Unsupported,
            PackagesError::Failed { .. }
            | PackagesError::Place { .. }
            | PackagesError::Command { .. } => Code::StartFailed,
        };
        Refusal::new(code, format!("packages: {error}")).or_no_room(error)
    }
}

/// So that `?` makes a refusal of an error. An app's has none: a door adds how the app ended.
macro_rules! from_owned {
    ($($error:ty),*) => {$(
        impl From<$error> for Refusal {
            fn from(error: $error) -> Self {
                Self::from(&error)
            }
        }
    )*};
}

from_owned!(
    StoreError,
    NotebookError,
    ArtifactError,
    artifact::Reason,
    ForwardError,
    ReachError,
    PackagesError
);
