//! The bytes of a stream as a function of its key and the offset, and the two ends of a stream
//! that only writes or checks them.

use std::sync::OnceLock;

use protocol::limits::{CHUNK_BYTES_MAX, CREDIT_BYTES_INITIAL};
use protocol::mux::Fetched;
use protocol::requests::SpoolPolicy;
use protocol::spool::{Budget, Spool};

use crate::random::Random;

/// A prime, so that no buffer size divides it and a displaced byte shows.
const PERIOD: usize = 65_521;

/// The bytes of stream `key` from `offset` on; at most a chunk.
pub fn content(key: u64, offset: u64, length: usize) -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    let pattern = PATTERN.get_or_init(|| {
        let mut random = Random::new(1);
        let period: Vec<u8> = (0..PERIOD).map(|_| random.next() as u8).collect();
        period.repeat(3)
    });
    assert!(length <= CHUNK_BYTES_MAX, "content is asked for by the chunk");
    let start = (key.wrapping_mul(7919).wrapping_add(offset) % PERIOD as u64) as usize;
    &pattern[start..start + length]
}

/// Writes the first `length` bytes of a stream, little by little.
pub struct Writer {
    key: u64,
    length: u64,
    spool: Spool,
}

impl Writer {
    pub fn new(
        key: u64,
        length: u64,
        spool_bytes: usize,
        policy: SpoolPolicy,
        budget: &Budget,
    ) -> Self {
        Self { key, length, spool: Spool::new(0, spool_bytes, policy, budget.clone()) }
    }

    /// Writes something, if there is room; false when it could not.
    pub fn write(&mut self, random: &mut Random, pin: Option<u64>) -> bool {
        if self.is_at_end() {
            return false;
        }
        let rest = self.length - self.spool.end();
        let wanted = (1 + random.magnitude(CHUNK_BYTES_MAX as u64 / 2)).min(rest) as usize;
        let bytes = content(self.key, self.spool.end(), wanted);
        let had_room = self.spool.has_room(pin);
        let written = self.spool.push(bytes, pin);
        assert_eq!(had_room, written > 0, "has_room keeps its word");
        written > 0
    }

    pub fn is_at_end(&self) -> bool {
        self.spool.end() == self.length
    }

    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Nobody reads below `offset` again.
    pub fn discard_below(&mut self, offset: u64) {
        self.spool.discard_below(offset);
    }

    pub fn fetch(&self, from: u64, max: usize, out: &mut Vec<u8>) -> Fetched {
        match self.spool.read(from, max, out) {
            Err(discarded) => Fetched::Gap { to: discarded.to },
            Ok(0) if self.is_at_end() && from == self.length => Fetched::End,
            Ok(0) => Fetched::Nothing,
            Ok(count) => Fetched::Bytes(count),
        }
    }
}

/// Checks the arriving bytes of a stream, and takes them at its own pace.
pub struct Reader {
    key: u64,
    from: u64,
    next: u64,
    consumed: u64,
    pub missed: u64,
    finished: bool,
    /// One step in so many takes something.
    patience: u64,
    gaps_allowed: bool,
    /// Below it there may be gaps in any case: an earlier holder has had those bytes.
    lossless_from: u64,
}

impl Reader {
    pub fn new(key: u64, from: u64, patience: u64, gaps_allowed: bool) -> Self {
        let (next, consumed) = (from, from);
        let (missed, finished, lossless_from) = (0, false, 0);
        Self { key, from, next, consumed, missed, finished, patience, gaps_allowed, lossless_from }
    }

    pub fn lossless_from(self, lossless_from: u64) -> Self {
        Self { lossless_from, ..self }
    }

    pub fn on_data(&mut self, offset: u64, bytes: &[u8]) {
        assert_eq!(offset, self.next, "data comes in order");
        assert!(!self.finished, "nothing follows the end");
        assert_eq!(bytes, content(self.key, offset, bytes.len()), "bytes of {} are true", self.key);
        self.next += bytes.len() as u64;
        let waiting = self.next - self.consumed - self.missed.min(self.next - self.consumed);
        assert!(
            waiting <= CREDIT_BYTES_INITIAL,
            "{waiting} bytes wait, which is beyond the credit"
        );
    }

    pub fn on_gap(&mut self, from: u64, to: u64) {
        assert!(
            self.gaps_allowed || to <= self.lossless_from,
            "a lossless stream has no gap, but one from {from} to {to} came"
        );
        assert_eq!(from, self.next, "a gap begins where the bytes ended");
        assert!(!self.finished, "nothing follows the end");
        self.missed += to - from;
        self.next = to;
    }

    pub fn on_fin(&mut self) {
        assert!(!self.finished, "a stream ends once");
        self.finished = true;
    }

    pub fn is_finished(&self) -> bool {
        self.finished
    }

    pub fn received(&self) -> u64 {
        self.next - self.from
    }

    /// Takes some of the waiting bytes; returns the offset below which all is taken, if that moved.
    pub fn consume(&mut self, random: &mut Random) -> Option<u64> {
        if self.consumed == self.next || !random.once_in(self.patience) {
            return None;
        }
        let waiting = self.next - self.consumed;
        self.consumed += if random.once_in(2) { waiting } else { 1 + random.below(waiting) };
        Some(self.consumed)
    }

    pub fn has_taken_all(&self) -> bool {
        self.finished && self.consumed == self.next
    }

    pub fn assert_complete(&self, length: u64) {
        assert!(self.has_taken_all(), "the end has come");
        assert_eq!(self.next, length, "bytes and gaps of stream {} add up", self.key);
    }
}
