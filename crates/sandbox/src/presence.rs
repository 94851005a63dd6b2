//! The activity in a sandbox, and access to it: what the owner shares with the sandbox's users.
//!
//! Everything that runs in a sandbox for a client holds an [`Activity`]. The idle time of a sandbox
//! begins when the last of them is dropped; the owner reads it, and closes the presence before it
//! ends a sandbox, so that nothing begins in one that is about to end.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{OnIdle, Record, State};
use crate::limits::EXPIRY_DRIFT_SHOWN;
use agent_client::guest::Guest;
use host::instant::now_ms;

/// State shared between a sandbox's owner, its recorder and the registry.
#[derive(Debug)]
pub(super) struct Presence {
    seen: Mutex<PresenceState>,
    /// Notified when something at work has ended.
    ended: Arc<Notify>,
    /// Notified when something begins and nothing was at work.
    begun: Notify,
}

#[derive(Debug)]
struct PresenceState {
    guest: Option<Guest>,
    gate: Gate,
    activities: usize,
    idle_since: Instant,
    idle_since_ms: u64,
    /// When the sandbox's absolute time to live is over.
    expires: Option<Instant>,
}

/// Whether new activity may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// The sandbox is paused because it was idle, or is about to be: it must be woken first.
    Asleep,
    Closed,
}

/// Held for as long as something is at work in a sandbox. As long as there is one, the sandbox is
/// not idle.
#[derive(Debug)]
pub struct Activity(Arc<Presence>);

impl Drop for Activity {
    fn drop(&mut self) {
        let mut seen = self.0.seen();
        seen.activities = seen.activities.saturating_sub(1);
        if seen.activities == 0 {
            seen.touch();
        }
        drop(seen);
        self.0.ended.notify_one();
    }
}

impl PresenceState {
    fn touch(&mut self) {
        self.idle_since = Instant::now();
        self.idle_since_ms = now_ms();
    }
}

impl Presence {
    pub(super) fn new() -> Arc<Self> {
        let seen = Mutex::new(PresenceState {
            guest: None,
            gate: Gate::Closed,
            activities: 0,
            idle_since: Instant::now(),
            idle_since_ms: now_ms(),
            expires: None,
        });
        Arc::new(Self { seen, ended: Arc::default(), begun: Notify::new() })
    }

    /// Notified when an activity ends.
    pub(super) fn ended(&self) -> Arc<Notify> {
        Arc::clone(&self.ended)
    }

    fn seen(&self) -> MutexGuard<'_, PresenceState> {
        // Nothing in it is ever half-changed.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox lives: idle time begins.
    pub(super) fn open(&self, guest: Option<Guest>) {
        let mut seen = self.seen();
        (seen.guest, seen.gate) = (guest, Gate::Open);
        seen.touch();
    }

    /// No new activity begins; current ones may still use the guest.
    pub(super) fn close(&self) {
        self.seen().gate = Gate::Closed;
    }

    /// Its machine is gone, and its memory is on disk: who wants something still must wake it first.
    pub(super) fn put_away(&self) {
        let guest = self.seen().guest.take();
        // Dropping it wakes others, who may want this lock.
        drop(guest);
    }

    /// A machine that is not awake yet has this guest.
    pub(super) fn meet(&self, guest: Option<Guest>) {
        self.seen().guest = guest;
    }

    /// It is asleep: who wants something must wake it first.
    pub(super) fn sleep(&self) {
        self.seen().gate = Gate::Asleep;
    }

    /// It is awake again, with the guest that it has.
    pub(super) fn stay_open(&self) {
        let mut seen = self.seen();
        seen.gate = Gate::Open;
        seen.touch();
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.seen().gate == Gate::Asleep
    }

    /// The machine is gone, or was released.
    pub(super) fn leave(&self) {
        let mut seen = self.seen();
        seen.gate = Gate::Closed;
        let guest = seen.guest.take();
        // Dropping it wakes others, who may want this lock.
        drop(seen);
        drop(guest);
    }

    pub(super) fn guest(&self) -> Option<Guest> {
        self.seen().guest.clone()
    }

