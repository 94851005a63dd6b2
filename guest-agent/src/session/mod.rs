//! Sessions: programs that clients started, their outputs, their input and their end.
//!
//! [`Sessions`] is the registry and the only place where sessions are added, changed or removed.
//! A session's life:
//!
//! ```text
//! start ──▶ running ──▶ exited ──▶ released
//!   │                     ▲
//!   └── spawn failed ─────┘
//! ```
//!
//! *running*: the leader lives. *exited*: the record stands; survivors may still write.
//! *released*: no holder is left and the leader has ended; the session is forgotten, and what its
//! survivors write is read for nobody.

mod ending;
mod input;
mod pump;
mod starting;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use nix::sys::signal::Signal as UnixSignal;
use nix::unistd::Pid;
use protocol::exit::ExitRecord;
use protocol::limits;
use protocol::message::{Channel, SessionInfo, SessionList, Subscribed};
use protocol::requests::{
    Input, Origin, Release, Resize, Role, Signal, Subscribe, Target, TerminalSize,
};
use protocol::sorted::{SortedMap, SortedSet};
use protocol::{ClientId, Fault, FaultCode, SessionId};
use tokio::sync::watch;

use crate::agent::Agent;
use crate::cgroup::SessionGroup;
use crate::flow::{Inlet, Outlet, Pin, Tap};
use crate::metrics::Asked;
use crate::process::tree::{Members, Tree};
use crate::session::input::Keyboard;
use crate::session::pump::Terminal;
use crate::sys::clock;

pub use starting::{Starter, spawn_fault};

/// The registry.
pub struct Sessions {
    by_id: RefCell<SortedMap<SessionId, Rc<Session>>>,
    /// Released sessions whose survivors live on, for the stop of an agent that is not PID 1.
    released: RefCell<Vec<Weak<Session>>>,
    /// Grows with every change that the list shows.
    version: watch::Sender<u64>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            by_id: RefCell::default(),
            released: RefCell::default(),
            version: watch::Sender::new(1),
        }
    }
}

/// One program and what became of it.
pub struct Session {
    pub id: SessionId,
    /// Of the start's content, to tell a repeated start from a conflicting one.
    digest: u64,
    command: String,
    /// `None` if it never ran. (Number 0 would mean the agent's own group to the kernel.)
    leader: Option<Pid>,
    started_at_ms: u64,
    started_us: u64,
    outputs: Vec<(Channel, Outlet)>,
    keyboard: Keyboard,
    terminal: Option<Terminal>,
    group: RefCell<Option<SessionGroup>>,
    memory_limit: Option<u64>,
    /// The client that the session dies with.
    tied_to: Cell<Option<ClientId>>,
    /// Holders that have not released it.
    holders: RefCell<SortedSet<String>>,
    /// Which client has last subscribed as which holder.
    claims: RefCell<SortedMap<String, ClientId>>,
    /// It had holders, and all have released it, perhaps before its end.
    let_go: Cell<bool>,
    /// How large each client that may type sees the terminal.
    views: RefCell<SortedMap<ClientId, TerminalSize>>,
    /// Signals that clients have sent to the leader, and which client did last.
    killed_by: RefCell<SortedMap<i32, String>>,
    timed_out: Cell<Option<u64>>,
    leader_reaped: Cell<bool>,
    /// All of it was killed, by a deadline or a client.
    tree_killed: Cell<bool>,
    exit: watch::Sender<Option<Rc<ExitRecord>>>,
}

impl Sessions {
    pub fn get(&self, id: &SessionId) -> Result<Rc<Session>, Fault> {
        let found = self.by_id.borrow().get(id).cloned();
        found.ok_or_else(|| Fault::new(FaultCode::NotFound, format!("there is no session {id}")))
    }

