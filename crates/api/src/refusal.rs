//! From the errors of what lies below to what is said of them.

use std::time::Duration;

use protocol::FaultCode;
use serde_json::json;

use super::limits::BUSY_PAUSE;
use super::problem::{Code, Problem};
use agent_client::guest::GuestError;
use host::instant;
use host::secret::SecretError;
use image::ImageError;
use machine::{Blame, MachineError};
use sandbox::{CommitError, SandboxError};
use services::notebook::NotebookError;
use workspace::WorkspaceError;

impl From<SandboxError> for Problem {
    fn from(error: SandboxError) -> Self {
        let message = error.to_string();
        let with = |code| Self::new(code, message.clone());
        match &error {
            SandboxError::NameTaken { which, id, state } => with(Code::Conflict)
                .hint("choose another name, or DELETE that sandbox first (force=true if it runs)")
                .details(json!({
                    "reason": "name_taken", "namespace": which.namespace, "name": which.name,
                    "id": id, "state": state.name()
                })),
            SandboxError::NotFound { .. } => {
                with(Code::NotFound).hint("GET /v1/sandboxes lists the sandboxes")
            }
            SandboxError::StillRunning { state, .. } => with(Code::Conflict)
                .hint("stop it first, or remove it with force=true")
                .details(json!({ "reason": "still_running", "state": state.name() })),
            SandboxError::CreationEnded { .. } => with(Code::Conflict),
            SandboxError::CreationSpent { .. } => of_day(with(Code::CapExceeded)),
            SandboxError::DaySpent { scope, cap, used, allowed } => of_day(with(Code::CapExceeded))
                .details(json!({
                    "scope": scope.kind(), "name": scope.name(), "cap": cap, "used": used,
                    "asked": 0, "allowed": allowed
                })),
            SandboxError::Commit { source, .. } => match **source {
                CommitError::Slow => with(Code::TooLarge),
                CommitError::Read(_) | CommitError::Freeze(_) => with(Code::GuestUnreachable),
            },
            SandboxError::NotRunning { state, .. } => with(Code::Conflict)
                .hint("its logs can still be read")
                .details(json!({ "reason": "not_running", "state": state.name() })),
            SandboxError::Lost { .. } => {
                with(Code::GuestUnreachable).hint("kill it, or remove it with force=true")
            }
            SandboxError::Paused { .. } => with(Code::Conflict)
                .hint("resume it with POST …/resume")
                .details(json!({ "reason": "paused", "state": "paused" })),
            SandboxError::Busy { .. } => {
                with(Code::Conflict).retry_after(BUSY_PAUSE).details(json!({ "reason": "busy" }))
            }
            SandboxError::NoSnapshot { .. } => {
                with(Code::NotFound).hint("GET /v1/snapshots lists the snapshots")
            }
            SandboxError::SnapshotTaken { snapshot } => with(Code::Conflict)
                .hint("choose another name, or DELETE that snapshot first")
                .details(json!({
                    "reason": "name_taken", "namespace": snapshot.namespace, "name": snapshot.name
                })),
            SandboxError::TooManySnapshots
            | SandboxError::TooManyMetered
            | SandboxError::SnapshotsTooLarge { .. } => with(Code::LimitReached),
            SandboxError::SnapshotFixes { what, .. } | SandboxError::Unbounded { what, .. } => {
                with(Code::Invalid).details(json!({ "field": what }))
            }
            SandboxError::TooMany => with(Code::LimitReached).retry_after(BUSY_PAUSE),
            SandboxError::Unsupported { what, hint, .. } => {
                with(Code::Unsupported).hint(*hint).details(json!({ "field": what }))
            }
            SandboxError::CapExceeded { scope, cap, used, asked, allowed } => {
                with(Code::CapExceeded)
                    .hint("stop or remove a sandbox, or ask for less; GET /v1/caps shows the use")
                    .details(json!({
                        "scope": scope.kind(), "name": scope.name(), "cap": cap, "used": used,
                        "asked": asked, "allowed": allowed
                    }))
            }
            SandboxError::Secret(error) => refused_secret(error, with),
            SandboxError::Workspace(WorkspaceError::Unknown { name, .. }) => {
                with(Code::UnknownWorkspace)
                    .hint("the server's configuration lists them")
                    .details(json!({ "workspace": name }))
            }
            SandboxError::Workspace(WorkspaceError::None) => with(Code::Conflict)
                .hint("name a workspace when the sandbox is made")
                .details(json!({ "reason": "no_workspace" })),
            SandboxError::Workspace(_) => with(Code::WorkspaceFailed)
                .hint("check the directory or bucket, its limits in [workspaces], and the sandbox"),
            SandboxError::HoldsSecrets { .. } => with(Code::Unsupported)
                .hint(
                    "make the snapshot from a sandbox without secrets, and give the secrets to \
                the sandboxes made from it",
                )
                .details(json!({ "reason": "holds_secrets" })),
            SandboxError::Image(error) => with(code_of_image(error)),
            SandboxError::Machine(error) => match error.hint() {
                Some(hint) => with(code_of(error)).hint(hint),
                None => with(code_of(error)),
            },
            SandboxError::WillNotDie { .. }
            | SandboxError::Files { .. }
            | SandboxError::Egress(_)
            | SandboxError::Draw(_) => with(Code::Internal),
            SandboxError::Stopping => with(Code::Unavailable).retry_after(BUSY_PAUSE),
            SandboxError::Environment { .. }
            | SandboxError::Hostname { .. }
            | SandboxError::Rule(_)
            | SandboxError::Workdir { .. }
            | SandboxError::User { .. }
            | SandboxError::OutOfRange { .. }
            | SandboxError::Label(_) => with(Code::Invalid),
        }
    }
}

