//! From a request to its answer: the same steps for every one, in this order.
//!
//! ```text
//!  id ─▶ host, origin ─▶ path, method ─▶ key, rate, scope ─▶ deadline ─▶ handler ─▶ log, count
//! ```

mod log_line;
mod origins;

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Uri};
use tokio::time::Instant;

use super::Api;
use super::body::{Hold, Received, Response};
use super::call::{Call, CallDeadline, RequestId, SentFor, Target, prefers, within};
use super::caller::Caller;
use super::clues::{Clues, is_judged_there};
use super::e2b;
use super::entrance::{ClientCertificate, Entrance};
use super::forward::{self, MARK, MOVED, OF_ANOTHER_TIME, OF_STRANGER, REQUEST_ID, forward};
use super::idempotency;
use super::limits::{
    DEADLINE_MAX, REFUSED_BODY_BYTES_MAX, REQUEST_ID_BYTES_MAX, STRANGERS_BODY_BYTES_MAX,
};
use super::origin::host_of;
use super::preview;
use super::response::Foreign;
use super::route::{Asked, Operation, Parameters};
use super::trail::{self, Trail};
use super::whereabouts;
use access::audit::Door;
use access::keys::Access;
use node::{Called, Mark, MarkRefused, Placement, Through};
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Reason, Refusal};

use log_line::{RequestLog, write_log_line};
use origins::{allowed_origin, dress, preflight};

/// How many milliseconds the whole call may take.
pub const DEADLINE: HeaderName = HeaderName::from_static("burrow-deadline-ms");
/// Of an answer: the sandbox was asleep, and the call waited so many milliseconds for it.
pub const WOKE: HeaderName = HeaderName::from_static("burrow-woke-ms");

/// Answers a request.
pub async fn dispatch(
    api: &Api,
    mut request: Request<Incoming>,
    entrance: Entrance,
    held: Hold,
) -> Response {
    let begun = Instant::now();
    let request_id = request_id_of(api, request.headers());
    let upgrade = request
        .headers()
        .contains_key(hyper::header::UPGRADE)
        .then(|| hyper::upgrade::on(&mut request));
    let certificate = request.extensions().get::<ClientCertificate>().cloned();
    let (mut head, incoming) = request.into_parts();
    let body = Received::new(incoming, &head.headers);
    let unread = body.unread();
    let request_headers = expectations(&head.headers);
    let origin = allowed_origin(api, &head.headers);
    let query = head.uri.query().unwrap_or_default().to_owned();
    let mut log = RequestLog::default();
    let target = target(&head);
    let marked = mark(api, &head.headers, &target, certificate.as_ref(), &mut log).await;
    if let Ok(Some(Mark { host: Some(host), .. })) = &marked
        && let Ok(host) = HeaderValue::try_from(host)
    {
        // The client has called the other node by it.
        head.headers.insert(HOST, host);
    }
    let path = place_of(api, &head.headers, head.uri.path());
    let request_head = RequestHead {
        method: &head.method,
        uri: &head.uri,
        path: &path,
        query: &query,
        headers: &head.headers,
        entrance,
    };
    let mut away = Ok(None);
    let (admitted, sent_for) = match marked {
        Ok(mark) => {
            let (through, sent_for) = mark.map(split_mark).unzip();
            if sent_for.is_none() {
                away = node_of_seat(api, &request_head).await;
            }
            (admit(api, &request_head, (through, &away), &request_id, &mut log), sent_for)
        }
        Err(refusal) => (Err(refusal), None),
    };
    let is_for_page = log.is_passage && prefers(&head.headers, "text/html");
    let memory = api.budget().share(match &admitted {
        Ok(Admitted::Call(call)) => &call.caller,
        Ok(Admitted::Preflight) | Err(_) => &Caller::Anybody,
    });
    let answered = match admitted {
        Ok(Admitted::Preflight) => Ok(preflight()),
        Ok(Admitted::Call(admitted)) => {
            let AdmittedCall { operation, parameters, caller, deadline } = *admitted;
            let call = Call {
                api: api.clone(),
                caller,
                request_id: request_id.clone(),
                target,
                sent_for,
                lost: None,
                is_judged_there: is_judged_there(operation.path),
                entrance,
                parameters,
                query,
                headers: head.headers,
                body,
                was_read: None,
                deadline,
                permit: None,
                memory: memory.clone(),
                held: Some(Arc::new((held, log.trail.clone()))),
                trail: log.trail.clone(),
                upgrade,
            };
            let key = log.key.as_deref().unwrap_or_default();
            carry_out(&operation, call, key, away.unwrap_or_default()).await
        }
        Err(problem) => {
            drop(body);
            Err(problem)
        }
    };
    let mut response = answered.unwrap_or_else(|problem| refuse(&mut log, &problem, is_for_page));
    add_headers(&log, &mut response);
    // A fault or a deadline is answered at once. After other refusals the connection may be used again, and a
    // client that is to try again must get the answer.
    if !response.status().is_server_error() || log.problem == Some(Code::Unavailable) {
        let is_known = log.key.is_some();
        let max = if is_known { REFUSED_BODY_BYTES_MAX } else { STRANGERS_BODY_BYTES_MAX };
        unread.drain(&request_headers, max).await;
    }
    if !memory.is_free() {
        let memory: Hold = Arc::new(memory);
        response.body_mut().count(&memory);
    }
    if response.extensions_mut().remove::<Foreign>().is_none() {
        dress(&mut response, &request_id, origin);
    }
    finish(&log, &mut response);
    let status = response.status();
    let elapsed = begun.elapsed();
    api.counters().answered(log.operation, status, elapsed);
    write_log_line(&head.method, &path, &request_id, &log, status, elapsed);
    response
}

