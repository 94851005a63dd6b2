//! MCP over HTTP: `/mcp`, with the keys and checks of every other path. The SDK's own transport does
//! the rest; here a call becomes its request, and its response ours.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode};
use serde::Deserialize;

use super::carried::CARRIED;
use super::hints;
use super::limits::SESSION_NAME_BYTES_MAX;
use super::server::HttpCaller;

use crate::body::{Hold, Outgoing, Response};
use crate::call::Call;
use crate::forms::problem::Problem;
use crate::problem::{respond_with, status as status_of};
use crate::route::{Document, Operation, Output, Refusals, operation};
use crate::shape::Nothing;
use sandbox::refusal::{Code, Refusal};

/// The protocol's name for a session.
const SESSION: &str = "mcp-session-id";
const PATH: &str = "/mcp";
/// What begins a session.
const INITIALIZE: &str = "initialize";
/// A stream of events, which must go out as it comes.
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// Refusals that come before the SDK, in the words of the tools.
const REFUSALS: Refusals = Refusals {
    respond: |refusal| respond_with(refusal, hints::words),
    schema: |schemas| schemas.subschema_for::<Problem>(),
};

pub fn operations() -> Vec<Operation> {
    [
        operation(Method::POST, PATH, "mcp_post", "Send an MCP message.", post),
        operation(Method::GET, PATH, "mcp_listen", "Receive the server's own messages.", get),
        operation(Method::DELETE, PATH, "mcp_end", "End an MCP session.", delete),
    ]
    .map(|operation| operation.tag("mcp").undocumented().carrier().refusing(REFUSALS))
    .to_vec()
}

/// An answer of the SDK's.
struct SdkResponse(Response);

impl Output for SdkResponse {
    fn describe(_: &mut Document<'_>) {}

    fn into_response(self) -> Response {
        self.0
    }
}

async fn post(call: Call, _: Nothing, _: Nothing) -> Result<SdkResponse, Refusal> {
    carry(call, Method::POST).await
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<SdkResponse, Refusal> {
    carry(call, Method::GET).await
}

async fn delete(call: Call, _: Nothing, _: Nothing) -> Result<SdkResponse, Refusal> {
    carry(call, Method::DELETE).await
}

/// What is looked at of a message before the SDK reads it.
#[derive(Deserialize)]
struct MessageHead {
    method: Option<String>,
}

/// The session that a request says it is of.
pub fn session_of(headers: &HeaderMap) -> Option<&str> {
    let name = headers.get(SESSION)?.to_str().ok()?;
    (name.len() <= SESSION_NAME_BYTES_MAX).then_some(name)
}

async fn carry(mut call: Call, method: Method) -> Result<SdkResponse, Refusal> {
    let body = call.read_body().await?;
    let (api, label) = (call.api.clone(), call.caller.label());
    let sessions = api.mcp();
    let name = session_of(&call.headers).map(str::to_owned);
    let mut busy = match &name {
        Some(name) => sessions.enter(name, &label)?,
        None => None,
    };
    let (mut session, mut place) = (None, None);
    if busy.is_none() && method == Method::POST && begins(&body) {
        place = Some(sessions.make_room(&label).await?);
    } else if busy.is_none() {
        // A client that knows of no sessions has what its key has.
        let (own, used) = sessions.nameless(&api, &label)?;
        (session, busy) = (Some(own), Some(used));
    }
    let busy = busy.map(|busy| Arc::new(busy) as Hold);
    let mut builder = Builder::new().method(&method).uri(PATH);
    if let Some(headers) = builder.headers_mut() {
        headers.clone_from(&call.headers);
        headers.remove(AUTHORIZATION);
    }
    let was_carried = call.sent_for.is_some() && call.headers.contains_key(&CARRIED);
    let trail = (call.trail.clone(), !was_carried);
    let sent = HttpCaller::new(call.caller.clone(), session, busy.clone(), trail);
    let request: Request<Full<Bytes>> = builder
        .extension(sent)
        .body(Full::new(body))
        .map_err(|error| Refusal::new(Code::Internal, error.to_string()))?;
    let response = sessions.service(&api).handle(request).await;
    if let Some(name) = &name
        && method == Method::DELETE
        && response.status().is_success()
    {
        sessions.ended(name);
    }
    let begun = response.headers().get(SESSION).and_then(|name| name.to_str().ok());
    if let Some(begun) = begun.filter(|begun| Some(*begun) != name.as_deref()) {
        let Some(place) = place else {
            // Two words for its method, say, of which one was read here and the other there.
            sessions.refuse(begun).await;
            return Err(Refusal::invalid("a message that begins a session and does not say so"));
        };
        sessions.begun(begun, place);
    }
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == JSON);
    // The SDK's own refusals are plain text; here they have the shape of every other one.
    if response.status().is_client_error() && !is_json {
        return Err(refusal(response).await);
    }
    let is_ended = method == Method::DELETE && response.status().is_success();
    let mut response = outgoing(response, busy).await;
    if is_ended {
        // The session is gone, which 202 does not say: clients take it for a failure.
        *response.status_mut() = StatusCode::OK;
    }
    Ok(SdkResponse(response))
}

/// A refusal of the SDK's, which is plain text.
async fn refusal(response: hyper::Response<BoxBody<Bytes, Infallible>>) -> Refusal {
    let status = response.status();
    let Ok(whole) = response.into_body().collect().await;
    let code = Code::ALL.into_iter().find(|code| status_of(*code) == status);
    let message = String::from_utf8_lossy(&whole.to_bytes()).into_owned();
    Refusal::new(code.unwrap_or(Code::Invalid), message)
}

/// Whether a message begins a session.
fn begins(body: &[u8]) -> bool {
    let glance = serde_json::from_slice::<MessageHead>(body);
    glance.is_ok_and(|glance| glance.method.as_deref() == Some(INITIALIZE))
}

/// A stream of events goes out as it comes; anything else is whole. `busy` is held until then.
async fn outgoing(
    response: hyper::Response<BoxBody<Bytes, Infallible>>,
    busy: Option<Hold>,
) -> Response {
    let (head, mut body) = response.into_parts();
    let is_stream = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == EVENTS);
    if !is_stream {
        let Ok(whole) = body.collect().await;
        return Response::from_parts(head, Outgoing::whole(whole.to_bytes()));
    }
    let (sink, outgoing) = Outgoing::stream(None);
    tokio::spawn(async move {
        let _busy = busy;
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                // Dropping the body tells the SDK that the client is gone.
                () = sink.closed() => return,
            };
            let Some(Ok(frame)) = frame else { return };
            let Ok(bytes) = frame.into_data() else { continue };
            if sink.send(bytes).await.is_err() {
                return;
            }
        }
    });
    Response::from_parts(head, outgoing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_initializes_begins_a_session() {
        assert!(begins(br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"x":[1]}}"#));
        for other in [&br#"{"method":"tools/list"}"#[..], b"[]", b"", b"{\"method\":1}"] {
            assert!(!begins(other));
        }
    }
}
