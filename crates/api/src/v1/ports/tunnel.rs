//! One connection to a port inside a sandbox as a WebSocket, for clients that cannot reach a port of
//! this host.

use std::pin::pin;

use bytes::Bytes;
use protocol::fault::clip_to;
use protocol::limits::CHUNK_BYTES_MAX;
use serde::Deserialize;

use super::super::super::call::{Call, Inside};
use super::super::super::shape::Nothing;
use super::super::super::websocket::{
    self, CLOSE_FAILED, CLOSE_NORMAL, CLOSE_POLICY, ClientMessage, Reader, Socket,
    WebSocketResponse,
};
use super::Port;
use agent_client::guest::{Output, Piece, Writer};
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Refusal};

/// What a client may say beside bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ControlMessage {
    /// It has sent all.
    End {},
}

/// The standard's bound on why a WebSocket is closed.
const CLOSE_REASON_BYTES_MAX: usize = 123;

/// How a tunnel is closed: the code, and why.
type Close = (u16, String);

pub async fn connect(mut call: Call, _: Nothing, _: Nothing) -> Result<WebSocketResponse, Refusal> {
    let Port(port) = call.parameter("port")?;
    let Inside { which, id, guest, activity, .. } = call.inside().await?;
    if !websocket::is_wanted(&call.headers) {
        // Refuses before any connection is made.
        let refused = websocket::accept(&mut call, |_| async {});
        return refused.map(WebSocketResponse);
    }
    let place = call.api.forwards().place(&id).ok_or_else(|| {
        let message = format!("there are too many connections into {which}");
        Refusal::new(Code::LimitReached, message).retry_after(BUSY_PAUSE)
    })?;
    let (writer, output) = guest.forward(None, port).await?;
    // A tunnel must not keep a link that nobody else uses.
    drop(guest);
    let response = websocket::accept(&mut call, move |socket| async move {
        attend(socket, writer, output).await;
        drop((activity, place));
    })?;
    Ok(WebSocketResponse(response))
}

/// Carries both directions until the program inside has sent everything, or either end is gone. What the
/// client says is taken while it does not read: one that writes before it reads goes on.
async fn attend(socket: Socket, writer: Writer, output: Output) {
    let Socket { reader, writer: mut sink } = socket;
    let close = tokio::select! {
        close = upload(TunnelReader { reader }, writer) => close,
        close = download(output, &mut sink) => close,
    };
    if let Some((code, why)) = close {
        sink.close(code, &clip_to(why, CLOSE_REASON_BYTES_MAX)).await;
    }
}

/// Carries what the program sends. Resolves when there is a reason to close the socket; `None` when
/// the client is gone already.
async fn download(mut output: Output, sink: &mut websocket::Writer) -> Option<Close> {
    let mut pings = websocket::ping_clock();
    loop {
        let piece = tokio::select! {
            piece = output.next() => piece,
            _ = pings.tick() => {
                sink.ping().await.ok()?;
                continue;
            }
        };
        match piece {
            Piece::Bytes { bytes, .. } => sink.binary(bytes.into()).await.ok()?,
            Piece::Gap { from, to } => {
                return Some((CLOSE_FAILED, format!("bytes {from} to {to} no longer exist")));
            }
            Piece::End => return Some((CLOSE_NORMAL, String::new())),
            Piece::Failed(error) => return Some((CLOSE_FAILED, error.to_string())),
        }
    }
}

/// Carries what the client sends. Resolves when there is a reason to close the socket; `None` when
/// the client is gone already.
async fn upload(mut ear: TunnelReader, mut writer: Writer) -> Option<Close> {
    loop {
        match ear.next_message().await? {
            TunnelMessage::Bytes(bytes) => {
                for chunk in bytes.chunks(CHUNK_BYTES_MAX) {
                    if let Err(error) = writer.write(chunk).await {
                        return Some((CLOSE_FAILED, error.to_string()));
                    }
                }
            }
            TunnelMessage::End => break,
            TunnelMessage::Nonsense(why) => return Some((CLOSE_POLICY, why)),
        }
    }
    let mut finishing = pin!(writer.finish());
    let mut is_finished = false;
    loop {
        tokio::select! {
            finished = &mut finishing, if !is_finished => match finished {
                Ok(_) => is_finished = true,
                Err(error) => return Some((CLOSE_FAILED, error.to_string())),
            },
            message = ear.next_message() => match message? {
                TunnelMessage::End => {}
                TunnelMessage::Bytes(_) => return Some((CLOSE_POLICY, "bytes behind the end".to_owned())),
                TunnelMessage::Nonsense(why) => return Some((CLOSE_POLICY, why)),
            },
        }
    }
}

/// What listens to a client.
struct TunnelReader {
    reader: Reader,
}

enum TunnelMessage {
    Bytes(Bytes),
    End,
    /// Text that means nothing here.
    Nonsense(String),
}

impl TunnelReader {
    /// What the client says next; `None` when it is gone.
    async fn next_message(&mut self) -> Option<TunnelMessage> {
        Some(match self.reader.next().await? {
            ClientMessage::Binary(bytes) => TunnelMessage::Bytes(bytes),
            ClientMessage::Text(text) => match serde_json::from_str(&text) {
                Ok(ControlMessage::End {}) => TunnelMessage::End,
                Err(error) => {
                    TunnelMessage::Nonsense(format!("cannot read the text message: {error}"))
                }
            },
        })
    }
}