/// The answer to a request that is refused: as its door refuses, or as a page for a browser.
fn refuse(log: &mut RequestLog, problem: &Refusal, is_for_page: bool) -> Response {
    log.problem = Some(problem.code);
    if problem.reason == Some(Reason::Moved) {
        log.answer_mark = Some(MOVED);
    }
    let response = (log.refusals.respond)(problem);
    if is_for_page { preview::page(response, problem) } else { response }
}

/// What the answer says beside its body: to another node, and of the methods that there are.
fn add_headers(log: &RequestLog, response: &mut Response) {
    if let Some(mark) = log.answer_mark {
        response.headers_mut().insert(MARK, HeaderValue::from_static(mark));
    }
    if let Some(allow) = log.allow.as_deref().and_then(|allow| HeaderValue::try_from(allow).ok()) {
        response.headers_mut().insert(ALLOW, allow);
    }
}

/// Where a request is in the table of operations: under its path, unless it is for something in a sandbox.
fn place_of(api: &Api, headers: &HeaderMap, path: &str) -> String {
    preview::place_by_name(api, headers)
        .or_else(|| e2b::place_of(headers, path))
        .or_else(|| preview::place_by_path(path))
        .unwrap_or_else(|| path.to_owned())
}

/// Who calls through another node, and for what that has sent the call here.
fn split_mark(mark: Mark) -> (Through, SentFor) {
    let gateway = mark.from.to_string();
    (mark.caller, SentFor { gateway, incarnation: mark.incarnation })
}

/// A request's head, as it is looked at before anything else.
struct RequestHead<'a> {
    method: &'a Method,
    uri: &'a Uri,
    /// Where it is in the table of operations.
    path: &'a str,
    query: &'a str,
    headers: &'a HeaderMap,
    entrance: Entrance,
}

struct AdmittedCall {
    operation: Operation,
    parameters: Parameters,
    caller: Caller,
    deadline: Option<CallDeadline>,
}

enum Admitted {
    Call(Box<AdmittedCall>),
    /// A browser asks whether a page may ask.
    Preflight,
}

