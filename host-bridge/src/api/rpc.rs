//! JSON-RPC as the first SDKs speak it: one path, five methods.
//!
//! ```text
//!  body ─▶ envelope ─▶ start   sandbox.start, sandbox.stop
//!   (bytes)  (requests) repl    sandbox.repl.run    ─▶ lines ─▶ written ─▶ answer
//!                       command sandbox.command.run
//!                       metrics sandbox.metrics.get
//! ```
//!
//! The table of operations calls [`answer`]; each method is a file. A client that is gone drops the
//! whole call, and with it what runs for it. What a request is refused with is an answer of JSON-RPC
//! too, with HTTP 200 unless the key or a limit is what stands in the way.

mod command;
mod envelope;
mod failure;
mod limits;
mod lines;
mod metrics;
mod params;
mod repl;
mod start;
mod written;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, StatusCode};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::body::{JSON, Outgoing, Response, respond};
use super::call::{Call, Inside};
use super::problem::{Code, Problem};
use super::route::{Document, Input, Operation, Output, Refusals, operation};
use super::shape::Nothing;
use crate::keys::Access;
use crate::sandbox::{Name, SandboxRef};
use envelope::{Asked, NoRequest, Request};
use failure::{Failure, UNKNOWN_METHOD};
use limits::{BATCH_AT_ONCE_MAX, OUTPUT_BYTES_MAX};
use params::{Params, shown};
use written::Written;

const METHODS: [&str; 5] = [
    "sandbox.start",
    "sandbox.stop",
    "sandbox.repl.run",
    "sandbox.command.run",
    "sandbox.metrics.get",
];

/// What a web page's form can send without being asked.
const FORMS: [&str; 3] = ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"];

const REFUSALS: Refusals = Refusals { respond: refuse, schema: failed_schema };

pub fn operations() -> Vec<Operation> {
    let summary = "JSON-RPC 2.0, as the published SDKs speak it.";
    vec![
        operation(Method::POST, "/api/v1/rpc", "json_rpc", summary, answer)
            .about(include_str!("rpc/about.md"))
            .tag("json-rpc")
            .refusing(REFUSALS)
            .problems(&[Code::LimitReached, Code::Unavailable]),
    ]
}

/// The body, whatever is in it: what is wrong with it is told in an answer.
pub struct Body(Bytes);

/// One answer or several, or that there is none to give.
pub struct Answer {
    status: StatusCode,
    retry_after: Option<HeaderValue>,
    written: Option<Written>,
}

async fn answer(call: Call, _: Nothing, Body(body): Body) -> Result<Answer, Problem> {
    let asked = envelope::parse(&body);
    // Code can be large, and has been taken out of it.
    drop(body);
    Ok(match asked {
        Err(failure) => Answer::failed(&Value::Null, failure),
        Ok(Asked::One(Err(refused))) => Answer::failed(&refused.id, refused.failure),
        Ok(Asked::One(Ok(request))) => {
            let id = request.id.unwrap_or(Value::Null);
            match perform(&call, &request.method, request.params, OUTPUT_BYTES_MAX).await {
                Ok(result) => Answer::of(envelope::answer(&id, Ok(result))),
                Err(failure) => Answer::failed(&id, failure),
            }
        }
        Ok(Asked::Batch(requests)) => {
            let room = OUTPUT_BYTES_MAX / requests.len().max(1);
            let answers = requests.into_iter().map(|request| one_of_many(&call, request, room));
            let answers = stream::iter(answers).buffered(BATCH_AT_ONCE_MAX);
            let answers: Vec<_> = answers.filter_map(std::future::ready).collect().await;
            if answers.is_empty() { Answer::none() } else { Answer::of(envelope::answers(answers)) }
        }
    })
}

/// Carries out one request of a batch. Nobody waits for the answer to one without an id.
async fn one_of_many(
    call: &Call,
    request: Result<Request, Box<NoRequest>>,
    room: usize,
) -> Option<Written> {
    match request {
        Err(refused) => Some(envelope::answer(&refused.id, Err(refused.failure))),
        Ok(Request { id, method, params }) => {
            let outcome = perform(call, &method, params, room).await;
            id.map(|id| envelope::answer(&id, outcome))
        }
    }
}

async fn perform(
    call: &Call,
    method: &str,
    params: Value,
    room: usize,
) -> Result<Written, Failure> {
    let outcome = match method {
        "sandbox.start" => start::start(call, allowed(call, Access::Run, params)?).await,
        "sandbox.stop" => start::stop(call, allowed(call, Access::Run, params)?).await,
        "sandbox.repl.run" => repl::run(call, allowed(call, Access::Run, params)?, room).await,
        "sandbox.command.run" => {
            command::run(call, allowed(call, Access::Run, params)?, room).await
        }
        "sandbox.metrics.get" => metrics::get(call, allowed(call, Access::Read, params)?).await,
        unknown => {
            let (unknown, known) = (shown(unknown), METHODS.join(", "));
            let message = format!("there is no method {unknown:?}; there are {known}");
            return Err(Failure::new(UNKNOWN_METHOD, message));
        }
    };
    let request = &*call.request_id.0;
    let code = outcome.as_ref().err().map_or(0, Failure::code);
    tracing::debug!(target: "burrow::rpc", request, method, code);
    outcome
}

