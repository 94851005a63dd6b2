//! `/api/kernels/{kernel}/channels`: a client's socket. What it sends becomes requests, and what waits for
//! it is sent.

use std::sync::Arc;

use super::client::Client;
use super::kernel::{Job, Kernel, Seat};
use super::kernels::find;
use super::limits::REASON_BYTES_MAX;
use super::shell::take;
use super::wire::{Framing, V1, parse_binary, parse_text};
use crate::body::Gone;
use crate::call::Call;
use crate::shape::Nothing;
use crate::subprotocol::offered;
use crate::websocket::{
    CLOSE_NORMAL, CLOSE_POLICY, ClientMessage, Reader, Socket, WebSocketResponse, Writer,
    accept_as, ping_clock,
};
use sandbox::refusal::Refusal;

pub async fn channels(
    mut call: Call,
    _: Nothing,
    _: Nothing,
) -> Result<WebSocketResponse, Refusal> {
    let kernel = find(&call)?;
    let is_binary = offered(&call.headers).any(|one| one == V1);
    let framing = if is_binary { Framing::Binary } else { Framing::Text };
    let (memory, client) = (call.memory.clone(), Arc::new(Client::new(call.memory.clone())));
    let (api, caller, trail) = (call.api.clone(), call.caller.clone(), call.trail.clone());
    let peer = call.entrance.peer;
    let seat = Arc::new(Seat { api, caller, peer, trail, memory, client });
    let attend = move |socket| attend(socket, kernel, seat, framing);
    Ok(WebSocketResponse(accept_as(&mut call, V1, attend)?))
}

async fn attend(socket: Socket, kernel: Arc<Kernel>, seat: Arc<Seat>, framing: Framing) {
    let Socket { mut reader, mut writer } = socket;
    let (code, reason) = if let Err(refusal) = kernel.join(&seat.client) {
        (CLOSE_POLICY, refusal.message)
    } else {
        let ended = tokio::select! {
            reason = write(&mut writer, &seat.client, framing) => (CLOSE_NORMAL, reason),
            reason = read(&mut reader, &kernel, &seat) => (CLOSE_POLICY, reason),
        };
        kernel.leave(&seat.client).await;
        ended
    };
    let end = reason.floor_char_boundary(REASON_BYTES_MAX);
    writer.close(code, &reason[..end]).await;
}

/// Sends what waits for the client, until it is gone or given up.
async fn write(writer: &mut Writer, client: &Client, framing: Framing) -> String {
    let mut pings = ping_clock();
    loop {
        let sent = tokio::select! {
            next = client.next() => {
                let message = match next {
                    Ok(message) => message.encode(framing),
                    Err(reason) => return reason,
                };
                match framing {
                    Framing::Text => writer.text(message).await,
                    Framing::Binary => writer.binary(message).await,
                }
            }
            _ = pings.tick() => writer.ping().await,
        };
        if let Err(Gone) = sent {
            return "there is no memory for the answer, or the connection is gone".to_owned();
        }
    }
}

/// Carries out what the client sends, until it is gone or sends what is no message.
async fn read(reader: &mut Reader, kernel: &Arc<Kernel>, seat: &Arc<Seat>) -> String {
    while let Some(message) = reader.next().await {
        if let Err(refusal) = obey(&message, kernel, seat).await {
            return refusal.message;
        }
    }
    // One that has closed the socket itself does not get this.
    "a message was too long, or broke the rules of WebSockets".to_owned()
}

async fn obey(
    message: &ClientMessage,
    kernel: &Arc<Kernel>,
    seat: &Arc<Seat>,
) -> Result<(), Refusal> {
    let (request, bytes) = match message {
        ClientMessage::Text(text) => (parse_text(text)?, text.len()),
        ClientMessage::Binary(bytes) => (parse_binary(bytes)?, bytes.len()),
    };
    let portion = seat.memory.portion(bytes)?;
    take(kernel, Job { request, seat: Arc::clone(seat), _portion: portion }).await
}
