//! A program over a WebSocket: its events one way, its input and signals the other. Neither way
//! waits for the other.

use std::sync::Arc;

use protocol::SessionId;
use protocol::requests::{Signal, Target};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::begin::{Asked, begin};
use super::limits::{NOTICES_WAITING_MAX, ORDER_WAIT_MAX};
use super::program::check_range;
use super::tell::{ExecEvent, Following};
use super::{ExecCommand, ShellScript, SignalName, Typed};
use crate::Api;
use crate::body::{Gone, Hold};
use crate::budget::Share;
use crate::call::{Call, Inside};
use crate::problem::Problem;
use crate::trail::Trail;
use crate::v1::value::Content;
use crate::websocket::{
    self, CLOSE_FAILED, CLOSE_NORMAL, CLOSE_POLICY, ClientMessage, Reader, Socket,
    WebSocketResponse, Writer,
};
use agent_client::guest::Guest;

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
    /// Take the keyboard, whoever holds it.
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

/// Reads what a client has said.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    serde_json::from_str(text)
        .map_err(|error| Problem::invalid(format!("cannot read the message: {error}")))
}

/// The bytes of a [`Order::Stdin`].
pub fn typed_bytes(text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, Problem> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(base64)) => Content::Base64(base64).into_bytes(),
        _ => Err(Problem::invalid("give input as `text` or as `base64`, not both")),
    }
}

/// Answers a greeting; the program follows when the client has said which.
pub fn accept(call: &mut Call, inside: Inside) -> Result<WebSocketResponse, Problem> {
    let (api, permit, memory) = (call.api.clone(), call.permit.take(), call.memory.clone());
    let (deadline, trail) = (call.deadline, call.trail.clone());
    let response = websocket::accept(call, move |socket| async move {
        let held: Hold = Arc::new((permit, memory.clone()));
        let beginning = Beginning { api, inside, deadline, memory, held, trail };
        attend(beginning, socket).await;
    })?;
    Ok(WebSocketResponse(response))
}

/// What a program is begun with, beside what the client says first.
struct Beginning {
    api: Api,
    inside: Inside,
    deadline: Option<Instant>,
    memory: Share,
    /// Kept until the program has ended and has taken its input.
    held: Hold,
    trail: Trail,
}

async fn attend(beginning: Beginning, socket: Socket) {
    let Beginning { api, inside, deadline, memory, held, trail } = beginning;
    let Socket { mut reader, mut writer } = socket;
    let asked = match timeout(ORDER_WAIT_MAX, reader.next()).await {
        Ok(Some(ClientMessage::Text(text))) => {
            memory.grow(text.len()).and_then(|()| parse_asked(&text))
        }
        Ok(Some(ClientMessage::Binary(_))) => {
            Err(Problem::invalid("the first message must be text and say what to run"))
        }
        Ok(None) => return,
        Err(_) => return writer.close(CLOSE_POLICY, "the client sent no request").await,
    };
    let running = match asked {
        Ok(asked) => {
            trail.program(&asked.described.program);
            // What the client took to say it is gone from the call's time.
            let time_left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match asked.capture(&api, &inside, deadline).await {
                Ok(capture) => begin(&api, &inside, asked, time_left, true, Arc::clone(&held))
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
            let _ = writer.tell(&ExecEvent::Problem { problem: problem.body() }).await;
            return writer.close(CLOSE_FAILED, problem.code.name()).await;
        }
    };
    let session = running.session().clone();
    let mut typed = Typed::new(inside.guest.clone(), session.clone(), false);
    running.take_input().into_iter().for_each(|writer| typed.connect(writer));
    let following = Following::new(running, capture);
    let (notices, heard) = mpsc::channel(NOTICES_WAITING_MAX);
    let ear = Ear { guest: inside.guest.clone(), session, typed, notices };
    tokio::select! {
        () = ear.listen(reader) => {}
        () = tell(writer, following, heard) => {}
    }
}

/// A program or a script, by what the client names.
fn parse_asked(text: &str) -> Result<Asked, Problem> {
    let value: Value = parse(text)?;
    let asked = match value.get("script") {
        Some(_) => serde_json::from_value::<ShellScript>(value).map(Asked::from),
        None => serde_json::from_value::<ExecCommand>(value).map(Asked::from),
    };
    let asked =
        asked.map_err(|error| Problem::invalid(format!("cannot read the message: {error}")))?;
    check_range("output_bytes_max", asked.output_bytes_max, 0, super::OUTPUT_BYTES_MAX)?;
    Ok(asked)
}

/// Tells events until the last, or until the client is gone.
async fn tell(mut writer: Writer, mut following: Following, mut heard: mpsc::Receiver<ExecEvent>) {
    let mut pings = websocket::ping_clock();
    loop {
        let told: Result<(), Gone> = tokio::select! {
            event = following.next() => {
                // Nothing is said behind the end.
                let is_last = matches!(
                    event,
                    None | Some(ExecEvent::Exited { .. } | ExecEvent::Problem { .. })
                );
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
            Some(notice) = heard.recv() => writer.tell(&notice).await,
            _ = pings.tick() => writer.ping().await,
        };
        if told.is_err() {
            return;
        }
    }
}

/// What listens to a client.
struct Ear {
    guest: Guest,
    session: SessionId,
    typed: Typed,
    notices: mpsc::Sender<ExecEvent>,
}

impl Ear {
    /// Does what the client says until it is gone.
    async fn listen(mut self, mut reader: Reader) {
        loop {
            let has_room = self.typed.has_room();
            tokio::select! {
                said = reader.next(), if has_room => match said {
                    Some(ClientMessage::Binary(bytes)) => self.typed.push(&bytes),
                    Some(ClientMessage::Text(text)) => {
                        if let Err(problem) = self.obey(&text).await {
                            // A client that does not read does not miss it.
                            let _ = self.notices.try_send(ExecEvent::Refused { problem: problem.body() });
                        }
                    }
                    None => return,
                },
                // A program that takes no input is no fault of its client's.
                _ = self.typed.work() => {}
            }
        }
    }

    async fn obey(&mut self, text: &str) -> Result<(), Problem> {
        match parse(text)? {
            Order::Stdin { text, base64 } => self.typed.push(&typed_bytes(text, base64)?),
            Order::Eof {} => self.typed.end(),
            Order::Signal { signal, target } => {
                let signal = signal.number()?;
                let (session, target) = (self.session.clone(), target.into());
                self.guest.signal(Signal { session, signal, target }).await?;
            }
            Order::Resize { .. } | Order::Take {} => {
                return Err(Problem::invalid("this program has no terminal"));
            }
        }
        Ok(())
    }
}
