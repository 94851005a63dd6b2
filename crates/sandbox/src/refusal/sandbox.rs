//! The refusal of each error of a sandbox.

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;

use super::{Code, Hint, Reason, Refusal};
use crate::limits::BUSY_PAUSE;
use crate::{CommitError, SandboxError, State};
use host::instant;
use host::secret::SecretError;
use protocol::FaultCode;
use workspace::WorkspaceError;
use workspace::volume::VolumeError;

impl From<&SandboxError> for Refusal {
    fn from(error: &SandboxError) -> Self {
        let with = |code| Self::of(code, error);
        let refusal = match error {
            SandboxError::NameTaken { which, id, state } => with(Code::Conflict)
                .because(Reason::NameTaken)
                .details(json!({
                    "namespace": which.namespace, "name": which.name,
                    "id": id, "state": state.name()
                }))
                .hint(Hint::OtherSandboxName),
            SandboxError::NameRefused { refused, .. } => match refused.code {
                Code::Conflict => {
                    with(Code::Conflict).because(Reason::NameTaken).hint(Hint::OtherSandboxName)
                }
                Code::Unavailable => with(Code::Unavailable).retry_after(BUSY_PAUSE),
                code => with(code),
            },
            SandboxError::TemplateRefused(refused) => match refused.why.code {
                Code::Unavailable => with(Code::Unavailable).retry_after(BUSY_PAUSE),
                code => with(code),
            },
            SandboxError::NotDurable { .. } => with(Code::Unavailable)
                .details(json!({ "field": "durability" }))
                .retry_after(BUSY_PAUSE),
            SandboxError::OfThisHost { .. } => with(Code::Unsupported)
                .details(json!({ "field": "on_lost" }))
                .hint("leave it out, or make the sandbox of what every node of the fleet has"),
            SandboxError::NoFleet { option, .. } => with(Code::Unsupported)
                .details(json!({ "field": option }))
                .hint("leave it out, or set [fleet] in the server's configuration"),
            SandboxError::NoNodes => with(Code::Unsupported)
                .details(json!({ "field": "node_labels" }))
                .hint("leave it out, or set [fleet] in the server's configuration"),
            SandboxError::PackagesGone { .. } => with(Code::Conflict),
            SandboxError::SnapshotTaken { snapshot } => with(Code::Conflict)
                .because(Reason::NameTaken)
                .details(json!({ "namespace": snapshot.namespace, "name": snapshot.name }))
                .hint(Hint::OtherSnapshotName),
            SandboxError::NotFound { .. } => with(Code::NotFound).hint(Hint::ListSandboxes),
            SandboxError::NoSnapshot { .. } => with(Code::NotFound).hint(Hint::ListSnapshots),
            SandboxError::NoTemplate { .. } => with(Code::NotFound).hint(Hint::ListTemplates),
            SandboxError::TemplateConfigured { .. } => with(Code::Conflict)
                .hint("choose another name, or change [templates] in the server's configuration"),
            SandboxError::StillRunning { state, .. } => with(Code::Conflict)
                .because(Reason::StillRunning)
                .details(json!({ "state": state.name() }))
                .hint(Hint::StopSandbox),
            SandboxError::Unsaved { .. } => {
                with(Code::Conflict).because(Reason::UnsavedNotebooks).hint(Hint::DropNotebooks)
            }
            SandboxError::NotRunning { state, .. } => with(Code::Conflict)
                .because(Reason::NotRunning)
                .details(json!({ "state": state.name() }))
                .hint(match state {
                    State::Damaged { .. } => Hint::RemoveLost,
                    _ => Hint::ReplaceSandbox,
                }),
            SandboxError::Paused { .. } => with(Code::Conflict)
                .because(Reason::Paused)
                .details(json!({ "state": "paused" }))
                .hint(Hint::ResumeSandbox),
            SandboxError::CannotSleep { .. } => with(Code::Unsupported),
            SandboxError::Busy { .. } => {
                with(Code::Conflict).because(Reason::Busy).retry_after(BUSY_PAUSE)
            }
            SandboxError::CreationEnded { .. } => {
                with(Code::Conflict).because(Reason::CreationCancelled)
            }
            SandboxError::CreationSpent { .. } => {
                with(Code::CapExceeded).retry_after(rest_of_day()).hint(Hint::NextDay)
            }
            SandboxError::DaySpent { scope, cap, used, allowed } => with(Code::CapExceeded)
                .retry_after(rest_of_day())
                .details(json!({
                    "scope": scope.kind(), "name": scope.name(), "cap": cap, "used": used,
                    "asked": 0, "allowed": allowed
                }))
                .hint(Hint::NextDay),
            SandboxError::CapExceeded { scope, cap, used, requested, allowed } => {
                with(Code::CapExceeded)
                    .details(json!({
                        "scope": scope.kind(), "name": scope.name(), "cap": cap, "used": used,
                        "asked": requested, "allowed": allowed
                    }))
                    .hint(Hint::UseLess)
            }
            SandboxError::Commit { source, .. } | SandboxError::Fork { source, .. } => with(match **source {
                CommitError::Slow => Code::TooLarge,
                CommitError::Disk(_) => Code::Internal,
                CommitError::Read(ref error) | CommitError::Freeze(ref error)
                    if error.fault_code() == Some(FaultCode::Conflict) =>
                {
                    Code::Conflict
                }
                CommitError::Read(_) | CommitError::Freeze(_) | CommitError::Write(_) => {
                    Code::GuestUnreachable
                }
            })
            .because(Reason::NotCommitted),
            SandboxError::Lost { .. } | SandboxError::NotWoken { .. } => {
                with(Code::GuestUnreachable).because(Reason::Lost).hint(Hint::RemoveLost)
            }
            SandboxError::WillNotDie { .. } => with(Code::Internal).because(Reason::Stuck),
            SandboxError::TooMany => with(Code::LimitReached).retry_after(BUSY_PAUSE),
            SandboxError::TooManySnapshots
            | SandboxError::TooManyTemplates { .. }
            | SandboxError::TooManyMetered
            | SandboxError::SnapshotsTooLarge { .. } => with(Code::LimitReached),
            SandboxError::Archive(error) => with(match **error {
                ref error if error.is_too_large() => Code::TooLarge,
                ref error if error.is_internal() => Code::Internal,
                _ => Code::Invalid,
            }),
            SandboxError::SnapshotFixes { what, .. }
            | SandboxError::TemplateFixes { what, .. }
            | SandboxError::TemplateCommand { what }
            | SandboxError::Unbounded { what, .. } => {
                with(Code::Invalid).details(json!({ "field": what }))
            }
            SandboxError::NoRoot | SandboxError::HostRoot => {
                with(Code::Forbidden).details(json!({ "field": "image" })).hint(Hint::NameImage)
            }
            SandboxError::NoDisk(_) => {
                with(Code::Unsupported).details(json!({ "field": "scratch_bytes" })).hint(
                    "`host-bridge doctor` says what is missing; `scratch = \"auto\"` takes memory instead",
                )
            }
            SandboxError::Unsupported { what, hint, .. } => {
                with(Code::Unsupported).details(json!({ "field": what })).hint(*hint)
            }
            SandboxError::HoldsSecrets { .. } => {
                with(Code::Unsupported).because(Reason::HoldsSecrets).hint(
                    "make the snapshot from a sandbox without secrets, and give the secrets to the \
                    sandboxes made from it",
                )
            }
            SandboxError::Secret(error) => of_secret(error),
            SandboxError::Workspace(WorkspaceError::Unknown { name, .. }) => {
                with(Code::UnknownWorkspace)
                    .details(json!({ "workspace": name }))
                    .hint("the server's configuration lists them")
            }
            SandboxError::Workspace(WorkspaceError::NoBucket { .. }) => with(Code::UnknownWorkspace)
                .hint("a bucket of [workspaces] in the server's configuration, below its prefix"),
            SandboxError::Workspace(WorkspaceError::ObjectTaken { .. }) => with(Code::Conflict)
                .because(Reason::NameTaken)
                .hint("choose another key, or remove the object"),
            SandboxError::Workspace(WorkspaceError::NoObject { .. }) => with(Code::NotFound),
            SandboxError::Workspace(WorkspaceError::None) => with(Code::Conflict)
                .because(Reason::NoWorkspace)
                .hint("name a workspace when the sandbox is made"),
            SandboxError::Workspace(_) => with(Code::WorkspaceFailed)
                .hint("check the directory or bucket, its limits in [workspaces], and the sandbox"),
            SandboxError::Volume(error) => of_volume(error),
            SandboxError::VolumeMount(_) => {
                with(Code::Invalid).details(json!({ "field": "volumes" }))
            }
            SandboxError::VolumeNotMounted { .. } => with(Code::StartFailed)
                .hint("the path must be a directory, or free, and reached through no link"),
            SandboxError::Image(error) => match Self::from(error) {
                // A sandbox was to start from it.
                Self { code: Code::Internal, message, .. } => Self::new(Code::StartFailed, message),
                refusal => refusal,
            },
            SandboxError::Machine(error) => error.into(),
            SandboxError::Egress(_) | SandboxError::NotReady { .. } => with(Code::StartFailed),
            SandboxError::NotRecorded { .. }
            | SandboxError::Files { .. }
            | SandboxError::Draw(_) => with(Code::Internal),
            SandboxError::Stopping | SandboxError::Held { .. } => {
                with(Code::Unavailable).retry_after(BUSY_PAUSE)
            }
            SandboxError::Environment { .. }
            | SandboxError::ValuesMissing { .. }
            | SandboxError::Hostname { .. }
            | SandboxError::Rule(_)
            | SandboxError::Workdir { .. }
            | SandboxError::User { .. }
            | SandboxError::OutOfRange { .. }
            | SandboxError::NeverIdle { .. }
            | SandboxError::ScratchBeyondMemory { .. }
            | SandboxError::Label(_) => with(Code::Invalid),
        };
        refusal.or_no_room(error)
    }
}

