//! Converts the errors of sandboxes into refusals on the control socket.

use super::message::{Code, Refusal};
use host::instant;
use host::secret::SecretError;
use image::ImageError;
use machine::{Blame, MachineError};
use sandbox::{SandboxError, State};
use services::app::AppError;
use services::artifact::ArtifactError;
use workspace::WorkspaceError;

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>, hint: Option<&str>) -> Self {
        Self { code, message: message.into(), hint: hint.map(str::to_owned) }
    }
}

impl From<ArtifactError> for Refusal {
    fn from(error: ArtifactError) -> Self {
        let hint = "`host-bridge artifact ls` lists the artifacts";
        match &error {
            ArtifactError::NotFound { .. } => {
                Self::new(Code::NotFound, error.to_string(), Some(hint))
            }
            _ => Self::new(Code::Io, error.to_string(), None),
        }
    }
}

impl From<SandboxError> for Refusal {
    fn from(error: SandboxError) -> Self {
        let message = error.to_string();
        let (code, hint) = match &error {
            SandboxError::NameTaken { which, state: State::Stopped { .. }, .. } => {
                (Code::NameTaken, Some(format!("`host-bridge rm {which}` removes the old one")))
            }
            SandboxError::NameTaken { which, .. } => {
                let hint = format!("choose another name, or `host-bridge rm --force {which}`");
                (Code::NameTaken, Some(hint))
            }
            SandboxError::NotFound { .. } => {
                let hint = "`host-bridge ps --all` lists the sandboxes";
                (Code::NotFound, Some(hint.to_owned()))
            }
            SandboxError::StillRunning { which, .. } => {
                let hint = format!("`host-bridge stop {which}` first, or remove it with --force");
                (Code::StillRunning, Some(hint))
            }
            SandboxError::CreationEnded { .. } | SandboxError::CreationSpent { .. } => {
                (Code::NotRunning, None)
            }
            SandboxError::NotRunning { which, .. } => {
                let hint = format!("`host-bridge logs {which}` shows its output");
                (Code::NotRunning, Some(hint))
            }
            SandboxError::WillNotDie { .. } => (Code::Stuck, None),
            SandboxError::Egress(_) => (Code::StartFailed, None),
            SandboxError::Paused { which } => {
                (Code::Paused, Some(format!("`host-bridge resume {which}` continues it")))
            }
            SandboxError::Busy { .. } => (Code::Busy, Some("try again".to_owned())),
            SandboxError::NoSnapshot { .. } => {
                let hint = "`host-bridge snapshot ls` lists the snapshots";
                (Code::NotFound, Some(hint.to_owned()))
            }
            SandboxError::SnapshotTaken { snapshot } => {
                let hint = format!("choose another name, or `host-bridge snapshot rm {snapshot}`");
                (Code::NameTaken, Some(hint))
            }
            SandboxError::TooManyMetered
            | SandboxError::TooManySnapshots
            | SandboxError::SnapshotsTooLarge { .. }
            | SandboxError::TooMany => (Code::Limit, None),
            SandboxError::Secret(SecretError::Unknown { .. }) => {
                let hint = "`host-bridge serve --print-config` shows the configured [secrets]";
                (Code::UnknownSecret, Some(hint.to_owned()))
            }
            SandboxError::Secret(SecretError::Provider { .. }) => {
                (Code::SecretFailed, Some("the daemon's log says why".to_owned()))
            }
            SandboxError::Secret(SecretError::OutOfReach { host, .. }) => {
                (Code::Invalid, Some(format!("add `--egress {host}`")))
            }
            SandboxError::Workspace(WorkspaceError::Unknown { .. }) => {
                let hint = "`host-bridge serve --print-config` shows the configured [workspaces]";
                (Code::UnknownWorkspace, Some(hint.to_owned()))
            }
            SandboxError::Workspace(WorkspaceError::None)
            | SandboxError::SnapshotFixes { .. }
            | SandboxError::Unbounded { .. }
            | SandboxError::Environment { .. }
            | SandboxError::Hostname { .. }
            | SandboxError::Rule(_)
            | SandboxError::Workdir { .. }
            | SandboxError::User { .. }
            | SandboxError::OutOfRange { .. }
            | SandboxError::Secret(_)
            | SandboxError::Label(_) => (Code::Invalid, None),
            SandboxError::Workspace(_) => (Code::WorkspaceFailed, None),
            SandboxError::Unsupported { hint, .. } => (Code::Unsupported, Some((*hint).to_owned())),
            SandboxError::DaySpent { .. } => {
                let until = instant::format(instant::day_end_ms(instant::now_ms()));
                (
                    Code::CapExceeded,
                    Some(format!("the limit resets at the end of the day (UTC), at {until}")),
                )
            }
            SandboxError::CapExceeded { .. } => {
                let hint = "stop or remove a sandbox, or ask for less";
                (Code::CapExceeded, Some(hint.to_owned()))
            }
            SandboxError::HoldsSecrets { .. } => (Code::Unsupported, None),
            SandboxError::Lost { which, .. } => {
                (Code::NotRunning, Some(format!("`host-bridge kill {which}` ends it")))
            }
            SandboxError::Image(error) => (code_of_image(error), hint_of_image(error)),
            SandboxError::Machine(error) => (code_of(error), error.hint().map(str::to_owned)),
            SandboxError::Files { .. } | SandboxError::Draw(_) | SandboxError::Commit { .. } => {
                (Code::Io, None)
            }
            SandboxError::Stopping => (Code::Stopping, None),
        };
        Self { code, message, hint }
    }
}

