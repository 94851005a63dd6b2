//! How far readers may see a program's output where all that they see must be durable first.
//!
//! ```text
//!  agent ──▶ Output ── held back at the horizon ──▶ reader
//!                            ▲
//!  recorder: the log has it ─┘
//! ```
//!
//! The recorder of the sandbox moves the horizons, and [`Output`](super::Output) keeps to them. Names of sessions are used
//! again, so the horizon of a session is forgotten before its name can be another's.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use protocol::SessionId;
use protocol::message::Channel;
use tokio::sync::Notify;

/// Horizons that are kept without a reader or a recorder: a few times as many as there may be sessions.
const IDLE_HORIZONS_MAX: usize = 4 * protocol::limits::SESSIONS_MAX;

/// The horizons of a sandbox's sessions. Clones are the same.
#[derive(Clone, Default)]
pub struct Horizons(Arc<Inner>);

#[derive(Default)]
struct Inner {
    known: Mutex<HashMap<(SessionId, Channel), Entry>>,
    /// A reader has come for a session that the recorder may know nothing of.
    asked: Notify,
}

struct Entry {
    horizon: Arc<Horizon>,
    /// The recorder moves it.
    is_recorded: bool,
}

/// How far one output may be read.
#[derive(Debug, Default)]
pub(super) struct Horizon(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    to: u64,
    /// It does not move any more.
    is_fixed: bool,
    waiting: Vec<Waker>,
}

impl Horizons {
    /// Everything below `to` may be read.
    pub fn advance(&self, session: &SessionId, channel: Channel, to: u64) {
        let mut known = lock(&self.0.known);
        let entry = known.entry((session.clone(), channel)).or_insert_with(Entry::new);
        entry.is_recorded = true;
        entry.horizon.move_to(to);
    }

    /// Everything of a session may be read, and its name may become another's.
    pub fn lift(&self, session: &SessionId) {
        lock(&self.0.known).retain(|(known, _), entry| {
            if known == session {
                entry.horizon.move_to(u64::MAX);
            }
            known != session
        });
    }

    /// Nothing moves them any more.
    pub fn fix(&self) {
        lock(&self.0.known).drain().for_each(|(_, entry)| entry.horizon.fix());
    }

    /// Something may no longer be recorded that readers wait for.
    pub fn changed(&self) {
        self.0.asked.notify_one();
    }

    /// The sessions that readers wait for and that no recorder moves.
    pub fn unrecorded(&self) -> Vec<SessionId> {
        let known = lock(&self.0.known);
        let unrecorded = known.iter().filter(|(_, entry)| !entry.is_recorded);
        unrecorded.map(|((session, _), _)| session.clone()).collect()
    }

    /// Waits until there may be one more of those.
    pub async fn asked(&self) {
        self.0.asked.notified().await;
    }

    pub(super) fn of(&self, session: &SessionId, channel: Channel) -> Arc<Horizon> {
        let mut known = lock(&self.0.known);
        if known.len() > IDLE_HORIZONS_MAX {
            known.retain(|_, entry| entry.is_recorded || Arc::strong_count(&entry.horizon) > 1);
        }
        let entry = known.entry((session.clone(), channel)).or_insert_with(Entry::new);
        if !entry.is_recorded {
            self.0.asked.notify_one();
        }
        Arc::clone(&entry.horizon)
    }
}

impl fmt::Debug for Horizons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Horizons").field(&lock(&self.0.known).len()).finish()
    }
}

impl Entry {
    fn new() -> Self {
        Self { horizon: Arc::default(), is_recorded: false }
    }
}

impl Horizon {
    fn move_to(&self, to: u64) {
        self.change(|state| state.to = state.to.max(to));
    }

    fn fix(&self) {
        self.change(|state| state.is_fixed = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.0);
        change(&mut state);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Everything below may be read.
    pub(super) fn reach(&self) -> u64 {
        lock(&self.0).to
    }

    /// Ready when something beyond `offset` may be read: to where, or `None` if it never may.
    pub(super) fn poll_beyond(&self, offset: u64, cx: &Context<'_>) -> Poll<Option<u64>> {
        let mut state = lock(&self.0);
        if state.to > offset {
            return Poll::Ready(Some(state.to));
        }
        if state.is_fixed {
            return Poll::Ready(None);
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing behind these is ever half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beyond(horizon: &Horizon, offset: u64) -> Poll<Option<u64>> {
        horizon.poll_beyond(offset, &Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_name_that_is_used_again_does_not_inherit_the_horizon_of_the_session_before() {
        let horizons = Horizons::default();
        let session: SessionId = "s".parse().unwrap();
        horizons.advance(&session, Channel::Stdout, 10);
        let before = horizons.of(&session, Channel::Stdout);
        assert_eq!(beyond(&before, 9), Poll::Ready(Some(10)));
        assert_eq!(beyond(&before, 10), Poll::Pending);
        horizons.lift(&session);
        assert_eq!(beyond(&before, 10), Poll::Ready(Some(u64::MAX)));
        let after = horizons.of(&session, Channel::Stdout);
        assert_eq!(beyond(&after, 0), Poll::Pending);
        assert_eq!(horizons.unrecorded(), [session]);
        horizons.fix();
        assert_eq!(beyond(&after, 0), Poll::Ready(None));
    }
}
