//! The codes and the words of refusals, as E2B's clients know them. Pure.

use hyper::StatusCode;

use crate::forms::problem::cut;
use sandbox::refusal::{Code, Hint, Refusal};

/// What went wrong, and what may help where the words are true at every door.
pub fn words(refusal: &Refusal) -> String {
    let hint = refusal.hint.as_deref().and_then(Hint::words);
    let message = cut(refusal.message.clone());
    hint.map_or_else(|| message.clone(), |hint| format!("{message}: {hint}"))
}

/// Connect's word for a code, and the status that belongs to the word.
pub fn connect_code(code: Code) -> (&'static str, StatusCode) {
    match code {
        Code::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
        Code::Forbidden => ("permission_denied", StatusCode::FORBIDDEN),
        Code::NotFound => ("not_found", StatusCode::NOT_FOUND),
        Code::Conflict => ("already_exists", StatusCode::CONFLICT),
        Code::Gone => ("failed_precondition", StatusCode::BAD_REQUEST),
        Code::RateLimited | Code::LimitReached | Code::CapExceeded => {
            ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS)
        }
        Code::Unsupported | Code::MethodNotAllowed => {
            ("unimplemented", StatusCode::NOT_IMPLEMENTED)
        }
        Code::Unavailable | Code::GuestUnreachable | Code::PortUnreachable => {
            ("unavailable", StatusCode::SERVICE_UNAVAILABLE)
        }
        Code::DeadlineExceeded | Code::RequestTimeout => {
            ("deadline_exceeded", StatusCode::GATEWAY_TIMEOUT)
        }
        Code::Internal | Code::InsufficientStorage => {
            ("internal", StatusCode::INTERNAL_SERVER_ERROR)
        }
        _ => ("invalid_argument", StatusCode::BAD_REQUEST),
    }
}
