//! Caps: how much the sandboxes of one namespace, or of one key, may have together.
//!
//! They are held where names are taken, under the same lock, so that creations that race cannot exceed
//! them. What is held is counted from the records that there are, and never kept beside them: what an
//! earlier bridge left counts, and nothing that has ended can be forgotten. What is used up in the
//! course of a day is the meter's. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ExpiryKind, Record, SandboxError, Snapshot, Spec};
use crate::limits::LOG_BYTES_MAX;
use machine::limits::VIRTUAL_MEMORY_BYTES_DEFAULT;

const BYTES_PER_MIB: u64 = 1024 * 1024;
/// What one counts for that runs without a bound: it was made before there was a cap.
const CPU_MILLIS_USUAL: u64 = 1000;

/// All caps of one bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    pub per_namespace: Cap,
    pub per_key: Cap,
    /// Those that differ, by name.
    pub namespaces: BTreeMap<String, Cap>,
    /// By the key's id.
    pub keys: BTreeMap<String, Cap>,
}

/// The caps of one namespace or key. What is absent is not bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap {
    /// Sandboxes that live.
    pub sandboxes: Option<u64>,
    pub memory_mib: Option<u64>,
    /// Thousandths of a CPU.
    pub cpu_millis: Option<u64>,
    /// Writable layers, logs and snapshots.
    pub disk_bytes: Option<u64>,
    /// How long each may live.
    pub ttl_ms: Option<u64>,
    /// How long all of them may run on one day.
    pub run_ms: Option<u64>,
    /// How much all of them may say on one day.
    pub output_bytes: Option<u64>,
}

impl Cap {
    /// This one, where it says nothing as the other.
    fn or(self, other: Self) -> Self {
        Self {
            sandboxes: self.sandboxes.or(other.sandboxes),
            memory_mib: self.memory_mib.or(other.memory_mib),
            cpu_millis: self.cpu_millis.or(other.cpu_millis),
            disk_bytes: self.disk_bytes.or(other.disk_bytes),
            ttl_ms: self.ttl_ms.or(other.ttl_ms),
            run_ms: self.run_ms.or(other.run_ms),
            output_bytes: self.output_bytes.or(other.output_bytes),
        }
    }

    /// Whether it bounds what is used up in the course of a day.
    pub(super) fn is_of_days(&self) -> bool {
        self.run_ms.is_some() || self.output_bytes.is_some()
    }
}

/// What a scope has used of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub run_ms: u64,
    pub output_bytes: u64,
}

/// Whose sandboxes are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "scope", content = "name", rename_all = "snake_case")]
pub enum Scope {
    Namespace(String),
    Key(String),
}

impl Scope {
    fn has(&self, namespace: &str, key: Option<&String>) -> bool {
        match self {
            Self::Namespace(name) => namespace == name,
            Self::Key(id) => key == Some(id),
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Namespace(_) => "namespace",
            Self::Key(_) => "key",
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Namespace(name) | Self::Key(name) => name,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

/// What a scope has at the moment, and what it has used up today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeUse {
    pub sandboxes: u64,
    pub memory_mib: u64,
    pub cpu_millis: u64,
    pub disk_bytes: u64,
    pub run_ms: u64,
    pub output_bytes: u64,
}

impl ScopeUse {
    fn of(record: &Record) -> Self {
        let mut used = Self::default();
        used.add(record);
        used
    }

    /// One that has stopped keeps nothing but what is on the disk.
    fn add(&mut self, record: &Record) {
        let is_over = record.state.is_over();
        if !is_over {
            self.sandboxes += 1;
            self.memory_mib = self.memory_mib.saturating_add(memory_mib(record.memory_mib));
            self.cpu_millis += record.cpu_millis.map_or(CPU_MILLIS_USUAL, u64::from);
        }
        // That of a process machine is in memory, and goes with it.
        let has_layer = !is_over || record.machine.is_virtual();
        let layer = if has_layer { record.scratch_bytes } else { 0 };
        let log = record.log_bytes.filter(|_| is_over).unwrap_or(LOG_BYTES_MAX);
        self.disk_bytes = self.disk_bytes.saturating_add(layer).saturating_add(log);
    }

    /// What is kept on disk of a snapshot, or may come to be.
    fn add_snapshot(&mut self, bytes: u64) {
        self.disk_bytes = self.disk_bytes.saturating_add(bytes);
    }

    /// Each of them beside its cap.
    pub fn rows(&self, cap: &Cap) -> [CapUse; 6] {
        [
            CapUse { cap: "sandboxes", used: self.sandboxes, allowed: cap.sandboxes },
            CapUse { cap: "memory_mib", used: self.memory_mib, allowed: cap.memory_mib },
            CapUse { cap: "cpu_millis", used: self.cpu_millis, allowed: cap.cpu_millis },
            CapUse { cap: "disk_bytes", used: self.disk_bytes, allowed: cap.disk_bytes },
            CapUse { cap: RUN_MS, used: self.run_ms, allowed: cap.run_ms },
            CapUse { cap: OUTPUT_BYTES, used: self.output_bytes, allowed: cap.output_bytes },
        ]
    }
}

const RUN_MS: &str = "run_ms_per_day";
const OUTPUT_BYTES: &str = "output_bytes_per_day";

/// One number beside what it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapUse {
    pub cap: &'static str,
    pub used: u64,
    pub allowed: Option<u64>,
}

fn memory_mib(bound: Option<u64>) -> u64 {
    bound.unwrap_or(VIRTUAL_MEMORY_BYTES_DEFAULT / BYTES_PER_MIB)
}

/// What somebody keeps of a snapshot: the namespace, the key that made its sandbox, and bytes.
pub(super) struct SnapshotUse<'a> {
    pub namespace: &'a str,
    pub key: Option<&'a String>,
    pub bytes: u64,
}

