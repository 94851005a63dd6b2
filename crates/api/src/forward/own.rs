//! What a node asks of another one by itself: for a list of all nodes, a tool of MCP, and the command line.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{ACCEPT, CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::http::uri::PathAndQuery;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response as Answer, StatusCode};

use super::{Passing, Peers, has_moved, mark, send, sign, through_of, unreachable};
use crate::Api;
use crate::body::{NDJSON, Received};
use crate::call::{Call, Target};
use crate::caller::Caller;
use crate::forms::problem::Problem;
use crate::limits::{FORWARD_ANSWER_BYTES_MAX, FORWARD_ANSWER_MAX, FORWARD_LINE_BYTES_MAX};
use node::{Node, Placement, Through};
use sandbox::refusal::{Code, Reason, Refusal};

/// Asks another node something for the caller, and reads the whole answer.
pub async fn ask(
    call: &Call,
    node: &Node,
    to: &Placement,
    place: PathAndQuery,
) -> Result<Bytes, Refusal> {
    let asking = async {
        let target = Target { method: Method::GET, place };
        let mut request = Request::new(Passing::new(Received::of(Bytes::new())));
        sign(request.headers_mut(), call, &target, node, to)?;
        *request.uri_mut() = target.place.into();
        whole(call.api.peers(), to, request).await
    };
    let asked = tokio::time::timeout(FORWARD_ANSWER_MAX, asking).await;
    asked.unwrap_or_else(|_| Err(unreachable(to, "it does not answer")))
}

/// Who has another node do something that no request of a client is about.
pub struct Sender<'a> {
    pub api: &'a Api,
    pub caller: Caller,
    /// Of this host's bridge: who is at its control socket.
    pub is_operator: bool,
}

/// Sends a request of this node's own to another one, as a caller, and reads the whole answer.
pub async fn post(
    sender: Sender<'_>,
    to: &Placement,
    target: Target,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Bytes, Refusal> {
    let api = sender.api;
    let (node, request) = marked(sender, to, target, headers, body)?;
    tokio::select! {
        asked = whole(api.peers(), to, request) => asked,
        () = node.left(&to.node) => Err(unreachable(to, "it has left the fleet")),
    }
}

/// A request of this node's own, with its mark.
fn marked<'a>(
    sender: Sender<'a>,
    to: &Placement,
    target: Target,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<(&'a Node, Request<Passing>), Refusal> {
    let Sender { api, caller, is_operator } = sender;
    let Some(node) = api.node() else {
        return Err(Refusal::new(Code::Internal, "this bridge is in no fleet"));
    };
    let through = if is_operator { Through::Operator } else { through_of(&caller, false)? };
    mark(&mut headers, node, to, (&target, None), through)?;
    let mut request = Request::new(Passing::new(Received::of(body)));
    *request.method_mut() = target.method;
    *request.uri_mut() = target.place.into();
    *request.headers_mut() = headers;
    Ok((node, request))
}

/// A stream of lines that another node sends.
pub struct Lines {
    to: Placement,
    body: Incoming,
    /// Of a line that has not come to its end.
    rest: BytesMut,
    _connection: SendRequest<Passing>,
}

/// Asks another node for a stream of lines, as a caller. Returns when that has begun.
pub async fn lines(
    sender: Sender<'_>,
    to: &Placement,
    place: PathAndQuery,
) -> Result<Lines, Refusal> {
    let api = sender.api;
    let headers = HeaderMap::from_iter([(ACCEPT, NDJSON)]);
    let target = Target { method: Method::GET, place };
    let (_, request) = marked(sender, to, target, headers, Bytes::new())?;
    let asking = async {
        let (answer, connection) = send(api.peers(), to, request).await?;
        let status = answer.status();
        if status != StatusCode::OK {
            let body = body_of(answer, to).await?;
            return Err(refusal_of(to, status, &body));
        }
        let body = answer.into_body();
        Ok(Lines { to: to.clone(), body, rest: BytesMut::new(), _connection: connection })
    };
    let asked = tokio::time::timeout(FORWARD_ANSWER_MAX, asking).await;
    asked.unwrap_or_else(|_| Err(unreachable(to, "it does not answer")))
}

impl Lines {
    /// The next line; `None` at the end. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.rest.split_to(end + 1).freeze()));
            }
            if self.rest.len() > FORWARD_LINE_BYTES_MAX {
                return Err(unreachable(&self.to, "it sends a line that is too long"));
            }
            match self.body.frame().await {
                None if self.rest.is_empty() => return Ok(None),
                None => return Err(unreachable(&self.to, "its answer ends within a line")),
                Some(Ok(frame)) => {
                    self.rest.extend_from_slice(&frame.into_data().unwrap_or_default());
                }
                Some(Err(error)) => return Err(unreachable(&self.to, &error.to_string())),
            }
        }
    }
}

/// What another node has refused, in its own words.
fn refusal_of(to: &Placement, status: StatusCode, body: &[u8]) -> Refusal {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => Refusal::new(problem.code, problem.message),
        Err(_) => unreachable(to, &format!("it answers {status}")),
    }
}

/// Sends a request, and reads the whole answer. What the other node has refused is refused here.
async fn whole(peers: &Peers, to: &Placement, request: Request<Passing>) -> Result<Bytes, Refusal> {
    let (answer, mut connection) = send(peers, to, request).await?;
    let (status, has_moved) = (answer.status(), has_moved(&answer));
    let body = body_of(answer, to).await?;
    if connection.ready().await.is_ok() {
        peers.put(&to.address, connection);
    }
    if status.is_success() {
        return Ok(body);
    }
    let refusal = refusal_of(to, status, &body);
    Err(if has_moved { refusal.because(Reason::Moved) } else { refusal })
}

async fn body_of(answer: Answer<Incoming>, to: &Placement) -> Result<Bytes, Refusal> {
    let body = Limited::new(answer.into_body(), FORWARD_ANSWER_BYTES_MAX).collect().await;
    Ok(body.map_err(|error| unreachable(to, &error.to_string()))?.to_bytes())
}

/// Opens a connection of bytes both ways to a place of another node.
pub async fn tunnel(
    api: &Api,
    to: &Placement,
    place: PathAndQuery,
    through: Through,
) -> Result<Upgraded, Refusal> {
    let Some(node) = api.node() else {
        return Err(Refusal::new(Code::Internal, "this bridge is in no fleet"));
    };
    let target = Target { method: Method::GET, place };
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("burrow-agent"));
    mark(&mut headers, node, to, (&target, None), through)?;
    let mut request = Request::new(Passing::new(Received::of(Bytes::new())));
    *request.uri_mut() = target.place.into();
    *request.headers_mut() = headers;
    let (answer, _) = send(api.peers(), to, request).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = answer.status();
        let body = body_of(answer, to).await?;
        return Err(refusal_of(to, status, &body));
    }
    hyper::upgrade::on(answer).await.map_err(|error| unreachable(to, &error.to_string()))
}