/// A daily limit is only reset when the next day begins.
fn rest_of_day() -> Duration {
    let now_ms = instant::now_ms();
    Duration::from_millis(instant::day_end_ms(now_ms) - now_ms)
}

fn of_volume(error: &VolumeError) -> Refusal {
    let with = |code| Refusal::of(code, error);
    match error {
        VolumeError::Unknown { .. }
        | VolumeError::UnknownId { .. }
        | VolumeError::NoPath { .. } => with(Code::NotFound),
        VolumeError::Taken { .. } => with(Code::Conflict).because(Reason::NameTaken),
        VolumeError::InUse { .. } => with(Code::Conflict).because(Reason::InUse),
        VolumeError::PathTaken { .. } => with(Code::Conflict),
        VolumeError::Name { .. }
        | VolumeError::Path { .. }
        | VolumeError::Kind { .. }
        | VolumeError::OutOfRange { .. } => with(Code::Invalid),
        VolumeError::TooMany { .. } => with(Code::LimitReached),
        VolumeError::TooLarge { .. } => with(Code::TooLarge),
        VolumeError::File { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied => with(Code::Forbidden),
            // What a program of a sandbox has made there meanwhile, or a name that is too long.
            ErrorKind::NotADirectory | ErrorKind::InvalidFilename | ErrorKind::CrossesDevices => {
                with(Code::Invalid)
            }
            _ => with(Code::Io).or_no_room(source),
        },
        VolumeError::Files { source, .. } => with(Code::Internal).or_no_room(source),
    }
}

fn of_secret(error: &SecretError) -> Refusal {
    let with = |code| Refusal::of(code, error);
    match error {
        SecretError::Unknown { name, .. } | SecretError::Unset { name } => {
            with(Code::UnknownSecret)
                .details(json!({ "secret": name }))
                .hint("the server's configuration lists them and says who may use them")
        }
        SecretError::Provider { name, kind, .. } => with(Code::SecretFailed)
            .details(json!({ "secret": name, "provider": kind }))
            .hint("the server's log says why"),
        SecretError::OutOfReach { name, host, .. } => with(Code::Invalid)
            .details(json!({ "field": "secrets", "secret": name }))
            .hint(format!("add {host:?} to egress")),
        SecretError::TooMany { .. }
        | SecretError::Twice { .. }
        | SecretError::AlsoPlain { .. }
        | SecretError::NoField { .. } => with(Code::Invalid).details(json!({ "field": "secrets" })),
    }
}
