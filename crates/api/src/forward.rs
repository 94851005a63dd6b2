//! Sends a call on to the node that has its sandbox, and its answer back as it comes.
//!
//! ```text
//!  client ──▶ gateway: key, scope, namespace ──mark──▶ owner: the same grant, its own checks ──▶ sandbox
//!         ◀── the answer, byte by byte ─────◀─────────
//! ```
//!
//! A key that the client proved itself with stays here, and so does a mark of its own. The owner gets a mark that this
//! node has signed. What only the owner can judge goes on: tokens of its sandboxes, and links to ports of them. A call
//! that has a mark is never sent on again. An answer whose node goes away is cut off,
//! so that no client takes a part for the whole.

mod own;
mod peers;

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, ORIGIN, REFERER, SEC_WEBSOCKET_PROTOCOL, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::uri::PathAndQuery;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::time::timeout;

use super::body::{Hold, Outgoing, Received, Response, Sink};
use super::call::{Call, Target};
use super::caller::{API_KEY, Caller, take_keys};
use super::limits::{
    FORWARD_BODY_PAUSE_MAX, FORWARD_WHOLE_BYTES_MAX, FORWARD_WHOLE_PAUSE_MAX,
    RECALLED_BODY_BYTES_MAX,
};
use super::origin::host_of;
use super::proxy::strip_connection;
use super::route::{Document, Output, percent_decode};
use super::subprotocol::{KEY_PROTOCOL, offered};
use super::websocket;
use access::keys::KEY_PREFIX;
use host::dial::{Origin, Scheme};
use node::limits::MARK_MS;
use node::{Called, Node, Placement, Through};
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Refusal};

pub use own::{Sender, ask, lines, post, tunnel};
pub use peers::Peers;

/// The mark of a call between nodes.
pub const MARK: HeaderName = HeaderName::from_static("burrow-mark");
/// In an answer: its sender does not know the node that has signed the mark, as one that has not seen its description
/// yet, or has another key since then. The client has done nothing wrong.
pub const OF_STRANGER: &str = "of-a-stranger";
/// The same: its sender's clock is another than that of the node that has signed the mark.
pub const OF_ANOTHER_TIME: &str = "of-another-time";
/// The same: the node has the sandbox no more.
pub const MOVED: &str = "moved";
/// The client's name for its request, and ours when it has none.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What stays at the gateway, beside what is about the connection: what the client proves itself with, and what says
/// from which page it comes, which was looked at here.
const KEPT: [HeaderName; 7] = [HOST, EXPECT, AUTHORIZATION, API_KEY, COOKIE, ORIGIN, REFERER];
/// The same of a request that the other node judges, and that a program there may read: keys are taken out of it.
const KEPT_OF_SEATS: [HeaderName; 2] = [HOST, EXPECT];

