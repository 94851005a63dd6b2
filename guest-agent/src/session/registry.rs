//! The registry of sessions. It is the only place where they are added, changed or removed.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use nix::sys::signal::Signal as UnixSignal;
use protocol::limits;
use protocol::message::SessionList;
use protocol::requests::{Release, Resize};
use protocol::sorted::{SortedMap, sort_by};
use protocol::{ClientId, Fault, FaultCode, SessionId};
use tokio::sync::watch;

use super::program::Session;
use crate::ground::Ground;
use crate::sys::clock;

/// Processes left behind that one list names; more are only counted there, and named in the record
/// that `wait` returns. With it the list of [`limits::SESSIONS_MAX`] sessions fits a frame.
const SURVIVORS_NAMED_MAX: usize = 1024;

/// How often to look for stale records.
pub const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// The registry.
pub struct Sessions {
    pub(super) ground: Rc<Ground>,
    by_id: RefCell<SortedMap<SessionId, Rc<Session>>>,
    /// Released sessions whose survivors live on, for the stop of an agent that is not PID 1.
    released: RefCell<Vec<Weak<Session>>>,
    /// Grows with every change that the list shows.
    version: watch::Sender<u64>,
    /// The version of the last change that the list of lasting sessions shows.
    lasting: watch::Sender<u64>,
}

impl Sessions {
    pub fn new(ground: Rc<Ground>) -> Rc<Self> {
        Rc::new(Self {
            ground,
            by_id: RefCell::default(),
            released: RefCell::default(),
            version: watch::Sender::new(1),
            lasting: watch::Sender::new(1),
        })
    }

    pub fn get(&self, id: &SessionId) -> Result<Rc<Session>, Fault> {
        let found = self.by_id.borrow().get(id).cloned();
        found.ok_or_else(|| Fault::new(FaultCode::NotFound, format!("there is no session {id}")))
    }

    /// The list, of all sessions or of the lasting ones, as soon as it is newer than `since`. A lasting one is
    /// listed once its program has executed: until then it may have no process number, by which readers of that
    /// list tell it from an earlier one of its name.
    pub async fn list(&self, since: u64, lasting: bool) -> SessionList {
        let mut version = if lasting { &self.lasting } else { &self.version }.subscribe();
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
        let by_id = self.by_id.borrow();
        let is_lasting = |session: &Session| session.is_lasting() && !session.is_starting.get();
        let listed = by_id.values().filter(|session| !lasting || is_lasting(session));
        let sessions = listed.map(info).collect();
        SessionList { version, sessions }
    }

    /// Something has changed of this session, which was or is in the list.
    pub(super) fn changed(&self, session: &Session) {
        self.version.send_modify(|version| *version += 1);
        if session.is_lasting() && !session.is_starting.get() {
            self.lasting.send_replace(*self.version.borrow());
        }
    }

    /// Sizes a session's terminal for a client.
    pub fn resize(&self, ask: &Resize, client: ClientId) -> Result<(), Fault> {
        let session = self.get(&ask.session)?;
        if session.resize(ask, client)? {
            self.changed(&session);
        }
        Ok(())
    }

    /// Something has changed of any of them.
    fn all_changed(&self) {
        self.version.send_modify(|version| *version += 1);
        self.lasting.send_replace(*self.version.borrow());
    }

    pub(super) fn insert(&self, session: &Rc<Session>) {
        self.by_id.borrow_mut().insert(session.id.clone(), session.clone());
        self.changed(session);
    }

    /// Makes room for one more session: old records of ended ones go first.
    pub(super) fn make_room(&self) -> Result<(), Fault> {
        self.forget_stale();
        // Memory of ended sessions must not be missing for a new one.
        while self.ground.budget.is_tight()
            && let Some(oldest) = self.oldest_unheld(1).pop()
        {
            self.forget(&oldest);
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
        self.forget(&oldest);
        Ok(())
    }

    /// Forgets records that were not released for too long, and surplus ones without a holder. A
    /// record with a holder is never forgotten because of their number.
    pub fn forget_stale(&self) {
        let now_us = clock::monotonic_us();
        let kept_us = limits::EXIT_RECORD_KEPT.as_micros() as u64;
        let is_stale = |session: &&Rc<Session>| {
            session.ended_us().is_some_and(|ended_us| now_us.saturating_sub(ended_us) >= kept_us)
        };
        let stale: Vec<_> = self.by_id.borrow().values().filter(is_stale).cloned().collect();
        let unheld = self.by_id.borrow().values().filter(|session| session.is_unheld()).count();
        let excess = unheld.saturating_sub(limits::EXIT_RECORDS_MAX);
        for session in stale.iter().chain(&self.oldest_unheld(excess)) {
            self.forget(session);
        }
    }

    /// The `count` sessions that ended first and that no holder keeps.
    fn oldest_unheld(&self, count: usize) -> Vec<Rc<Session>> {
        let by_id = self.by_id.borrow();
        let mut ended: Vec<_> =
            by_id.values().filter(|session| session.is_unheld()).cloned().collect();
        sort_by(&mut ended, |one, other| one.ended_us() < other.ended_us());
        ended.truncate(count);
        ended
    }

    /// Gives up one holder, or all, and forgets the session if that was the last and it has ended.
    pub fn release(&self, ask: &Release) -> Result<(), Fault> {
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
            self.forget(&session);
        }
        self.changed(&session);
        Ok(())
    }

    /// An ended session without a holder is of no more use.
    fn forget(&self, session: &Rc<Session>) {
        self.by_id.borrow_mut().remove(&session.id);
        session.outputs.iter().for_each(|(_, outlet)| outlet.release_all());
        let has_survivors = session.record().is_some_and(|record| record.left_behind_count > 0);
        if has_survivors {
            let mut released = self.released.borrow_mut();
            released.retain(|session| session.strong_count() > 0);
            released.push(Rc::downgrade(session));
        }
        self.ground.retire_group(session.group.borrow_mut().take());
    }

    /// A client will not come back: its views and its keyboards go, and so do the sessions that
    /// were tied to it.
    pub fn client_gone(&self, client: ClientId) {
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
                // Nobody will fetch what only this client wanted.
                session.release(session.claimed_by(client));
                self.forget_if_let_go(&session);
            }
        }
        self.all_changed();
    }

    /// A client is replaced by another: what was tied to the first is tied to the second.
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
        self.all_changed();
    }

    /// Forgets an ended session that all its holders have released.
    pub fn forget_if_let_go(&self, session: &Rc<Session>) {
        if session.let_go.get() && session.is_unheld() {
            self.forget(session);
            self.changed(session);
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
