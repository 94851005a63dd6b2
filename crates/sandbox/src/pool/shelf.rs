//! A shelf: the machines of one entry, and how many may be there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::status::{Counts, ShelfStatus};
use super::warmed::Warmed;
use super::{Entry, Shape};
use crate::limits::{POOL_PAUSE_MAX, POOL_PAUSE_MIN};
use crate::stored::HeldImage;
use machine::{Running, SandboxId};

/// An unused machine.
pub(super) struct Ready {
    pub id: SandboxId,
    pub shape: Shape,
    pub running: Arc<dyn Running>,
    /// The image of the store that it has as its root, held.
    pub image: Option<HeldImage>,
    /// Watches it while it is on the shelf.
    pub keeper: AbortHandle,
    pub since_ms: u64,
}

/// A machine that was started for a shelf.
pub(super) struct Made {
    pub shape: Shape,
    pub running: Arc<dyn Running>,
    pub image: Option<HeldImage>,
}

pub(super) struct Shelf {
    pub entry: Entry,
    /// What its machines are restored from, where their kind can be.
    pub warmed: Warmed,
    /// Nothing is started for it any more.
    closed: watch::Sender<bool>,
    stock: Mutex<Stock>,
    /// There may be room now.
    changed: Notify,
}

/// Places are taken by machines that start, are ready, or leave, so that there are never more
/// machines than places.
#[derive(Default)]
pub(super) struct Stock {
    pub ready: VecDeque<Ready>,
    pub starting: usize,
    /// Claimed on trial, or about to end.
    leaving: usize,
    /// Failures since a machine was last known to work.
    failures: u32,
    /// Nothing is started before this.
    not_before: Option<Instant>,
    last_failure: Option<String>,
    pub counts: Counts,
}

impl Stock {
    /// Notes a failure, and says for how long nothing is started now.
    pub fn failed(&mut self, why: String) -> Duration {
        let doubled = POOL_PAUSE_MIN.saturating_mul(1 << self.failures.min(u32::BITS - 2));
        let pause = doubled.min(POOL_PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(Instant::now() + pause);
        self.last_failure = Some(why);
        self.counts.failed += 1;
        pause
    }

    /// A machine was useful, or has lived for a while: the problem is over.
    pub fn has_proved_good(&mut self) {
        (self.failures, self.not_before, self.last_failure) = (0, None, None);
    }

    fn taken(&self) -> usize {
        self.ready.len() + self.starting + self.leaving
    }
}

impl Shelf {
    pub fn new(entry: Entry) -> Self {
        let (stock, changed) = (Mutex::default(), Notify::new());
        Self { entry, warmed: Warmed::default(), closed: watch::Sender::new(false), stock, changed }
    }

    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Resolves when nothing is started for it any more.
    pub async fn until_closed(&self) {
        // The sender is here.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    pub fn stock(&self) -> MutexGuard<'_, Stock> {
        // Nothing in it is ever half-changed.
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the oldest machine that fits. Its place is free when [`Shelf::ended`] is called.
    pub fn take(&self, fits: impl Fn(&Ready) -> bool) -> Option<Ready> {
        let mut stock = self.stock();
        let position = stock.ready.iter().position(fits)?;
        let ready = stock.ready.remove(position)?;
        stock.leaving += 1;
        Some(ready)
    }

    /// Takes all machines, to end them.
    pub fn empty(&self) -> Vec<Ready> {
        let mut stock = self.stock();
        let all: Vec<_> = stock.ready.drain(..).collect();
        stock.leaving += all.len();
        drop(stock);
        for ready in &all {
            ready.keeper.abort();
        }
        all
    }

    /// The claim succeeded.
    pub fn claimed(&self) {
        let mut stock = self.stock();
        stock.counts.claimed += 1;
        stock.has_proved_good();
        drop(stock);
        self.ended();
    }

    /// The claimed machine no longer counts here.
    pub fn ended(&self) {
        self.stock().leaving -= 1;
        self.changed.notify_one();
    }

    /// Takes a place for one more, if there is one.
    pub fn take_place(&self) -> bool {
        let mut stock = self.stock();
        let has_room = stock.taken() < self.entry.count;
        stock.starting += usize::from(has_room);
        has_room
    }

    /// A start failed.
    pub fn give_up_start(&self) {
        self.stock().starting -= 1;
        self.changed.notify_one();
    }

    /// Waits for a place, and takes it.
    pub async fn next_place(&self) {
        loop {
            let not_before = self.stock().not_before;
            match not_before {
                Some(at) if at > Instant::now() => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.changed.notified() => {}
                    }
                }
                _ if self.take_place() => return,
                _ => self.changed.notified().await,
            }
        }
    }

    pub fn status(&self) -> ShelfStatus {
        let stock = self.stock();
        let entry = &self.entry;
        ShelfStatus {
            image: entry.name.clone(),
            machine: entry.machine,
            memory_mib: entry.memory_mib,
            cpu_millis: entry.cpu_millis,
            contexts: entry.contexts.clone(),
            wanted: entry.count,
            ready: stock.ready.len(),
            starting: stock.starting,
            restored: self.warmed.restored(),
            snapshot_bytes: self.warmed.snapshot().map(|snapshot| snapshot.bytes),
            counts: stock.counts,
            failure: stock.last_failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_make_ever_longer_pauses_up_to_a_bound() {
        let shelf = Shelf::new(Entry::new("a", 1));
        let mut pauses = Vec::new();
        for _ in 0..40 {
            let pause = shelf.stock().failed("no".to_owned());
            let begun = Instant::now();
            shelf.next_place().await;
            shelf.give_up_start();
            assert!(begun.elapsed() >= pause);
            pauses.push(pause);
        }
        assert_eq!((pauses[0], pauses[1]), (POOL_PAUSE_MIN, 2 * POOL_PAUSE_MIN));
        assert!(pauses.is_sorted());
        assert_eq!(pauses.last(), Some(&POOL_PAUSE_MAX));
        shelf.stock().has_proved_good();
        assert_eq!(shelf.stock().failed("no".to_owned()), POOL_PAUSE_MIN);
    }

    #[test]
    fn starting_and_leaving_machines_take_a_place() {
        let shelf = Shelf::new(Entry::new("a", 2));
        assert!(shelf.take_place());
        shelf.stock().leaving += 1;
        assert!(!shelf.take_place());
        shelf.ended();
        assert!(shelf.take_place());
        assert!(!shelf.take_place());
    }
}
