//! A refusal as an HTTP response: a status, headers, and a [`Problem`] as the body.

mod hints;

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};

use super::response::{Response, json_response};
use crate::forms::problem::{Problem, Words};
use sandbox::refusal::{Code, Refusal};

impl From<&Refusal> for Problem {
    /// The body of the native API.
    fn from(refusal: &Refusal) -> Self {
        Self::new(refusal, hints::words)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::from(&refusal)
    }
}

/// The answer of the native API.
pub fn respond(refusal: &Refusal) -> Response {
    respond_with(refusal, hints::words)
}

/// An answer in a door's own words for what may help.
pub fn respond_with(refusal: &Refusal, words: Words) -> Response {
    let mut response = json_response(status(refusal.code), &Problem::new(refusal, words));
    let headers = response.headers_mut();
    if let Some(pause) = refusal.retry_after {
        headers.insert(RETRY_AFTER, retry_after(pause));
    }
    if refusal.code == Code::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Whole seconds, and never none: a client that comes back at once is refused again.
pub fn retry_after(pause: Duration) -> HeaderValue {
    let seconds = pause.as_secs() + u64::from(pause.subsec_nanos() > 0);
    HeaderValue::from(seconds.max(1))
}

/// The status of HTTP for a code.
pub fn status(code: Code) -> StatusCode {
    match code {
        Code::Invalid => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Forbidden => StatusCode::FORBIDDEN,
        Code::Misdirected => StatusCode::MISDIRECTED_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        Code::Conflict => StatusCode::CONFLICT,
        Code::Gone => StatusCode::GONE,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
        Code::Unsupported
        | Code::SpawnFailed
        | Code::AppFailed
        | Code::AppNotReady
        | Code::ModuleMissing
        | Code::Io
        | Code::UnknownSecret
        | Code::UnknownWorkspace
        | Code::WorkspaceFailed
        | Code::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
        Code::RateLimited | Code::LimitReached | Code::CapExceeded => StatusCode::TOO_MANY_REQUESTS,
        Code::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        Code::StartFailed
        | Code::GuestUnreachable
        | Code::PortUnreachable
        | Code::SecretFailed
        | Code::PullFailed => StatusCode::BAD_GATEWAY,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::InsufficientStorage => StatusCode::INSUFFICIENT_STORAGE,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_code_has_the_status_of_an_error() {
        for code in Code::ALL {
            assert!(status(code).is_client_error() || status(code).is_server_error(), "{code:?}");
        }
    }

    #[test]
    fn a_pause_is_whole_seconds_and_never_none() {
        for (pause, header) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (60_000, "60")] {
            let refusal = Refusal::new(Code::RateLimited, "too many");
            let response = respond(&refusal.retry_after(Duration::from_millis(pause)));
            assert_eq!(response.headers()[RETRY_AFTER], header);
        }
    }
}
