//! Checks the caps of a namespace and a key for each request; and the task that ends sandboxes whose daily
//! limit is reached.
//!
//! Usage is counted under the lock under which names are taken, and a taken name is a reservation: its
//! sandbox releases what it held when it has stopped, or when its creation failed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Instant, sleep};

use super::{NameEntry, Registry, Seats};
use crate::caps::Spent;
use crate::caps::{Cap, Caps, Scope, ScopeUse, SnapshotUse, Tally};
use crate::limits::{COSTS_MARK_PAUSE, METER_MARK_PAUSE, METER_PAUSE};
use crate::owner::{Order, RoomAsleep};
use crate::snapshot::{Draft, Snapshots};
use crate::{Name, Record, SandboxError, Snapshot, Spec};
use workspace::volume::Volume;

/// How often something was refused, by the exceeded cap.
#[derive(Debug, Default)]
pub(super) struct RefusalCounts(Mutex<BTreeMap<&'static str, u64>>);

impl RefusalCounts {
    fn count<T>(&self, outcome: Result<T, SandboxError>) -> Result<T, SandboxError> {
        if let Err(SandboxError::CapExceeded { cap, .. } | SandboxError::DaySpent { cap, .. }) =
            &outcome
        {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(cap).or_default() += 1;
        }
        outcome
    }
}

impl Registry {
    /// The usage and caps of a scope.
    pub fn caps(&self, scope: &Scope) -> Result<(ScopeUse, Cap), SandboxError> {
        Ok((self.used(&self.0.seats(), scope, &self.all_snapshots())?, self.0.caps.of(scope)))
    }

    /// The scopes that have both a cap and usage, in order, up to a maximum.
    pub fn capped(&self, scopes_max: usize) -> Vec<(Scope, ScopeUse, Cap)> {
        let seats = self.0.seats();
        let mut scopes = BTreeSet::new();
        for seat in seats.taken.values() {
            let record = seat.shown.borrow();
            scopes.extend(Caps::scopes(record.namespace.as_str(), record.key.as_deref()));
        }
        scopes.retain(|scope| self.0.caps.of(scope) != Cap::default());
        let snapshots = self.all_snapshots();
        let counted = scopes.into_iter().take(scopes_max).filter_map(|scope| {
            let used = self.used(&seats, &scope, &snapshots).ok()?;
            let cap = self.0.caps.of(&scope);
            Some((scope, used, cap))
        });
        counted.collect()
    }

    /// How often something was refused since this bridge began, by the cap.
    pub fn refused_by_caps(&self) -> BTreeMap<&'static str, u64> {
        self.0.refused.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds mandatory limits to a request, and refuses one that exceeds a cap on its own.
    pub(super) fn bound(&self, spec: &mut Spec) -> Result<(), SandboxError> {
        self.0.refused.count(self.0.caps.bound(spec))
    }

    /// Refuses another time to live that would be too long.
    pub(super) fn bound_life(
        &self,
        record: &Record,
        ttl_ms: u64,
        now_ms: u64,
    ) -> Result<(), SandboxError> {
        self.0.refused.count(self.0.caps.extend(record, ttl_ms, now_ms))
    }

    /// Refuses a new sandbox for which there is no room.
    pub(super) fn room_for(&self, seats: &Seats, new: &Record) -> Result<(), SandboxError> {
        let used = |scope: &Scope, cap: &Cap| self.used(seats, scope, &self.snapshots_for(cap));
        self.0.refused.count(self.0.caps.admit(new, used))
    }

    /// Refuses to resume a paused sandbox if a daily limit is reached, or its node has no lease.
    pub(super) fn room_to_go_on(&self, record: &Record) -> Result<(), SandboxError> {
        self.may_go_on(record)?;
        let used = |scope: &Scope, _: &Cap| self.used(&self.0.seats(), scope, &[]);
        self.0.refused.count(self.0.caps.admit_again(record, used))
    }

    /// Begins a snapshot if there is room for it. Its expected size is reserved under the lock under which
    /// names are taken.
    pub(super) fn begin_snapshot(
        &self,
        record: &Record,
        state: &Path,
        name: Name,
    ) -> Result<Draft, SandboxError> {
        let bytes = Snapshots::expected(record, state, name.clone());
        self.with_room_for(record, bytes, || self.0.snapshots.begin(record, state, name))
    }

    /// Begins a snapshot of this expected size if the caps of whose sandbox it is, or could be, have room for it.
    pub(super) fn with_room_for<T>(
        &self,
        record: &Record,
        bytes: u64,
        begin: impl FnOnce() -> Result<T, SandboxError>,
    ) -> Result<T, SandboxError> {
        let seats = self.0.seats();
        let used = |scope: &Scope, cap: &Cap| self.used(&seats, scope, &self.snapshots_for(cap));
        self.0.refused.count(self.0.caps.admit_snapshot(record, bytes, used))?;
        begin()
    }

    /// What asks the caps before a sandbox that is idle is written to disk.
    pub(super) fn room_asleep(&self) -> RoomAsleep {
        let inner = Arc::downgrade(&self.0);
        Box::new(move |record, bytes, reserve| {
            let registry = Self(inner.upgrade().ok_or(SandboxError::Stopping)?);
            registry.with_room_for(record, bytes, || {
                reserve();
                Ok(())
            })
        })
    }

    /// How many bytes may still be written to a volume, as far as a cap says so.
    pub fn room_in(&self, volume: &Volume) -> Result<Option<u64>, SandboxError> {
        let seats = self.0.seats();
        let used = |scope: &Scope, cap: &Cap| self.used(&seats, scope, &self.snapshots_for(cap));
        let key = volume.key.as_deref();
        self.0.refused.count(self.0.caps.room_on_disk(&volume.namespace, key, used))
    }

    /// All snapshots if there is a cap on disk space: they are read from disk.
    fn snapshots_for(&self, cap: &Cap) -> Vec<Snapshot> {
        cap.disk_bytes.map(|_| self.all_snapshots()).unwrap_or_default()
    }

    /// Those that have a name, those that are being written, and those of templates.
    fn all_snapshots(&self) -> Vec<Snapshot> {
        [self.0.snapshots.all(), self.0.pool.snapshots()].concat()
    }

    /// Counts the usage of a scope.
    fn used(
        &self,
        seats: &Seats,
        scope: &Scope,
        snapshots: &[Snapshot],
    ) -> Result<ScopeUse, SandboxError> {
        let spent = match self.0.meter.spent(scope) {
            Some(spent) => spent,
            None if self.0.caps.of(scope).is_of_days() => return Err(SandboxError::TooManyMetered),
            None => Spent::default(),
        };
        let mut tally = Tally::of(scope, spent);
        for seat in seats.taken.values() {
            tally.add(&seat.shown.borrow());
        }
        for (volume, bytes) in self.0.volumes.measured() {
            tally.add_volume(&volume, bytes);
        }
        for snapshot in snapshots {
            tally.add_snapshot(&SnapshotUse::of(snapshot));
        }
        Ok(tally.used())
    }

    /// Begins to end sandboxes whose daily limit is reached, and to save the counts.
    pub(super) fn begin_metering(&self) {
        let ends = self.0.caps.are_of_days();
        let pause = if ends { METER_PAUSE } else { METER_MARK_PAUSE };
        let inner = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let (mut marked, mut costs_marked) = (Instant::now(), Instant::now());
            loop {
                sleep(pause).await;
                // It ends with the registry.
                let Some(inner) = inner.upgrade() else { return };
                let registry = Registry(inner);
                if ends {
                    registry.end_spent();
                }
                if marked.elapsed() >= METER_MARK_PAUSE {
                    let with_costs = costs_marked.elapsed() >= COSTS_MARK_PAUSE;
                    let marking = tokio::task::spawn_blocking(move || {
                        registry.mark();
                        if with_costs {
                            registry.mark_costs();
                        }
                    });
                    let _ = marking.await;
                    marked = Instant::now();
                    if with_costs {
                        costs_marked = marked;
                    }
                }
            }
        });
    }

    fn end_spent(&self) {
        for (which, kind) in self.0.meter.exhausted(&self.0.caps) {
            let orders = self.0.seats().taken.get(&which).map(|seat| seat.orders.clone());
            // An owner that has no time for an order now is asked again at the next look, and one that
            // ends already takes no notice.
            let _ = orders.map(|orders| orders.try_send(Order::Spent { kind }));
        }
    }

    /// Saves the counts.
    pub(super) fn mark(&self) {
        if let Err(error) = self.0.meter.mark() {
            self.0.trouble(None, format!("today's use could not be saved: {error}"));
        }
    }

    /// Counts what programs and runs have cost that have ended by now. Reads files.
    pub(super) fn count_ends(&self) {
        let entry =
            |seat: &NameEntry| (seat.telemetry.clone(), seat.shown.borrow().state.still_since_ms());
        let all: Vec<_> = self.0.seats().taken.values().map(entry).collect();
        for (telemetry, still_since_ms) in all {
            telemetry.count_ends(still_since_ms);
        }
    }

    /// Saves what sandboxes, namespaces and programs have cost.
    pub(super) fn mark_costs(&self) {
        self.count_ends();
        if let Err(error) = self.0.costs.mark() {
            self.0.trouble(None, format!("costs could not be saved, and are tried again: {error}"));
        }
    }
}
