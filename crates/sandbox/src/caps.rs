//! Caps: limits for all sandboxes of one namespace, or of one key, together.
//!
//! They are enforced where names are taken, under the same lock, so that concurrent creations cannot exceed
//! them. Usage is counted from the existing records, and never stored beside them: what an earlier bridge
//! left counts, and an ended sandbox is never forgotten. The meter counts daily usage. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ExpiryKind, Record, SandboxError, Snapshot, Spec};
use crate::limits::{INPUT_BYTES_MAX, LOG_BYTES_MAX, PROVENANCE_BYTES_MAX};
use machine::limits::VIRTUAL_MEMORY_BYTES_DEFAULT;
use workspace::volume::Volume;

const BYTES_PER_MIB: u64 = 1024 * 1024;
/// The processors that an unlimited sandbox counts for: it was created before there was a cap.
const CPU_MILLIS_USUAL: u64 = 1000;

/// All caps of one bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    pub per_namespace: Cap,
    pub per_key: Cap,
    /// Exceptions, by name.
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
    /// Writable layers, logs, snapshots, volumes and the memory of sandboxes that sleep on disk.
    pub disk_bytes: Option<u64>,
    /// How long each sandbox may live.
    pub ttl_ms: Option<u64>,
    /// How long all of them may run per day.
    pub run_ms: Option<u64>,
    /// How much output all of them may write per day.
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

    /// Whether it limits daily usage.
    pub(super) fn is_of_days(&self) -> bool {
        self.run_ms.is_some() || self.output_bytes.is_some()
    }
}

/// The daily usage of a scope.
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

/// What a scope uses at the moment, and what it has used today.
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

    /// A stopped sandbox only counts for its disk space.
    fn add(&mut self, record: &Record) {
        let is_over = record.state.is_over();
        if !is_over {
            self.sandboxes += 1;
            self.memory_mib = self.memory_mib.saturating_add(memory_mib(record.memory_mib));
            self.cpu_millis += record.cpu_millis.map_or(CPU_MILLIS_USUAL, u64::from);
        }
        // A process machine's layer is in memory, and ends with it.
        let has_layer = !is_over || record.machine.is_virtual();
        let layer = if has_layer { record.scratch_bytes } else { 0 };
        let input = if record.record.has_input() { INPUT_BYTES_MAX } else { 0 };
        let log_max = LOG_BYTES_MAX + PROVENANCE_BYTES_MAX + input;
        let log = record.log_bytes.filter(|_| is_over).unwrap_or(log_max);
        let asleep = if is_over { 0 } else { record.asleep_bytes };
        let own = layer.saturating_add(log).saturating_add(asleep);
        self.disk_bytes = self.disk_bytes.saturating_add(own);
    }

    /// The disk space of a snapshot, or its expected size.
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

/// A usage and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapUse {
    pub cap: &'static str,
    pub used: u64,
    pub allowed: Option<u64>,
}

fn memory_mib(bound: Option<u64>) -> u64 {
    bound.unwrap_or(VIRTUAL_MEMORY_BYTES_DEFAULT / BYTES_PER_MIB)
}

/// A snapshot's usage: the namespace, the key that made its sandbox, and bytes.
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