fn admit(
    api: &Api,
    head: &RequestHead<'_>,
    (through, away): (Option<Through>, &Result<Option<Placement>, Refusal>),
    request_id: &RequestId,
    log: &mut RequestLog,
) -> Result<Admitted, Refusal> {
    let RequestHead { method, uri, path, query, headers, entrance } = *head;
    let host = host_of(headers);
    let is_of_port = api.previews().named(host).is_some();
    if is_of_port {
        let is_kin = |origin: &str| api.previews().is_of_same_sandbox(origin, host);
        api.origins().check_port(headers, is_kin)?;
    } else if through.is_none() {
        // No page can make a mark; the gateway has looked at what the client sent.
        api.origins().check(headers, entrance.is_local)?;
    }
    check_target(uri, host)?;
    if *method == Method::OPTIONS && !is_of_port && allowed_origin(api, headers).is_some() {
        return Ok(Admitted::Preflight);
    }
    let found = api.routes().find(method, path);
    let (operation, parameters) = found.map_err(|no_route| {
        log.allow = no_route.allow;
        no_route.refusal
    })?;
    (log.operation, log.refusals) = (Some(operation.id), operation.refusals);
    (log.is_carrier, log.is_passage) = (operation.is_carrier, operation.is_passage);
    log.sandbox = sandbox(&parameters);
    let caller = match operation.access {
        None => Caller::Anybody,
        Some(access) => {
            log.trail = begin_trail(api, operation, &parameters, request_id, (entrance, headers));
            let through = through.as_ref();
            let asked = Asked { headers, path: uri.path(), query, peer: entrance.peer, through };
            let admitted = match (operation.credential, away) {
                (Some(_), Ok(Some(_))) => api.door().admit_for_another(headers, entrance.peer),
                (Some(known), Err(refusal)) => asked.admit(api).and_then(|caller| {
                    let namespace = parameters.get("namespace").and_then(|text| text.parse().ok());
                    let is_theirs = namespace.is_none_or(|namespace| caller.covers(&namespace));
                    if is_theirs { Err(refusal.clone()) } else { known(api, &asked) }
                }),
                (Some(known), Ok(None)) => known(api, &asked),
                (None, _) => asked.admit(api),
            };
            let caller = match admitted {
                Ok(caller) => caller,
                Err(problem) => {
                    log.trail.of_stranger(api.strangers());
                    return Err(problem);
                }
            };
            log.key = Some(caller.label());
            log.trail.who(&caller);
            if matches!(caller, Caller::Visitor(_)) {
                log.trail.of_stranger(api.strangers());
            }
            let is_judged_there = matches!((away, &caller), (Ok(Some(_)), Caller::Anybody));
            if !is_judged_there && !caller.may(access) {
                let message =
                    format!("this key may not do that: {} needs the scope {access}", operation.id);
                return Err(Refusal::new(Code::Forbidden, message)
                    .hint("`host-bridge keygen --scope` makes a key with more scopes"));
            }
            // A reader of the log must be able to find out what is wrong even then.
            if *method != Method::GET || access == Access::Run {
                log.trail.admit()?;
            }
            caller
        }
    };
    let deadline = deadline(headers)?;
    let deadline =
        deadline.map(|requested| CallDeadline { at: Instant::now() + requested, requested });
    let operation = operation.clone();
    Ok(Admitted::Call(Box::new(AdmittedCall { operation, parameters, caller, deadline })))
}

/// A target that names a host must name the one of the header: of two, a proxy before this server would
/// believe the other.
fn check_target(uri: &Uri, host: &str) -> Result<(), Refusal> {
    match uri.authority() {
        Some(named) if !named.as_str().eq_ignore_ascii_case(host) => {
            let message = format!("the request is for {named}, and its Host is {host:?}");
            Err(Refusal::invalid(message))
        }
        _ => Ok(()),
    }
}

/// The way of an operation into the audit log. What a path calls `namespace` and `name` is a sandbox
/// only below the sandboxes.
fn begin_trail(
    api: &Api,
    operation: &Operation,
    parameters: &Parameters,
    request_id: &RequestId,
    (entrance, headers): (Entrance, &HeaderMap),
) -> Trail {
    let entry =
        trail::entry(&Caller::Anybody, Door::Rest, operation.id, &request_id.0, entrance.peer);
    let looks = operation.access.is_none_or(|access| access == Access::Read)
        || (operation.is_passage && operation.method.is_safe());
    let span = {
        let route = (&operation.method, operation.path);
        trail::span_of_request(api.otel(), route, headers, entrance)
    };
    let trail = Trail::begin(api.ends(), entry, looks, span);
    let text = |name: &str| parameters.get(name).and_then(|text| text.parse().ok());
    if let (Some(namespace), Some(name)) = (text("namespace"), text("name")) {
        let which = api.registry().resolve(SandboxRef { namespace, name });
        if operation.path.starts_with("/v1/sandboxes/") {
            trail.sandbox(&which);
        } else {
            trail.fact("name", which.to_string());
        }
    }
    trail
}