fn origin_of(address: &str) -> Option<Origin> {
    let uri: Uri = address.parse().ok()?;
    let scheme = match uri.scheme_str()? {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let name = uri.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
    Some(Origin { scheme, name, port: uri.port_u16().unwrap_or(scheme.port()) })
}

fn unreachable(to: &Placement, why: &str) -> Refusal {
    let message = format!("the node {} that has this sandbox cannot be reached: {why}", to.node);
    Refusal::new(Code::Unavailable, message)
        .details(serde_json::json!({ "node": to.node.as_str() }))
        .retry_after(BUSY_PAUSE)
}

/// An answer of this bridge, or the one of the node that has the sandbox.
pub enum Carried<T> {
    Here(T),
    There(Box<Response>),
}

impl<T: Output> Output for Carried<T> {
    fn describe(document: &mut Document<'_>) {
        T::describe(document);
    }

    fn into_response(self) -> Response {
        match self {
            Self::Here(answer) => answer.into_response(),
            Self::There(response) => *response,
        }
    }
}

/// Sends a call to where its sandbox was a moment ago. `None`: the sandbox is there no more, or the body is too large to be sent
/// again if that were so; the call is as it was.
pub async fn lately(call: &mut Call, to: &Placement) -> Result<Option<Response>, Refusal> {
    let is_small = match call.body.announced_bytes() {
        Some(bytes) => bytes <= RECALLED_BODY_BYTES_MAX,
        None => !call.headers.contains_key(TRANSFER_ENCODING),
    };
    if !is_small {
        return Ok(None);
    }
    let body = call.body.read(RECALLED_BODY_BYTES_MAX, &call.memory).await?;
    let sent = forward(call, to, Some(body.clone())).await;
    let has_moved = sent.as_ref().is_ok_and(has_moved);
    if let (Some(node), Some(which)) = (call.api.node(), &to.recalled)
        && (has_moved || sent.is_err())
    {
        node.forget_route(which);
    }
    if has_moved {
        call.body = Received::of(body);
        return Ok(None);
    }
    sent.map(Some)
}

/// Whether an answer is that of a node that has the sandbox no more.
fn has_moved<T>(answer: &hyper::Response<T>) -> bool {
    answer.headers().get(&MARK).is_some_and(|it| it == MOVED)
}

/// Sends a call to the node that has its sandbox. `body` is what was read of it here.
pub async fn forward(
    call: &mut Call,
    to: &Placement,
    body: Option<Bytes>,
) -> Result<Response, Refusal> {
    let Some(node) = call.api.node().cloned() else {
        return Err(Refusal::new(Code::Internal, "this bridge is in no fleet"));
    };
    call.trail.fact("node", to.node.as_str());
    let target = Target { place: without_key(&call.target.place), ..call.target.clone() };
    let wants_upgrade =
        call.upgrade.is_some() && (call.is_judged_there || websocket::is_wanted(&call.headers));
    let received = match body {
        Some(bytes) => Received::of(bytes),
        None => std::mem::replace(&mut call.body, Received::of(Bytes::new())),
    };
    let mut request = Request::new(Passing::new(received));
    *request.headers_mut() = passed_on(call, &target, &node, to, wants_upgrade)?;
    *request.method_mut() = target.method;
    *request.uri_mut() = target.place.into();
    let api = call.api.clone();
    let peers = api.peers();
    let gone = node.left(&to.node);
    let sending = send(peers, to, request);
    let (answer, connection) = tokio::select! {
        sent = sending => sent?,
        () = gone => return Err(unreachable(to, "it has left the fleet")),
    };
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let ours = call.upgrade.take().filter(|_| wants_upgrade);
        let ours = ours.ok_or_else(|| unreachable(to, "it changes the protocol unasked"))?;
        return Ok(switched(answer, ours, call.held.take(), node, to.clone()));
    }
    passed_back(answer, connection, call, node, to.clone()).await
}

/// Sends a request over a connection that waits, or a new one. A node that cannot tell whether we are one refuses it.
async fn send(
    peers: &Peers,
    to: &Placement,
    request: Request<Passing>,
) -> Result<(hyper::Response<Incoming>, SendRequest<Passing>), Refusal> {
    let sent = send_once(peers, to, request).await;
    let count = if sent.is_ok() { &peers.answered } else { &peers.failed };
    count.fetch_add(1, Ordering::Relaxed);
    let sent = sent?;
    match sent.0.headers().get(&MARK) {
        Some(mark) if mark == OF_STRANGER => {
            Err(unreachable(to, "it does not know this node as one of its fleet now"))
        }
        Some(mark) if mark == OF_ANOTHER_TIME => {
            let s = MARK_MS / 1_000;
            Err(unreachable(to, &format!("its clock and this node's are more than {s} s apart")))
        }
        _ => Ok(sent),
    }
}

