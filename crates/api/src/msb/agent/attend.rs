//! One connection: frames in, each to what it is for, and frames out in the order in which they are made.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::frame::{Frames, Message, MessageError, greeting};
use super::link::{Control, Link, Seat};
use super::{exec, fs};
use crate::body::Gone;
use crate::budget::Portion;
use crate::msb::answer::words;
use crate::msb::limits::FRAMES_WAITING_MAX;
use crate::websocket::{
    CLOSE_FAILED, CLOSE_POLICY, ClientMessage, Reader, Socket, Writer, ping_clock,
};
use sandbox::refusal::Refusal;

#[derive(Deserialize)]
struct SignalAsk {
    signal: i32,
}

#[derive(Deserialize)]
struct SizeAsk {
    rows: u16,
    cols: u16,
}

/// Why a connection is closed by the server.
struct Closing {
    code: u16,
    reason: String,
}

/// Carries out what a client asks until it is gone. What it has started goes on.
pub async fn attend(seat: Seat, socket: Socket) {
    let Socket { reader, writer } = socket;
    let (replies, sent) = mpsc::channel(FRAMES_WAITING_MAX);
    let link = Arc::new(Link::new(seat, replies));
    let (closing, closed) = oneshot::channel();
    let listening = async {
        // All that is under way for the client ends with it.
        let mut tasks = JoinSet::new();
        if let Err(why) = listen(reader, &link, &mut tasks).await {
            let _ = closing.send(why);
            // The writer closes the socket.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = listening => {}
        _ = speak(sent, closed, writer) => {}
    }
}

async fn speak(
    mut sent: mpsc::Receiver<Bytes>,
    mut closed: oneshot::Receiver<Closing>,
    mut writer: Writer,
) -> Result<(), Gone> {
    let mut pings = ping_clock();
    writer.binary(greeting()).await?;
    loop {
        tokio::select! {
            biased;
            why = &mut closed => {
                let Ok(Closing { code, reason }) = why else { return Ok(()) };
                writer.close(code, &reason).await;
                return Ok(());
            }
            frame = sent.recv() => match frame {
                Some(frame) => writer.binary(frame).await?,
                None => return Ok(()),
            },
            _ = pings.tick() => writer.ping().await?,
        }
    }
}

async fn listen(
    mut reader: Reader,
    link: &Arc<Link>,
    tasks: &mut JoinSet<()>,
) -> Result<(), Closing> {
    let mut frames = Frames::default();
    let mut memory: Option<Portion> = None;
    while let Some(message) = reader.next().await {
        let ClientMessage::Binary(bytes) = message else {
            let reason = "this connection takes binary messages alone".to_owned();
            return Err(Closing { code: CLOSE_POLICY, reason });
        };
        drop(memory.take());
        frames.push(&bytes);
        // The bytes once here, and once more as what is made of them.
        let held = frames.held_bytes().saturating_mul(2);
        memory = match link.seat.memory.portion(held) {
            Ok(portion) => Some(portion),
            Err(refusal) => {
                return Err(Closing { code: CLOSE_FAILED, reason: reason(&refusal.message) });
            }
        };
        loop {
            let next = frames
                .next()
                .map_err(|error| Closing { code: CLOSE_POLICY, reason: error.to_string() })?;
            let Some(frame) = next else { break };
            while tasks.try_join_next().is_some() {}
            match frame.message() {
                Ok(message) => take(link, tasks, frame.number, message).await,
                Err(error) => {
                    link.refuse(frame.number, "malformed_message", None, &error.to_string()).await;
                }
            }
        }
    }
    Ok(())
}

/// A reason that fits into a frame of its kind.
fn reason(words: &str) -> String {
    const BYTES_MAX: usize = 120;
    words
        .chars()
        .scan(0, |bytes, c| {
            *bytes += c.len_utf8();
            (*bytes <= BYTES_MAX).then_some(c)
        })
        .collect()
}

async fn take(link: &Arc<Link>, tasks: &mut JoinSet<()>, number: u32, message: Message) {
    let kind = message.kind.clone();
    let taken = match kind.as_str() {
        "core.exec.request" => return begin_exec(link, tasks, number, &message).await,
        "core.fs.request" => return begin_fs(link, tasks, number, &message).await,
        "core.exec.stdin" | "core.fs.data" => match message.data() {
            Ok(bytes) => {
                pass(link, number, bytes).await;
                Ok(())
            }
            Err(error) => Err(error),
        },
        "core.exec.signal" => {
            let read = message.payload::<SignalAsk>();
            read.map(|ask| control(link, number, Control::Signal(ask.signal)))
        }
        "core.exec.resize" => message.payload::<SizeAsk>().map(|ask| {
            control(link, number, Control::Size { rows: ask.rows, columns: ask.cols });
        }),
        "core.ping" => {
            let _ = link.send(number, "core.pong", &json!({})).await;
            Ok(())
        }
        "core.touch" => {
            // The call into the sandbox is what keeps it from being idle.
            let touched = link.recorded("msb_touch", true, |_, _| async { Ok(()) }).await;
            match touched {
                Ok(()) => {
                    let _ = link.send(number, "core.touched", &json!({ "activity_seq": 1 })).await;
                }
                Err(refusal) => {
                    link.refuse(number, "invalid_session", Some(&kind), &words(&refusal)).await;
                }
            }
            Ok(())
        }
        "core.tcp.connect" => {
            let error = "not supported by this server: connections to ports; use its previews";
            let _ = link.send(number, "core.tcp.failed", &json!({ "error": error })).await;
            Ok(())
        }
        _ => {
            let why = format!("this server does not take {kind:?}");
            link.refuse(number, "unsupported_message_type", Some(&kind), &why).await;
            Ok(())
        }
    };
    if let Err(error) = taken {
        link.refuse(number, "invalid_payload", Some(&kind), &error.to_string()).await;
    }
}

/// What is for something that has just ended is left out: the client cannot know that yet.
fn control(link: &Link, number: u32, control: Control) {
    if let Some(exchange) = link.exchange(number) {
        exchange.control(control);
    }
}

async fn pass(link: &Link, number: u32, bytes: Vec<u8>) {
    let Some(exchange) = link.exchange(number) else { return };
    match link.seat.memory.portion(bytes.len()) {
        Ok(memory) => exchange.pass(bytes, memory).await,
        // Without the rest there is no whole: it is over.
        Err(refusal) => {
            link.end(number);
            link.refuse(number, "invalid_session", None, &words(&refusal)).await;
        }
    }
}

async fn begin_exec(link: &Arc<Link>, tasks: &mut JoinSet<()>, number: u32, message: &Message) {
    let asked = message.payload::<exec::Ask>().map_err(|error| invalid(&error));
    let begun = asked.and_then(|ask| Ok((ask, link.begin(number)?)));
    match begun {
        Ok((ask, incoming)) => {
            let link = Arc::clone(link);
            tasks.spawn(async move {
                exec::run(&link, number, ask, incoming).await;
                link.end(number);
            });
        }
        Err(refusal) => {
            let _ = link.send(number, exec::FAILED, &exec::failure(&refusal, None)).await;
        }
    }
}

async fn begin_fs(link: &Arc<Link>, tasks: &mut JoinSet<()>, number: u32, message: &Message) {
    let asked = message.payload::<fs::Ask>().map_err(|error| invalid(&error));
    let begun = asked.and_then(|ask| Ok((ask, link.begin(number)?)));
    match begun {
        Ok((ask, incoming)) => {
            let link = Arc::clone(link);
            tasks.spawn(async move {
                let reply = fs::answer(&link, number, ask, incoming).await;
                // Its number is free before the client knows that.
                link.end(number);
                let _ = link.send(number, fs::RESPONSE, &fs::response(reply)).await;
            });
        }
        Err(refusal) => {
            let _ = link.send(number, fs::RESPONSE, &fs::response(Err(refusal))).await;
        }
    }
}

fn invalid(error: &MessageError) -> Refusal {
    Refusal::invalid(error.to_string())
}