fn target(head: &Parts) -> Target {
    let place = head.uri.path_and_query().cloned();
    let place = place.unwrap_or_else(|| PathAndQuery::from_static("/"));
    Target { method: head.method.clone(), place }
}

/// Who calls through another node, if this call comes from one. A mark that is no node's of the fleet is refused,
/// whatever else the request has.
async fn mark(
    api: &Api,
    headers: &HeaderMap,
    target: &Target,
    shown: Option<&ClientCertificate>,
    log: &mut RequestLog,
) -> Result<Option<Mark>, Refusal> {
    let Some(header) = headers.get(&MARK) else { return Ok(None) };
    let refuse = |why: String| {
        Err(Refusal::new(Code::Unauthenticated, why)
            .hint("only nodes of a fleet send this header; leave it out"))
    };
    let Some(node) = api.node() else {
        return refuse(format!("{MARK} is for nodes of a fleet, and this bridge is in none"));
    };
    let called = Called { method: target.method.as_str(), path: target.place.as_str(), host: None };
    let text = header.to_str().unwrap_or_default();
    match Box::pin(node.read_mark(text, called)).await {
        Ok(mark) if api.asks_nodes_for_certificates() => {
            let host = node.host_of(&mark.from).unwrap_or_default();
            match shown {
                Some(shown) if shown.is_for(&host) => Ok(Some(mark)),
                Some(_) => {
                    refuse(format!("the certificate is not for {host:?}, the node {}", mark.from))
                }
                None => refuse(format!("the node {} has shown no certificate", mark.from)),
            }
        }
        Ok(mark) => Ok(Some(mark)),
        Err(refused) => {
            log.answer_mark = match refused {
                MarkRefused::Stranger(_) | MarkRefused::Signature => Some(OF_STRANGER),
                MarkRefused::Time { .. } => Some(OF_ANOTHER_TIME),
                _ => None,
            };
            refuse(refused.to_string())
        }
    }
}

/// The node that has what a call is about, if it is not this one. What outlives a node is read here.
/// With `lately`, it may be where it was a moment ago.
async fn elsewhere(
    operation: &Operation,
    call: &mut Call,
    lately: bool,
) -> Result<Option<Placement>, Refusal> {
    if call.api.node().is_none() {
        return Ok(None);
    }
    let clues = Clues {
        template: operation.path,
        parameters: &call.parameters,
        headers: &call.headers,
        query: &call.query,
        caller: Some(&call.caller),
    };
    let Some(subject) = clues.subject() else { return Ok(None) };
    if lately && let Some(to) = whereabouts::lately(call, &subject) {
        return Ok(Some(to));
    }
    match whereabouts::elsewhere(call, &subject).await {
        Err(refusal) if operation.outlives_node => {
            let life = whereabouts::lost_life(&refusal).ok_or(refusal)?;
            call.lost = Some(Box::new(life));
            Ok(None)
        }
        // Boxed: few calls wait for these.
        Err(refusal) if operation.gives_up_lost => {
            Err(Box::pin(whereabouts::given_up(&call.api, &subject, refusal)).await)
        }
        Err(refusal) => {
            Err(Box::pin(whereabouts::with_remains(&call.api, &subject, refusal)).await)
        }
        found => found,
    }
}

/// The node that judges who sends a request, if that is for another one to do.
async fn node_of_seat(api: &Api, head: &RequestHead<'_>) -> Result<Option<Placement>, Refusal> {
    if api.node().is_none() {
        return Ok(None);
    }
    let Ok((operation, parameters)) = api.routes().find(head.method, head.path) else {
        return Ok(None);
    };
    let template = operation.path;
    if !is_judged_there(template) {
        return Ok(None);
    }
    let (parameters, headers, query) = (&parameters, head.headers, head.query);
    match (Clues { template, parameters, headers, query, caller: None }).subject() {
        // Boxed: few calls wait for it.
        Some(subject) => Box::pin(whereabouts::find(api, &subject)).await,
        None => Ok(None),
    }
}

