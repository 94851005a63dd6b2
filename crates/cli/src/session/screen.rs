//! Shows a session on a terminal: its output is shown, typed keys go to it, and our window's size
//! is its size.
//!
//! ```text
//!            ┌──── take (ctrl-p ctrl-t, or free at the start) ────┐
//!            ▼                                                    │
//!        typing ───── another client takes the keyboard ─────▶ watching
//!            │                                                    │
//!            └── the program ends · detach · a signal · cut ──────┘──▶ left
//! ```

use std::io::{IsTerminal, stdin};
use std::time::Duration;

use anyhow::{Context as _, Result};
use protocol::message::Channel;
use protocol::requests::{Origin, Resize, Role, Signal, Target, TerminalSize};
use protocol::{ExitRecord, SessionId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::output::{self, Sink, printable};
use super::keyboard_input::{self, KeyboardInput, KeyboardState};
use super::show::{OutputEnd, goal_of, show};
use super::{keyboard, terminal_size};
use crate::terminal::{Command, Keys, Notice, Notices, RawMode};
use agent_client::guest::{Guest, GuestError, Output};

/// How long a key that may begin a sequence is kept from the program: too short to notice.
const KEY_HELD: Duration = Duration::from_millis(150);
/// How long after it the next key still completes the sequence: longer than anybody needs between two.
const KEY_PATIENCE: Duration = Duration::from_secs(1);

/// The key that leaves a session that we only watch: ctrl-c.
const CTRL_C: u8 = 0x03;

/// How to attach to a session.
pub struct ViewerOptions {
    pub session: SessionId,
    /// With the tail, earlier output is a replay; with an offset, we have started the session and see all of
    /// it live.
    pub origin: Origin,
    /// A holder receives all output; an observer never slows the program down.
    pub role: Role,
    pub keys: Keys,
    /// Which keyboard to connect.
    pub keyboard: Keyboard,
    /// Whether our window affects the session's size.
    pub sizes: bool,
}

/// How to use the session's keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyboard {
    /// Never take it, and read no keys.
    Never,
    /// Never take it; read keys only to detach.
    Watch,
    /// Take it if it is free.
    IfFree,
    /// Take it.
    Take,
}

impl Keyboard {
    fn may_type(self) -> bool {
        matches!(self, Self::IfFree | Self::Take)
    }
}

/// How long the screen may take for pending output when we leave.
const LAST_PIECE_MAX: Duration = Duration::from_secs(1);

/// Why the attachment ended.
#[derive(Debug)]
pub enum SessionExit {
    Exited(ExitRecord),
    Detached,
    /// A signal ended us, or the terminal was closed (which is a hang-up).
    Signalled(i32),
    /// Our stdout is closed.
    Unread,
}

/// Attaches to a session until one side ends it.
pub async fn run(guest: &Guest, seat: ViewerOptions) -> Result<SessionExit> {
    let interactive = seat.keyboard != Keyboard::Never;
    let mut notices = Notices::watch()?;
    // The stream is asked for before raw mode: a refusal then leaves the terminal alone.
    let (stream, subscribed) =
        guest.subscribe(&seat.session, Channel::Terminal, seat.origin, seat.role.clone()).await?;
    let mut raw = if stdin().is_terminal() && interactive { Some(RawMode::enter()?) } else { None };
    let live_from = match seat.origin {
        Origin::Tail { .. } | Origin::Oldest {} => subscribed.end,
        Origin::Offset { offset } => offset,
    };
    let sink = Sink::stdout()?.live_from(live_from);
    let left = Screen::new(guest, seat, interactive)
        .attend(stream, subscribed.from, sink, &mut notices, raw.as_ref())
        .await;
    // A program that has ended by itself has reset the screen; otherwise nobody has.
    if !matches!(left, Ok(SessionExit::Exited(_)))
        && let Some(raw) = &mut raw
    {
        raw.tidy_at_end();
    }
    drop(raw);
    left
}