    /// The list, as soon as it is newer than `since`.
    pub async fn list(&self, since: u64) -> SessionList {
        let mut version = self.version.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let version = version.wait_for(|version| *version > since).await.map_or(since, |now| *now);
        let mut named = 0;
        let info = |session: &Rc<Session>| {
            let mut info = session.info();
            if let Some(exit) = &mut info.exit {
                named += exit.left_behind.len();
                if named > SURVIVORS_NAMED_MAX {
                    exit.left_behind.clear();
                }
            }
            info
        };
        let sessions = self.by_id.borrow().values().map(info).collect();
        SessionList { version, sessions }
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    fn insert(&self, session: Rc<Session>) {
        self.by_id.borrow_mut().insert(session.id.clone(), session);
        self.changed();
    }

    /// Makes room for one more session: old records of ended ones go first.
    fn make_room(&self, agent: &Agent) -> Result<(), Fault> {
        self.forget_stale(agent);
        // What ended sessions still keep must not be what a new one lacks.
        while agent.budget.is_tight()
            && let Some(oldest) = self.oldest_unheld(1).pop()
        {
            self.forget(agent, &oldest);
        }
        if self.by_id.borrow().len() < limits::SESSIONS_MAX {
            return Ok(());
        }
        let oldest = self.oldest_unheld(1).pop().ok_or_else(|| {
            let max = limits::SESSIONS_MAX;
            let message =
                format!("{max} sessions run or wait for their holders, which is the limit");
            Fault::new(FaultCode::Limit, message)
        })?;
        self.forget(agent, &oldest);
        Ok(())
    }

    /// Forgets records that nobody has released for too long, and too many of those that nobody
    /// holds. What a holder has not released is never given up for their number.
    pub fn forget_stale(&self, agent: &Agent) {
        let now_us = clock::monotonic_us();
        let kept_us = limits::EXIT_RECORD_KEPT.as_micros() as u64;
        let is_stale = |session: &&Rc<Session>| {
            session.ended_us().is_some_and(|ended_us| now_us.saturating_sub(ended_us) >= kept_us)
        };
        let stale: Vec<_> = self.by_id.borrow().values().filter(is_stale).cloned().collect();
        let unheld = self.by_id.borrow().values().filter(|session| session.is_unheld()).count();
        let excess = unheld.saturating_sub(limits::EXIT_RECORDS_MAX);
        for session in stale.iter().chain(&self.oldest_unheld(excess)) {
            self.forget(agent, session);
        }
    }

    /// The `count` sessions that ended first and that no holder keeps.
    fn oldest_unheld(&self, count: usize) -> Vec<Rc<Session>> {
        let by_id = self.by_id.borrow();
        let mut ended: Vec<_> =
            by_id.values().filter(|session| session.is_unheld()).cloned().collect();
        ended.sort_by_key(|session| session.ended_us());
        ended.truncate(count);
        ended
    }

    /// Gives up one holder, or all, and forgets the session if that was the last and it has ended.
    pub fn release(&self, agent: &Agent, ask: &Release) -> Result<(), Fault> {
        let session = self.get(&ask.session)?;
        let done: Vec<String> = match &ask.holder {
            Some(name) => vec![name.clone()],
            None => session.holders.borrow().iter().cloned().collect(),
        };
        session.release(done);
        if ask.kill_survivors && session.record().is_some() {
            session.kill_tree();
        }
        if session.is_unheld() {
            self.forget(agent, &session);
        }
        self.changed();
        Ok(())
    }

    /// A session that has ended and that nobody holds is of no more use.
    fn forget(&self, agent: &Agent, session: &Rc<Session>) {
        self.by_id.borrow_mut().remove(&session.id);
        session.outputs.iter().for_each(|(_, outlet)| outlet.release_all());
        let has_survivors = session.record().is_some_and(|record| record.left_behind_count > 0);
        if has_survivors {
            let mut released = self.released.borrow_mut();
            released.retain(|session| session.strong_count() > 0);
            released.push(Rc::downgrade(session));
        }
        agent.retire_group(session.group.borrow_mut().take());
    }

    /// A client will not come back: its views and its keyboards go, and so do the sessions that
    /// were tied to it.
    pub fn client_gone(&self, agent: &Agent, client: ClientId) {
        let sessions: Vec<_> = self.by_id.borrow().values().cloned().collect();
        for session in sessions {
            session.drop_view(client);
            if session.tied_to.get() == Some(client) && session.record().is_none() {
                session.note_kill(
                    UnixSignal::SIGKILL as i32,
                    "the client that started it, by leaving",
                );
                session.kill_tree();
            }
            if session.tied_to.get() == Some(client) {
                // What only it wanted to have, nobody will come for.
                session.release(session.claimed_by(client));
                self.forget_if_let_go(agent, &session);
            }
        }
        self.changed();
    }

    /// A client has gone and another stands in its place: what was tied to the one is tied to the other.
    pub fn inherit(&self, from: ClientId, to: ClientId) {
        for session in self.by_id.borrow().values() {
            session.drop_view(from);
            if session.tied_to.get() == Some(from) {
                session.tied_to.set(Some(to));
                session.claims.borrow_mut().values_mut().for_each(|claimant| {
                    if *claimant == from {
                        *claimant = to;
                    }
                });
            }
        }
        self.changed();
    }

    /// Forgets a session that has ended and that all its holders have let go.
    pub fn forget_if_let_go(&self, agent: &Agent, session: &Rc<Session>) {
        if session.let_go.get() && session.is_unheld() {
            self.forget(agent, session);
            self.changed();
        }
    }

    /// Every session whose processes may live: for the stop of an agent that is not PID 1.
    pub fn all(&self) -> Vec<Rc<Session>> {
        let mut all: Vec<_> = self.by_id.borrow().values().cloned().collect();
        all.extend(self.released.borrow().iter().filter_map(Weak::upgrade));
        all
    }

    /// Whether a holder has not released its session.
    pub fn are_held(&self) -> bool {
        self.by_id.borrow().values().any(|session| !session.holders.borrow().is_empty())
    }

    /// Whether every leader has its record.
    pub fn are_settled(&self) -> bool {
        self.by_id.borrow().values().all(|session| session.record().is_some())
    }
}

impl Session {
    pub fn record(&self) -> Option<Rc<ExitRecord>> {
        self.exit.borrow().clone()
    }

