//! Requests that are passed on to a program that listens in a sandbox, and its answers.
//!
//! ```text
//!  a door ─▶ visitor: who may ─▶ request: its head for the program ─▶ a connection to the port
//!                                                                        │
//!  the client ◀─ answer: its head for the client ◀───────────────────────┘   bodies both ways, as they come
//! ```
//!
//! The program may be hostile. Each request has a connection of its own into the sandbox, and both heads
//! are written again from what was understood of them: nothing that either side sends can be taken for the
//! beginning of another request or answer. Keys, links and what else is this server's never get there.

mod answer;
mod request;
mod visitor;

use std::error::Error;
use std::io;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::task::JoinHandle;

pub use request::strip_connection;
pub use visitor::{Visit, admit};

use super::body::{Outgoing, Received, Response, Sink};
use super::call::{Call, Inside};
use super::limits::{HEAD_BYTES_MAX, HEADERS_MAX, REFUSED_BODY_BYTES_MAX, STREAM_BYTES};
use super::response::Foreign;
use request::Way;
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Refusal};

/// The methods that are passed on: those of HTTP itself, but for `TRACE`, which would show a page what it
/// may not see, and `CONNECT`, which is for proxies of another kind.
pub const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];

/// How a request says which port it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// By a host name of the port's own: pages of it have an origin of their own.
    Host,
    /// By a path that begins so, on the server's own host name.
    Path(String),
    /// By headers, on the server's own host name.
    Headers,
}

impl Form {
    /// Whether a page of the program would share its origin with this server.
    pub fn shares_origin(&self) -> bool {
        !matches!(self, Self::Host)
    }
}

/// Passes a request on to a port of a sandbox. Who sends it has been let in.
pub async fn pass(
    mut call: Call,
    which: SandboxRef,
    port: u16,
    form: Form,
) -> Result<Response, Refusal> {
    call.trail.fact("port", port);
    if let Some(entered) = visitor::enter(&call, &which, port, &form) {
        return Ok(entered);
    }
    let way = Way::of(&call, &which, port, form)?;
    let Inside { id, guest, activity, woke_in, .. } = call.api.inside(which).await?;
    call.trail.woke(woke_in);
    let reached = call.api.forwards().reach(&id, guest, activity, port).await?;
    // What waits on both sides of this server, each way.
    call.memory.grow(2 * STREAM_BYTES)?;
    let broke = |error: &hyper::Error| unanswered(port, error);
    let connecting = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .handshake(TokioIo::new(reached));
    let (mut sender, connection) = connecting.await.map_err(|error| broke(&error))?;
    let connection = Carrying(tokio::spawn(async move {
        // How it ends shows in the answer.
        let _ = connection.with_upgrades().await;
    }));
    let wants_upgrade = call.upgrade.is_some() && way.upgrade.is_some();
    let (unread, expectations) = (call.body.unread(), call.headers.clone());
    let mut request = Request::new(std::mem::replace(&mut call.body, Received::of(Bytes::new())));
    *request.method_mut() = call.target.method.clone();
    *request.version_mut() = Version::HTTP_11;
    *request.uri_mut() = way.target.parse::<Uri>().map_err(|_| bad_target())?;
    *request.headers_mut() = way.head(&call.headers);
    let mut answer = sender.send_request(request).await.map_err(|error| broke(&error))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = call.upgrade.take().filter(|_| wants_upgrade) else {
            let message = format!("the program at port {port} changed the protocol unasked");
            return Err(unreachable(port, message));
        };
        let program = hyper::upgrade::on(&mut answer);
        let kept = (call.held.take(), call.memory.clone());
        tokio::spawn(async move {
            join(client, program).await;
            drop((connection, kept));
        });
        let (head, _) = answer.into_parts();
        let mut response = hyper::Response::new(Outgoing::empty());
        *response.status_mut() = head.status;
        *response.headers_mut() = way.answer(head.headers, head.status, &call.target.method);
        response.extensions_mut().insert(Foreign);
        return Ok(response);
    }
    let (head, body) = answer.into_parts();
    let body = if body.is_end_stream() {
        // What the program has not read of the request is read by the door.
        connection.end().await;
        Outgoing::empty()
    } else {
        let (sink, outgoing) = Outgoing::stream(body.size_hint().exact());
        let kept = (call.held.take(), call.memory.clone());
        tokio::spawn(async move {
            carry(body, &sink).await;
            drop(sender);
            connection.end().await;
            // A client that still sends what nobody reads must get to read the answer.
            unread.drain(&expectations, REFUSED_BODY_BYTES_MAX).await;
            drop((sink, kept));
        });
        outgoing
    };
    let mut response = hyper::Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = way.answer(head.headers, head.status, &call.target.method);
    response.extensions_mut().insert(Foreign);
    Ok(response)
}

/// Ends a connection when whom it serves is gone.
struct Carrying(JoinHandle<()>);

impl Carrying {
    /// Ends it, and waits until it has let go of everything.
    async fn end(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Carries the body of an answer as it comes. One that breaks off is never ended in order.
async fn carry(mut body: Incoming, sink: &Sink) {
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = sink.closed() => return,
        };
        match frame {
            None => return,
            Some(Err(_)) => return sink.cut(),
            Some(Ok(frame)) => {
                // Trailers have no place in what a client of HTTP/1.1 has not asked for.
                let Ok(bytes) = frame.into_data() else { continue };
                if sink.send(bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Carries both ways what two connections say that no longer speak HTTP.
async fn join(client: OnUpgrade, program: OnUpgrade) {
    let (Ok(client), Ok(program)) = tokio::join!(client, program) else { return };
    let (mut client, mut program) = (TokioIo::new(client), TokioIo::new(program));
    // Whichever end breaks, both are dropped.
    let _ = copy_bidirectional(&mut client, &mut program).await;
}

fn unreachable(port: u16, message: String) -> Refusal {
    Refusal::new(Code::PortUnreachable, message).details(json!({ "port": port }))
}

fn bad_target() -> Refusal {
    Refusal::invalid("the path of the request cannot be passed on")
}

/// Why a program that was reached gave no answer.
fn unanswered(port: u16, error: &hyper::Error) -> Refusal {
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    if cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut) {
        let message = format!("the program at port {port} did not answer in time");
        return Refusal::new(Code::DeadlineExceeded, message).details(json!({ "port": port }));
    }
    if error.is_parse() || error.is_parse_too_large() {
        let message = format!("what listens on port {port} does not answer in HTTP/1.1");
        return unreachable(port, message).hint(
            "previews carry HTTP; another protocol goes over a forwarded port or its WebSocket",
        );
    }
    let message = format!("the program at port {port} closed the connection before it answered");
    unreachable(port, message).hint("its output may say why")
}
