//! Whether the workload is frozen. [`freeze`](crate::freeze) changes it; code that starts work reads it.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Whether the workload is frozen, or about to be.
#[derive(Default)]
pub struct Freezer {
    /// When the freeze began, by the monotonic clock.
    since_us: Cell<Option<u64>>,
    /// Increases with every freeze and every thaw, so that a watchdog recognises its own freeze.
    turn: Cell<u64>,
    changed: Notify,
    /// A thaw has failed and must be tried again.
    is_stuck: Cell<bool>,
    thawed_at: Cell<Option<Instant>>,
}

impl Freezer {
    pub fn is_frozen(&self) -> bool {
        self.since_us.get().is_some()
    }

    /// When the freeze began, by the monotonic clock.
    pub fn since_us(&self) -> Option<u64> {
        self.since_us.get()
    }

    /// Whether the workload is frozen, or was frozen at some time in the last `time`.
    pub fn was_frozen_within(&self, time: Duration) -> bool {
        self.is_frozen() || self.thawed_at.get().is_some_and(|at| at.elapsed() < time)
    }

    pub fn turn(&self) -> u64 {
        self.turn.get()
    }

    /// A freeze begins. Returns its turn.
    pub fn begin(&self, now_us: u64) -> u64 {
        self.next_turn(Some(now_us))
    }

    /// The workload runs again.
    pub fn end(&self) {
        self.thawed_at.set(Some(Instant::now()));
        self.next_turn(None);
    }

    /// A thaw has failed, so the watchdog must try again now.
    pub fn mark_stuck(&self) {
        self.is_stuck.set(true);
        self.changed.notify_waiters();
    }

    fn next_turn(&self, since_us: Option<u64>) -> u64 {
        self.since_us.set(since_us);
        self.is_stuck.set(false);
        self.turn.set(self.turn.get() + 1);
        self.changed.notify_waiters();
        self.turn.get()
    }

    /// Resolves when `turn` is over, or when its thaw has failed.
    pub async fn turned(&self, turn: u64) {
        while self.turn.get() == turn && !self.is_stuck.get() {
            self.changed.notified().await;
        }
    }

    /// Resolves when the workload is not frozen.
    pub async fn thawed(&self) {
        while self.is_frozen() {
            self.changed.notified().await;
        }
    }
}