    /// When the leader ended, by the monotonic clock.
    fn ended_us(&self) -> Option<u64> {
        self.record().map(|record| self.started_us + record.duration_us)
    }

    /// Whether it has ended and no holder keeps it.
    fn is_unheld(&self) -> bool {
        self.record().is_some() && self.holders.borrow().is_empty()
    }

    /// The record, as soon as there is one.
    pub async fn wait(&self) -> Rc<ExitRecord> {
        let mut exit = self.exit.subscribe();
        loop {
            if let Some(record) = exit.borrow_and_update().clone() {
                return record;
            }
            if exit.changed().await.is_err() {
                unreachable!("the sender lives in the session that is borrowed");
            }
        }
    }

    pub fn outlet(&self, channel: Channel) -> Result<&Outlet, Fault> {
        let found = self.outputs.iter().find(|(name, _)| *name == channel);
        found.map(|(_, outlet)| outlet).ok_or_else(|| {
            let (id, name) = (&self.id, channel.name());
            Fault::new(FaultCode::Invalid, format!("session {id} has no output {name}"))
        })
    }

    /// Where a subscription begins.
    pub fn subscription_start(&self, ask: &Subscribe) -> Result<Subscribed, Fault> {
        let outlet = self.outlet(ask.channel)?;
        let (oldest, end) = (outlet.start(), outlet.end());
        let from = match ask.from {
            Origin::Oldest {} => oldest,
            Origin::Tail { bytes } => end.saturating_sub(bytes).max(oldest),
            Origin::Offset { offset } if offset > end => {
                let message = format!("offset {offset} is beyond the end of the output at {end}");
                return Err(Fault::new(FaultCode::Invalid, message));
            }
            Origin::Offset { offset } => offset,
        };
        Ok(Subscribed { from, oldest, end })
    }