async fn send_once(
    peers: &Peers,
    to: &Placement,
    mut request: Request<Passing>,
) -> Result<(hyper::Response<Incoming>, SendRequest<Passing>), Refusal> {
    if let Some(mut connection) = peers.take(&to.address) {
        match connection.try_send_request(request).await {
            Ok(answer) => return Ok((answer, connection)),
            Err(mut error) => match error.take_message() {
                // The other end had closed it, and has seen nothing of this.
                Some(unsent) => request = unsent,
                None => return Err(failed(to, &error.into_error())),
            },
        }
    }
    let mut connection = peers.connect(to).await?;
    let answer = connection.send_request(request).await.map_err(|error| failed(to, &error))?;
    Ok((answer, connection))
}

fn failed(to: &Placement, error: &hyper::Error) -> Refusal {
    let message = format!("the node {} did not answer: {error}", to.node);
    Refusal::new(Code::Unavailable, message)
        .details(serde_json::json!({ "node": to.node.as_str() }))
        .hint("the call may still have taken effect; check before you repeat it")
}

/// The headers of a request on its way to another node.
fn passed_on(
    call: &Call,
    target: &Target,
    node: &Node,
    to: &Placement,
    wants_upgrade: bool,
) -> Result<HeaderMap, Refusal> {
    let mut headers = if call.is_judged_there {
        let mut headers = without(&call.headers, &KEPT_OF_SEATS);
        take_keys(&mut headers);
        headers
    } else {
        without(&call.headers, &KEPT)
    };
    headers.remove(&MARK);
    headers.remove(CONTENT_LENGTH);
    // A browser's WebSocket has its key among its subprotocols.
    if headers.remove(SEC_WEBSOCKET_PROTOCOL).is_some() {
        let rest: Vec<_> =
            offered(&call.headers).filter(|one| !one.starts_with(KEY_PROTOCOL)).collect();
        if let Some(rest) = Some(rest.join(", ")).filter(|rest| !rest.is_empty()) {
            let rest = HeaderValue::try_from(rest);
            headers.insert(
                SEC_WEBSOCKET_PROTOCOL,
                rest.map_err(|_| Refusal::invalid("the subprotocols"))?,
            );
        }
    }
    if wants_upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        let wanted = call.headers.get(UPGRADE).cloned();
        headers.insert(UPGRADE, wanted.unwrap_or(HeaderValue::from_static("websocket")));
    }
    call.trail.pass_on(&mut headers);
    sign(&mut headers, call, target, node, to)?;
    Ok(headers)
}

/// Adds who calls what, through whom.
fn sign(
    headers: &mut HeaderMap,
    call: &Call,
    target: &Target,
    node: &Node,
    to: &Placement,
) -> Result<(), Refusal> {
    let through = through_of(&call.caller, call.is_judged_there)?;
    let host = Some(host_of(&call.headers)).filter(|host| !host.is_empty());
    mark(headers, node, to, (target, host), through)?;
    if let Ok(id) = HeaderValue::from_str(&call.request_id.0) {
        headers.insert(REQUEST_ID, id);
    }
    Ok(())
}

fn through_of(caller: &Caller, is_judged_there: bool) -> Result<Through, Refusal> {
    match caller {
        Caller::Holder(grant) => Ok(Through::Holder(Box::new(grant.clone()))),
        Caller::Local => Ok(Through::Local),
        Caller::Anybody if is_judged_there => Ok(Through::Bearer),
        Caller::Anybody | Caller::Visitor(_) => {
            Err(Refusal::new(Code::Unauthenticated, "nobody is sent on to another node"))
        }
    }
}

fn mark(
    headers: &mut HeaderMap,
    node: &Node,
    to: &Placement,
    (target, host): (&Target, Option<&str>),
    through: Through,
) -> Result<(), Refusal> {
    let called = Called { method: target.method.as_str(), path: target.place.as_str(), host };
    let mark = node.sign(to, called, through);
    let mark = mark.ok_or_else(|| unreachable(to, "it has left the fleet"))?;
    let mark = HeaderValue::try_from(mark);
    let mark = mark.map_err(|_| Refusal::new(Code::Internal, "a mark is no header"))?;
    headers.insert(MARK, mark);
    let host = origin_of(&to.address).map(|origin| origin.authority()).unwrap_or_default();
    headers.insert(HOST, HeaderValue::try_from(host).map_err(|_| unreachable(to, "its name"))?);
    Ok(())
}

