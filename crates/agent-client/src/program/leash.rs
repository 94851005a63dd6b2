//! What happens to a program when its owner drops it.

use protocol::SessionId;
use protocol::exit::{Cause, ExitRecord};
use protocol::requests::{Release, Signal, Target};

use crate::guest::{Guest, Observed, ProgramAccount};

/// The signal that nothing survives. Linux uses the same number everywhere.
const SIGKILL: i32 = 9;

/// What happens when a [`Leash`] is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDrop {
    /// Nothing: the session has other holders, or its caller releases it.
    Leave,
    /// Before the program's end nothing; after it the session is released.
    Release,
    /// Before the program's end it is killed with all that it has started. The session is released
    /// in any case.
    Kill,
    /// Before the program's end it is killed with all that it has started. Its recorder releases
    /// the session.
    KillRecorded,
}

/// Ends a program when it is dropped, as [`OnDrop`] says. Processes that a program left running
/// when it ended by itself continue; those of one that was killed at its deadline do not.
#[derive(Debug)]
pub struct Leash {
    guest: Guest,
    session: SessionId,
    on_drop: OnDrop,
    state: State,
    /// Of a program that no recorder follows.
    account: Option<ProgramAccount>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Ended,
    /// It was killed at its deadline.
    Overran,
}

impl Leash {
    pub fn new(guest: Guest, session: SessionId, on_drop: OnDrop) -> Self {
        Self { guest, session, on_drop, state: State::Running, account: None }
    }

    /// Has its end reported with what it has cost: nobody else does.
    pub(super) fn accounting(mut self, account: Option<ProgramAccount>) -> Self {
        self.account = account;
        self
    }

    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The program has been started by this.
    pub(super) fn begun(&self) {
        self.guest.observer().tell(Observed::ProgramBegun { session: &self.session });
    }

    /// The program has ended, and nobody knows how.
    pub fn ended(&mut self) {
        self.state = State::Ended;
    }

    /// The program has ended so.
    pub(super) fn ended_with(&mut self, record: &ExitRecord) {
        self.guest.observer().tell(Observed::ProgramEnded { session: &self.session, record });
        if let Some(account) = self.account.take() {
            account.ended(&self.session, record);
        }
        let is_overrun = matches!(record.cause, Cause::TimedOut { .. });
        self.state = if is_overrun { State::Overran } else { State::Ended };
    }

    /// Changes what happens when it is dropped.
    pub(super) fn on_drop(&mut self, on_drop: OnDrop) {
        self.on_drop = on_drop;
    }
}

impl Drop for Leash {
    /// No answer is awaited: the requests go out in this order, also when the caller is gone.
    fn drop(&mut self) {
        // A release is one of all holders, and a recorder that is late would lose the session.
        let on_drop = match self.on_drop {
            OnDrop::Release if self.guest.output_rules().record_all() => OnDrop::Leave,
            OnDrop::Kill if self.guest.output_rules().record_all() => OnDrop::KillRecorded,
            on_drop => on_drop,
        };
        let (kills, releases) = match (on_drop, self.state) {
            (OnDrop::Leave, _)
            | (OnDrop::Release, State::Running)
            | (OnDrop::KillRecorded, State::Ended | State::Overran) => return,
            (OnDrop::KillRecorded, State::Running) => (true, false),
            (OnDrop::Release, State::Ended | State::Overran) => (false, true),
            (OnDrop::Kill, state) => (state != State::Ended, true),
        };
        if kills {
            let (session, target) = (self.session.clone(), Target::Tree);
            drop(self.guest.signal_now(Signal { session, signal: SIGKILL, target }));
        }
        if releases {
            let session = self.session.clone();
            if kills {
                let release = Release { session, holder: None, kill_survivors: true };
                drop(self.guest.release_now(release));
            } else {
                // What has ended waits for nobody. That the guest is gone is as good.
                let _ = self.guest.release_later(session);
            }
        }
    }
}
