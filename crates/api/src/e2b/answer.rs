//! Refusals in the forms that E2B's clients read: a number as the code on REST, a word on Connect, and
//! 502 with certain words for a sandbox that is not there.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use schemars::{Schema, SchemaGenerator};
use serde_json::json;

use super::codes::{connect_code, words};
use super::connect::{STREAM, end_envelope};
use crate::body::{Outgoing, Response, json_response, respond};
use crate::forms::problem::cut;
use crate::problem::{retry_after, status as usual_status};
use crate::route::Refusals;
use sandbox::refusal::{Code, Reason, Refusal};

/// Tells the clients whether a repeat may help.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("should-retry");

/// Of the REST calls.
pub const CONTROL: Refusals = Refusals { respond: control, schema: any };
/// Of contents of volumes.
pub const VOLUME: Refusals = Refusals { respond: worded, schema: any };
/// Of contents of files and of the code interpreter.
pub const PLAIN: Refusals = Refusals { respond: plain, schema: any };
/// Of calls with one answer.
pub const UNARY: Refusals = Refusals { respond: unary, schema: any };
/// Of calls with a stream of answers.
pub const STREAMING: Refusals = Refusals { respond: streaming, schema: any };

fn any(_: &mut SchemaGenerator) -> Schema {
    Schema::default()
}

/// A sandbox that is not there, or does not run. The clients look for the words.
pub fn gone(sandbox: &str) -> Refusal {
    let message = format!("The sandbox was not found: {}", cut(sandbox.to_owned()));
    Refusal::new(Code::NotFound, message)
        .because(Reason::SandboxGone)
        .details(json!({ "sandboxId": sandbox }))
}

/// Why a request that was for a running sandbox cannot go on without it.
fn is_gone(refusal: &Refusal) -> bool {
    matches!(
        refusal.reason,
        Some(Reason::SandboxGone | Reason::NotRunning | Reason::Paused | Reason::Lost)
    ) || refusal.code == Code::GuestUnreachable
}

fn status(code: Code) -> StatusCode {
    match code {
        Code::Unsupported => StatusCode::NOT_IMPLEMENTED,
        // E2B has 400 for all that is wrong with a request.
        Code::SpawnFailed
        | Code::Io
        | Code::UnknownSecret
        | Code::UnknownWorkspace
        | Code::UnsupportedMediaType => StatusCode::BAD_REQUEST,
        code => usual_status(code),
    }
}

fn numbered(status: StatusCode, refusal: &Refusal) -> Response {
    let body = json!({ "code": status.as_u16(), "message": words(refusal) });
    let mut response = json_response(status, &body);
    let headers = response.headers_mut();
    match refusal.retry_after {
        Some(pause) => {
            headers.insert(RETRY_AFTER, retry_after(pause));
        }
        None if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        None => {}
    }
    response
}

/// The same with a word for the code.
fn worded(refusal: &Refusal) -> Response {
    let body = json!({ "code": refusal.code.name(), "message": words(refusal) });
    json_response(status(refusal.code), &body)
}

/// The answer of a gateway that has nothing behind it.
fn gateway(refusal: &Refusal) -> Response {
    let id = refusal.details.as_deref().and_then(|details| details.get("sandboxId")).cloned();
    let mut message = words(refusal);
    if !message.contains("was not found") {
        message = format!("The sandbox was not found: {message}");
    }
    let body = json!({ "sandboxId": id, "message": message, "code": 502 });
    json_response(StatusCode::BAD_GATEWAY, &body)
}

fn control(refusal: &Refusal) -> Response {
    numbered(status(refusal.code), refusal)
}

fn plain(refusal: &Refusal) -> Response {
    if is_gone(refusal) {
        gateway(refusal)
    } else if refusal.code == Code::PortUnreachable {
        unreachable(refusal)
    } else {
        control(refusal)
    }
}

/// The same where the sandbox is there, and its port does not answer.
fn unreachable(refusal: &Refusal) -> Response {
    let port = refusal.details.as_deref().and_then(|details| details.get("port")).cloned();
    let mut message = words(refusal);
    if refusal.reason == Some(Reason::NotListening) {
        message = format!("The sandbox is running but port is not open: {message}");
    }
    let body = json!({ "message": message, "port": port, "code": 502 });
    json_response(StatusCode::BAD_GATEWAY, &body)
}

fn unary(refusal: &Refusal) -> Response {
    if is_gone(refusal) {
        return gateway(refusal);
    }
    let (code, status) = connect_code(refusal.code);
    json_response(status, &json!({ "code": code, "message": words(refusal) }))
}

fn streaming(refusal: &Refusal) -> Response {
    if is_gone(refusal) || refusal.code == Code::Unauthenticated {
        return unary(refusal);
    }
    respond(StatusCode::OK, STREAM, Outgoing::whole(end_envelope(Some(refusal))))
}
