//! WebSockets: the greeting, and messages both ways. Their content belongs to the handler.
//!
//! Both directions go on independently: a client that writes before it reads is not stuck.

mod pulse;

use std::future::Future;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::StatusCode;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde::Serialize;
use tokio::time::{Instant, Interval, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::body::{Gone, Outgoing, Response};
use super::budget::Share;
use super::call::Call;
use super::limits::{
    SOCKET_CLOSE_MAX, SOCKET_MESSAGE_BYTES_MAX, SOCKET_PING_PAUSE, SOCKET_PINGS_MAX, STREAM_BYTES,
    STREAM_VALUE_BYTES,
};
use super::route::{Document, Output};
use super::subprotocol::offered;
use pulse::{Pulse, PulsedStream};
use sandbox::refusal::{Code, Refusal};

/// The subprotocol that is spoken when a client offers it.
pub const PROTOCOL: &str = "burrow.v1";

/// From the standard: what is added to the client's key.
const ACCEPT_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

type Stream = WebSocketStream<PulsedStream<TokioIo<Upgraded>>>;

/// A WebSocket that is open.
pub struct Socket {
    pub reader: Reader,
    pub writer: Writer,
}

pub struct Reader {
    stream: SplitStream<Stream>,
    pulse: Pulse,
    /// When the pulse is felt.
    looks: Interval,
    /// Pings since `counted`.
    pings: u32,
    counted: Instant,
}

pub struct Writer {
    sink: SplitSink<Stream, Message>,
    pulse: Pulse,
    memory: Share,
    /// The largest message so far: the socket's buffer stays as large.
    largest_bytes: usize,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    Text(String),
    Binary(Bytes),
}

/// Whether a request asks for a WebSocket.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("websocket"))
}

/// Answers the greeting, and gives the socket to `attend` once it is open.
pub fn accept<F, A>(call: &mut Call, attend: F) -> Result<Response, Refusal>
where
    F: FnOnce(Socket) -> A + Send + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    accept_as(call, PROTOCOL, attend)
}

/// The same for another subprotocol, which is spoken when a client offers it.
pub fn accept_as<F, A>(
    call: &mut Call,
    protocol: &'static str,
    attend: F,
) -> Result<Response, Refusal>
where
    F: FnOnce(Socket) -> A + Send + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let refuse = |message: &str| Err(Refusal::invalid(message));
    if !is_wanted(&call.headers) {
        let message = "this call is a WebSocket: send Upgrade: websocket";
        return Err(Refusal::new(Code::Invalid, message));
    }
    let version = call.headers.get(SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version != "13") {
        return refuse("Sec-WebSocket-Version must be 13");
    }
    let key = call.headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let Some(key) = key.filter(|key| STANDARD.decode(key).is_ok_and(|key| key.len() == 16)) else {
        return refuse("Sec-WebSocket-Key must be 16 bytes in base64");
    };
    let accepted = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, ACCEPT_SUFFIX].concat());
    let accepted = HeaderValue::try_from(STANDARD.encode(accepted));
    let accepted = accepted.map_err(|_| Refusal::new(Code::Internal, "base64 is no header"))?;
    let Some(upgrade) = call.upgrade.take() else {
        return refuse("this connection cannot become a WebSocket");
    };
    call.memory.grow(STREAM_BYTES)?;
    let (held, memory) = (call.held.take(), call.memory.clone());
    tokio::spawn(async move {
        let _held = held;
        // A client that is gone before the socket is open needs no message.
        if let Ok(upgraded) = upgrade.await {
            attend(Socket::new(upgraded, memory).await).await;
        }
    });
    let mut response = hyper::Response::new(Outgoing::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fixed: [(HeaderName, HeaderValue); 3] = [
        (UPGRADE, HeaderValue::from_static("websocket")),
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (SEC_WEBSOCKET_ACCEPT, accepted),
    ];
    response.headers_mut().extend(fixed);
    if offered(&call.headers).any(|one| one == protocol) {
        let protocol = HeaderValue::from_static(protocol);
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

impl Socket {
    async fn new(upgraded: Upgraded, memory: Share) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(SOCKET_MESSAGE_BYTES_MAX))
            .max_frame_size(Some(SOCKET_MESSAGE_BYTES_MAX));
        let pulse = Pulse::default();
        let io = PulsedStream::new(TokioIo::new(upgraded), pulse.clone());
        let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        let (sink, stream) = stream.split();
        let (looks, counted) = (ping_clock(), Instant::now());
        let reader = Reader { stream, pulse: pulse.clone(), looks, pings: 0, counted };
        let writer = Writer { sink, pulse, memory, largest_bytes: STREAM_VALUE_BYTES };
        Self { reader, writer }
    }
}

