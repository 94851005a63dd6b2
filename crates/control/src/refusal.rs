//! Refusals on the control socket: a word for each code and reason, and hints that name commands.
//! Codes and details come from the parts below (`sandbox::refusal`).

use super::message::{ErrorCode, ErrorReply};
use access::preview::LinkError;
use host::instant;
use host::secret::SecretError;
use image::ImageError;
use sandbox::refusal::{Code, Reason, Refusal};
use sandbox::{SandboxError, State, options};
use services::app::AppError;
use services::artifact::ArtifactError;
use workspace::WorkspaceError;

/// What to do about a full disk.
const NO_ROOM_HINT: &str = "free some space on the disk of the daemon's state directory";

impl ErrorReply {
    pub fn new(code: ErrorCode, message: impl Into<String>, hint: Option<&str>) -> Self {
        Self { code, message: message.into(), hint: hint.map(str::to_owned) }
    }

    fn of(refusal: Refusal, hint: impl FnOnce() -> Option<String>) -> Self {
        let hint = match refusal.code {
            Code::InsufficientStorage => Some(NO_ROOM_HINT.to_owned()),
            _ => hint(),
        };
        Self { code: ErrorCode::of(&refusal), message: refusal.message, hint }
    }
}

impl ErrorCode {
    /// The word for a refusal. Clients of other releases know only these words.
    fn of(refusal: &Refusal) -> Self {
        match (refusal.reason, refusal.code) {
            (Some(Reason::NameTaken), _) => Self::NameTaken,
            (Some(Reason::StillRunning | Reason::UnsavedNotebooks), _) => Self::StillRunning,
            (
                Some(
                    Reason::NotRunning
                    | Reason::CreationCancelled
                    | Reason::Lost
                    | Reason::Stopped
                    | Reason::SandboxGone,
                ),
                _,
            ) => Self::NotRunning,
            (Some(Reason::Paused), _) => Self::Paused,
            (Some(Reason::Busy | Reason::InUse), _) => Self::Busy,
            (Some(Reason::Stuck), _) => Self::Stuck,
            // It had begun.
            (Some(Reason::Abandoned), _) => Self::StartFailed,
            (Some(Reason::NotCommitted | Reason::Store), _)
            | (
                _,
                Code::Io
                | Code::Internal
                | Code::InsufficientStorage
                | Code::DeadlineExceeded
                | Code::RequestTimeout,
            ) => Self::Io,
            (_, Code::NotFound) => Self::NotFound,
            (_, Code::Gone) => Self::NotRunning,
            (_, Code::Forbidden | Code::Unsupported) => Self::Unsupported,
            (_, Code::TooLarge | Code::LimitReached | Code::RateLimited) => Self::Limit,
            (_, Code::CapExceeded) => Self::CapExceeded,
            (_, Code::UnknownSecret) => Self::UnknownSecret,
            (_, Code::SecretFailed) => Self::SecretFailed,
            (_, Code::PullFailed) => Self::PullFailed,
            (_, Code::UnknownWorkspace) => Self::UnknownWorkspace,
            (_, Code::WorkspaceFailed) => Self::WorkspaceFailed,
            (_, Code::Unavailable) => Self::Stopping,
            (
                _,
                Code::StartFailed
                | Code::GuestUnreachable
                | Code::PortUnreachable
                | Code::SpawnFailed
                | Code::AppFailed
                | Code::AppNotReady
                | Code::ModuleMissing,
            ) => Self::StartFailed,
            (
                _,
                Code::Invalid
                | Code::Conflict
                | Code::Unauthenticated
                | Code::Misdirected
                | Code::MethodNotAllowed
                | Code::NotAcceptable
                | Code::IdempotencyMismatch
                | Code::UnsupportedMediaType
                | Code::RangeNotSatisfiable,
            ) => Self::Invalid,
        }
    }
}

