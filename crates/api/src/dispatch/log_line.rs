//! The line that the log has of each request.

use std::time::Duration;

use hyper::{Method, StatusCode};

use crate::call::RequestId;
use crate::loglines::{self, Line};
use crate::route::Refusals;
use crate::trail::Trail;
use sandbox::refusal::Code;

/// What is known of a request when it is logged.
#[derive(Default)]
pub struct RequestLog {
    pub operation: Option<&'static str>,
    /// The key's id, or its fingerprint.
    pub key: Option<String>,
    /// The one that the path names.
    pub sandbox: Option<String>,
    pub problem: Option<Code>,
    /// How a refusal is answered.
    pub refusals: Refusals,
    /// The methods that the path knows, of a request with another.
    pub allow: Option<String>,
    /// What the answer says to the gateway that has sent it: that its node is not known here, which may just have joined, or
    /// has another time, or that the sandbox is here no more.
    pub answer_mark: Option<&'static str>,
    /// Whether what it carries is recorded instead of itself.
    pub is_carrier: bool,
    /// Whether it is passed on to a program in a sandbox.
    pub is_passage: bool,
    pub trail: Trail,
}

/// Writes the line of a request that has been answered, as far as lines of its kind are written now.
pub fn write_log_line(
    method: &Method,
    path: &str,
    request_id: &RequestId,
    log: &RequestLog,
    status: StatusCode,
    elapsed: Duration,
) {
    let line = if status.is_client_error() { Line::Refused } else { Line::Served };
    if !loglines::admit(line) {
        return;
    }
    let micros = elapsed.as_micros() as u64;
    let (key, sandbox, id) = (log.key.as_deref(), log.sandbox.as_deref(), &*request_id.0);
    let operation = log.operation;
    let code = log.problem.map(Code::name);
    let place = log.trail.context().map(|context| otel::Place::from(&context));
    let (trace, span) = (place.as_ref().map(|it| &*it.trace), place.as_ref().map(|it| &*it.span));
    if status.is_server_error() {
        tracing::warn!(target: "burrow::http", %method, path, status = status.as_u16(), micros, request = id, operation, sandbox, key, code, trace, span);
    } else {
        tracing::info!(target: "burrow::http", %method, path, status = status.as_u16(), micros, request = id, operation, sandbox, key, code, trace, span);
    }
}