/// What is used up of a day is there again when the next begins, and nothing else brings it back.
fn of_day(problem: Problem) -> Problem {
    let now_ms = instant::now_ms();
    let until_ms = instant::day_end_ms(now_ms);
    let until = instant::format(until_ms);
    problem
        .hint(format!("the day ends at {until} (UTC); GET /v1/caps shows the use"))
        .retry_after(Duration::from_millis(until_ms - now_ms))
}

fn refused_secret(error: &SecretError, with: impl FnOnce(Code) -> Problem) -> Problem {
    match error {
        SecretError::Unknown { name, .. } | SecretError::Unset { name } => {
            with(Code::UnknownSecret)
                .hint("the server's configuration lists them and says who may use them")
                .details(json!({ "secret": name }))
        }
        SecretError::Provider { name, kind, .. } => with(Code::SecretFailed)
            .hint("the server's log says why")
            .details(json!({ "secret": name, "provider": kind })),
        SecretError::OutOfReach { name, host } => with(Code::Invalid)
            .hint(format!("add {host:?} to egress"))
            .details(json!({ "field": "secrets", "secret": name })),
        SecretError::TooMany { .. }
        | SecretError::Twice { .. }
        | SecretError::AlsoPlain { .. }
        | SecretError::NoField { .. } => with(Code::Invalid).details(json!({ "field": "secrets" })),
    }
}

impl From<NotebookError> for Problem {
    fn from(error: NotebookError) -> Self {
        let message = error.to_string();
        let with = |code| Self::new(code, message.clone());
        match error {
            NotebookError::Sandbox(error) => error.into(),
            NotebookError::Guest(error) => error.into(),
            NotebookError::Store(_) | NotebookError::Seal(_) => with(Code::Internal),
            NotebookError::Unknown { .. } => {
                with(Code::NotFound).hint("GET /v1/notebooks lists the notebooks")
            }
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
                .hint("open the notebook with a running sandbox; its variables are restored there")
                .details(json!({ "reason": "sandbox_gone" })),
            NotebookError::Elsewhere { .. } => with(Code::Conflict).retry_after(BUSY_PAUSE),
            NotebookError::Busy => with(Code::LimitReached).retry_after(BUSY_PAUSE),
            NotebookError::Closed => with(Code::Unavailable).retry_after(BUSY_PAUSE),
            NotebookError::Damaged { .. } => with(Code::Gone)
                .hint("POST …/reset discards it, and the notebook starts empty")
                .details(json!({ "reason": "state_damaged" })),
            NotebookError::Keeper { .. }
            | NotebookError::NotSaved { .. }
            | NotebookError::Manifest(_) => with(Code::GuestUnreachable),
        }
    }
}

pub(super) fn code_of_image(error: &ImageError) -> Code {
    match error.inner() {
        ImageError::NotFound { .. } => Code::NotFound,
        ImageError::Pull { .. } | ImageError::PullTook { .. } => Code::PullFailed,
        ImageError::NotAllowed { .. } => Code::Unsupported,
        ImageError::InUse { .. } | ImageError::Busy => Code::Conflict,
        ImageError::TooLarge { .. }
        | ImageError::TooMany { .. }
        | ImageError::TooManyPulls { .. } => Code::LimitReached,
        ImageError::Name(_) | ImageError::Ambiguous { .. } => Code::Invalid,
        _ => Code::StartFailed,
    }
}

fn code_of(error: &MachineError) -> Code {
    match error.blame() {
        Blame::Asked => Code::Invalid,
        Blame::AskedTooMuch => Code::TooLarge,
        Blame::Unsupported => Code::Unsupported,
        Blame::Files => Code::Io,
        Blame::Guest => Code::GuestUnreachable,
        Blame::Start => Code::StartFailed,
    }
}

impl From<GuestError> for Problem {
    fn from(error: GuestError) -> Self {
        let message = error.to_string();
        let with = |code| Self::new(code, message.clone());
        match &error {
            GuestError::Fault(fault) => {
                let code = match fault.code {
                    FaultCode::Invalid => Code::Invalid,
                    FaultCode::NotFound => Code::NotFound,
                    FaultCode::Exists | FaultCode::Conflict | FaultCode::Stopping => Code::Conflict,
                    FaultCode::Limit => Code::LimitReached,
                    FaultCode::SpawnFailed => Code::SpawnFailed,
                    FaultCode::Io => Code::Io,
                    FaultCode::Gone => Code::Gone,
                    FaultCode::Unsupported => Code::Unsupported,
                    FaultCode::Denied => Code::Forbidden,
                };
                let problem = with(code);
                match (&fault.spawn, fault.errno) {
                    (Some(spawn), _) => problem.details(json!({
                        "stage": spawn.stage, "errno": spawn.errno, "subject": spawn.subject
                    })),
                    (None, Some(errno)) => problem.details(json!({ "errno": errno })),
                    (None, None) => problem,
                }
            }
            GuestError::Link(_) | GuestError::Malformed { .. } | GuestError::Watch(_) => {
                with(Code::GuestUnreachable)
            }
            GuestError::Run(_) => with(Code::GuestUnreachable),
            GuestError::TooManyRequests(_) | GuestError::TooManyStreams(_) => {
                with(Code::LimitReached).retry_after(BUSY_PAUSE)
            }
            GuestError::TooLong { limit, .. } => {
                with(Code::Invalid).details(json!({ "limit": limit }))
            }
            GuestError::TooManyEntries => with(Code::TooLarge),
            GuestError::NoEntropy => with(Code::Unsupported),
        }
    }
}