    /// Attaches a tap to an output.
    pub fn subscribe(
        &self,
        ask: &Subscribe,
        tap: Tap,
        from: u64,
        client: ClientId,
    ) -> Result<Outlet, Fault> {
        let outlet = self.outlet(ask.channel)?;
        let pin = match &ask.role {
            Role::Observer {} => Pin::None,
            Role::Holder { name } if self.holders.borrow().contains(name) => {
                self.claims.borrow_mut().insert(name.clone(), client);
                Pin::Holder(name.clone())
            }
            Role::Holder { .. } => Pin::Tap,
        };
        outlet.attach(tap, pin, from);
        Ok(outlet.clone())
    }

    /// The holders that a client was the last to subscribe as.
    fn claimed_by(&self, client: ClientId) -> Vec<String> {
        let claims = self.claims.borrow();
        let own = claims.iter().filter(|(_, claimant)| **claimant == client);
        own.map(|(name, _)| name.clone()).collect()
    }

    /// Gives up these holders.
    fn release(&self, names: Vec<String>) {
        for name in names {
            if self.holders.borrow_mut().remove(&name) && self.holders.borrow().is_empty() {
                self.let_go.set(true);
            }
            self.outputs.iter().for_each(|(_, outlet)| outlet.release(&name));
        }
    }

    /// Sends a signal on behalf of `by`.
    pub fn signal(&self, ask: &Signal, by: &str, agent: &Agent) -> Result<(), Fault> {
        let signal = UnixSignal::try_from(ask.signal).map_err(|_| {
            Fault::new(FaultCode::Invalid, format!("{} is not a signal number", ask.signal))
        })?;
        let ended = self.record().is_some();
        let Some(leader) = self.leader else {
            return Err(Fault::new(FaultCode::Gone, format!("session {} never ran", self.id)));
        };
        let reached = match ask.target {
            Target::Leader => {
                self.note_kill(ask.signal, by);
                agent.reaper.signal(leader, signal)
            }
            // A group without members may be a stranger's by now.
            Target::Group if self.leader_reaped.get() && self.is_gone() => false,
            Target::Group => {
                self.note_kill(ask.signal, by);
                let group = self.terminal.as_ref().and_then(Terminal::foreground_group);
                let group = group.unwrap_or(leader);
                nix::sys::signal::killpg(group, signal).is_ok()
            }
            Target::Tree => {
                self.note_kill(ask.signal, by);
                self.signal_tree(signal) > 0
            }
        };
        if reached || !ended {
            return Ok(());
        }
        Err(Fault::new(FaultCode::Gone, format!("session {} has ended", self.id)))
    }

    /// Remembers who sent a signal that may end the leader, so that the record can say so.
    fn note_kill(&self, signal: i32, by: &str) {
        if !self.leader_reaped.get() && !HARMLESS.contains(&signal) {
            self.killed_by.borrow_mut().insert(signal, by.to_owned());
        }
    }

    /// Notes how large a client sees the terminal, and sizes it to the smallest view.
    pub fn resize(&self, ask: &Resize, client: ClientId) -> Result<(), Fault> {
        let Some(terminal) = &self.terminal else {
            let message = format!("session {} has no terminal", self.id);
            return Err(Fault::new(FaultCode::Invalid, message));
        };
        if ask.size.rows == 0 || ask.size.columns == 0 {
            return Err(Fault::new(
                FaultCode::Invalid,
                "a terminal has at least one row and column",
            ));
        }
        self.views.borrow_mut().insert(client, ask.size);
        let changed = self.apply_size();
        if ask.redraw && !changed {
            terminal.redraw();
        }
        Ok(())
    }