/// Without what is about one connection alone, and what its other end proves itself with.
fn without(headers: &HeaderMap, kept: &[HeaderName]) -> HeaderMap {
    let mut passed = headers.clone();
    strip_connection(&mut passed);
    for name in kept {
        passed.remove(name);
    }
    passed
}

/// A place without a key of ours in its query, where Jupyter's clients may have it.
pub fn without_key(place: &PathAndQuery) -> PathAndQuery {
    let Some(query) = place.query() else { return place.clone() };
    let is_key = |field: &&str| {
        let value = field.split_once('=').map_or("", |(_, value)| value);
        percent_decode(value).is_some_and(|value| value.starts_with(KEY_PREFIX))
    };
    if !query.split('&').any(|field| is_key(&field)) {
        return place.clone();
    }
    let rest: Vec<_> = query.split('&').filter(|field| !is_key(field)).collect();
    let (path, rest) = (place.path(), rest.join("&"));
    let text = if rest.is_empty() { path.to_owned() } else { format!("{path}?{rest}") };
    PathAndQuery::try_from(text).expect("a part of a query is one")
}

/// The answer for the client. A long body is sent as it comes.
async fn passed_back(
    answer: hyper::Response<Incoming>,
    connection: SendRequest<Passing>,
    call: &Call,
    node: Node,
    to: Placement,
) -> Result<Response, Refusal> {
    let (head, mut body) = answer.into_parts();
    let length = body.size_hint().exact().filter(|_| call.target.method != Method::HEAD);
    let early = match length {
        Some(1..=FORWARD_WHOLE_BYTES_MAX) => beginning(&mut body, &to).await?,
        _ => Vec::new(),
    };
    let is_whole = !early.is_empty() && body.is_end_stream();
    let (sink, outgoing) = if is_whole {
        (None, Outgoing::parts(early.clone()))
    } else {
        let (sink, outgoing) = Outgoing::stream(length);
        // What is not sent to its end is cut off.
        sink.cut();
        (Some(sink), outgoing)
    };
    let mut response = hyper::Response::new(outgoing);
    *response.status_mut() = head.status;
    *response.headers_mut() = without(&head.headers, &KEPT);
    let api = call.api.clone();
    tokio::spawn(async move {
        if let Some(sink) = sink {
            let sent = tokio::select! {
                sent = send_all(early, body, &sink) => sent,
                () = sink.closed() => false,
                () = node.left(&to.node) => false,
            };
            if !sent {
                return;
            }
            sink.finish();
        }
        let mut connection = connection;
        if connection.ready().await.is_ok() {
            api.peers().put(&to.address, connection);
        }
    });
    Ok(response)
}

/// What a short body begins with, most often all of it: with its head it wakes the client once.
async fn beginning(body: &mut Incoming, to: &Placement) -> Result<Vec<Bytes>, Refusal> {
    let mut early = Vec::new();
    let reading = async {
        while !body.is_end_stream() {
            let Some(frame) = body.frame().await.transpose()? else { break };
            early.extend(frame.into_data().ok());
        }
        Ok(())
    };
    match timeout(FORWARD_WHOLE_PAUSE_MAX, reading).await {
        Ok(Err(error)) => Err(failed(to, &error)),
        Ok(Ok(())) | Err(_) => Ok(early),
    }
}

/// Whether all was sent.
async fn send_all(early: Vec<Bytes>, mut body: Incoming, sink: &Sink) -> bool {
    for bytes in early {
        if sink.send(bytes).await.is_err() {
            return false;
        }
    }
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let Ok(bytes) = frame.into_data() else { continue };
        if !bytes.is_empty() && sink.send(bytes).await.is_err() {
            return false;
        }
    }
    true
}

