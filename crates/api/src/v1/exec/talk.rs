//! A program over a WebSocket: its events go out, input and signals come in. Neither direction
//! waits for the other.

use std::sync::Arc;

use protocol::SessionId;
use protocol::requests::{Signal, Target};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::begin::{ProgramRequest, begin};
use super::limits::{NOTICES_WAITING_MAX, ORDER_WAIT_MAX};
use super::tell::{ExecEvent, Following};
use super::{ExecCommand, ShellScript, SignalName, Typed};
use crate::Api;
use crate::body::{Gone, Hold};
use crate::budget::Share;
use crate::call::{Call, CallDeadline, Inside};
use crate::forms::ranges::check_range;
use crate::trail::Trail;
use crate::v1::value::Content;
use crate::websocket::{
    self, CLOSE_FAILED, CLOSE_NORMAL, CLOSE_POLICY, ClientMessage, Reader, Socket,
    WebSocketResponse, Writer,
};
use agent_client::guest::Guest;
use sandbox::refusal::Refusal;

/// A client's message to a running program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Input: one of the two.
    Stdin {
        #[serde(default)]
        text: Option<String>,
        #[serde(default)]
        base64: Option<String>,
    },
    /// The input ends.
    Eof {},
    Signal {
        signal: SignalName,
        #[serde(default)]
        target: SignalTarget,
    },
    /// The size of the client's terminal.
    Resize { rows: u16, columns: u16 },
    /// Take the keyboard, even from another client.
    Take {},
}

/// Which of a session's processes a signal goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignalTarget {
    /// The program itself.
    Leader,
    /// Its process group; on a terminal the one in the foreground.
    #[default]
    Group,
    /// Everything that it started.
    Tree,
}

impl From<SignalTarget> for Target {
    fn from(target: SignalTarget) -> Self {
        match target {
            SignalTarget::Leader => Self::Leader,
            SignalTarget::Group => Self::Group,
            SignalTarget::Tree => Self::Tree,
        }
    }
}

/// Reads a message of a client.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Refusal> {
    serde_json::from_str(text)
        .map_err(|error| Refusal::invalid(format!("cannot read the message: {error}")))
}

/// The bytes of a [`Order::Stdin`].
pub fn typed_bytes(text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, Refusal> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => Content::Base64(base64).into_bytes(),
        _ => Err(Refusal::invalid("give input as `text` or as `base64`, not both")),
    }
}

/// Accepts the connection. The program starts when the client's first message has named it.
pub fn accept(call: &mut Call, inside: Inside) -> Result<WebSocketResponse, Refusal> {
    let (api, permit, memory) = (call.api.clone(), call.permit.take(), call.memory.clone());
    let (deadline, trail) = (call.deadline, call.trail.clone());
    let response = websocket::accept(call, move |socket| async move {
        let held: Hold = Arc::new((permit, memory.clone()));
        let beginning = Beginning { api, inside, deadline, memory, held, trail };
        attend(beginning, socket).await;
    })?;
    Ok(WebSocketResponse(response))
}

/// What a program is started with, beside the first message.
struct Beginning {
    api: Api,
    inside: Inside,
    deadline: Option<CallDeadline>,
    memory: Share,
    /// Kept until the program has ended and has taken its input.
    held: Hold,
    trail: Trail,
}