impl From<SandboxError> for ErrorReply {
    fn from(error: SandboxError) -> Self {
        Self::of(Refusal::from(&error), || of_sandbox(&error))
    }
}

/// Of what has no error of its own: the words that are true at every door.
impl From<Refusal> for ErrorReply {
    fn from(refusal: Refusal) -> Self {
        let hint = refusal.hint.as_ref().and_then(|hint| hint.words());
        Self::of(refusal, || hint)
    }
}

impl From<LinkError> for ErrorReply {
    fn from(error: LinkError) -> Self {
        Self::of(Refusal::from(&error), || match &error {
            LinkError::Sandbox(error) => of_sandbox(error),
            LinkError::Unknown { which, .. } => {
                Some(format!("`host-bridge preview ls {which}` lists them"))
            }
            LinkError::TooMany { .. } => {
                Some("remove some with `host-bridge preview rm`".to_owned())
            }
            _ => None,
        })
    }
}

impl From<ArtifactError> for ErrorReply {
    fn from(error: ArtifactError) -> Self {
        Self::of(Refusal::from(&error), || {
            let hint = "`host-bridge artifact ls` lists the artifacts";
            matches!(error, ArtifactError::NotFound { .. }).then(|| hint.to_owned())
        })
    }
}

impl From<AppError> for ErrorReply {
    fn from(error: AppError) -> Self {
        let mut reply = Self::of(Refusal::from(&error), || of_app(&error));
        if let AppError::Failed { log, .. } | AppError::NotReady { log, .. } = &error
            && !log.trim().is_empty()
        {
            reply.message = format!("{}; its output: {}", reply.message, log.trim());
        }
        reply
    }
}

fn of_sandbox(error: &SandboxError) -> Option<String> {
    let hint = match error {
        SandboxError::NameTaken { which, state: State::Stopped { .. }, .. } => {
            return Some(format!(
                "`host-bridge restart {which}` starts it again; `host-bridge rm {which}` removes it"
            ));
        }
        SandboxError::NameTaken { which, .. } => {
            return Some(format!("choose another name, or `host-bridge rm --force {which}`"));
        }
        SandboxError::NotFound { .. } => "`host-bridge ps --all` lists the sandboxes",
        SandboxError::StillRunning { which, .. } => {
            return Some(format!("`host-bridge stop {which}` first, or remove it with --force"));
        }
        SandboxError::NotRunning { which, state: State::Damaged { .. } } => {
            return Some(format!("`host-bridge rm {which}` ends and removes it"));
        }
        SandboxError::NotRunning { which, .. } => {
            return Some(format!("`host-bridge logs {which}` shows its output"));
        }
        SandboxError::Unsaved { which, .. } => {
            return Some(format!("try again; `host-bridge kill {which}` drops them"));
        }
        SandboxError::Paused { which } => {
            return Some(format!("`host-bridge resume {which}` continues it"));
        }
        SandboxError::Lost { which, .. } => {
            return Some(format!("`host-bridge kill {which}` ends it"));
        }
        SandboxError::Busy { .. } => "try again",
        SandboxError::NoSnapshot { .. } => "`host-bridge snapshot ls` lists the snapshots",
        SandboxError::NoTemplate { .. } => "`host-bridge template ls` lists the templates",
        SandboxError::SnapshotTaken { snapshot } => {
            return Some(format!("choose another name, or `host-bridge snapshot rm {snapshot}`"));
        }
        SandboxError::Secret(SecretError::Unknown { .. } | SecretError::Unset { .. }) => {
            "`host-bridge serve --print-config` shows the configured [secrets]"
        }
        SandboxError::Secret(SecretError::Provider { .. }) => "the daemon's log says why",
        SandboxError::Secret(SecretError::OutOfReach { host, .. }) => {
            return Some(format!("add `--egress {host}`"));
        }
        SandboxError::Workspace(WorkspaceError::Unknown { name, .. }) => {
            return Some(format!(
                "write ./{name} for a directory; `host-bridge serve --print-config` shows the \
                 configured [workspaces]"
            ));
        }
        SandboxError::ValuesMissing { names, .. } => {
            let flags: Vec<String> = names.iter().map(|name| format!("-e {name}")).collect();
            return Some(format!("give them with {}", flags.join(" ")));
        }
        SandboxError::PackagesGone { .. } => "start it again with --pip or --npm",
        SandboxError::Unsupported { hint, .. } => hint,
        SandboxError::CreationSpent { .. } | SandboxError::DaySpent { .. } => {
            let until = instant::format(instant::day_end_ms(instant::now_ms()));
            return Some(format!("the limit resets at the end of the day (UTC), at {until}"));
        }
        SandboxError::CapExceeded { cap, .. } => {
            let with = options::flag(cap).map(|flag| format!(" with {flag}")).unwrap_or_default();
            return Some(format!("stop or remove a sandbox, or ask for less{with}"));
        }
        SandboxError::Image(error) if matches!(error.inner(), ImageError::NotFound { .. }) => {
            "`host-bridge image ls` lists the images; --pull missing pulls one that is not there"
        }
        SandboxError::Machine(error) => error.hint()?,
        _ => return None,
    };
    Some(hint.to_owned())
}