/// The parameters of somebody who may do that.
fn allowed(call: &Call, access: Access, params: Value) -> Result<Params, Failure> {
    call.may(access)?;
    Params::of(params)
}

/// The sandbox that is meant.
fn which(call: &Call, params: &mut Params) -> Result<SandboxRef, Failure> {
    let namespace = params.maybe_name("namespace")?;
    let name = params.maybe_name("sandbox")?;
    let name = name.ok_or_else(|| Failure::params("the parameter sandbox is missing: its name"))?;
    let namespace = namespace.unwrap_or_else(|| own_namespace(call));
    Ok(SandboxRef { namespace, name })
}

/// The namespace of those who name none.
fn own_namespace(call: &Call) -> Name {
    call.caller.only_namespace().cloned().unwrap_or_else(Name::default_namespace)
}

/// The running sandbox that is meant, if the key reaches it.
fn inside(call: &Call, which: SandboxRef) -> Result<Inside, Failure> {
    call.reaches(&which.namespace)?;
    let entered = call.api.inside(which);
    entered.map_err(|problem| match problem.code {
        Code::NotFound | Code::Conflict => problem.hint("sandbox.start makes it").into(),
        _ => problem.into(),
    })
}

impl Answer {
    fn of(written: Written) -> Self {
        Self { status: StatusCode::OK, retry_after: None, written: Some(written) }
    }

    fn none() -> Self {
        Self { status: StatusCode::NO_CONTENT, retry_after: None, written: None }
    }

    fn failed(id: &Value, failure: Failure) -> Self {
        let status = failure.status();
        // Whole seconds, and never none.
        let seconds = |pause: std::time::Duration| (pause.as_secs_f64().ceil() as u64).max(1);
        let retry_after = failure.retry_after().map(|pause| HeaderValue::from(seconds(pause)));
        Self { status, retry_after, written: Some(envelope::answer(id, Err(failure))) }
    }
}

/// A refusal that comes before any method: of the key, the host name, the body.
fn refuse(problem: Problem) -> Response {
    let written = envelope::answer(&Value::Null, Err(problem.clone().into()));
    // Its status and headers, and another body.
    let mut response = problem.into_response();
    *response.body_mut() = Outgoing::whole(written.into_bytes());
    response
}

impl Input for Body {
    fn describe(document: &mut Document<'_>) {
        // Whatever is sent is answered; what is no request, with an error that says so.
        let example = json!({
            "jsonrpc": "2.0", "id": "1", "method": "sandbox.metrics.get",
            "params": { "namespace": "default" }
        });
        let content = json!({ "application/json": { "schema": {}, "example": example } });
        let description = "A request, or a batch of them.";
        let body = json!({ "required": false, "description": description, "content": content });
        document.insert("requestBody", body);
        document.refuses(&[Code::TooLarge, Code::UnsupportedMediaType]);
    }

    async fn read(call: &mut Call) -> Result<Self, Problem> {
        let kind = call.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let essence = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if FORMS.iter().any(|form| form.eq_ignore_ascii_case(essence)) {
            let message = format!("this call takes application/json, not {essence:?}");
            return Err(Problem::new(Code::UnsupportedMediaType, message));
        }
        Ok(Self(call.body.read(call.api.limits().body_bytes_max).await?))
    }
}

impl Output for Answer {
    fn describe(document: &mut Document<'_>) {
        let one = answer_schema();
        let any =
            json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] });
        document.answers("200", "What became of it.", "application/json", &any);
        let description = "A batch of requests without ids was carried out.";
        document.response("204", json!({ "description": description }));
    }

    fn into_response(self) -> Response {
        let Some(written) = self.written else {
            let mut response = hyper::Response::new(Outgoing::empty());
            *response.status_mut() = self.status;
            return response;
        };
        let mut response = respond(self.status, JSON, Outgoing::whole(written.into_bytes()));
        if let Some(pause) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, pause);
        }
        response
    }
}

fn answer_schema() -> Schema {
    json_schema!({
        "type": "object",
        "required": ["jsonrpc", "id"],
        "properties": {
            "jsonrpc": { "const": "2.0" },
            "id": { "type": ["string", "number", "boolean", "null"] },
            "result": {},
            "error": error_schema()
        },
        "oneOf": [{ "required": ["result"] }, { "required": ["error"] }],
        "additionalProperties": false
    })
}

fn error_schema() -> Schema {
    json_schema!({
        "type": "object",
        "required": ["code", "message"],
        "properties": {
            "code": { "type": "integer" },
            "message": { "type": "string" },
            "data": { "type": "object" }
        },
        "additionalProperties": false
    })
}

fn failed_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["jsonrpc", "id", "error"],
        "properties": {
            "jsonrpc": { "const": "2.0" },
            "id": { "type": ["string", "number", "boolean", "null"] },
            "error": error_schema()
        },
        "additionalProperties": false
    })
}
