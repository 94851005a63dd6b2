//! How many sandboxes a namespace has, as a counter that is only ever written by compare-and-swap. Pure.
//!
//! A create takes two steps around its claim of the name: `admit`, which refuses at the limit, and `settle`,
//! which is the moment from which the sandbox counts as there. What dies in between leaves an entry in
//! `joining`; a repair counts the names again and drops entries that are too old. A create whose entry was
//! dropped finds that out when it settles, and gives its claim up. So nothing is ever admitted over the limit,
//! and what a crash has left counted is found when somebody is refused.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::Incarnation;
use crate::limits::JOINING_MAX;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Grows with every repair: who has counted before one must not subtract after it.
    pub generation: u64,
    pub settled: u32,
    pub joining: BTreeSet<Incarnation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    #[error("the namespace has {limit} sandboxes, which is its limit in the fleet")]
    Full { limit: u32 },
    #[error("the namespace has {JOINING_MAX} creates under way, which is the limit")]
    Crowded,
    #[error("the namespace's sandboxes could not be counted; nothing was created")]
    Uncounted,
    #[error("the create took so long that its place was given up")]
    Dropped,
}

impl Counter {
    /// One more, if there is room.
    pub fn admit(&self, incarnation: Incarnation, limit: u32) -> Result<Self, QuotaError> {
        if self.joining.contains(&incarnation) {
            return Ok(self.clone());
        }
        if self.settled as usize + self.joining.len() >= limit as usize {
            return Err(QuotaError::Full { limit });
        }
        if self.joining.len() >= JOINING_MAX {
            return Err(QuotaError::Crowded);
        }
        let mut next = self.clone();
        next.joining.insert(incarnation);
        Ok(next)
    }

    /// The create has its name: from here on it is counted by that.
    pub fn settle(&self, incarnation: Incarnation) -> Result<Self, QuotaError> {
        let mut next = self.clone();
        if !next.joining.remove(&incarnation) {
            return Err(QuotaError::Dropped);
        }
        next.settled += 1;
        Ok(next)
    }

    /// The create has ended before it was settled. `None`: there is nothing to write.
    pub fn abandon(&self, incarnation: Incarnation) -> Option<Self> {
        let mut next = self.clone();
        next.joining.remove(&incarnation).then_some(next)
    }

    /// A settled sandbox's record has been removed; `generation` is that of the counter as it was read
    /// before the removal. After a repair the removal may be counted already: the next repair finds it.
    pub fn subtract(&self, generation: u64) -> Option<Self> {
        let mut next = self.clone();
        next.settled = next.settled.checked_sub(1)?;
        (generation == self.generation).then_some(next)
    }

    /// Counts again. `names` are the incarnations that the namespace's records have, read after this counter;
    /// `dropped` are entries that have been joining for too long.
    #[must_use]
    pub fn repair(&self, names: &BTreeSet<Incarnation>, dropped: &BTreeSet<Incarnation>) -> Self {
        let joining: BTreeSet<_> = self.joining.difference(dropped).copied().collect();
        let settled = names.difference(&joining).count() as u32;
        Self { generation: self.generation + 1, settled, joining }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Incarnation {
        Incarnation(number)
    }

    #[test]
    fn the_limit_counts_what_is_there_and_what_is_on_its_way() {
        let counter = Counter::default().admit(id(1), 2).unwrap().settle(id(1)).unwrap();
        let counter = counter.admit(id(2), 2).unwrap();
        assert_eq!(counter.admit(id(3), 2), Err(QuotaError::Full { limit: 2 }));
        assert_eq!(counter.admit(id(2), 2).unwrap(), counter, "a repeated admission is one");
    }

    #[test]
    fn a_create_that_a_repair_has_dropped_does_not_settle() {
        let counter = Counter::default().admit(id(1), 1).unwrap();
        let repaired = counter.repair(&BTreeSet::new(), &BTreeSet::from([id(1)]));
        assert_eq!(repaired.settle(id(1)), Err(QuotaError::Dropped));
        assert!(repaired.admit(id(2), 1).is_ok(), "the dropped place is free");
    }

    #[test]
    fn a_removal_from_before_a_repair_is_not_subtracted_after_it() {
        let counter = Counter::default().admit(id(1), 9).unwrap().settle(id(1)).unwrap();
        let repaired = counter.repair(&BTreeSet::from([id(1)]), &BTreeSet::new());
        assert_eq!(repaired.settled, 1);
        assert_eq!(repaired.subtract(counter.generation), None);
        assert_eq!(repaired.subtract(repaired.generation).unwrap().settled, 0);
    }

    #[test]
    fn a_repair_counts_a_claimed_name_that_is_still_joining_once() {
        let counter = Counter::default().admit(id(1), 9).unwrap();
        let repaired = counter.repair(&BTreeSet::from([id(1), id(2)]), &BTreeSet::new());
        assert_eq!((repaired.settled, repaired.joining.len()), (1, 1));
    }
}