/// Records the outcome of a call in the audit log, which waits for the end of the answer.
fn finish(log: &RequestLog, response: &mut Response) {
    let (status, trail) = (response.status(), &log.trail);
    if let Some(woke_ms) = trail.woke_ms() {
        response.headers_mut().insert(WOKE, HeaderValue::from(woke_ms));
    }
    trail.answered(status, log.problem);
    if response.headers().contains_key(&idempotency::REPLAYED) {
        trail.fact("replayed", true);
    }
    if log.is_carrier && log.problem.is_none() {
        trail.forget();
    }
    response.body_mut().hold(Arc::new(trail.clone()));
}

/// Calls the handler, within the deadline, when there is a place for it. One that has a deadline is
/// not left to go on past it, and one that there is no memory for ends as if its client were gone.
async fn carry_out(
    operation: &Operation,
    mut call: Call,
    key: &str,
    away: Option<Placement>,
) -> Result<Response, Refusal> {
    let deadline = call.deadline;
    let passed = |mut response: Response| {
        if operation.is_passage {
            response.extensions_mut().insert(Foreign);
        }
        response
    };
    let mut away = match away {
        None => elsewhere(operation, &mut call, true).await?,
        away => away,
    };
    if let Some(to) = away.take_if(|to| to.recalled.is_some()) {
        match within(deadline, Box::pin(forward::lately(&mut call, &to))).await? {
            Some(response) => return Ok(passed(response)),
            None => away = elsewhere(operation, &mut call, false).await?,
        }
    }
    if let Some(to) = away {
        return within(deadline, Box::pin(forward(&mut call, &to, None))).await.map(passed);
    }
    let (api, which) = (call.api.clone(), call.which().ok());
    match (carry(operation, call, key).await, which) {
        (Err(problem), Some(which)) => Err(api.explained(&which, problem).await),
        (answered, _) => answered,
    }
}

async fn carry(operation: &Operation, mut call: Call, key: &str) -> Result<Response, Refusal> {
    let deadline = call.deadline;
    let (memory, is_carrier) = (call.memory.clone(), operation.is_carrier);
    let answering = async {
        if operation.is_run {
            // A body that comes slowly must not keep a place from those that could run.
            let body = call.read_body().await?;
            call.body = Received::of(body);
            call.permit = Some(call.api.admission().admit(key)?);
        }
        idempotency::answer(operation, call).await
    };
    let answering = async {
        tokio::select! {
            biased;
            answered = answering => answered,
            // What is carried in it refuses each for itself.
            problem = memory.exceeded(), if !is_carrier => Err(problem),
        }
    };
    within(deadline, answering).await
}

/// How long the call may take, as its client says.
fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(&DEADLINE) else { return Ok(None) };
    let millis = value.to_str().ok().and_then(|text| text.parse().ok()).map(Duration::from_millis);
    match millis {
        Some(limit) if limit <= DEADLINE_MAX && !limit.is_zero() => Ok(Some(limit)),
        _ => {
            let max = DEADLINE_MAX.as_millis();
            let message = format!("{DEADLINE} must be from 1 to {max} milliseconds");
            Err(Refusal::invalid(message))
        }
    }
}

/// What of a request's headers says how its body comes.
fn expectations(headers: &HeaderMap) -> HeaderMap {
    let expect = headers.get(EXPECT).map(|value| (EXPECT, value.clone()));
    expect.into_iter().collect()
}

/// The id that the client has given the request, if it is a plain one; otherwise the next of this server.
fn request_id_of(api: &Api, headers: &HeaderMap) -> RequestId {
    let theirs = headers.get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_plain = |text: &&str| {
        !text.is_empty()
            && text.len() <= REQUEST_ID_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
    };
    match theirs.filter(is_plain) {
        Some(id) => RequestId(id.into()),
        None => RequestId(api.next_request_id().into()),
    }
}

/// The sandbox that a path names, as it is called everywhere else in the log.
fn sandbox(parameters: &Parameters) -> Option<String> {
    let namespace = parameters.get("namespace")?.parse().ok()?;
    let name = parameters.get("name")?.parse().ok()?;
    Some(SandboxRef { namespace, name }.to_string())
}