impl<'a> SnapshotUse<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            namespace: snapshot.namespace.as_str(),
            key: snapshot.key.as_ref(),
            bytes: snapshot.bytes,
        }
    }
}

/// What one scope holds, while it is counted together.
pub(super) struct Tally {
    scope: Scope,
    used: ScopeUse,
}

impl Tally {
    pub(super) fn of(scope: &Scope, spent: Spent) -> Self {
        let Spent { run_ms, output_bytes } = spent;
        Self {
            scope: scope.clone(),
            used: ScopeUse { run_ms, output_bytes, ..ScopeUse::default() },
        }
    }

    pub(super) fn add(&mut self, record: &Record) {
        if self.scope.has(record.namespace.as_str(), record.key.as_ref()) {
            self.used.add(record);
        }
    }

    pub(super) fn add_snapshot(&mut self, held: &SnapshotUse<'_>) {
        if self.scope.has(held.namespace, held.key) {
            self.used.add_snapshot(held.bytes);
        }
    }

    pub(super) fn used(self) -> ScopeUse {
        self.used
    }
}

impl Caps {
    pub fn of(&self, scope: &Scope) -> Cap {
        let (own, usual) = match scope {
            Scope::Namespace(name) => (self.namespaces.get(name), self.per_namespace),
            Scope::Key(id) => (self.keys.get(id), self.per_key),
        };
        own.copied().unwrap_or_default().or(usual)
    }

    /// Whether any scope has a bound of what is used up in the course of a day.
    pub(super) fn are_of_days(&self) -> bool {
        let named = self.namespaces.values().chain(self.keys.values());
        [&self.per_namespace, &self.per_key].into_iter().chain(named).any(Cap::is_of_days)
    }

    /// The scopes that somebody's sandbox is counted in.
    pub fn scopes(namespace: &str, key: Option<&str>) -> Vec<Scope> {
        let key = key.map(|id| Scope::Key(id.to_owned()));
        std::iter::once(Scope::Namespace(namespace.to_owned())).chain(key).collect()
    }

    /// Whether nothing is left of a day, and of what.
    pub(super) fn is_spent(&self, scope: &Scope, spent: Spent) -> Option<ExpiryKind> {
        let cap = self.of(scope);
        if cap.run_ms.is_some_and(|allowed| spent.run_ms >= allowed) {
            return Some(ExpiryKind::RunTime);
        }
        let has_said = cap.output_bytes.is_some_and(|allowed| spent.output_bytes >= allowed);
        has_said.then_some(ExpiryKind::Output)
    }

    /// How long a sandbox may live, and in which scope that is said.
    fn ttl_ms(&self, namespace: &str, key: Option<&str>) -> Option<(u64, Scope)> {
        let scopes = Self::scopes(namespace, key).into_iter();
        let bounds = scopes.filter_map(|scope| Some((self.of(&scope).ttl_ms?, scope)));
        bounds.min_by_key(|(ttl_ms, _)| *ttl_ms)
    }

    /// Gives a sandbox that says nothing the longest time that it may live, and refuses what may not
    /// be whatever the others have.
    pub fn bound(&self, spec: &mut Spec) -> Result<(), SandboxError> {
        let (namespace, key) = (spec.namespace.as_str(), spec.key.as_deref());
        if let Some((allowed, scope)) = self.ttl_ms(namespace, key) {
            let asked = *spec.ttl_ms.get_or_insert(allowed);
            if asked > allowed {
                return Err(exceeded(scope, "ttl_ms", 0, asked, allowed));
            }
        }
        for scope in Self::scopes(spec.namespace.as_str(), spec.key.as_deref()) {
            let cap = self.of(&scope);
            let is_bounded = spec.memory_mib.is_some() || spec.machine.is_virtual();
            let what = match cap {
                Cap { memory_mib: Some(_), .. } if !is_bounded => "memory_mib",
                Cap { cpu_millis: Some(_), .. } if spec.cpu_millis.is_none() => "cpus",
                _ => continue,
            };
            return Err(SandboxError::Unbounded { scope, what });
        }
        Ok(())
    }

