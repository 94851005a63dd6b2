//! One client of a session: the session's output goes to the client and the client's input to the
//! session, and neither waits for the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::message::Channel;
use protocol::requests::{Resize, Signal, TerminalSize};
use protocol::{FaultCode, SessionId};
use tokio::sync::mpsc;

use super::AttachEvent;
use crate::body::Gone;
use crate::call::Call;
use crate::sessions::{Feed, FeedEvent, FoundSession, Session, Start};
use crate::v1::exec::limits::NOTICES_WAITING_MAX;
use crate::v1::exec::{Cuts, Order, Typed, parse, typed_bytes};
use crate::v1::sessions::{OutputEvent, Size, output_events};
use crate::websocket::{self, CLOSE_NORMAL, ClientMessage, Reader, Socket, Writer};
use agent_client::guest::Guest;
use agent_client::program::Leash;
use agent_client::queries::QueryFilter;
use sandbox::refusal::Refusal;

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
    /// What there was before this offset is a replay, in which a program asks its terminal nothing.
    live_from: u64,
    typed: Option<Typed>,
    leash: Option<Leash>,
}

impl Seat {
    /// Looks at a session: from an offset on, or at its last screens.
    pub async fn take(
        call: &Call,
        found: FoundSession,
        from: Option<u64>,
    ) -> Result<Self, Refusal> {
        let session = found.session.id().clone();
        let is_terminal = found.session.is_terminal();
        let guest = match (&found.session, &found.inside) {
            (Session::Live(_), Some(inside)) => Some(inside.guest.clone()),
            _ => None,
        };
        let start = from.map_or(Start::Tail(SCROLL_BACK_BYTES), Start::Offset);
        let channels: Vec<(Channel, Start)> =
            found.session.channels().iter().map(|channel| (*channel, start)).collect();
        let feed = Feed::open(&call.api, found, &channels, true, &call.memory).await?;
        let (offset, live_from) = (feed.begins_at(), feed.live_from());
        let (typed, leash) = (None, None);
        Ok(Self { session, is_terminal, guest, feed, offset, live_from, typed, leash })
    }

