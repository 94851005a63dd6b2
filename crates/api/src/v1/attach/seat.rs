//! A place in front of one session: what it says goes to the client, what the client says goes to
//! it, and neither waits for the other.

use protocol::message::Channel;
use protocol::requests::{Resize, Signal, TerminalSize};
use protocol::{FaultCode, SessionId};
use tokio::sync::mpsc;

use super::AttachEvent;
use crate::Api;
use crate::body::Gone;
use crate::problem::Problem;
use crate::v1::exec::limits::NOTICES_WAITING_MAX;
use crate::v1::exec::{Cuts, Order, Typed, parse, typed_bytes};
use crate::v1::sessions::{Feed, FeedEvent, FoundSession, OutputEvent, Session, Size, Start, told};
use crate::websocket::{self, CLOSE_NORMAL, ClientMessage, Reader, Socket, Writer};
use agent_client::guest::Guest;
use agent_client::program::Leash;

/// What is shown of what was there before: some screens.
const SCROLL_BACK_BYTES: u64 = 64 * 1024;

/// See the module's description.
pub struct Seat {
    session: SessionId,
    is_terminal: bool,
    /// Missing for a session that only the log has.
    guest: Option<Guest>,
    feed: Feed,
    /// Where the feed begins.
    offset: u64,
    typed: Option<Typed>,
    leash: Option<Leash>,
}

impl Seat {
    /// Looks at a session: from an offset on, or at its last screens.
    pub async fn take(api: &Api, found: FoundSession, from: Option<u64>) -> Result<Self, Problem> {
        let session = found.session.id().clone();
        let is_terminal = found.session.is_terminal();
        let guest = match (&found.session, &found.inside) {
            (Session::Live(_), Some(inside)) => Some(inside.guest.clone()),
            _ => None,
        };
        let start = from.map_or(Start::Tail(SCROLL_BACK_BYTES), Start::Offset);
        let channels: Vec<(Channel, Start)> =
            found.session.channels().iter().map(|channel| (*channel, start)).collect();
        let feed = Feed::open(api, found, &channels, true).await?;
        let offset = feed.begins_at();
        let (typed, leash) = (None, None);
        Ok(Self { session, is_terminal, guest, feed, offset, typed, leash })
    }

    /// Also types, if the keyboard can be had, and has a say in the terminal's size.
    pub async fn sit_down(
        &mut self,
        take: bool,
        size: Option<TerminalSize>,
    ) -> Result<(), Problem> {
        let Some(guest) = &self.guest else { return Ok(()) };
        let mut typed = Typed::new(guest.clone(), self.session.clone(), self.is_terminal);
        connect(&mut typed, guest, &self.session, take).await?;
        self.typed = Some(typed);
        if let Some(size) = size.filter(|_| self.is_terminal) {
            let session = self.session.clone();
            guest.resize(Resize { session, size, redraw: true }).await?;
        }
        Ok(())
    }

    /// The session ends when the seat is left, unless it was asked otherwise.
    pub fn hold(&mut self, leash: Leash) {
        self.leash = Some(leash);
    }

    /// Goes on until the session or the client is gone.
    pub async fn attend(self, socket: Socket, plain: bool) {
        let Socket { reader, writer } = socket;
        let Self { session, is_terminal, guest, feed, offset, typed, mut leash } = self;
        let keyboard = typed.as_ref().is_some_and(Typed::is_connected);
        let attached = AttachEvent::Attached {
            session: session.to_string(),
            terminal: is_terminal,
            offset,
            keyboard,
        };
        let (notices, heard) = mpsc::channel(NOTICES_WAITING_MAX);
        let ear = ClientReader { session, guest, is_terminal, typed, notices, plain };
        let mouth = ClientWriter { writer, is_terminal, plain, cuts: Cuts::default() };
        tokio::select! {
            () = ear.listen(reader) => {}
            ended = mouth.speak(attached, feed, heard) => {
                if let Some(leash) = leash.as_mut().filter(|_| ended) {
                    leash.ended();
                }
            }
        }
    }
}