    /// The same for one whose time to live is changed, counted from now.
    pub fn extend(&self, record: &Record, ttl_ms: u64, now_ms: u64) -> Result<(), SandboxError> {
        let bound = self.ttl_ms(record.namespace.as_str(), record.key.as_deref());
        let Some((allowed, scope)) = bound else { return Ok(()) };
        let used = now_ms.saturating_sub(record.created_at_ms);
        // 0 is for ever.
        let asked = if ttl_ms == 0 { u64::MAX } else { ttl_ms };
        if used.saturating_add(asked) > allowed {
            return Err(exceeded(scope, "ttl_ms", used, asked, allowed));
        }
        Ok(())
    }

    /// Refuses a sandbox for which there is no room beside what there is. `used` counts a scope that
    /// has a cap.
    pub(super) fn admit(
        &self,
        new: &Record,
        used: impl Fn(&Scope, &Cap) -> Result<ScopeUse, SandboxError>,
    ) -> Result<(), SandboxError> {
        self.hold(new, ScopeUse::of(new), used)
    }

    /// The same for a snapshot of a sandbox, which may come to take so many bytes.
    pub(super) fn admit_snapshot(
        &self,
        of: &Record,
        bytes: u64,
        used: impl Fn(&Scope, &Cap) -> Result<ScopeUse, SandboxError>,
    ) -> Result<(), SandboxError> {
        let mut asked = ScopeUse::default();
        asked.add_snapshot(bytes);
        self.hold(of, asked, used)
    }

    /// The same for one that is to go on from a pause: it has what it has, but for the day's.
    pub(super) fn admit_again(
        &self,
        record: &Record,
        used: impl Fn(&Scope, &Cap) -> Result<ScopeUse, SandboxError>,
    ) -> Result<(), SandboxError> {
        self.hold(record, ScopeUse::default(), used)
    }

    fn hold(
        &self,
        whose: &Record,
        asked: ScopeUse,
        used: impl Fn(&Scope, &Cap) -> Result<ScopeUse, SandboxError>,
    ) -> Result<(), SandboxError> {
        let is_snapshot = asked.sandboxes == 0 && asked.disk_bytes > 0;
        for scope in Self::scopes(whose.namespace.as_str(), whose.key.as_deref()) {
            let cap = self.of(&scope);
            if cap == Cap::default() {
                continue;
            }
            let used = used(&scope, &cap)?;
            let asked = asked.rows(&cap);
            for (CapUse { cap, used, allowed }, CapUse { used: asked, .. }) in
                used.rows(&cap).into_iter().zip(asked)
            {
                let Some(allowed) = allowed else { continue };
                let is_of_days = cap == RUN_MS || cap == OUTPUT_BYTES;
                // Of a day, something must be left. Whatever else is not asked for is as it was, also
                // where the cap has been lowered since.
                let is_over = if is_of_days {
                    !is_snapshot && used >= allowed
                } else {
                    asked > 0 && used.saturating_add(asked) > allowed
                };
                if is_over && is_of_days {
                    return Err(SandboxError::DaySpent { scope, cap, used, allowed });
                }
                if is_over {
                    return Err(exceeded(scope, cap, used, asked, allowed));
                }
            }
        }
        Ok(())
    }
}