    /// Says that something is at work; `None` in a sandbox that does not run or is about to end.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Activity> {
        let mut seen = self.seen();
        if seen.gate != Gate::Open {
            return None;
        }
        seen.activities += 1;
        let is_first = seen.activities == 1;
        drop(seen);
        if is_first {
            self.begun.notify_waiters();
        }
        Some(Activity(Arc::clone(self)))
    }

    /// Resolves as soon as something is at work.
    pub(super) async fn active(&self) {
        let mut begun = pin!(self.begun.notified());
        begun.as_mut().enable();
        if self.idle_for().is_some() {
            begun.await;
        }
    }

    /// Something was at work a moment ago.
    pub(super) fn touch(&self) {
        self.seen().touch();
        self.ended.notify_one();
    }

    /// One of several activities may have ended.
    pub(super) fn may_have_ended(&self) {
        self.ended.notify_one();
    }

    /// How long it has been idle; `None` while it is active.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let seen = self.seen();
        (seen.activities == 0).then(|| seen.idle_since.elapsed())
    }

    /// Closes the presence, or has it sleep, when nothing has been at work for so long. In one step, so that
    /// nothing begins in between.
    pub(super) fn close_if_idle(&self, idle_ttl: Duration, then: OnIdle) -> bool {
        let mut seen = self.seen();
        let over = seen.activities == 0 && seen.idle_since.elapsed() >= idle_ttl;
        if over {
            seen.gate = match then {
                OnIdle::Stop => Gate::Closed,
                OnIdle::Pause | OnIdle::Snapshot => Gate::Asleep,
            };
        }
        over
    }

    pub(super) fn set_expiry(&self, expires: Option<Instant>) {
        self.seen().expires = expires;
    }

    /// Adds momentary facts to a record.
    pub(super) fn show(&self, mut record: Record) -> Record {
        let seen = self.seen();
        if seen.gate == Gate::Closed {
            return record;
        }
        if let (Some(expires), Some(recorded)) = (seen.expires, record.expires_at_ms) {
            // The host has slept, or its clock was set: the wait goes by the time that it was awake.
            let left = expires.saturating_duration_since(Instant::now());
            let truth = now_ms().saturating_add(left.as_millis() as u64);
            if u128::from(truth.abs_diff(recorded)) > EXPIRY_DRIFT_SHOWN.as_millis() {
                record.expires_at_ms = Some(truth);
            }
        }
        if let Some(idle_ttl_ms) = record.idle_ttl_ms
            && seen.activities == 0
            && record.state == State::Running
        {
            record.idle_since_ms = Some(seen.idle_since_ms);
            record.idle_expires_at_ms = Some(seen.idle_since_ms.saturating_add(idle_ttl_ms));
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_time_counts_from_the_end_of_the_last_activity() {
        let presence = Presence::new();
        assert!(presence.begin().is_none(), "nothing begins before the sandbox lives");
        presence.open(None);
        let (one, two) = (presence.begin().unwrap(), presence.begin().unwrap());
        tokio::time::advance(Duration::from_secs(60)).await;
        drop(one);
        assert_eq!(presence.idle_for(), None);
        assert!(!presence.close_if_idle(Duration::ZERO, OnIdle::Stop));
        drop(two);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(presence.idle_for(), Some(Duration::from_secs(2)));
        assert!(!presence.close_if_idle(Duration::from_secs(3), OnIdle::Stop));
        assert!(presence.begin().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_activity_is_woken_by_the_first() {
        let presence = Presence::new();
        presence.open(None);
        let mut active = pin!(presence.active());
        assert!(timeout(Duration::from_secs(60), &mut active).await.is_err());
        let one = presence.begin().unwrap();
        active.await;
        // There is one already.
        presence.active().await;
        drop(one);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_begins_in_a_sandbox_that_is_about_to_end() {
        let presence = Presence::new();
        presence.open(None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(presence.close_if_idle(Duration::from_secs(2), OnIdle::Stop));
        assert!(presence.begin().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_sleeps_lets_nothing_begin_until_it_is_awake_and_its_idle_time_starts_again() {
        let presence = Presence::new();
        presence.open(None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(presence.close_if_idle(Duration::from_secs(2), OnIdle::Pause));
        assert!(presence.is_asleep() && presence.begin().is_none());
        presence.stay_open();
        assert_eq!(presence.idle_for(), Some(Duration::ZERO));
        assert!(!presence.is_asleep() && presence.begin().is_some());
    }
}