/// Takes the keyboard if it is free, or whoever has it.
async fn connect(
    typed: &mut Typed,
    guest: &Guest,
    session: &SessionId,
    take: bool,
) -> Result<(), Problem> {
    // All who come through this server are one client to the agent, so that it would give each of
    // them the keyboard of the other.
    let list = guest.sessions(0).await?;
    let info = list.sessions.into_iter().find(|info| info.session == *session);
    if !take && info.is_some_and(|info| info.keyboard.is_some()) {
        return Ok(());
    }
    match guest.input(session, None, take).await {
        Ok((writer, _)) => typed.connect(writer),
        // It takes no input, or not any more; or somebody was quicker.
        Err(error)
            if matches!(
                error.fault_code(),
                Some(FaultCode::Gone | FaultCode::NotFound | FaultCode::Exists)
            ) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// What speaks to the client.
struct ClientWriter {
    writer: Writer,
    is_terminal: bool,
    plain: bool,
    cuts: Cuts,
}

impl ClientWriter {
    /// Says all that is heard; returns whether that was to the end.
    async fn speak(
        mut self,
        attached: AttachEvent,
        mut feed: Feed,
        mut heard: mpsc::Receiver<AttachEvent>,
    ) -> bool {
        let mut pings = websocket::ping_clock();
        if self.tell(&attached).await.is_err() {
            return false;
        }
        loop {
            let said: Result<(), Gone> = tokio::select! {
                piece = feed.next() => {
                    // Nothing is said behind the end.
                    let is_last = matches!(piece, None | Some(FeedEvent::Ended(_)));
                    if let Some(piece) = piece
                        && self.say(piece).await.is_err()
                    {
                        return false;
                    }
                    if is_last {
                        self.writer.close(CLOSE_NORMAL, "").await;
                        return true;
                    }
                    Ok(())
                }
                Some(notice) = heard.recv() => self.tell(&notice).await,
                _ = pings.tick() => self.writer.ping().await,
            };
            if said.is_err() {
                return false;
            }
        }
    }

    async fn say(&mut self, piece: FeedEvent) -> Result<(), Gone> {
        match piece {
            FeedEvent::Output { bytes, .. } if self.is_terminal || self.plain => {
                self.writer.binary(bytes.into()).await
            }
            piece => {
                for event in told(&mut self.cuts, piece) {
                    if let Some(event) = attach_event(event) {
                        self.tell(&event).await?;
                    }
                }
                Ok(())
            }
        }
    }

    async fn tell(&mut self, event: &AttachEvent) -> Result<(), Gone> {
        if self.plain {
            return Ok(());
        }
        self.writer.tell(event).await
    }
}

fn attach_event(event: OutputEvent) -> Option<AttachEvent> {
    Some(match event {
        OutputEvent::Output { channel, offset, content } => {
            AttachEvent::Output { channel, offset, content }
        }
        OutputEvent::Gap { channel, from, to } => AttachEvent::Gap { channel, from, to },
        OutputEvent::Exited { exit } => AttachEvent::Exited { exit },
        OutputEvent::Over {} => AttachEvent::Over {},
        OutputEvent::Running {} => return None,
    })
}

/// What listens to the client.
struct ClientReader {
    session: SessionId,
    guest: Option<Guest>,
    is_terminal: bool,
    /// Missing for one that only looks.
    typed: Option<Typed>,
    notices: mpsc::Sender<AttachEvent>,
    plain: bool,
}

impl ClientReader {
    /// Does what the client says until it is gone.
    async fn listen(mut self, mut reader: Reader) {
        loop {
            let has_room = self.typed.as_ref().is_none_or(Typed::has_room);
            tokio::select! {
                said = reader.next(), if has_room => match said {
                    Some(ClientMessage::Binary(bytes)) => self.push(&bytes),
                    Some(ClientMessage::Text(text)) if self.plain => self.push(text.as_bytes()),
                    Some(ClientMessage::Text(text)) => {
                        if let Err(problem) = self.obey(&text).await {
                            self.tell(AttachEvent::Refused { problem: problem.body() });
                        }
                    }
                    None => return,
                },
                () = work(&mut self.typed) => self.tell(AttachEvent::Keyboard { held: false }),
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(typed) = &mut self.typed {
            typed.push(bytes);
        }
    }

    /// A client that does not read does not miss it.
    fn tell(&self, event: AttachEvent) {
        let _ = self.notices.try_send(event);
    }

    async fn obey(&mut self, text: &str) -> Result<(), Problem> {
        let order = parse(text)?;
        let (Some(guest), Some(typed)) = (&self.guest, &mut self.typed) else {
            return Err(Problem::invalid("this client is read-only"));
        };
        match order {
            Order::Stdin { text, base64 } => typed.push(&typed_bytes(text, base64)?),
            Order::Eof {} => typed.end(),
            Order::Signal { signal, target } => {
                let (session, signal) = (self.session.clone(), signal.number()?);
                guest.signal(Signal { session, signal, target: target.into() }).await?;
            }
            Order::Resize { rows, columns } => {
                if !self.is_terminal {
                    return Err(Problem::invalid("this session has no terminal"));
                }
                let (session, size) = (self.session.clone(), Size { rows, columns }.checked()?);
                guest.resize(Resize { session, size, redraw: false }).await?;
            }
            Order::Take {} => {
                connect(typed, guest, &self.session, true).await?;
                let held = typed.is_connected();
                self.tell(AttachEvent::Keyboard { held });
            }
        }
        Ok(())
    }
}

/// Brings on what was typed; returns when the keyboard is lost.
async fn work(typed: &mut Option<Typed>) {
    match typed {
        Some(typed) => drop(typed.work().await),
        None => std::future::pending().await,
    }
}
