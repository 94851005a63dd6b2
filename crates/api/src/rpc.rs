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
mod hints;
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

use super::body::{JSON, Outgoing, Received, Response, respond};
use super::call::{Call, Inside, RunLimit};
use super::creation::namespace_of;
use super::forward::{self, Carried};
use super::problem;
use super::route::{Document, Input, Operation, Output, Refusals, operation};
use super::shape::Nothing;
use super::trail::Trail;
use super::whereabouts::{self, Subject};
use access::audit::Door;
use access::keys::{Access, RetryAfter};
use envelope::{Envelope, NoRequest, Request};
use failure::{Failure, UNKNOWN_METHOD};
use limits::{BATCH_AT_ONCE_MAX, OUTPUT_BYTES_MAX};
use node::Placement;
use params::{Params, shown};
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Reason, Refusal};
use written::Written;

const METHODS: [&str; 5] =
    [START, "sandbox.stop", "sandbox.repl.run", "sandbox.command.run", "sandbox.metrics.get"];

/// Those that are about one sandbox that is there.
const OF_ONE_SANDBOX: [&str; 4] =
    [START, "sandbox.stop", "sandbox.repl.run", "sandbox.command.run"];
/// That makes one that is not there.
const START: &str = "sandbox.start";

/// What a web page's form can send without being asked.
const FORMS: [&str; 3] = ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"];

const REFUSALS: Refusals = Refusals { respond: refuse, schema: failed_schema };

pub fn operations() -> Vec<Operation> {
    let summary = "JSON-RPC 2.0, as the published SDKs speak it.";
    vec![
        operation(Method::POST, "/api/v1/rpc", "json_rpc", summary, answer)
            .about(include_str!("rpc/about.md"))
            .tag("json-rpc")
            .carrier()
            .refusing(REFUSALS)
            .problems(&[Code::LimitReached, Code::Unavailable]),
    ]
}

/// A method's call: that of the whole request, and the trail of the method.
type Work<'a> = (&'a Call, &'a Trail);

/// The body as it came: an answer says what is wrong with it.
pub struct Body(Bytes);

/// One answer or several, or that there is none to give.
pub struct Answer {
    status: StatusCode,
    retry_after: Option<HeaderValue>,
    written: Option<Written>,
}

async fn answer(mut call: Call, _: Nothing, Body(body): Body) -> Result<Carried<Answer>, Refusal> {
    let parsed = envelope::parse(&body);
    // Code can be large, and has been taken out of it.
    drop(body);
    let parsed = match parsed {
        Ok(Envelope::One(Ok(request))) => {
            if let (Some(sent_for), Some(node)) = (&call.sent_for, call.api.node())
                && let Some(subject) = subject(&call, &request)
            {
                // The gateway looks again then, and its client gets another answer.
                sent_for.is_for(node, &subject)?;
            }
            match sent_on(&mut call, &request).await {
                Ok(Some(response)) => return Ok(Carried::There(Box::new(response))),
                Ok(None) => Ok(Envelope::One(Ok(request))),
                Err(failure) => {
                    let id = request.id.unwrap_or(Value::Null);
                    return Ok(Carried::Here(Answer::failed(&id, failure)));
                }
            }
        }
        parsed => parsed,
    };
    Ok(Carried::Here(match parsed {
        Err(failure) => Answer::failed(&Value::Null, failure),
        Ok(Envelope::One(Err(refused))) => Answer::failed(&refused.id, refused.failure),
        Ok(Envelope::One(Ok(request))) => {
            let id = request.id.unwrap_or(Value::Null);
            match perform(&call, request.method.as_str(), request.params, (OUTPUT_BYTES_MAX, true))
                .await
            {
                Ok(result) => Answer::of(envelope::answer(&id, Ok(result))),
                Err(failure) => Answer::failed(&id, failure),
            }
        }
        Ok(Envelope::Batch(requests)) => {
            let room = OUTPUT_BYTES_MAX / requests.len().max(1);
            let answers = requests.into_iter().enumerate();
            let answers = answers.map(|(at, request)| one_of_many(&call, at, request, room));
            let answers = stream::iter(answers).buffered(BATCH_AT_ONCE_MAX);
            let answers: Vec<_> = answers.filter_map(std::future::ready).collect().await;
            if answers.is_empty() { Answer::none() } else { Answer::of(envelope::answers(answers)) }
        }
    }))
}

/// The sandbox of a request that another node may have. What is about many is done here.
fn subject(call: &Call, request: &Request) -> Option<Subject> {
    if call.api.node().is_none() || !OF_ONE_SANDBOX.contains(&request.method.as_str()) {
        return None;
    }
    // Others learn what they would of a bridge of its own.
    let which = named(call, &request.params)?;
    call.reaches(&which.namespace).is_ok().then_some(Subject::Sandbox(which))
}

