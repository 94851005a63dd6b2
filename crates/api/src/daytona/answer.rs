//! Refusals in the form that Daytona's clients read: the status, words, a code, and who says so. The clients
//! make an exception of their own of some codes of the toolbox.

use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::body::{Response, json_response};
use crate::forms::problem::cut;
use crate::problem::{retry_after, status as usual_status};
use crate::refusal::of_file;
use crate::route::Refusals;
use agent_client::guest::GuestError;
use host::instant::{format, now_ms};
use sandbox::refusal::{Code, Hint, Refusal};

/// Of the calls about sandboxes.
pub const API: Refusals = Refusals { respond: api, schema: any };
/// Of the calls into one.
pub const TOOLBOX: Refusals = Refusals { respond: toolbox, schema: any };

/// The field of a refusal's details with Daytona's own code.
const OWN_CODE: &str = "daytona_code";

fn any(_: &mut SchemaGenerator) -> Schema {
    Schema::default()
}

/// A refusal with a code of Daytona's.
pub fn coded(refusal: Refusal, code: &'static str) -> Refusal {
    refusal.details(json!({ OWN_CODE: code }))
}

/// The refusal of something that Daytona has and this server does not.
pub fn lacking(what: &str) -> Refusal {
    Refusal::new(Code::Unsupported, format!("not supported by this server: {what}"))
}

/// A refusal of work on a file.
pub fn refused(error: GuestError) -> Refusal {
    use nix::libc::{EACCES, EISDIR, ENOENT, ENOTDIR, EPERM};
    let errno = match &error {
        GuestError::Fault(fault) => fault.errno,
        _ => None,
    };
    let refusal = of_file(error);
    match (errno, refusal.code) {
        (Some(ENOENT), _) | (_, Code::NotFound) => {
            coded(Refusal { code: Code::NotFound, ..refusal }, "FILE_NOT_FOUND")
        }
        (Some(EACCES | EPERM), _) | (_, Code::Forbidden) => {
            coded(Refusal { code: Code::Forbidden, ..refusal }, "FILE_ACCESS_DENIED")
        }
        (Some(EISDIR | ENOTDIR), _) | (_, Code::Invalid) => {
            coded(Refusal { code: Code::Invalid, ..refusal }, "INVALID_FILE_PATH")
        }
        _ => refusal,
    }
}

fn status(code: Code) -> StatusCode {
    match code {
        Code::Unsupported => StatusCode::NOT_IMPLEMENTED,
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        // Daytona has 400 for all that is wrong with a request.
        Code::SpawnFailed
        | Code::Io
        | Code::UnknownSecret
        | Code::UnknownWorkspace
        | Code::UnsupportedMediaType => StatusCode::BAD_REQUEST,
        code => usual_status(code),
    }
}

/// Daytona's word for a code that has no more of its own.
fn usual_code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BAD_REQUEST",
        StatusCode::UNAUTHORIZED => "UNAUTHORIZED",
        StatusCode::FORBIDDEN => "FORBIDDEN",
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::REQUEST_TIMEOUT => "REQUEST_TIMEOUT",
        StatusCode::CONFLICT => "CONFLICT",
        StatusCode::GONE => "GONE",
        StatusCode::UNPROCESSABLE_ENTITY => "UNPROCESSABLE_ENTITY",
        StatusCode::NOT_IMPLEMENTED => "NOT_IMPLEMENTED",
        StatusCode::TOO_MANY_REQUESTS => "TOO_MANY_REQUESTS",
        StatusCode::SERVICE_UNAVAILABLE => "SERVICE_UNAVAILABLE",
        _ => "INTERNAL_SERVER_ERROR",
    }
}

/// A refusal as the clients read it, also within a larger answer.
pub fn shown(refusal: &Refusal, source: &str) -> Value {
    let status = status(refusal.code);
    let hint = refusal.hint.as_deref().and_then(Hint::words);
    let message = cut(refusal.message.clone());
    let message = hint.map_or_else(|| message.clone(), |hint| format!("{message}: {hint}"));
    let own = refusal.details.as_deref().and_then(|details| details.get(OWN_CODE));
    let own = own.and_then(Value::as_str);
    json!({
        "statusCode": status.as_u16(),
        "error": status.canonical_reason(),
        "message": message,
        // One client reads this of an upload.
        "errors": [message],
        "code": own.unwrap_or(usual_code(status)),
        "source": source,
        "path": "",
        "timestamp": format(now_ms()),
    })
}

/// Who says that a call into a sandbox is refused.
pub const DAEMON: &str = "DAYTONA_DAEMON";
const SERVER: &str = "DAYTONA_API";

fn api(refusal: &Refusal) -> Response {
    respond(refusal, SERVER)
}

fn toolbox(refusal: &Refusal) -> Response {
    respond(refusal, DAEMON)
}

fn respond(refusal: &Refusal, source: &str) -> Response {
    let mut response = json_response(status(refusal.code), &shown(refusal, source));
    if let Some(pause) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, retry_after(pause));
    }
    response
}