fn code_of_image(error: &ImageError) -> Code {
    match error.inner() {
        ImageError::NotFound { .. } => Code::NotFound,
        ImageError::Pull { .. } | ImageError::PullTook { .. } => Code::PullFailed,
        ImageError::NotAllowed { .. } => Code::Unsupported,
        ImageError::InUse { .. } | ImageError::Busy => Code::Busy,
        ImageError::TooManyNames { .. }
        | ImageError::TooLarge { .. }
        | ImageError::TooMany { .. }
        | ImageError::TooManyPulls { .. } => Code::Limit,
        ImageError::Blob(_) | ImageError::Files { .. } | ImageError::Disk { .. } => Code::Io,
        _ => Code::Invalid,
    }
}

fn hint_of_image(error: &ImageError) -> Option<String> {
    let hint = "`host-bridge image ls` lists the images";
    matches!(error, ImageError::NotFound { .. }).then(|| hint.to_owned())
}

fn code_of(error: &MachineError) -> Code {
    match error.blame() {
        Blame::Asked => Code::Invalid,
        Blame::AskedTooMuch => Code::Limit,
        Blame::Unsupported => Code::Unsupported,
        Blame::Files => Code::Io,
        Blame::Guest | Blame::Start => Code::StartFailed,
    }
}

impl From<AppError> for Refusal {
    fn from(error: AppError) -> Self {
        let message = error.to_string();
        let with = |code, hint| Self::new(code, message.clone(), hint);
        match error {
            AppError::Sandbox(error) => error.into(),
            AppError::NotFound { .. } => {
                with(Code::NotFound, Some("`host-bridge app ls` lists the apps"))
            }
            AppError::NameTaken { .. } => {
                let hint =
                    "choose another --name, or stop the other app with `host-bridge app stop`";
                with(Code::NameTaken, Some(hint))
            }
            AppError::TooManyOfSandbox { .. } | AppError::TooMany { .. } => {
                with(Code::Limit, Some("stop an app that is not needed"))
            }
            AppError::NoPort { .. } => with(Code::Limit, None),
            AppError::CodeTooLong { .. }
            | AppError::ReadyPath { .. }
            | AppError::ReadyTimeout { .. } => with(Code::Invalid, None),
            AppError::PortTaken { .. } => with(Code::Invalid, Some("omit --port")),
            AppError::Failed { ref log, .. } | AppError::NotReady { ref log, .. } => {
                let said = log.trim();
                let message = if said.is_empty() {
                    message
                } else {
                    format!("{message}; its output: {said}")
                };
                Self::new(Code::StartFailed, message, None)
            }
            AppError::Missing { .. }
            | AppError::NoInterpreter { .. }
            | AppError::Interpreter { .. } => {
                with(Code::StartFailed, Some("use an image that contains it"))
            }
            // It had begun.
            AppError::Abandoned => with(Code::StartFailed, None),
            AppError::Stopped | AppError::SandboxGone => with(Code::NotRunning, None),
            AppError::Ending => with(Code::Stopping, None),
            AppError::Guest(_)
            | AppError::Forward(_)
            | AppError::Draw(_)
            | AppError::Note { .. } => with(Code::Io, None),
        }
    }
}