/// The usage of one scope, while it is summed.
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

    pub(super) fn add_volume(&mut self, volume: &Volume, bytes: u64) {
        if self.scope.has(&volume.namespace, volume.key.as_ref()) {
            self.used.disk_bytes = self.used.disk_bytes.saturating_add(bytes);
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

    /// Whether any scope has a daily limit.
    pub(super) fn are_of_days(&self) -> bool {
        let named = self.namespaces.values().chain(self.keys.values());
        [&self.per_namespace, &self.per_key].into_iter().chain(named).any(Cap::is_of_days)
    }

    /// The scopes that a sandbox counts in.
    pub fn scopes(namespace: &str, key: Option<&str>) -> Vec<Scope> {
        let key = key.map(|id| Scope::Key(id.to_owned()));
        std::iter::once(Scope::Namespace(namespace.to_owned())).chain(key).collect()
    }

    /// Which daily limit is reached, if any.
    pub(super) fn is_spent(&self, scope: &Scope, spent: Spent) -> Option<ExpiryKind> {
        let cap = self.of(scope);
        if cap.run_ms.is_some_and(|allowed| spent.run_ms >= allowed) {
            return Some(ExpiryKind::RunTime);
        }
        let has_said = cap.output_bytes.is_some_and(|allowed| spent.output_bytes >= allowed);
        has_said.then_some(ExpiryKind::Output)
    }

    /// How long a sandbox may live, and which scope says so.
    fn ttl_ms(&self, namespace: &str, key: Option<&str>) -> Option<(u64, Scope)> {
        let scopes = Self::scopes(namespace, key).into_iter();
        let bounds = scopes.filter_map(|scope| Some((self.of(&scope).ttl_ms?, scope)));
        bounds.min_by_key(|(ttl_ms, _)| *ttl_ms)
    }

    /// Gives a sandbox without a time to live the longest permitted one, and refuses what exceeds a cap on
    /// its own.
    pub fn bound(&self, spec: &mut Spec) -> Result<(), SandboxError> {
        let (namespace, key) = (spec.namespace.as_str(), spec.key.as_deref());
        if let Some((allowed, scope)) = self.ttl_ms(namespace, key) {
            let requested = *spec.ttl_ms.get_or_insert(allowed);
            if requested > allowed {
                return Err(exceeded(scope, "ttl_ms", 0, requested, allowed));
            }
        }
        for scope in Self::scopes(spec.namespace.as_str(), spec.key.as_deref()) {
            let cap = self.of(&scope);
            let is_bounded = spec.memory_mib.is_some() || spec.machine().is_virtual();
            let what = match cap {
                Cap { memory_mib: Some(_), .. } if !is_bounded => "memory_mib",
                Cap { cpu_millis: Some(_), .. } if spec.cpu_millis.is_none() => "cpus",
                _ => continue,
            };
            return Err(SandboxError::Unbounded { scope, what });
        }
        Ok(())
    }

    /// Checks a changed time to live, counted from now.
    pub fn extend(&self, record: &Record, ttl_ms: u64, now_ms: u64) -> Result<(), SandboxError> {
        let bound = self.ttl_ms(record.namespace.as_str(), record.key.as_deref());
        let Some((allowed, scope)) = bound else { return Ok(()) };
        let used = now_ms.saturating_sub(record.created_at_ms);
        // 0 means no limit.
        let requested = if ttl_ms == 0 { u64::MAX } else { ttl_ms };
        if used.saturating_add(requested) > allowed {
            return Err(exceeded(scope, "ttl_ms", used, requested, allowed));
        }
        Ok(())
    }

    /// Refuses a sandbox that exceeds a cap together with the existing ones. `used` counts a scope that has a
    /// cap.
    pub(super) fn admit(
        &self,
        new: &Record,
        used: impl Fn(&Scope, &Cap) -> Result<ScopeUse, SandboxError>,
    ) -> Result<(), SandboxError> {
        self.hold(new, ScopeUse::of(new), used)
    }

    /// Refuses a snapshot of this expected size if it exceeds a cap.
    pub(super) fn admit_snapshot(
        &self,
        of: &Record,
        bytes: u64,
        used: impl Fn(&Scope, &Cap) -> Result<ScopeUse, SandboxError>,
    ) -> Result<(), SandboxError> {
        let mut requested = ScopeUse::default();
        requested.add_snapshot(bytes);
        self.hold(of, requested, used)
    }

    /// How many bytes a scope's cap leaves, as far as there is one, or which cap leaves none.
    pub(super) fn room_on_disk(
        &self,
        namespace: &str,
        key: Option<&str>,
        used: impl Fn(&Scope, &Cap) -> Result<ScopeUse, SandboxError>,
    ) -> Result<Option<u64>, SandboxError> {
        let mut room = None;
        for scope in Self::scopes(namespace, key) {
            let cap = self.of(&scope);
            let Some(allowed) = cap.disk_bytes else { continue };
            let used = used(&scope, &cap)?.disk_bytes;
            let left = allowed.saturating_sub(used);
            if left == 0 {
                return Err(exceeded(scope, "disk_bytes", used, 1, allowed));
            }
            room = Some(room.map_or(left, |room: u64| room.min(left)));
        }
        Ok(room)
    }

    /// Refuses to resume a paused sandbox only if a daily cap is reached: the rest counts already.
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
        requested: ScopeUse,
        used: impl Fn(&Scope, &Cap) -> Result<ScopeUse, SandboxError>,
    ) -> Result<(), SandboxError> {
        let is_snapshot = requested.sandboxes == 0 && requested.disk_bytes > 0;
        for scope in Self::scopes(whose.namespace.as_str(), whose.key.as_deref()) {
            let cap = self.of(&scope);
            if cap == Cap::default() {
                continue;
            }
            let used = used(&scope, &cap)?;
            let requested = requested.rows(&cap);
            for (CapUse { cap, used, allowed }, CapUse { used: requested, .. }) in
                used.rows(&cap).into_iter().zip(requested)
            {
                let Some(allowed) = allowed else { continue };
                let is_of_days = cap == RUN_MS || cap == OUTPUT_BYTES;
                // Something of a daily cap must be left. What is not requested stays as it was, even if the
                // cap was lowered since.
                let is_over = if is_of_days {
                    !is_snapshot && used >= allowed
                } else {
                    requested > 0 && used.saturating_add(requested) > allowed
                };
                if is_over && is_of_days {
                    return Err(SandboxError::DaySpent { scope, cap, used, allowed });
                }
                if is_over {
                    return Err(exceeded(scope, cap, used, requested, allowed));
                }
            }
        }
        Ok(())
    }
}

fn exceeded(
    scope: Scope,
    cap: &'static str,
    used: u64,
    requested: u64,
    allowed: u64,
) -> SandboxError {
    SandboxError::CapExceeded { scope, cap, used, requested, allowed }
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
            Err(SandboxError::CapExceeded { cap, used, requested, allowed, .. }) => {
                (cap, used, requested, allowed)
            }
            Err(SandboxError::DaySpent { cap, used, allowed, .. }) => (cap, used, 0, allowed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn usage_is_counted_per_namespace_and_per_key() {
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
        // A named scope has its own caps, and the defaults for the others.
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
    fn a_cap_on_memory_requires_a_memory_limit() {
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
    fn a_stopped_sandbox_counts_only_for_its_disk_space() {
        let mut stopped = record("a", None, 600);
        stopped.state = State::Stopped { why: StopReason::Requested, at_ms: 7 };
        stopped.log_bytes = Some(77);
        let mut used = ScopeUse::of(&stopped);
        assert_eq!(used, ScopeUse { disk_bytes: 77, ..ScopeUse::default() });
        stopped.machine = MachineKind::Qemu;
        used = ScopeUse::of(&stopped);
        assert_eq!(used.disk_bytes, 77 + stopped.scratch_bytes);
        assert_eq!((used.sandboxes, used.memory_mib), (0, 0));
        stopped.state = State::Running;
        let log_max = LOG_BYTES_MAX + PROVENANCE_BYTES_MAX;
        assert_eq!(ScopeUse::of(&stopped).disk_bytes, log_max + stopped.scratch_bytes);
    }

    #[test]
    fn a_used_up_day_refuses_starts_and_allows_snapshots() {
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