struct Screen<'a> {
    guest: &'a Guest,
    session: SessionId,
    keys: Keys,
    keyboard: Keyboard,
    interactive: bool,
    sizes: bool,
    input: KeyboardInput,
    /// Typed bytes that are not sent yet.
    typed: Vec<u8>,
    /// When something was typed.
    last_key: Instant,
}

/// The result of a key.
enum Step {
    On,
    Leave,
}

impl<'a> Screen<'a> {
    fn new(guest: &'a Guest, seat: ViewerOptions, interactive: bool) -> Self {
        // A forced owner has the keyboard for the first bytes, too: they may contain queries.
        let input = KeyboardInput::new(guest, &seat.session, seat.keyboard == Keyboard::Take);
        let ViewerOptions { session, keys, keyboard, sizes, .. } = seat;
        let (typed, last_key) = (Vec::new(), Instant::now());
        Self { guest, session, keys, keyboard, interactive, sizes, input, typed, last_key }
    }

    async fn attend(
        mut self,
        stream: Output,
        from: u64,
        sink: Sink,
        notices: &mut Notices,
        raw: Option<&RawMode>,
    ) -> Result<SessionExit> {
        let (goal, goal_seen) = watch::channel(None);
        let mut show =
            tokio::spawn(show(stream, from, goal_seen, sink, self.input.has_keyboard_flag()));
        let left = self.stay(&goal, &mut show, notices, raw).await;
        if !show.is_finished() {
            // Pending output precedes our own messages, and none follows them.
            let _ = goal.send(Some(0));
            let _ = tokio::time::timeout(LAST_PIECE_MAX, show).await;
        }
        left
    }

    async fn stay(
        &mut self,
        goal: &watch::Sender<Option<u64>>,
        show: &mut JoinHandle<Result<OutputEnd>>,
        notices: &mut Notices,
        raw: Option<&RawMode>,
    ) -> Result<SessionExit> {
        let mut ending = self.guest.wait_now(&self.session)?;
        let mut input = self.interactive.then(keyboard::listen);
        if self.keyboard.may_type() {
            self.take_keyboard().await?;
        }
        self.tell_size(true)?;
        loop {
            let typing = self.input.keys();
            let key_deadline =
                self.last_key + if self.keys.is_holding() { KEY_HELD } else { KEY_PATIENCE };
            tokio::select! {
                record = &mut ending => {
                    let record = record.context("the exit status of the session is unknown")?;
                    let _ = goal.send(Some(goal_of(&record, Channel::Terminal)));
                    return match show.await.context("the screen task failed")?? {
                        OutputEnd::Everything => Ok(SessionExit::Exited(record)),
                        OutputEnd::Unread => Ok(SessionExit::Unread),
                    };
                }
                shown = &mut *show => match shown.context("the screen task failed")?? {
                    OutputEnd::Unread => return Ok(SessionExit::Unread),
                    // The terminal was closed by the last program on it; the record follows.
                    OutputEnd::Everything => {
                        let record = (&mut ending).await.context("the exit status of the session is unknown")?;
                        return Ok(SessionExit::Exited(record));
                    }
                },
                notice = notices.next() => match notice {
                    Notice::Resized => self.tell_size(false)?,
                    Notice::Continued => {
                        // A process that is hung up is also continued, and may notice that first.
                        if raw.is_some_and(|raw| raw.enforce().is_err()) {
                            return Ok(SessionExit::Signalled(nix::libc::SIGHUP));
                        }
                        self.tell_size(true)?;
                    }
                    Notice::End(signal) => return Ok(SessionExit::Signalled(signal)),
                },
                bytes = next_keys(&mut input), if self.typed.is_empty() => match bytes {
                    Some(bytes) => if let Step::Leave = self.on_keys(&bytes).await? {
                        return Ok(SessionExit::Detached);
                    },
                    None if raw.is_some() => return Ok(SessionExit::Signalled(nix::libc::SIGHUP)),
                    None => input = None,
                },
                () = tokio::time::sleep_until(key_deadline), if self.keys.is_begun() => {
                    if self.keys.is_holding() {
                        self.keys.expire(&mut self.typed);
                    } else {
                        self.keys.forget(&mut self.typed);
                    }
                    self.forget_without_keyboard();
                }
                () = keyboard_input::type_in(typing.as_ref(), &mut self.typed), if !self.typed.is_empty() => {}
                reason = self.input.lost() => self.tell_lost(reason.as_ref()).await,
            }
        }
    }