    /// Also types, if the keyboard can be had, and has a say in the terminal's size.
    pub async fn sit_down(
        &mut self,
        take: bool,
        size: Option<TerminalSize>,
    ) -> Result<(), Refusal> {
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

    /// The session was started for this seat: all of it is live, and it ends when the seat is left,
    /// unless it was asked otherwise.
    pub fn hold(&mut self, leash: Leash) {
        self.live_from = 0;
        self.leash = Some(leash);
    }

    /// Goes on until the session or the client is gone.
    pub async fn attend(self, socket: Socket, plain: bool) {
        let Socket { reader, writer } = socket;
        let Self { session, is_terminal, guest, feed, offset, live_from, typed, mut leash } = self;
        let keyboard = typed.as_ref().is_some_and(Typed::is_connected);
        let has_keyboard = Arc::new(AtomicBool::new(keyboard));
        let attached = AttachEvent::Attached {
            session: session.to_string(),
            terminal: is_terminal,
            offset,
            keyboard,
        };
        let (notices, events) = mpsc::channel(NOTICES_WAITING_MAX);
        let screen = ClientScreen {
            first: QueryFilter::new(live_from),
            stderr: QueryFilter::new(0),
            has_keyboard: Arc::clone(&has_keyboard),
        };
        let ear = ClientReader { session, guest, is_terminal, typed, has_keyboard, notices, plain };
        let mouth = ClientWriter { writer, is_terminal, plain, screen, cuts: Cuts::default() };
        tokio::select! {
            () = ear.listen(reader) => {}
            ended = mouth.speak(attached, feed, events) => {
                if let Some(leash) = leash.as_mut().filter(|_| ended) {
                    leash.ended();
                }
            }
        }
    }
}

/// Takes the keyboard, even from another client.
async fn connect(
    typed: &mut Typed,
    guest: &Guest,
    session: &SessionId,
    take: bool,
) -> Result<(), Refusal> {
    // All who come through this server are one client to the agent, so that it would give each of
    // them the keyboard of the other.
    let list = guest.sessions(0).await?;
    let info = list.sessions.into_iter().find(|info| info.session == *session);
    if !take && info.is_some_and(|info| info.keyboard.is_some()) {
        return Ok(());
    }
    match guest.input(session, None, take).await {
        Ok((writer, _)) => typed.connect(writer),
        // It takes no input, or no longer does, or another client was quicker.
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
    screen: ClientScreen,
    cuts: Cuts,
}

/// What the client's terminal is shown of bytes that it is sent as they are.
struct ClientScreen {
    /// Of the terminal, or of stdout.
    first: QueryFilter,
    stderr: QueryFilter,
    has_keyboard: Arc<AtomicBool>,
}

impl ClientScreen {
    fn show(&mut self, channel: Channel, offset: u64, bytes: &[u8]) -> Vec<u8> {
        // A program on pipes has no terminal to ask.
        let is_answered = channel == Channel::Terminal && self.has_keyboard.load(Ordering::Acquire);
        self.filter(channel).show(offset, bytes, is_answered)
    }

    fn filter(&mut self, channel: Channel) -> &mut QueryFilter {
        match channel {
            Channel::Stderr => &mut self.stderr,
            Channel::Terminal | Channel::Stdout => &mut self.first,
        }
    }
}

impl ClientWriter {
    /// Sends all that is received; returns whether that was to the end.
    async fn speak(
        mut self,
        attached: AttachEvent,
        mut feed: Feed,
        mut events: mpsc::Receiver<AttachEvent>,
    ) -> bool {
        let mut pings = websocket::ping_clock();
        if self.tell(&attached).await.is_err() {
            return false;
        }
        loop {
            let sent: Result<(), Gone> = tokio::select! {
                piece = feed.next() => {
                    // Nothing is sent after the end.
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
                Some(notice) = events.recv() => self.tell(&notice).await,
                _ = pings.tick() => self.writer.ping().await,
            };
            if sent.is_err() {
                return false;
            }
        }
    }

    async fn say(&mut self, piece: FeedEvent) -> Result<(), Gone> {
        match piece {
            FeedEvent::Output { channel, offset, bytes } if self.is_terminal || self.plain => {
                let shown = self.screen.show(channel, offset, &bytes);
                self.send(shown).await
            }
            piece => {
                if let FeedEvent::Gap { channel, .. } = piece {
                    let rest = self.screen.filter(channel).cut();
                    self.send(rest).await?;
                }
                for event in output_events(&mut self.cuts, piece) {
                    if let Some(event) = attach_event(event) {
                        self.tell(&event).await?;
                    }
                }
                Ok(())
            }
        }
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<(), Gone> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.writer.binary(bytes.into()).await
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
        OutputEvent::Over { sandbox } => AttachEvent::Over { sandbox },
        // What waits comes later. Only readers of what is gone get a problem.
        OutputEvent::Running {} | OutputEvent::Waiting {} | OutputEvent::Problem { .. } => {
            return None;
        }
    })
}

/// What listens to the client.
struct ClientReader {
    session: SessionId,
    guest: Option<Guest>,
    is_terminal: bool,
    /// Missing for one that only looks.
    typed: Option<Typed>,
    /// For what speaks: whether what the client types goes to the program.
    has_keyboard: Arc<AtomicBool>,
    notices: mpsc::Sender<AttachEvent>,
    plain: bool,
}

impl ClientReader {
    /// Does what the client says until it is gone.
    async fn listen(mut self, mut reader: Reader) {
        loop {
            let has_room = self.typed.as_ref().is_none_or(Typed::has_room);
            tokio::select! {
                message = reader.next(), if has_room => match message {
                    Some(ClientMessage::Binary(bytes)) => self.push(&bytes),
                    Some(ClientMessage::Text(text)) if self.plain => self.push(text.as_bytes()),
                    Some(ClientMessage::Text(text)) => {
                        if let Err(problem) = self.obey(&text).await {
                            self.tell(AttachEvent::Refused { problem: problem.into() });
                        }
                    }
                    None => return,
                },
                () = work(&mut self.typed) => {
                    self.has_keyboard.store(false, Ordering::Release);
                    self.tell(AttachEvent::Keyboard { held: false });
                }
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

    async fn obey(&mut self, text: &str) -> Result<(), Refusal> {
        let order = parse(text)?;
        let (Some(guest), Some(typed)) = (&self.guest, &mut self.typed) else {
            return Err(Refusal::invalid("this client is read-only"));
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
                    return Err(Refusal::invalid("this session has no terminal"));
                }
                let (session, size) = (self.session.clone(), Size { rows, columns }.checked()?);
                guest.resize(Resize { session, size, redraw: false }).await?;
            }
            Order::Take {} => {
                connect(typed, guest, &self.session, true).await?;
                let held = typed.is_connected();
                self.has_keyboard.store(held, Ordering::Release);
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
