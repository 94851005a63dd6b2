//! What waits for the collector: bounded by number and by bytes. Who adds never waits; what finds no room is
//! counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::limits::{BATCH_BYTES_MAX, BATCH_MAX, WAITING_BYTES_MAX, WAITING_MAX};

/// What becomes of one signal.
#[derive(Debug, Default)]
pub struct Tally {
    pub sent: AtomicU64,
    /// The queue was full.
    pub overflowed: AtomicU64,
    /// The collector has refused them.
    pub refused: AtomicU64,
    /// The collector did not take them in time.
    pub abandoned: AtomicU64,
}

/// The same, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    pub overflowed: u64,
    pub refused: u64,
    pub abandoned: u64,
}

impl Tally {
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            sent: read(&self.sent),
            overflowed: read(&self.overflowed),
            refused: read(&self.refused),
            abandoned: read(&self.abandoned),
        }
    }
}

impl Counts {
    /// Everything that the collector will never have.
    pub fn lost(self) -> u64 {
        self.overflowed + self.refused + self.abandoned
    }
}

/// Adds to a counter.
pub fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

/// See the module's description.
#[derive(Debug)]
pub struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    /// Notified when there is a whole batch.
    filled: Notify,
    pub tally: Tally,
}

#[derive(Debug)]
struct Waiting<T> {
    entries: VecDeque<(T, usize)>,
    bytes: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let waiting = Mutex::new(Waiting { entries: VecDeque::new(), bytes: 0 });
        Self { waiting, filled: Notify::new(), tally: Tally::default() }
    }
}

impl<T> Queue<T> {
    /// Adds an entry that costs so many bytes, if there is room.
    pub fn push(&self, entry: T, bytes: usize) {
        let mut waiting = self.waiting();
        if waiting.entries.len() >= WAITING_MAX || waiting.bytes + bytes > WAITING_BYTES_MAX {
            drop(waiting);
            count(&self.tally.overflowed, 1);
            return;
        }
        waiting.bytes += bytes;
        waiting.entries.push_back((entry, bytes));
        let is_batch = waiting.entries.len() >= BATCH_MAX || waiting.bytes >= BATCH_BYTES_MAX;
        drop(waiting);
        if is_batch {
            self.filled.notify_one();
        }
    }

    /// The oldest entries, at most a batch.
    pub fn take(&self) -> Vec<T> {
        let mut waiting = self.waiting();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some((_, next)) = waiting.entries.front() {
            bytes += next;
            if batch.len() == BATCH_MAX || (bytes > BATCH_BYTES_MAX && !batch.is_empty()) {
                break;
            }
            if let Some((entry, cost)) = waiting.entries.pop_front() {
                waiting.bytes -= cost;
                batch.push(entry);
            }
        }
        batch
    }

    /// Resolves when there is a whole batch.
    pub async fn filled(&self) {
        self.filled.notified().await;
    }

    pub fn len(&self) -> usize {
        self.waiting().entries.len()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        // Nothing in it is ever half-changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_and_what_was_there_first_stays() {
        let queue = Queue::default();
        for number in 0..WAITING_MAX + 3 {
            queue.push(number, 1);
        }
        assert_eq!((queue.len(), queue.tally.counts().overflowed), (WAITING_MAX, 3));
        let batch = queue.take();
        assert_eq!((batch.len(), batch[0], batch[1]), (BATCH_MAX, 0, 1));
        queue.push(7, 1);
        assert_eq!(queue.len(), WAITING_MAX - BATCH_MAX + 1);
    }

    #[test]
    fn large_entries_fill_it_by_their_bytes() {
        let queue = Queue::default();
        let large = BATCH_BYTES_MAX + 1;
        for number in 0..20 {
            queue.push(number, large);
        }
        assert_eq!(queue.len(), WAITING_BYTES_MAX / large);
        assert_eq!(queue.take(), [0], "one that is larger than a batch goes alone");
        assert_eq!(queue.tally.counts().lost() as usize, 20 - WAITING_BYTES_MAX / large);
    }

    #[tokio::test]
    async fn a_whole_batch_wakes_who_sends() {
        let queue = Queue::default();
        for number in 0..BATCH_MAX {
            queue.push(number, 1);
        }
        queue.filled().await;
        assert_eq!(queue.take().len(), BATCH_MAX);
        assert!(queue.take().is_empty());
    }
}
