//! Which snapshots are kept, by the operator's policy: not longer than an age, and of each namespace and of all
//! together not more than a count and a size. The oldest go first. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Snapshot;
use crate::SandboxRef;

/// The policy. What is absent limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The age of a snapshot, since it was taken or imported here.
    pub age_max: Option<Duration>,
    /// Of one namespace.
    pub namespace: Amount,
    /// Of all namespaces together.
    pub all: Amount,
}

/// A number of snapshots, and what they take of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub count_max: Option<u64>,
    pub bytes_max: Option<u64>,
}

/// Why a snapshot is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Excess {
    /// It is older than `age_max`.
    Age,
    /// Its namespace has `count_max` newer ones.
    Count,
    /// Newer ones of its namespace take `bytes_max` with it.
    Bytes,
    /// All namespaces have `total_count_max` newer ones.
    TotalCount,
    /// Newer ones of all namespaces take `total_bytes_max` with it.
    TotalBytes,
}

impl Excess {
    /// The option of `[snapshots]` that says so.
    pub fn option(self) -> &'static str {
        match self {
            Self::Age => "age_max",
            Self::Count => "count_max",
            Self::Bytes => "bytes_max",
            Self::TotalCount => "total_count_max",
            Self::TotalBytes => "total_bytes_max",
        }
    }
}

/// When the policy removes a snapshot, as things are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removal {
    pub why: Excess,
    /// In milliseconds since 1970. One that is not in the future is removed within a minute, or as soon as
    /// nothing starts from the snapshot and nobody exports it.
    pub at_ms: u64,
}

/// What is kept so far.
#[derive(Clone, Copy, Default)]
struct Kept {
    count: u64,
    bytes: u64,
}

impl Kept {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn has_count(self, limit: Amount) -> bool {
        limit.count_max.is_some_and(|max| self.count >= max)
    }

    /// The newest one is kept whatever it takes.
    fn has_bytes(self, limit: Amount, more: u64) -> bool {
        let after = self.bytes.saturating_add(more);
        self.count > 0 && limit.bytes_max.is_some_and(|max| after > max)
    }
}

impl Retention {
    /// Whether it limits anything.
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }

    /// What is removed of these, and when. Those that are in use stay, and count.
    pub fn removals(
        &self,
        snapshots: &[Snapshot],
        in_use: &BTreeSet<SandboxRef>,
        now_ms: u64,
    ) -> BTreeMap<SandboxRef, Removal> {
        let mut newest: Vec<_> = snapshots.iter().collect();
        newest.sort_by_key(|snapshot| {
            (std::cmp::Reverse(snapshot.here_since_ms()), snapshot.which())
        });
        let (mut all, mut namespaces) = (Kept::default(), BTreeMap::<_, Kept>::new());
        let mut removals = BTreeMap::new();
        for snapshot in newest {
            let own = namespaces.entry(&snapshot.namespace).or_default();
            let bytes = snapshot.bytes;
            let ends_ms = self.ends_ms(snapshot);
            let excess = if ends_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                Some(Excess::Age)
            } else if own.has_count(self.namespace) {
                Some(Excess::Count)
            } else if own.has_bytes(self.namespace, bytes) {
                Some(Excess::Bytes)
            } else if all.has_count(self.all) {
                Some(Excess::TotalCount)
            } else if all.has_bytes(self.all, bytes) {
                Some(Excess::TotalBytes)
            } else {
                None
            };
            let which = snapshot.which();
            let stays = excess.is_none() || in_use.contains(&which);
            if stays {
                own.add(bytes);
                all.add(bytes);
            }
            let removal = match (excess, ends_ms) {
                (Some(why), _) => Some(Removal { why, at_ms: now_ms }),
                (None, Some(at_ms)) => Some(Removal { why: Excess::Age, at_ms }),
                (None, None) => None,
            };
            removals.extend(removal.map(|removal| (which, removal)));
        }
        removals
    }

    fn ends_ms(&self, snapshot: &Snapshot) -> Option<u64> {
        let age_ms = u64::try_from(self.age_max?.as_millis()).unwrap_or(u64::MAX);
        Some(snapshot.here_since_ms().saturating_add(age_ms))
    }
}

#[cfg(test)]
mod tests;
