//! What is said when a call is not carried out: one shape for every path of the native API, with
//! codes that a program may rely on. Codes are only ever added.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits::PROBLEM_CHARS_MAX;
use super::response::{Response, json_response};

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
    /// The body, or what it asks for, exceeds a limit.
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
    /// The server is stopping or full.
    Unavailable,
    /// The request would exceed a cap of the namespace or of the key.
    CapExceeded,
    /// There is no secret of that name that the namespace may use.
    UnknownSecret,
    /// A secret's provider did not give it.
    SecretFailed,
    /// The image could not be pulled from a registry.
    PullFailed,
    /// There is no workspace of that name that the namespace may use.
    UnknownWorkspace,
    /// The workspace cannot be used, or its changes are not copied back.
    WorkspaceFailed,
    /// A fault of this server.
    Internal,
}

impl Code {
    pub const ALL: [Self; 33] = [
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
        Self::Unavailable,
        Self::CapExceeded,
        Self::UnknownSecret,
        Self::SecretFailed,
        Self::PullFailed,
        Self::UnknownWorkspace,
        Self::WorkspaceFailed,
        Self::Internal,
    ];

    pub fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::Conflict => StatusCode::CONFLICT,
            Self::Gone => StatusCode::GONE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Unsupported
            | Self::SpawnFailed
            | Self::AppFailed
            | Self::AppNotReady
            | Self::ModuleMissing
            | Self::Io
            | Self::UnknownSecret
            | Self::UnknownWorkspace
            | Self::WorkspaceFailed
            | Self::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited | Self::LimitReached | Self::CapExceeded => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::StartFailed | Self::GuestUnreachable | Self::SecretFailed | Self::PullFailed => {
                StatusCode::BAD_GATEWAY
            }
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

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
            Self::Unavailable => "unavailable",
            Self::CapExceeded => "cap_exceeded",
            Self::UnknownSecret => "unknown_secret",
            Self::SecretFailed => "secret_failed",
            Self::PullFailed => "pull_failed",
            Self::UnknownWorkspace => "unknown_workspace",
            Self::WorkspaceFailed => "workspace_failed",
            Self::Internal => "internal",
        }
    }
}

/// Why a call was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    pub code: Code,
    /// One sentence that says what was wrong.
    pub message: String,
    pub hint: Option<String>,
    /// Facts for programs; what they are depends on the code. Most have none, so it is kept aside.
    pub details: Option<Box<Value>>,
    pub retry_after: Option<Duration>,
    /// The methods that the path knows.
    pub allow: Option<String>,
}

/// The body of every refusal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Problem")]
pub struct ProblemBody {
    pub code: Code,
    /// One sentence that says what was wrong.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub hint: Option<String>,
    /// Values for programs; which ones depends on the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub details: Option<Value>,
}

impl Problem {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message, hint: None, details: None, retry_after: None, allow: None }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// `details` is an object.
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::Invalid, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    pub fn body(&self) -> ProblemBody {
        let Self { code, message, hint, details, .. } = self.clone();
        ProblemBody { code, message: cut(message), hint, details: details.map(|details| *details) }
    }

    pub fn into_response(self) -> Response {
        let mut response = json_response(self.code.status(), &self.body());
        let headers = response.headers_mut();
        if let Some(pause) = self.retry_after {
            // Whole seconds, and never none: a client that comes back at once is refused again.
            let seconds = pause.as_secs() + u64::from(pause.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

/// A message without what is too long of it: some quote what a client has sent, and that may be the
/// whole of a body.
pub fn cut(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(PROBLEM_CHARS_MAX) {
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let problem = Problem::invalid("é".repeat(PROBLEM_CHARS_MAX + 5));
        assert_eq!(problem.body().message.chars().count(), PROBLEM_CHARS_MAX + 1);
        assert_eq!(Problem::invalid("short").body().message, "short");
    }

    #[test]
    fn every_code_is_written_as_it_is_named() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
            assert!(code.status().is_client_error() || code.status().is_server_error());
        }
    }

    #[test]
    fn a_pause_is_whole_seconds_and_never_none() {
        for (pause, said) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (60_000, "60")] {
            let problem = Problem::new(Code::RateLimited, "too many");
            let response = problem.retry_after(Duration::from_millis(pause)).into_response();
            assert_eq!(response.headers()[RETRY_AFTER], said);
        }
    }
}
