//! The spool against the simplest thing that could be right: a vector that forgets nothing.

use proptest::prelude::*;

use super::*;
use crate::limits::SPOOL_BYTES_MAX;

/// Spools are tried small, so that every offset wraps around often.
const CAPACITY: usize = 10_000;

#[derive(Clone, Debug)]
enum Operation {
    Push(usize),
    /// Writes into the space that is offered, at most so much of it.
    Fill(usize),
    /// The slowest holder acknowledges so much more.
    Acknowledge(u64),
    Read {
        back: u64,
        max: usize,
    },
    Discard(u64),
    /// The last holder goes, or one comes that needs everything that is still there.
    Pin(bool),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (0..2 * CAPACITY).prop_map(Operation::Push),
        (0..3000_usize).prop_map(Operation::Fill),
        (0..5000_u64).prop_map(Operation::Acknowledge),
        (0..12_000_u64, 0..12_000_usize).prop_map(|(back, max)| Operation::Read { back, max }),
        (0..4000_u64).prop_map(Operation::Discard),
        any::<bool>().prop_map(Operation::Pin),
    ]
}

fn policy() -> impl Strategy<Value = SpoolPolicy> {
    prop_oneof![Just(SpoolPolicy::Block), Just(SpoolPolicy::DropOldest)]
}

/// The expected state of the spool.
struct Model {
    first: u64,
    written: Vec<u8>,
    pin: Option<u64>,
    dropped: u64,
}

impl Model {
    fn end(&self) -> u64 {
        self.first + self.written.len() as u64
    }

    fn slice(&self, from: u64, length: usize) -> &[u8] {
        let at = (from - self.first) as usize;
        &self.written[at..at + length]
    }

    /// Takes over what the spool reports as written, and what it had to discard for it.
    fn wrote(&mut self, bytes: &[u8], start_before: u64, start: u64) {
        self.written.extend_from_slice(bytes);
        if let Some(pin) = self.pin {
            self.dropped += start.saturating_sub(pin.max(start_before));
        }
    }
}

fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_spool_is_the_newest_part_of_everything_written(
        first in prop_oneof![Just(0), 0..1_u64 << 40],
        policy in policy(),
        budget in 0..2 * CAPACITY,
        operations in prop::collection::vec(operation(), 1..80),
    ) {
        let account = Budget::new(budget);
        let mut spool = Spool::new(first, CAPACITY, policy, account.clone());
        let mut model = Model { first, written: Vec::new(), pin: Some(first), dropped: 0 };
        for operation in operations {
            let start = spool.start();
            match operation {
                Operation::Push(length) => {
                    let bytes: Vec<u8> =
                        (0..length as u64).map(|at| byte_at(model.end() + at)).collect();
                    let had_room = spool.has_room(model.pin);
                    let count = spool.push(&bytes, model.pin);
                    prop_assert_eq!(had_room && length > 0, count > 0, "has_room keeps its word");
                    model.wrote(&bytes[..count], start, spool.start());
                }
                Operation::Fill(most) => {
                    let end = spool.end();
                    let space = spool.space(model.pin);
                    let count = space.len().min(most);
                    for (at, byte) in (end..).zip(&mut space[..count]) {
                        *byte = byte_at(at);
                    }
                    let bytes = space[..count].to_vec();
                    spool.commit(count, model.pin);
                    model.wrote(&bytes, start, spool.start());
                }
                Operation::Acknowledge(more) => {
                    model.pin = model.pin.map(|pin| (pin + more).min(model.end()));
                }
                Operation::Read { back, max } => {
                    let from = model.end().saturating_sub(back).max(first);
                    let mut out = vec![7];
                    match spool.read(from, max, &mut out) {
                        Ok(count) => {
                            prop_assert_eq!(count, max.min((model.end() - from) as usize));
                            prop_assert_eq!(&out[1..], model.slice(from, count));
                        }
                        Err(discarded) => {
                            prop_assert!(from < spool.start());
                            prop_assert_eq!(discarded.to, spool.start());
                            prop_assert_eq!(&out, &[7], "nothing is appended");
                        }
                    }
                }
                Operation::Discard(more) => {
                    spool.discard_below(start + more);
                    prop_assert_eq!(spool.start(), (start + more).min(spool.end()));
                    model.pin = model.pin.map(|pin| pin.max(spool.start()));
                }
                Operation::Pin(is_held) => model.pin = is_held.then_some(spool.start()),
            }
            prop_assert_eq!(spool.end(), model.end());
            prop_assert_eq!(spool.dropped(), model.dropped, "every needed byte is counted");
            prop_assert!(spool.end() - spool.start() <= CAPACITY as u64);
            prop_assert!(account.used() <= CAPACITY, "a ring is no larger than its capacity");
            if let (SpoolPolicy::Block, Some(pin)) = (policy, model.pin) {
                prop_assert!(spool.start() <= pin.max(start), "nothing needed is discarded");
                prop_assert_eq!(spool.dropped(), 0);
            }
        }
        drop(spool);
        prop_assert_eq!(account.used(), 0, "the ring is given back");
    }
}

