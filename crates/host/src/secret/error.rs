//! Why a sandbox does not get a secret. No error contains a byte of the value.

use std::io;
use std::path::PathBuf;

use super::limits::{SECRET_BYTES_MAX, SECRETS_PER_SANDBOX_MAX};

/// See the module's description. `Display` is for the sandbox's creator; it reveals nothing about
/// the host except a secret's name.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("there is no secret {name:?} for the namespace {namespace}")]
    Unknown { name: String, namespace: String },
    #[error("there is no secret {name:?}")]
    Unset { name: String },
    #[error("{count} secrets are requested, but the limit is {SECRETS_PER_SANDBOX_MAX}")]
    TooMany { count: usize },
    #[error("two of the secrets set the variable {variable}")]
    Twice { variable: String },
    #[error("{variable} is set both as an environment variable and as a secret")]
    AlsoPlain { variable: String },
    #[error(
        "the secret {name:?} is only sent to {host} at port 443, but no egress rule of the sandbox \
         allows that"
    )]
    OutOfReach { name: String, host: String },
    #[error("the secret {name:?} contains a line break, which a header field cannot contain")]
    NoField { name: String },
    #[error("cannot get the secret {name:?} from its {kind}: {}", source.public_message())]
    Provider { name: String, kind: &'static str, source: ProviderError },
}

/// A provider's failure. `Display` is for the operator, who knows its configuration.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("the variable {variable} is not set")]
    Unset { variable: String },
    #[error("systemd gave this service no credentials: CREDENTIALS_DIRECTORY is not set")]
    NoCredentials,
    #[error("cannot read {path:?}: {source}")]
    Unread { path: PathBuf, source: io::Error },
    #[error("{path:?} was not read within {seconds} s")]
    Slow { path: PathBuf, seconds: u64 },
    #[error("cannot start {program:?}: {source}")]
    NotStarted { program: String, source: io::Error },
    #[error("{program:?} ended with {status}")]
    Failed { program: String, status: std::process::ExitStatus },
    #[error("{program:?} took longer than {seconds} s")]
    Overran { program: String, seconds: u64 },
    #[error("it is empty")]
    Empty,
    #[error("it is larger than {SECRET_BYTES_MAX} bytes")]
    TooLong,
    #[error("it contains a zero byte, which an environment variable cannot contain")]
    Zero,
    #[error("it is not UTF-8")]
    NotText,
}

impl ProviderError {
    /// The same for those who must not know the host's set-up: neither paths nor programs.
    pub fn public_message(&self) -> &'static str {
        match self {
            Self::Unset { .. } | Self::NoCredentials => "it is missing",
            Self::Unread { .. } => "it cannot be read",
            Self::Slow { .. } | Self::Overran { .. } => "it took too long",
            Self::NotStarted { .. } => "it cannot be started",
            Self::Failed { .. } => "it failed",
            Self::Empty => "it is empty",
            Self::TooLong => "it is too large",
            Self::Zero => "it contains a zero byte",
            Self::NotText => "it is not text",
        }
    }
}
