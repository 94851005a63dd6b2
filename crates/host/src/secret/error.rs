//! Why a sandbox does not get a secret. Nothing here carries a byte of what a provider gave.

use std::io;
use std::path::PathBuf;

use super::limits::{SECRET_BYTES_MAX, SECRETS_PER_SANDBOX_MAX};

/// See the module's description. `Display` is for whoever asked for the sandbox; it says nothing of
/// the host that the configuration does not give away by a secret's name.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("there is no secret {name:?} for the namespace {namespace}")]
    Unknown { name: String, namespace: String },
    #[error("there is no secret {name:?}")]
    Unset { name: String },
    #[error("{count} secrets are asked for, and {SECRETS_PER_SANDBOX_MAX} is the limit")]
    TooMany { count: usize },
    #[error("two of the secrets are to be the variable {variable}")]
    Twice { variable: String },
    #[error("{variable} is asked for as a variable of the environment and as a secret")]
    AlsoPlain { variable: String },
    #[error(
        "the secret {name:?} is sent to {host} alone, at port 443, and no egress rule of the sandbox \
         allows that"
    )]
    OutOfReach { name: String, host: String },
    #[error("the secret {name:?} is put into fields of requests, which cannot hold line breaks")]
    NoField { name: String },
    #[error("the secret {name:?} could not be had from its {kind}: {}", source.told())]
    Provider { name: String, kind: &'static str, source: ProviderError },
}

/// What went wrong with a provider. `Display` is for the operator, who knows its configuration.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("the variable {variable} is not set")]
    Unset { variable: String },
    #[error("systemd has given this service no credentials: CREDENTIALS_DIRECTORY is not set")]
    NoCredentials,
    #[error("{path:?} is not read: {source}")]
    Unread { path: PathBuf, source: io::Error },
    #[error("{path:?} is not read within {seconds} s")]
    Slow { path: PathBuf, seconds: u64 },
    #[error("{program:?} is not started: {source}")]
    NotStarted { program: String, source: io::Error },
    #[error("{program:?} ended with {status}")]
    Failed { program: String, status: std::process::ExitStatus },
    #[error("{program:?} took longer than {seconds} s")]
    Overran { program: String, seconds: u64 },
    #[error("it gave nothing")]
    Empty,
    #[error("it gave more than {SECRET_BYTES_MAX} bytes")]
    TooLong,
    #[error("it gave a zero byte, which no environment can hold")]
    Zero,
    #[error("it gave something that is not UTF-8")]
    NotText,
}

impl ProviderError {
    /// The same for those who may not know how the host is set up: neither paths nor programs.
    pub fn told(&self) -> &'static str {
        match self {
            Self::Unset { .. } | Self::NoCredentials => "it is not there",
            Self::Unread { .. } => "it is not read",
            Self::Slow { .. } | Self::Overran { .. } => "it took too long",
            Self::NotStarted { .. } => "it is not started",
            Self::Failed { .. } => "it failed",
            Self::Empty => "it gave nothing",
            Self::TooLong => "it gave too much",
            Self::Zero => "it gave a zero byte",
            Self::NotText => "it gave something that is not text",
        }
    }
}