fn pushed(spool: &mut Spool, count: usize, pin: Option<u64>) -> usize {
    spool.push(&vec![b'x'; count], pin)
}

#[test]
fn a_full_spool_that_blocks_takes_what_was_acknowledged() {
    let mut spool = Spool::new(0, CAPACITY, SpoolPolicy::Block, Budget::new(CAPACITY));
    assert_eq!(pushed(&mut spool, CAPACITY + 1, Some(0)), CAPACITY);
    assert!(!spool.has_room(Some(0)));
    assert!(spool.space(Some(0)).is_empty());
    assert_eq!(pushed(&mut spool, CAPACITY, Some(300)), 300);
    assert_eq!(spool.start(), 300);
    assert_eq!(spool.dropped(), 0);
}

#[test]
fn history_below_the_pin_is_kept_as_long_as_there_is_capacity() {
    let mut spool = Spool::new(0, CAPACITY, SpoolPolicy::Block, Budget::new(CAPACITY));
    for _ in 0..CAPACITY / 100 {
        let end = spool.end();
        assert_eq!(pushed(&mut spool, 100, Some(end)), 100);
    }
    assert_eq!(spool.start(), 0, "all of it is history, and all of it fits");
    let end = spool.end();
    assert_eq!(pushed(&mut spool, 100, Some(end)), 100);
    assert_eq!(spool.start(), 100, "the oldest goes first");
}

#[test]
fn drop_oldest_counts_only_bytes_that_somebody_needed() {
    let mut spool = Spool::new(0, CAPACITY, SpoolPolicy::DropOldest, Budget::new(CAPACITY));
    pushed(&mut spool, CAPACITY, Some(0));
    pushed(&mut spool, 1000, Some(900));
    assert_eq!((spool.start(), spool.dropped()), (1000, 100));
    pushed(&mut spool, 1000, None);
    assert_eq!((spool.start(), spool.dropped()), (2000, 100), "nobody needed those");
    pushed(&mut spool, 1000, Some(0));
    assert_eq!((spool.start(), spool.dropped()), (3000, 1100), "a byte is dropped once");
}

#[test]
fn a_holder_ahead_of_the_end_needs_nothing_yet() {
    let mut spool = Spool::new(0, CAPACITY, SpoolPolicy::Block, Budget::new(CAPACITY));
    let pin = Some(1_000_000);
    assert_eq!(pushed(&mut spool, 3 * CAPACITY, pin), 3 * CAPACITY);
    let mut out = Vec::new();
    assert_eq!(spool.read(1_000_000, 10, &mut out), Ok(0), "not written yet is not discarded");
}

/// A regression: `has_room` promised what the budget did not grant, and a writer that waits for
/// room and then writes would have looped.
#[test]
fn a_spool_without_budget_has_its_minimum_and_says_when_it_is_full() {
    let account = Budget::new(0);
    let mut spools: Vec<_> = (0..3)
        .map(|_| Spool::new(0, SPOOL_BYTES_MAX, SpoolPolicy::Block, account.clone()))
        .collect();
    for spool in &mut spools {
        assert_eq!(pushed(spool, SPOOL_BYTES_MAX, Some(0)), SPOOL_BYTES_MIN);
        assert!(!spool.has_room(Some(0)), "there is capacity, but no budget");
    }
    assert_eq!(account.used(), 3 * SPOOL_BYTES_MIN);
    drop(spools);
    assert_eq!(account.used(), 0);
}

#[test]
fn an_emptied_spool_costs_nothing() {
    let account = Budget::new(CAPACITY);
    let mut spool = Spool::new(50, CAPACITY, SpoolPolicy::Block, account.clone());
    pushed(&mut spool, 5000, Some(50));
    assert!(account.used() >= 5000);
    spool.discard_below(u64::MAX);
    assert_eq!((spool.start(), spool.end(), account.used()), (5050, 5050, 0));
    assert_eq!(pushed(&mut spool, 10, Some(5050)), 10);
}