    fn drop_view(&self, client: ClientId) {
        if self.views.borrow_mut().remove(&client).is_some() {
            self.apply_size();
        }
        self.keyboard.client_gone(client);
    }

    /// Whether the terminal's size changed.
    fn apply_size(&self) -> bool {
        let views = self.views.borrow();
        let rows = views.values().map(|size| size.rows).min();
        let columns = views.values().map(|size| size.columns).min();
        match (&self.terminal, rows, columns) {
            (Some(terminal), Some(rows), Some(columns)) => {
                terminal.resize(TerminalSize { rows, columns })
            }
            _ => false,
        }
    }

    /// Whether a client can have the keyboard, and at which offset it would go on.
    pub fn check_keyboard(&self, ask: &Input, client: ClientId) -> Result<u64, Fault> {
        self.keyboard.check(ask, client)
    }

    /// Gives a client the keyboard, after [`Session::check_keyboard`] has said that it can.
    pub fn open_keyboard(&self, tap: Tap, client: ClientId, name: &str) -> Inlet {
        self.keyboard.open(tap, client, name)
    }

    /// The client's input stream is closed.
    pub fn leave_keyboard(&self, tap: &Tap) {
        self.keyboard.leave(tap);
    }

    /// Runs `act` on the session's processes, if there ever were any.
    fn tree_with<T>(&self, act: impl FnOnce(&Tree<'_>) -> T) -> Option<T> {
        let group = self.group.borrow();
        self.leader.map(|leader| {
            act(&Tree {
                session: self.id.as_str(),
                leader,
                leader_reaped: self.leader_reaped.get(),
                group: group.as_ref(),
            })
        })
    }

    /// Sends a signal to every process of the session, and says how many that were.
    pub fn signal_tree(&self, signal: UnixSignal) -> usize {
        match signal {
            UnixSignal::SIGKILL => self.kill_tree(),
            other => self.tree_with(|tree| tree.signal(other)).unwrap_or(0),
        }
    }

    /// Whether no process of the session lives.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "a method's path is bound to one lifetime of the tree"
    )]
    pub fn is_gone(&self) -> bool {
        self.tree_with(|tree| tree.is_gone()).unwrap_or(true)
    }

    /// Kills every process of the session, and says how many that were.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "a method's path is bound to one lifetime of the tree"
    )]
    fn kill_tree(&self) -> usize {
        self.tree_killed.set(true);
        self.tree_with(|tree| tree.kill()).unwrap_or(0)
    }

    /// The processes of the session that live.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "a method's path is bound to one lifetime of the tree"
    )]
    fn members(&self) -> Members {
        self.tree_with(|tree| tree.members()).unwrap_or_default()
    }

    /// Its processes, to be asked for what they use at the moment; none if it never ran.
    pub fn asked(&self) -> Asked {
        self.tree_with(Asked::of).unwrap_or_default()
    }

    fn info(&self) -> SessionInfo {
        SessionInfo {
            session: self.id.clone(),
            pid: self.leader.map_or(0, |leader| leader.as_raw() as u32),
            command: self.command.clone(),
            terminal: self.terminal.is_some(),
            started_at_ms: self.started_at_ms,
            exit: self.record().as_deref().cloned(),
            holders: self.holders.borrow().iter().cloned().collect(),
            viewers: self.outputs.iter().map(|(_, outlet)| outlet.reader_count()).max().unwrap_or(0)
                as u32,
            keyboard: self.keyboard.owner(),
        }
    }
}

/// Processes left behind that one list names; more are only counted there, and named in the record
/// that `wait` gives. With it the list of [`limits::SESSIONS_MAX`] sessions fits a frame.
const SURVIVORS_NAMED_MAX: usize = 1024;

/// Signals that end nothing by themselves.
const HARMLESS: [i32; 8] = [
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGURG,
    libc::SIGWINCH,
];

/// How often stale records are looked for.
pub const HOUSEKEEPING: Duration = Duration::from_secs(60);
