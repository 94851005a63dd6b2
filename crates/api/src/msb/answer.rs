//! Refusals in the form that microsandbox's clients read: a code and words. The clients make an exception of
//! their own of some codes, and of some statuses.

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use schemars::{Schema, SchemaGenerator};
use serde_json::json;

use crate::body::{Response, json_response};
use crate::forms::problem::cut;
use crate::problem::{retry_after, status as usual_status};
use crate::route::Refusals;
use sandbox::refusal::{Code, Hint, Refusal};

/// Of all calls.
pub const API: Refusals = Refusals { respond, schema: any };

fn any(_: &mut SchemaGenerator) -> Schema {
    Schema::default()
}

/// The refusal of something that microsandbox has and this server does not.
pub fn lacking(what: &str) -> Refusal {
    Refusal::new(Code::Unsupported, format!("not supported by this server: {what}"))
}

fn status(code: Code) -> StatusCode {
    match code {
        Code::Unsupported => StatusCode::NOT_IMPLEMENTED,
        Code::SpawnFailed
        | Code::Io
        | Code::UnknownSecret
        | Code::UnknownWorkspace
        | Code::UnsupportedMediaType => StatusCode::BAD_REQUEST,
        code => usual_status(code),
    }
}

/// The clients' word for a code that they know, or the server's own.
fn word(code: Code) -> &'static str {
    match code {
        Code::NotFound => "sandbox_not_found",
        Code::Invalid => "invalid_request",
        code => code.name(),
    }
}

/// A refusal in words, with what may help.
pub fn words(refusal: &Refusal) -> String {
    let message = cut(refusal.message.clone());
    let hint = refusal.hint.as_deref().and_then(Hint::words);
    hint.map_or_else(|| message.clone(), |hint| format!("{message}: {hint}"))
}

fn respond(refusal: &Refusal) -> Response {
    let body = json!({ "error": { "code": word(refusal.code), "message": words(refusal) } });
    let mut response = json_response(status(refusal.code), &body);
    if let Some(pause) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, retry_after(pause));
    }
    response
}
