//! The codes of refusals. Programs may rely on them: codes are only ever added.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The codes of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The call is malformed or contradicts itself; repeating it will not help.
    Invalid,
    /// No key was sent, or the key is no longer valid.
    Unauthenticated,
    /// The key does not allow this.
    Forbidden,
    /// The request came under a host name or from a web page that this server does not serve.
    Misdirected,
    /// There is no such path, sandbox, session, context, run or file.
    NotFound,
    /// The path exists but does not take the method.
    MethodNotAllowed,
    /// The server has no answer in the form that the client accepts.
    NotAcceptable,
    /// It already exists, or it is not in the state that this call needs.
    Conflict,
    /// The idempotency key was used for another call.
    IdempotencyMismatch,
    /// It existed, but no longer does.
    Gone,
    /// The body, or the request, exceeds a limit.
    TooLarge,
    /// The body has a media type that this call does not take.
    UnsupportedMediaType,
    /// The range is outside of the file.
    RangeNotSatisfiable,
    /// This machine kind, this host or this image cannot do that.
    Unsupported,
    /// The program could not be started.
    SpawnFailed,
    /// The web app ended before it answered.
    AppFailed,
    /// The web app did not answer in time.
    AppNotReady,
    /// The interpreter lacks a module that this call needs.
    ModuleMissing,
    /// The guest's or the host's kernel refused.
    Io,
    /// Too many calls; `Retry-After` says when to try again.
    RateLimited,
    /// A limit on how many of something may exist is reached.
    LimitReached,
    /// The deadline of the call has passed.
    DeadlineExceeded,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The sandbox did not start.
    StartFailed,
    /// The sandbox's agent does not answer.
    GuestUnreachable,
    /// No program answers at the port of the sandbox, or none that speaks HTTP.
    PortUnreachable,
    /// The server is stopping or full.
    Unavailable,
    /// The request would exceed a cap of the namespace or of the key.
    CapExceeded,
    /// The namespace may use no secret of this name.
    UnknownSecret,
    /// A secret's provider did not give it.
    SecretFailed,
    /// The image could not be pulled from a registry.
    PullFailed,
    /// The namespace may use no workspace of this name.
    UnknownWorkspace,
    /// The workspace cannot be used, or its changes are not copied back.
    WorkspaceFailed,
    /// The disk of the server is full.
    InsufficientStorage,
    /// A fault of this server.
    Internal,
}

impl Code {
    pub const ALL: [Self; 35] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::Misdirected,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::NotAcceptable,
        Self::Conflict,
        Self::IdempotencyMismatch,
        Self::Gone,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::RangeNotSatisfiable,
        Self::Unsupported,
        Self::SpawnFailed,
        Self::AppFailed,
        Self::AppNotReady,
        Self::ModuleMissing,
        Self::Io,
        Self::RateLimited,
        Self::LimitReached,
        Self::DeadlineExceeded,
        Self::RequestTimeout,
        Self::StartFailed,
        Self::GuestUnreachable,
        Self::PortUnreachable,
        Self::Unavailable,
        Self::CapExceeded,
        Self::UnknownSecret,
        Self::SecretFailed,
        Self::PullFailed,
        Self::UnknownWorkspace,
        Self::WorkspaceFailed,
        Self::InsufficientStorage,
        Self::Internal,
    ];

    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::Misdirected => "misdirected",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::NotAcceptable => "not_acceptable",
            Self::Conflict => "conflict",
            Self::IdempotencyMismatch => "idempotency_mismatch",
            Self::Gone => "gone",
            Self::TooLarge => "too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::RangeNotSatisfiable => "range_not_satisfiable",
            Self::Unsupported => "unsupported",
            Self::SpawnFailed => "spawn_failed",
            Self::AppFailed => "app_failed",
            Self::AppNotReady => "app_not_ready",
            Self::ModuleMissing => "module_missing",
            Self::Io => "io",
            Self::RateLimited => "rate_limited",
            Self::LimitReached => "limit_reached",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::RequestTimeout => "request_timeout",
            Self::StartFailed => "start_failed",
            Self::GuestUnreachable => "guest_unreachable",
            Self::PortUnreachable => "port_unreachable",
            Self::Unavailable => "unavailable",
            Self::CapExceeded => "cap_exceeded",
            Self::UnknownSecret => "unknown_secret",
            Self::SecretFailed => "secret_failed",
            Self::PullFailed => "pull_failed",
            Self::UnknownWorkspace => "unknown_workspace",
            Self::WorkspaceFailed => "workspace_failed",
            Self::InsufficientStorage => "insufficient_storage",
            Self::Internal => "internal",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_written_as_it_is_named() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
        }
    }
}