/// Joins the two connections once both have changed their protocol.
fn switched(
    answer: hyper::Response<Incoming>,
    ours: OnUpgrade,
    held: Option<Hold>,
    node: Node,
    to: Placement,
) -> Response {
    let mut response = hyper::Response::new(Outgoing::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = without(answer.headers(), &KEPT);
    let changed = answer.headers().get(UPGRADE).cloned();
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, changed.unwrap_or(HeaderValue::from_static("websocket")));
    let theirs = hyper::upgrade::on(answer);
    tokio::spawn(async move {
        let _held = held;
        let (Ok(theirs), Ok(ours)) = (theirs.await, ours.await) else { return };
        tokio::select! {
            () = joined(ours, theirs) => {}
            () = node.left(&to.node) => {}
        }
    });
    response
}

async fn joined(ours: Upgraded, theirs: Upgraded) {
    let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
    // Either end closes both.
    let _ = copy_bidirectional(&mut ours, &mut theirs).await;
}

/// A body on its way to another node.
pub struct Passing {
    chunks: Pin<Box<dyn Stream<Item = Result<Bytes, Refusal>> + Send>>,
    left: Option<u64>,
}

impl Passing {
    fn new(mut received: Received) -> Self {
        let left = received.announced_bytes();
        // The node that carries the call out decides how long a client may pause.
        received.be_patient(FORWARD_BODY_PAUSE_MAX);
        let received = Some(received);
        let chunks = unfold(received, async |received| {
            let mut received = received?;
            match received.chunk().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(received))),
                Ok(None) => None,
                Err(refusal) => Some((Err(refusal), None)),
            }
        });
        Self { chunks: Box::pin(chunks), left }
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = Refusal;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Refusal>>> {
        let this = self.get_mut();
        let Poll::Ready(chunk) = this.chunks.as_mut().poll_next(cx) else { return Poll::Pending };
        if let (Some(Ok(bytes)), Some(left)) = (&chunk, &mut this.left) {
            *left = left.saturating_sub(bytes.len() as u64);
        }
        Poll::Ready(chunk.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_proves_itself_with_stays_here() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer msb_x"),
            ("x-api-key", "msb_x"),
            ("cookie", "a=b"),
            ("host", "gateway"),
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("transfer-encoding", "chunked"),
            ("origin", "https://page.example"),
            ("content-type", "application/json"),
            ("idempotency-key", "k"),
        ] {
            let name: HeaderName = name.parse().unwrap();
            headers.insert(name, HeaderValue::from_static(value));
        }
        let passed = without(&headers, &KEPT);
        let mut names: Vec<_> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-type", "idempotency-key"]);
    }

    #[test]
    fn a_key_in_a_query_stays_here() {
        for (given, passed) in [
            ("/api/kernels", "/api/kernels"),
            ("/api/kernels?token=msb_x", "/api/kernels"),
            ("/a?session_id=1&token=%6dsb_x&b=2", "/a?session_id=1&b=2"),
            ("/a?burrow_link=x&token=mine", "/a?burrow_link=x&token=mine"),
        ] {
            let place = PathAndQuery::from_static(given);
            assert_eq!(without_key(&place).as_str(), passed);
        }
    }

    #[test]
    fn the_address_of_a_node_is_a_scheme_a_host_and_a_port() {
        let shown = |address: &str| origin_of(address).map(|origin| origin.to_string());
        let with_port = "http://127.0.0.1:5555";
        assert_eq!(shown(with_port).as_deref(), Some(with_port));
        assert_eq!(
            shown("https://Node1.example.org").as_deref(),
            Some("https://node1.example.org")
        );
        assert_eq!(shown("http://[::1]:80").as_deref(), Some("http://[::1]"));
        for none in ["", "ftp://x", "node1:5555", "unix:/run/x"] {
            assert_eq!(shown(none), None, "{none}");
        }
    }
}