/// The node that has the sandbox of a request, if it is not this one.
async fn elsewhere(call: &Call, request: &Request) -> Result<Option<Placement>, Failure> {
    let Some(subject) = subject(call, request) else { return Ok(None) };
    match whereabouts::elsewhere(call, &subject).await {
        // The name of one that was lost is free.
        Err(refusal) if request.method == START && refusal.reason == Some(Reason::Lost) => Ok(None),
        found => Ok(found?),
    }
}

/// Sends a request that came alone to the node that has its sandbox, whose answer is the answer; first to where that was a
/// moment ago, as any call.
async fn sent_on(call: &mut Call, request: &Request) -> Result<Option<Response>, Failure> {
    let recalled = subject(call, request).and_then(|subject| whereabouts::lately(call, &subject));
    if let Some(to) = recalled {
        call.body = Received::of(call.was_read.clone().unwrap_or_default());
        if let Some(response) = Box::pin(forward::lately(call, &to)).await? {
            return Ok(Some(response));
        }
    }
    let Some(to) = elsewhere(call, request).await? else { return Ok(None) };
    let body = call.was_read.take();
    Ok(Some(Box::pin(forward::forward(call, &to, body)).await?))
}

/// Refuses a request of a batch whose sandbox is elsewhere: a batch has one answer, of one node.
async fn is_here(call: &Call, request: &Request) -> Result<(), Failure> {
    let Some(to) = elsewhere(call, request).await? else { return Ok(()) };
    let message = format!("its sandbox is at the node {}, where a batch does not reach", to.node);
    Err(Refusal::new(Code::Unsupported, message).hint("send this request alone").into())
}

/// Carries out one request of a batch, which counts for the key as if it had come alone; the first one
/// was counted at the door. Nobody waits for the answer to one without an id.
async fn one_of_many(
    call: &Call,
    at: usize,
    request: Result<Request, Box<NoRequest>>,
    room: usize,
) -> Option<Written> {
    match request {
        Err(refused) => Some(envelope::answer(&refused.id, Err(refused.failure))),
        Ok(request) => {
            let charged = if at == 0 { Ok(()) } else { charge(call) };
            let allowed = match charged {
                Ok(()) => is_here(call, &request).await,
                refused => refused,
            };
            let Request { id, method, params } = request;
            let outcome = match allowed {
                Ok(()) => perform(call, &method, params, (room, false)).await,
                Err(failure) => Err(failure),
            };
            id.map(|id| envelope::answer(&id, outcome))
        }
    }
}

/// Counts a request of a batch. The answer has no header that could say when to come again.
fn charge(call: &Call) -> Result<(), Failure> {
    call.api.door().charge(&call.caller).map_err(|problem| match problem.retry_after {
        Some(pause) => {
            let seconds = RetryAfter(pause).seconds();
            problem.hint(format!("send this request of the batch again in {seconds} s")).into()
        }
        None => problem.into(),
    })
}

async fn perform(
    call: &Call,
    method: &str,
    params: Value,
    (room, is_alone): (usize, bool),
) -> Result<Written, Failure> {
    let trail = trail(call, method, &params);
    let outcome = match trail.admit() {
        Ok(()) => tokio::select! {
            biased;
            outcome = carry_out((call, &trail), method, params, (room, is_alone)) => outcome,
            problem = call.memory.exceeded() => Err(problem.into()),
        },
        Err(problem) => Err(problem.into()),
    };
    let outcome = match outcome {
        Err(failure) => Err(failure.explained(&call.api).await),
        answered => answered,
    };
    if let Err(failure) = &outcome {
        trail.ended(Some(failure.reason()));
    }
    let request = &*call.request_id.0;
    let code = outcome.as_ref().err().map_or(0, Failure::code);
    tracing::debug!(target: "burrow::rpc", request, method, code);
    outcome
}

/// The method's own way into the audit log, with what its parameters say before they are checked.
fn trail(call: &Call, method: &str, params: &Value) -> Trail {
    let looks = method == "sandbox.metrics.get";
    let trail = call.trail.within(Door::Rpc, &shown(method), looks);
    let text = |name: &str| params.get(name).and_then(Value::as_str);
    if let Some(which) = named(call, params) {
        trail.sandbox(&which);
    }
    if let Some(command) = text("command") {
        let args = params.get("args").and_then(Value::as_array).into_iter().flatten();
        let args = args.filter_map(|arg| arg.as_str().map(str::to_owned));
        trail.command(std::iter::once(command.to_owned()).chain(args));
    }
    trail
}