impl Reader {
    /// The next message; `None` when the client has closed the socket, is gone, breaks the rules,
    /// or leaves [`Writer::ping`] without an answer. Safe to cancel. Pings are answered by asking.
    pub async fn next(&mut self) -> Option<ClientMessage> {
        loop {
            let message = tokio::select! {
                // Received bytes are a sign of life, however long they were not read.
                biased;
                message = self.stream.next() => message?.ok()?,
                _ = self.looks.tick() => {
                    if self.pulse.is_lost() {
                        return None;
                    }
                    continue;
                }
            };
            match message {
                Message::Text(text) => return Some(ClientMessage::Text(text.as_str().to_owned())),
                Message::Binary(bytes) => return Some(ClientMessage::Binary(bytes)),
                Message::Close(_) => {
                    // The answer to it leaves with the next look.
                    let _ = timeout(SOCKET_CLOSE_MAX, self.stream.next()).await;
                    return None;
                }
                Message::Ping(_) if self.is_flooded() => return None,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    /// Counts a ping, and says whether they are too many.
    fn is_flooded(&mut self) -> bool {
        if self.counted.elapsed() > SOCKET_PING_PAUSE {
            (self.pings, self.counted) = (0, Instant::now());
        }
        self.pings += 1;
        self.pings > SOCKET_PINGS_MAX
    }
}

impl Writer {
    /// Sends a value as JSON. A large one is counted while it waits, as a value and as JSON; where
    /// there is no memory for that, the client is given up.
    pub async fn tell(&mut self, value: &impl Serialize) -> Result<(), Gone> {
        let text = serde_json::to_string(value).map_err(|_| Gone)?;
        let _portion = match text.len() {
            0..=STREAM_VALUE_BYTES => None,
            large => Some(self.memory.portion(2 * large).map_err(|_| Gone)?),
        };
        self.send(Message::Text(text.into())).await
    }

    /// Says text that is JSON already.
    pub async fn text(&mut self, bytes: Bytes) -> Result<(), Gone> {
        let text = Utf8Bytes::try_from(bytes).map_err(|_| Gone)?;
        self.send(Message::Text(text)).await
    }

    pub async fn binary(&mut self, bytes: Bytes) -> Result<(), Gone> {
        self.send(Message::Binary(bytes)).await
    }

    /// Asks whether the client is still there. [`Reader::next`] gets the answer.
    pub async fn ping(&mut self) -> Result<(), Gone> {
        self.send(Message::Ping(Bytes::new())).await?;
        self.pulse.ask();
        Ok(())
    }

    /// Closes in order.
    pub async fn close(mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: reason.to_owned().into() };
        let closing = self.sink.send(Message::Close(Some(frame)));
        // A client that does not read counts as gone.
        let _ = timeout(SOCKET_CLOSE_MAX, closing).await;
        let _ = timeout(SOCKET_CLOSE_MAX, self.sink.close()).await;
    }

    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        if let Some(more) = message.len().checked_sub(self.largest_bytes).filter(|more| *more > 0) {
            self.memory.grow(more).map_err(|_| Gone)?;
            self.largest_bytes += more;
        }
        self.sink.send(message).await.map_err(|_| Gone)
    }
}

/// An answer that hands the connection over to a WebSocket. Its content, the operation
/// describes in words.
pub struct WebSocketResponse(pub Response);

impl Output for WebSocketResponse {
    fn describe(document: &mut Document<'_>) {
        let description = serde_json::json!({ "description": "A WebSocket." });
        document.response("101", description);
    }

    fn into_response(self) -> Response {
        self.0
    }
}

/// Nothing more is to come.
pub const CLOSE_NORMAL: u16 = 1000;
/// The client broke the rules.
pub const CLOSE_POLICY: u16 = 1008;
/// The server could not go on.
pub const CLOSE_FAILED: u16 = 1011;

/// Ticks when it is time to ask whether a client is still there.
pub fn ping_clock() -> Interval {
    let first = Instant::now() + SOCKET_PING_PAUSE;
    let mut clock = tokio::time::interval_at(first, SOCKET_PING_PAUSE);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    clock
}
