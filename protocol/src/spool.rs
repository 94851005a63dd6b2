//! The spool: the newest bytes of a stream in a ring, addressed by absolute offsets.
//!
//! It is a pure type. Its owner says which bytes are still needed (the *pin*: the lowest
//! unacknowledged offset of all holders); the spool never discards at or above the pin under the
//! `block` policy, and always keeps as much history below it as its capacity allows, so that a late
//! viewer can be shown earlier output.
//!
//! ```text
//!        start          pin                    end
//!  ─ gone ─┊── history ──┊──── needed ──────────┊─ room ─
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::SPOOL_BYTES_MIN;
use crate::requests::SpoolPolicy;

/// The first allocation of a ring; most outputs never need more.
const RING_BYTES_INITIAL: usize = 4096;

/// The memory that all spools of a process may take together. Clones share one account.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Account>);

#[derive(Debug)]
struct Account {
    limit: usize,
    used: AtomicUsize,
}

impl Budget {
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Account { limit, used: AtomicUsize::new(0) }))
    }

    /// Bytes of rings that are allocated at the moment.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Whether more than half of it is used.
    pub fn is_tight(&self) -> bool {
        self.used() > self.0.limit / 2
    }

    /// Reserves `bytes` if they are within the limit. `entitled` bytes are granted in any case:
    /// every spool may have its minimum.
    fn take(&self, bytes: usize, entitled: bool) -> bool {
        let before = self.0.used.fetch_add(bytes, Ordering::Relaxed);
        if !entitled && before + bytes > self.0.limit {
            self.give(bytes);
            return false;
        }
        true
    }

    /// Whether [`Budget::take`] would grant it now.
    fn would_grant(&self, bytes: usize, entitled: bool) -> bool {
        entitled || self.used() + bytes <= self.0.limit
    }

    fn give(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A reader asked for bytes that have been discarded; they begin again at `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded {
    pub to: u64,
}

/// See the module's description.
#[derive(Debug)]
pub struct Spool {
    /// Grows by doubling up to `capacity`; the byte at offset `o` is at `o % ring.len()`.
    ring: Vec<u8>,
    capacity: usize,
    policy: SpoolPolicy,
    start: u64,
    end: u64,
    /// Needed bytes that `drop_oldest` has discarded.
    dropped: u64,
    budget: Budget,
}

impl Spool {
    /// A spool whose first byte will be at offset `at`.
    pub fn new(at: u64, capacity: usize, policy: SpoolPolicy, budget: Budget) -> Self {
        Self { ring: Vec::new(), capacity, policy, start: at, end: at, dropped: 0, budget }
    }

    /// The offset of the oldest byte that is still here.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The offset of the next byte to be written.
    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub fn policy(&self) -> SpoolPolicy {
        self.policy
    }

    /// Whether a byte can be written now without discarding one that is needed: whether
    /// [`Spool::space`] would not be empty.
    pub fn has_room(&self, pin: Option<u64>) -> bool {
        self.room(self.ring.len(), pin) > 0
            || self
                .growth()
                .is_some_and(|(bytes, entitled)| self.budget.would_grant(bytes, entitled))
    }

    /// A contiguous piece of room, empty when the spool is full. What is written into it counts
    /// once [`Spool::commit`] says so.
    pub fn space(&mut self, pin: Option<u64>) -> &mut [u8] {
        if self.held() == self.ring.len() {
            self.grow();
        }
        let size = self.ring.len();
        if size == 0 {
            return &mut [];
        }
        let room = self.room(size, pin);
        let from = self.index(self.end);
        let to = (from + room).min(size);
        &mut self.ring[from..to]
    }

    /// Says that the first `count` bytes of the last [`Spool::space`] have been written.
    pub fn commit(&mut self, count: usize, pin: Option<u64>) {
        self.end += count as u64;
        let oldest = self.end.saturating_sub(self.ring.len() as u64);
        if oldest > self.start {
            let needed_from = pin.map_or(oldest, |pin| pin.max(self.start));
            self.dropped += oldest.saturating_sub(needed_from);
            self.start = oldest;
        }
    }

    /// Copies in as much of `bytes` as there is room for, and says how much that was.
    pub fn push(&mut self, bytes: &[u8], pin: Option<u64>) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            let space = self.space(pin);
            let count = space.len().min(bytes.len() - written);
            if count == 0 {
                break;
            }
            space[..count].copy_from_slice(&bytes[written..written + count]);
            self.commit(count, pin);
            written += count;
        }
        written
    }

    /// Appends up to `max` bytes from `from` on to `out`, and says how many.
    pub fn read(&self, from: u64, max: usize, out: &mut Vec<u8>) -> Result<usize, Discarded> {
        if from < self.start {
            return Err(Discarded { to: self.start });
        }
        let available = self.end.saturating_sub(from);
        let count = (max as u64).min(available) as usize;
        if count > 0 {
            let at = self.index(from);
            let first = count.min(self.ring.len() - at);
            out.extend_from_slice(&self.ring[at..at + first]);
            out.extend_from_slice(&self.ring[..count - first]);
        }
        Ok(count)
    }

    /// Discards what is below `to`: for streams that nobody reads twice. An emptied ring is freed,
    /// so that an idle stream costs nothing.
    pub fn discard_below(&mut self, to: u64) {
        self.start = self.start.max(to.min(self.end));
        if self.start == self.end {
            self.budget.give(self.ring.len());
            self.ring = Vec::new();
        }
    }

    fn held(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn index(&self, offset: u64) -> usize {
        (offset % self.ring.len() as u64) as usize
    }

    /// How much can be written to a ring of `size`.
    fn room(&self, size: usize, pin: Option<u64>) -> usize {
        match (self.policy, pin) {
            (SpoolPolicy::Block, Some(pin)) => {
                size.saturating_sub((self.end - pin.clamp(self.start, self.end)) as usize)
            }
            (SpoolPolicy::Block, None) | (SpoolPolicy::DropOldest, _) => size,
        }
    }

    /// By how much the ring would grow next, and whether it is entitled to that.
    fn growth(&self) -> Option<(usize, bool)> {
        let old = self.ring.len();
        let new = (old * 2).max(RING_BYTES_INITIAL).min(self.capacity);
        (new > old).then_some((new - old, new <= SPOOL_BYTES_MIN))
    }

    /// Doubles the ring, if the capacity and the budget allow.
    fn grow(&mut self) {
        let Some((bytes, entitled)) = self.growth() else { return };
        if !self.budget.take(bytes, entitled) {
            return;
        }
        let old = self.ring.len();
        let new = old + bytes;
        let mut ring = vec![0; new];
        let mut at = self.start;
        while at < self.end {
            let from = self.index(at);
            let to = (at % new as u64) as usize;
            let count = ((self.end - at) as usize).min(old - from).min(new - to);
            ring[to..to + count].copy_from_slice(&self.ring[from..from + count]);
            at += count as u64;
        }
        self.ring = ring;
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.budget.give(self.ring.len());
    }
}

#[cfg(test)]
mod tests;