fn of_app(error: &AppError) -> Option<String> {
    let hint = match error {
        AppError::Sandbox(error) => return of_sandbox(error),
        AppError::NotFound { .. } => "`host-bridge app ls` lists the apps",
        AppError::NameTaken { .. } => {
            "choose another --name, or stop the other app with `host-bridge app stop`"
        }
        AppError::TooManyOfSandbox { .. } | AppError::TooMany { .. } => {
            "stop an app that is not needed"
        }
        AppError::PortTaken { .. } => "omit --port",
        AppError::Missing { .. }
        | AppError::NoInterpreter { .. }
        | AppError::Interpreter { .. } => "use an image that contains it",
        _ => return None,
    };
    Some(hint.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox::CommitError;

    fn word(error: SandboxError) -> ErrorCode {
        ErrorReply::from(error).code
    }

    #[test]
    fn the_words_of_the_socket_are_those_that_older_clients_know() {
        let which = || "work".parse().expect("a name");
        let stopped = || State::Stopped { why: sandbox::StopReason::Killed, at_ms: 0 };
        assert_eq!(word(SandboxError::NotFound { which: which() }), ErrorCode::NotFound);
        assert_eq!(
            word(SandboxError::NotRunning { which: which(), state: stopped() }),
            ErrorCode::NotRunning
        );
        assert_eq!(
            word(SandboxError::StillRunning { which: which(), state: State::Creating }),
            ErrorCode::StillRunning
        );
        assert_eq!(word(SandboxError::Paused { which: which() }), ErrorCode::Paused);
        assert_eq!(word(SandboxError::Busy { which: which() }), ErrorCode::Busy);
        assert_eq!(word(SandboxError::TooMany), ErrorCode::Limit);
        assert_eq!(word(SandboxError::Stopping), ErrorCode::Stopping);
        let lost = SandboxError::Lost { which: which(), reason: "gone".to_owned() };
        assert_eq!(word(lost), ErrorCode::NotRunning);
        let stuck = SandboxError::WillNotDie { which: which(), seconds: 9 };
        assert_eq!(word(stuck), ErrorCode::Stuck);
        let slow = SandboxError::Commit { which: which(), source: Box::new(CommitError::Slow) };
        assert_eq!(word(slow), ErrorCode::Io);
        assert_eq!(word(ImageError::Busy.into()), ErrorCode::Busy);
        assert_eq!(word(ImageError::TooManyNames { max: 1 }.into()), ErrorCode::Limit);
        assert_eq!(word(WorkspaceError::None.into()), ErrorCode::Invalid);
        assert_eq!(word(SandboxError::NoRoot), ErrorCode::Unsupported);
    }
}
