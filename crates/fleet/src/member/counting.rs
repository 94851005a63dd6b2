//! Counters of namespaces: read, change, write by compare-and-swap, and again when somebody was quicker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Answered, Member, Pending};
use crate::event::{Entry, Outcome};
use crate::ids::{Incarnation, Millis};
use crate::limits::{COUNTER_ATTEMPTS, JOINING_MAX, JOINING_MS};
use crate::quota::{Counter, QuotaError};
use crate::records::{Key, Value};

/// What a counter is read for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Admit {
        id: u64,
        incarnation: Incarnation,
        limit: u32,
    },
    Settle {
        id: u64,
        incarnation: Incarnation,
    },
    Abandon {
        incarnation: Incarnation,
    },
    /// A settled sandbox is gone. `then` is what the owner has removed.
    Subtract {
        generation: u64,
        then: Option<Incarnation>,
    },
    /// Only read, for a repair.
    Look {
        id: u64,
    },
    /// Only read, before an owner removes a record.
    BeforeRemoval {
        incarnation: Incarnation,
    },
}

pub(super) struct Count {
    namespace: Arc<str>,
    purpose: Purpose,
    attempts: u32,
    /// What was written, of which the outcome is awaited.
    written: Option<Counter>,
}

/// Since when this member has seen creates that are counted and have not claimed their names.
#[derive(Default)]
pub(super) struct Memory {
    joining_since: BTreeMap<Incarnation, Millis>,
}

impl Memory {
    /// Those that have been there for too long.
    pub(super) fn too_old(&mut self, now: Millis, counter: &Counter) -> BTreeSet<Incarnation> {
        if self.joining_since.len() > 16 * JOINING_MAX {
            self.joining_since.clear();
        }
        let mut found = BTreeSet::new();
        for incarnation in &counter.joining {
            let since = *self.joining_since.entry(*incarnation).or_insert(now);
            if now >= since + JOINING_MS {
                found.insert(*incarnation);
            }
        }
        found
    }
}

impl Member {
    pub(super) fn count(&mut self, namespace: Arc<str>, purpose: Purpose) {
        self.read_counter(Count { namespace, purpose, attempts: 0, written: None });
    }

    fn read_counter(&mut self, count: Count) {
        let key = Key::Quota(count.namespace.clone());
        self.read(key, Pending::Counting(count));
    }

    pub(super) fn counting(&mut self, _now: Millis, count: Count, answer: Answered) {
        match answer {
            Answered::Read(Some(entry)) => self.counter_found(count, entry),
            Answered::Wrote(Outcome::Stored(_)) => {
                let generation = count.written.map_or(0, |counter| counter.generation);
                self.counted(&count.purpose, Ok(generation));
            }
            Answered::Wrote(Outcome::Conflict) if count.attempts < COUNTER_ATTEMPTS => {
                self.read_counter(Count { attempts: count.attempts + 1, written: None, ..count });
            }
            _ => self.counted(&count.purpose, Err(None)),
        }
    }

    fn counter_found(&mut self, count: Count, entry: Entry) {
        let revision = entry.revision;
        let (counter, is_there) = match entry.value {
            Some(Value::Quota(counter)) => (counter, true),
            _ => (Counter::default(), false),
        };
        let next = match &count.purpose {
            // The quota is new, and the namespace may have sandboxes already: they are counted first.
            Purpose::Admit { .. } if !is_there => Err(QuotaError::Uncounted),
            Purpose::Admit { incarnation, limit, .. } => counter.admit(*incarnation, *limit),
            Purpose::Settle { incarnation, .. } => counter.settle(*incarnation),
            Purpose::Abandon { incarnation } => match counter.abandon(*incarnation) {
                Some(next) => Ok(next),
                None => return,
            },
            Purpose::Subtract { generation, then } => match counter.subtract(*generation) {
                Some(next) => Ok(next),
                None => return self.subtracted(*then),
            },
            Purpose::Look { id } => return self.counter_read(*id, Some((counter, revision))),
            Purpose::BeforeRemoval { incarnation } => {
                return self.remove_record(*incarnation, Some(counter.generation));
            }
        };
        match next {
            Ok(next) => {
                let key = Key::Quota(count.namespace.clone());
                let written = Some(next.clone());
                let pending = Pending::Counting(Count { written, ..count });
                self.write(key, revision, Some(Value::Quota(next)), pending);
            }
            Err(error) => self.counted(&count.purpose, Err(Some(error))),
        }
    }

    /// `Err(None)` is a store that does not answer, and a counter that others change all the time.
    fn counted(&mut self, purpose: &Purpose, outcome: Result<u64, Option<QuotaError>>) {
        match *purpose {
            Purpose::Admit { id, .. } => self.admitted(id, outcome.map(|_| ())),
            Purpose::Settle { id, .. } => self.settled(id, outcome),
            Purpose::Abandon { .. } => {}
            Purpose::Subtract { then, .. } => self.subtracted(then),
            Purpose::Look { id } => self.counter_read(id, None),
            // Without the generation nothing is subtracted afterwards: the next repair does it.
            Purpose::BeforeRemoval { incarnation } => self.remove_record(incarnation, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_seen_joining_long_ago_is_too_old() {
        let mut memory = Memory::default();
        let mut counter = Counter::default().admit(Incarnation(1), 9).unwrap();
        assert!(memory.too_old(1_000, &counter).is_empty());
        counter = counter.admit(Incarnation(2), 9).unwrap();
        assert!(memory.too_old(1_000 + JOINING_MS - 1, &counter).is_empty());
        assert_eq!(memory.too_old(1_000 + JOINING_MS, &counter), BTreeSet::from([Incarnation(1)]));
    }
}