/// The sandbox that parameters name, before they are checked.
fn named(call: &Call, params: &Value) -> Option<SandboxRef> {
    let text = |name: &str| params.get(name).and_then(Value::as_str);
    let name = text("sandbox")?.parse().ok()?;
    let namespace = text("namespace").and_then(|namespace| namespace.parse().ok());
    Some(SandboxRef { namespace: namespace_of(&call.caller, namespace), name })
}

async fn carry_out(
    (call, trail): Work<'_>,
    method: &str,
    params: Value,
    (room, is_alone): (usize, bool),
) -> Result<Written, Failure> {
    match method {
        START => start::start((call, trail), allowed(call, Access::Run, params)?, is_alone).await,
        "sandbox.stop" => start::stop(call, allowed(call, Access::Run, params)?).await,
        "sandbox.repl.run" => {
            repl::run((call, trail), allowed(call, Access::Run, params)?, room).await
        }
        "sandbox.command.run" => {
            command::run((call, trail), allowed(call, Access::Run, params)?, room).await
        }
        "sandbox.metrics.get" => metrics::get(call, allowed(call, Access::Read, params)?).await,
        unknown => {
            let (unknown, known) = (shown(unknown), METHODS.join(", "));
            let message = format!("there is no method {unknown:?}; the methods are {known}");
            Err(Failure::new(UNKNOWN_METHOD, message))
        }
    }
}

/// The parameters, if the caller may do that.
fn allowed(call: &Call, access: Access, params: Value) -> Result<Params, Failure> {
    call.may(access)?;
    Params::of(params)
}

/// The sandbox that is meant.
fn which(call: &Call, params: &mut Params) -> Result<SandboxRef, Failure> {
    let namespace = params.maybe_name("namespace")?;
    let name = params.maybe_name("sandbox")?;
    let name = name.ok_or_else(|| {
        Failure::params("the parameter sandbox is missing: give the sandbox's name")
    })?;
    let namespace = namespace_of(&call.caller, namespace);
    Ok(SandboxRef { namespace, name })
}

/// How long a run or a command may take: what is asked for, but a little less than its call, so that
/// the answer says how it went.
fn time_limit(call: &Call, params: &mut Params) -> Result<RunLimit, Failure> {
    let requested = params.timeout()?.unwrap_or(call.api.limits().rpc_run_deadline);
    let own = RunLimit { time: requested, reported: requested };
    Ok(RunLimit::of(Some(requested), call.deadline).unwrap_or(own))
}

/// The running sandbox that is meant, if the key reaches it.
async fn inside((call, trail): Work<'_>, which: SandboxRef) -> Result<Inside, Failure> {
    call.reaches(&which.namespace)?;
    Ok(call.enter(which).await?.on(trail))
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
        let retry_after = failure.retry_after().map(|pause| HeaderValue::from(pause.seconds()));
        Self { status, retry_after, written: Some(envelope::answer(id, Err(failure))) }
    }
}

/// A refusal that comes before any method: of the key, the host name, the body.
fn refuse(problem: &Refusal) -> Response {
    let written = envelope::answer(&Value::Null, Err(problem.clone().into()));
    // Its status and headers, and another body.
    let mut response = problem::respond_with(problem, hints::words);
    *response.body_mut() = Outgoing::parts(written.into_parts());
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
        let description = "A request or a batch of requests.";
        let body = json!({ "required": false, "description": description, "content": content });
        document.insert("requestBody", body);
        document.refuses(&[Code::TooLarge, Code::UnsupportedMediaType]);
    }

    async fn read(call: &mut Call) -> Result<Self, Refusal> {
        let kind = call.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let essence = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if FORMS.iter().any(|form| form.eq_ignore_ascii_case(essence)) {
            let message = format!("this call takes application/json, not {essence:?}");
            return Err(Refusal::new(Code::UnsupportedMediaType, message));
        }
        Ok(Self(call.read_body().await?))
    }
}

impl Output for Answer {
    fn describe(document: &mut Document<'_>) {
        let one = answer_schema();
        let any =
            json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] });
        document.answers("200", "The result or the error.", "application/json", &any);
        let description = "All requests of the batch were notifications and were carried out.";
        document.response("204", json!({ "description": description }));
    }

    fn into_response(self) -> Response {
        let Some(written) = self.written else {
            let mut response = hyper::Response::new(Outgoing::empty());
            *response.status_mut() = self.status;
            return response;
        };
        let mut response = respond(self.status, JSON, Outgoing::parts(written.into_parts()));
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