    /// Takes the keyboard at the start, or prints who has it.
    async fn take_keyboard(&mut self) -> Result<()> {
        if self.input.take(self.keyboard == Keyboard::Take).await? == KeyboardState::SomebodyElses {
            let owner = self.owner().await.unwrap_or_else(|| "another client".to_owned());
            output::note(&format!("watching only: {owner} has the keyboard{}", self.how_to_take()));
        }
        // A program that ended before we attached still has a result to report.
        Ok(())
    }

    async fn on_keys(&mut self, mut bytes: &[u8]) -> Result<Step> {
        self.last_key = Instant::now();
        while let Some((command, taken)) = self.keys.feed(bytes, &mut self.typed) {
            bytes = &bytes[taken..];
            match command {
                Command::Detach => {
                    self.input.release(std::mem::take(&mut self.typed)).await;
                    return Ok(Step::Leave);
                }
                Command::Take if !self.keyboard.may_type() => {}
                Command::Take => {
                    if !self.input.has_keyboard()
                        && self.input.take(true).await? == KeyboardState::Ours
                    {
                        output::note("you have the keyboard");
                        self.tell_size(true)?;
                    }
                }
            }
        }
        if self.keyboard == Keyboard::Watch && bytes.contains(&CTRL_C) {
            return Ok(Step::Leave);
        }
        self.forget_without_keyboard();
        Ok(Step::On)
    }

    /// Drops bytes typed without the keyboard, so that they are not sent later.
    fn forget_without_keyboard(&mut self) {
        if !self.input.has_keyboard() {
            self.typed.clear();
        }
    }

    /// Announces who has taken the keyboard. If nobody has, the program has ended or takes no more
    /// input, and a cut link is reported elsewhere.
    async fn tell_lost(&mut self, reason: Option<&GuestError>) {
        self.typed.clear();
        if matches!(reason, Some(GuestError::Fault(_)))
            && let Some(owner) = self.owner().await
        {
            let how = self.how_to_take();
            output::note(&format!("watching only: {owner} took the keyboard{how}"));
        }
    }

    fn how_to_take(&self) -> String {
        match self.keys.take_name() {
            Some(keys) => format!("; {keys} takes it"),
            None => String::new(),
        }
    }

    /// The name of the client that has the keyboard.
    async fn owner(&self) -> Option<String> {
        let sessions = self.guest.sessions(0).await.ok()?.sessions;
        let info = sessions.into_iter().find(|info| info.session == self.session)?;
        info.keyboard.as_deref().map(printable)
    }

    /// Sends the size of our window; `redraw` asks the program to redraw everything.
    fn tell_size(&self, redraw: bool) -> Result<()> {
        if !self.sizes {
            if redraw {
                let (session, signal) = (self.session.clone(), nix::libc::SIGWINCH);
                let ask = Signal { session, signal, target: Target::Group };
                drop(self.guest.signal_now(ask)?);
            }
            return Ok(());
        }
        let size: TerminalSize = terminal_size();
        let resize = Resize { session: self.session.clone(), size, redraw };
        // Not awaited: an ended session refuses it, and its record is on its way.
        drop(self.guest.resize_now(resize)?);
        Ok(())
    }
}

/// The next typed bytes; never returns without a keyboard.
async fn next_keys(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match input {
        Some(input) => input.recv().await,
        None => std::future::pending().await,
    }
}