fn exceeded(scope: Scope, cap: &'static str, used: u64, asked: u64, allowed: u64) -> SandboxError {
    SandboxError::CapExceeded { scope, cap, used, asked, allowed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{State, StopReason};
    use machine::{MachineKind, SandboxId};

    fn record(namespace: &str, key: Option<&str>, mib: u64) -> Record {
        let mut spec = Spec::new(format!("{namespace}/x").parse().unwrap());
        (spec.memory_mib, spec.cpu_millis) = (Some(mib), Some(500));
        spec.key = key.map(str::to_owned);
        Record::new(SandboxId::draw().unwrap(), &spec, 1000)
    }

    /// Asks for one beside others.
    fn admit(caps: &Caps, new: &Record, there: &[Record]) -> Result<(), SandboxError> {
        caps.admit(new, |scope, _| {
            let mut tally = Tally::of(scope, Spent::default());
            for record in there {
                tally.add(record);
            }
            Ok(tally.used())
        })
    }

    fn refused(outcome: Result<(), SandboxError>) -> (&'static str, u64, u64, u64) {
        match outcome {
            Err(SandboxError::CapExceeded { cap, used, asked, allowed, .. }) => {
                (cap, used, asked, allowed)
            }
            Err(SandboxError::DaySpent { cap, used, allowed, .. }) => (cap, used, 0, allowed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_namespace_and_a_key_have_is_counted_apart() {
        let mut caps = Caps::default();
        caps.per_namespace.memory_mib = Some(1000);
        caps.per_key.sandboxes = Some(2);
        let there = [record("a", Some("k"), 600), record("b", Some("k"), 100)];
        assert_eq!(
            refused(admit(&caps, &record("a", None, 401), &there)),
            ("memory_mib", 600, 401, 1000)
        );
        admit(&caps, &record("a", None, 400), &there).unwrap();
        assert_eq!(
            refused(admit(&caps, &record("c", Some("k"), 1), &there)),
            ("sandboxes", 2, 1, 2)
        );
        admit(&caps, &record("c", Some("other"), 1), &there).unwrap();
        // One that is named has its own, and the usual one where it says nothing.
        caps.keys.insert("k".to_owned(), Cap { sandboxes: Some(3), ..Cap::default() });
        admit(&caps, &record("c", Some("k"), 1), &there).unwrap();
        let own = Cap { cpu_millis: Some(700), ..Cap::default() };
        caps.namespaces.insert("a".to_owned(), own);
        assert_eq!(
            refused(admit(&caps, &record("a", None, 1), &there)),
            ("cpu_millis", 500, 500, 700)
        );
        assert_eq!(caps.of(&Scope::Namespace("a".to_owned())).memory_mib, Some(1000));
    }

    #[test]
    fn a_time_to_live_is_given_and_cannot_be_outlived() {
        let mut caps = Caps::default();
        (caps.per_namespace.ttl_ms, caps.per_key.ttl_ms) = (Some(9000), Some(5000));
        let mut spec = Spec::new("a/x".parse().unwrap());
        caps.bound(&mut spec).unwrap();
        assert_eq!(spec.ttl_ms, Some(9000));
        (spec.ttl_ms, spec.key) = (Some(5001), Some("k".to_owned()));
        assert_eq!(refused(caps.bound(&mut spec)), ("ttl_ms", 0, 5001, 5000));
        let made = record("a", Some("k"), 1);
        caps.extend(&made, 4000, 2000).unwrap();
        assert_eq!(refused(caps.extend(&made, 4001, 2000)), ("ttl_ms", 1000, 4001, 5000));
        assert_eq!(refused(caps.extend(&made, 0, 2000)).0, "ttl_ms");
    }

    #[test]
    fn where_memory_is_counted_it_must_be_said() {
        let mut caps = Caps::default();
        caps.per_namespace.memory_mib = Some(1000);
        let mut spec = Spec::new("a/x".parse().unwrap());
        assert!(matches!(
            caps.bound(&mut spec),
            Err(SandboxError::Unbounded { what: "memory_mib", .. })
        ));
        spec.memory_mib = Some(16);
        caps.bound(&mut spec).unwrap();
    }

    #[test]
    fn what_has_stopped_keeps_what_is_on_the_disk_and_nothing_else() {
        let mut stopped = record("a", None, 600);
        stopped.state = State::Stopped { why: StopReason::Asked, at_ms: 7 };
        stopped.log_bytes = Some(77);
        let mut used = ScopeUse::of(&stopped);
        assert_eq!(used, ScopeUse { disk_bytes: 77, ..ScopeUse::default() });
        stopped.machine = MachineKind::Qemu;
        used = ScopeUse::of(&stopped);
        assert_eq!(used.disk_bytes, 77 + stopped.scratch_bytes);
        assert_eq!((used.sandboxes, used.memory_mib), (0, 0));
        stopped.state = State::Running;
        assert_eq!(ScopeUse::of(&stopped).disk_bytes, LOG_BYTES_MAX + stopped.scratch_bytes);
    }

    #[test]
    fn when_nothing_is_left_of_a_day_nothing_begins_and_snapshots_are_still_made() {
        let mut caps = Caps::default();
        caps.per_namespace.run_ms = Some(1000);
        let spent =
            |run_ms| move |_: &Scope, _: &Cap| Ok(ScopeUse { run_ms, ..ScopeUse::default() });
        let new = record("a", None, 1);
        caps.admit(&new, spent(999)).unwrap();
        let (cap, used, _, allowed) = refused(caps.admit(&new, spent(1000)));
        assert_eq!((cap, used, allowed), (RUN_MS, 1000, 1000));
        assert_eq!(refused(caps.admit_again(&new, spent(1000))).0, RUN_MS);
        caps.admit_snapshot(&new, 5, spent(1000)).unwrap();
    }
}