async fn attend(beginning: Beginning, socket: Socket) {
    let Beginning { api, inside, deadline, memory, held, trail } = beginning;
    let Socket { mut reader, mut writer } = socket;
    let message = match timeout(ORDER_WAIT_MAX, reader.next()).await {
        Ok(Some(ClientMessage::Text(text))) => {
            memory.grow(text.len()).and_then(|()| parse_request(&text))
        }
        Ok(Some(ClientMessage::Binary(_))) => {
            Err(Refusal::invalid("the first message must be text and say what to run"))
        }
        Ok(None) => return,
        Err(_) => return writer.close(CLOSE_POLICY, "the client sent no request").await,
    };
    let running = match message {
        Ok(message) => {
            trail.program(&message.described.program);
            match message.capture(&api, &inside, deadline.map(|deadline| deadline.at)).await {
                Ok(capture) => begin(&api, &inside, message, deadline, true, Arc::clone(&held))
                    .await
                    .map(|running| (running, capture)),
                Err(problem) => Err(problem),
            }
        }
        Err(problem) => Err(problem),
    };
    let (mut running, capture) = match running {
        Ok(running) => running,
        Err(problem) => {
            let code = problem.code.name();
            let _ = writer.tell(&ExecEvent::Problem { problem: problem.into() }).await;
            return writer.close(CLOSE_FAILED, code).await;
        }
    };
    let session = running.session().clone();
    let mut typed = Typed::new(inside.guest.clone(), session.clone(), false);
    running.take_input().into_iter().for_each(|writer| typed.connect(writer));
    let following = Following::new(&api, &inside.which, running, capture);
    let (notices, waiting) = mpsc::channel(NOTICES_WAITING_MAX);
    let messages = ClientMessages { guest: inside.guest.clone(), session, typed, notices };
    tokio::select! {
        () = messages.carry_out_all(reader) => {}
        () = send_events(writer, following, waiting) => {}
    }
}

/// A program or a script, by the fields of the message.
fn parse_request(text: &str) -> Result<ProgramRequest, Refusal> {
    let value: Value = parse(text)?;
    let program = match value.get("script") {
        Some(_) => serde_json::from_value::<ShellScript>(value).map(ProgramRequest::from),
        None => serde_json::from_value::<ExecCommand>(value).map(ProgramRequest::from),
    };
    let program =
        program.map_err(|error| Refusal::invalid(format!("cannot read the message: {error}")))?;
    check_range("output_bytes_max", program.output_bytes_max, 0, super::OUTPUT_BYTES_MAX)?;
    Ok(program)
}

/// Sends events until the last, or until the client is gone.
async fn send_events(
    mut writer: Writer,
    mut following: Following,
    mut notices: mpsc::Receiver<ExecEvent>,
) {
    let mut pings = websocket::ping_clock();
    loop {
        let sent: Result<(), Gone> = tokio::select! {
            event = following.next() => {
                // Nothing follows the end.
                let is_last = matches!(
                    event,
                    None | Some(ExecEvent::Exited { .. } | ExecEvent::Problem { .. })
                );
                // What was refused before the end is reported before it.
                while is_last && let Ok(notice) = notices.try_recv() {
                    if writer.tell(&notice).await.is_err() {
                        return;
                    }
                }
                if let Some(event) = event
                    && writer.tell(&event).await.is_err()
                {
                    return;
                }
                if is_last {
                    return writer.close(CLOSE_NORMAL, "").await;
                }
                Ok(())
            }
            Some(notice) = notices.recv() => writer.tell(&notice).await,
            _ = pings.tick() => writer.ping().await,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Carries out what the messages of a client ask for.
struct ClientMessages {
    guest: Guest,
    session: SessionId,
    typed: Typed,
    notices: mpsc::Sender<ExecEvent>,
}

impl ClientMessages {
    /// Reads and carries out messages until the client is gone.
    async fn carry_out_all(mut self, mut reader: Reader) {
        loop {
            let has_room = self.typed.has_room();
            tokio::select! {
                message = reader.next(), if has_room => match message {
                    Some(ClientMessage::Binary(bytes)) => self.typed.push(&bytes),
                    Some(ClientMessage::Text(text)) => {
                        if let Err(problem) = self.carry_out(&text).await {
                            // A client that does not read does not miss it.
                            let _ = self.notices.try_send(ExecEvent::Refused { problem: problem.into() });
                        }
                    }
                    None => return,
                },
                // A program that takes no input is no fault of its client's.
                _ = self.typed.work() => {}
            }
        }
    }

    async fn carry_out(&mut self, text: &str) -> Result<(), Refusal> {
        match parse(text)? {
            Order::Stdin { text, base64 } => self.typed.push(&typed_bytes(text, base64)?),
            Order::Eof {} => self.typed.end(),
            Order::Signal { signal, target } => {
                let signal = signal.number()?;
                let (session, target) = (self.session.clone(), target.into());
                self.guest.signal(Signal { session, signal, target }).await?;
            }
            Order::Resize { .. } | Order::Take {} => {
                return Err(Refusal::invalid("this program has no terminal"));
            }
        }
        Ok(())
    }
}
