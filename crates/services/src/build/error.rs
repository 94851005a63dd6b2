//! Why an image was not built.

use std::io;
use std::path::PathBuf;

use agent_client::guest::GuestError;
use image::ImageError;
use image::copy::CopyError;
use image::dockerfile::{DockerfileError, Fault};
use machine::MachineKind;
use sandbox::SandboxError;

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("{path:?} cannot be read: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// No source, which would name the line again.
    #[error("{file}:{}: {}", .wrong.line, .wrong.fault)]
    Recipe { file: String, wrong: DockerfileError },
    #[error("{file}:{line}: {source}")]
    Step { file: String, line: usize, source: Box<StepError> },
    #[error("{path:?} cannot be used: {source}")]
    Ignore { path: PathBuf, source: Fault },
    #[error("there is no stage {name:?}; there {}", list(.known))]
    Target { name: String, known: Vec<String> },
    #[error("the build's own thread failed: {0}")]
    Thread(#[from] tokio::task::JoinError),
}

/// Why a step was not done.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("the command cannot be run: {0}")]
    Guest(#[from] GuestError),
    #[error("{program:?} cannot be run: {why}")]
    Program { program: String, why: String },
    #[error("the command ended with exit code {code}")]
    Exit { code: i32 },
    #[error(
        "commands run in a sandbox that the bridge starts, and it starts no {machine} machines; choose one \
        of {} with --machine, or set BURROW_MACHINE or the default to it", MachineKind::STARTED_NAMES.join(", ")
    )]
    NotStarted { machine: MachineKind },
    #[error("an empty image has no program to run; use FROM another image, or only COPY")]
    Empty,
    #[error("there is no image {image:?} here; `--pull missing` fetches it")]
    NoImage { image: String },
    #[error("{value:?} is not a valid {what}")]
    Value { what: &'static str, value: String },
    #[error("the image has no {what} {name:?}; use its number")]
    Account { what: &'static str, name: String },
    #[error("it is for {wanted}, and this host builds images for {host}")]
    Platform { wanted: String, host: String },
}

fn list(known: &[String]) -> String {
    if known.is_empty() {
        "is none with a name".to_owned()
    } else {
        format!("is {}", known.join(", "))
    }
}
