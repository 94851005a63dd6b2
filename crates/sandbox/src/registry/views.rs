//! Reads the state of sandboxes, and gives access to one, without an order to its owner.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{NameEntry, Registry};
use crate::costs::{Cost, ProgramUse};
use crate::log::log_directory;
use crate::owner::Order;
use crate::pool::ShelfStatus;
use crate::telemetry::{History, Telemetry, Window};
use crate::{Activity, Filter, Name, Page, Record, SandboxError, SandboxRef, State};
use agent_client::guest::Guest;
use agent_client::link::Address;
use host::room::Room;
use machine::SandboxId;

/// What can be awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Its creation has ended, whatever happened since.
    Created,
    /// Its machine is gone.
    Stopped,
    /// It is removed.
    Removed,
}

/// A running sandbox that is called into.
pub struct Visit {
    /// Its machine.
    pub id: SandboxId,
    /// The default working directory.
    pub workdir: Option<String>,
    /// The default user.
    pub user: Option<String>,
    pub guest: Guest,
    /// While it is held, the sandbox does not count as idle. `None` for one that is about to end.
    pub activity: Option<Activity>,
    /// How long the call waited for a sandbox that was asleep. `None` if it was awake.
    pub woke_in: Option<Duration>,
}

impl Registry {
    /// The record of a sandbox.
    pub fn get(&self, which: &SandboxRef) -> Result<Record, SandboxError> {
        self.seated(which, NameEntry::record)
    }

    /// The sandbox that has this machine.
    pub fn find(&self, id: &SandboxId) -> Option<SandboxRef> {
        let seats = self.0.seats();
        let mut found = seats.taken.iter().filter(|(_, seat)| seat.shown.borrow().id == *id);
        found.next().map(|(which, _)| which.clone())
    }

    /// The sandbox that is meant where a name or an id is taken: the one of that name, or else the one of that id in
    /// the namespace. Of neither it is the name of none.
    pub fn resolve(&self, which: SandboxRef) -> SandboxRef {
        if self.get(&which).is_ok() {
            return which;
        }
        let id = which.name.as_str().parse::<SandboxId>().ok();
        let found = id.and_then(|id| self.find(&id));
        found.filter(|found| found.namespace == which.namespace).unwrap_or(which)
    }

    /// The sandboxes of one namespace or of all, by name.
    pub fn list(&self, namespace: Option<&Name>) -> Vec<Record> {
        let filter = Filter { namespace: namespace.cloned(), ..Filter::default() };
        let mut records = self.matching(&filter);
        records.sort_by_cached_key(Record::which);
        records
    }

    /// One page of the sandboxes that match, by namespace and name.
    pub fn page(&self, filter: &Filter) -> Page {
        filter.page(self.matching(filter))
    }

    /// The state of the pool.
    pub fn pool(&self) -> Vec<ShelfStatus> {
        self.0.pool.status()
    }

    fn matching(&self, filter: &Filter) -> Vec<Record> {
        let seats = self.0.seats();
        let matching = seats.taken.values().filter(|seat| filter.matches(&seat.shown.borrow()));
        matching.map(NameEntry::record).collect()
    }

    /// Where the agent of a running sandbox is reached. For those who only look: one that is asleep is refused.
    pub fn dial(&self, which: &SandboxRef) -> Result<(Address, Record), SandboxError> {
        let record = self.get(which)?;
        match &record.address {
            _ if record.state.is_held() => Err(SandboxError::Held { which: which.clone() }),
            _ if matches!(record.state, State::Paused { .. }) => {
                Err(SandboxError::Paused { which: which.clone() })
            }
            Some(address) if !record.state.is_over() => Ok((address.clone(), record)),
            _ => Err(SandboxError::NotRunning { which: which.clone(), state: record.state }),
        }
    }

    /// The client of a running sandbox's agent, over the link that there is anyway. For those who only look:
    /// one that is asleep is refused.
    pub fn guest(&self, which: &SandboxRef) -> Result<Guest, SandboxError> {
        self.seated(which, |seat| Self::guest_of(which, seat))?
    }

    fn guest_of(which: &SandboxRef, seat: &NameEntry) -> Result<Guest, SandboxError> {
        let record = seat.shown.borrow();
        let which = || which.clone();
        match (&record.state, seat.presence.guest()) {
            (State::Paused { by_lease: true, .. }, _) => Err(SandboxError::Held { which: which() }),
            (State::Paused { .. }, _) => Err(SandboxError::Paused { which: which() }),
            // It is about to be: what is asked now would be answered after its sleep.
            (State::Running, _) if seat.presence.is_asleep() => {
                Err(SandboxError::Paused { which: which() })
            }
            (State::Lost { reason }, _) => {
                Err(SandboxError::Lost { which: which(), reason: reason.clone() })
            }
            (State::Running | State::Stopping, Some(guest)) => {
                Ok(guest.running_as(record.user.as_deref()))
            }
            (state, _) => Err(SandboxError::NotRunning { which: which(), state: state.clone() }),
        }
    }

    /// Calls into a sandbox that runs: one look for all that a call needs of it. One that is asleep is woken
    /// first, and the call waits for that as long as it takes. Every request that is carried out inside a
    /// sandbox comes through here, whatever its door.
    pub async fn visit(&self, which: &SandboxRef) -> Result<Visit, SandboxError> {
        let entered = self.seated(which, |seat| {
            let activity = seat.presence.begin();
            if activity.is_none() && seat.presence.is_asleep() {
                return Ok(None);
            }
            Self::visit_seat(which, seat, activity).map(Some)
        })?;
        if let Some(visit) = entered? {
            return Ok(visit);
        }
        let record = self.get(which)?;
        self.room_to_go_on(&record)?;
        let since = Instant::now();
        let activity = self.order(which, |reply| Order::Wake { reply }).await?;
        let visit = self.seated(which, |seat| Self::visit_seat(which, seat, activity))?;
        Ok(Visit { woke_in: Some(since.elapsed()), ..visit? })
    }

    /// Wakes a sandbox that is asleep, and returns how long that took. `None` for one that is not.
    pub async fn wake(&self, which: &SandboxRef) -> Result<Option<Duration>, SandboxError> {
        let is_asleep = self.seated(which, |seat| seat.presence.is_asleep())?;
        if is_asleep { Ok(self.visit(which).await?.woke_in) } else { Ok(None) }
    }

    /// Says that something is at work in a sandbox, and wakes it first if it is asleep. `None` in one that
    /// does not run or is about to end.
    pub async fn keep_awake(&self, which: &SandboxRef) -> Result<Option<Activity>, SandboxError> {
        match self.activity(which) {
            None if self.seated(which, |seat| seat.presence.is_asleep())? => {
                Ok(self.visit(which).await?.activity)
            }
            activity => Ok(activity),
        }
    }

    fn visit_seat(
        which: &SandboxRef,
        seat: &NameEntry,
        activity: Option<Activity>,
    ) -> Result<Visit, SandboxError> {
        let guest = Self::guest_of(which, seat)?;
        let record = seat.shown.borrow();
        let (workdir, user) = (record.workdir.clone(), record.user.clone());
        Ok(Visit { id: record.id.clone(), workdir, user, guest, activity, woke_in: None })
    }

    /// Says that something is at work in a sandbox, which is not idle until the guard is dropped.
    /// `None` in one that does not run, is asleep or is about to end.
    pub fn activity(&self, which: &SandboxRef) -> Option<Activity> {
        let presence = self.seated(which, |seat| seat.presence.clone()).ok()?;
        presence.begin()
    }

    /// What a sandbox has used in a window of time, running or stopped. One that runs is asked for its newest
    /// samples.
    pub async fn history(
        &self,
        which: &SandboxRef,
        window: Window,
    ) -> Result<History, SandboxError> {
        let (telemetry, path) = (self.fresh(which).await?, self.state_directory(which)?);
        let reading = tokio::task::spawn_blocking(move || telemetry.history(window));
        let read = reading.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        read.map_err(|source| SandboxError::Files { action: "read the metrics in", path, source })
    }

    /// The room of the file system that has the state of sandboxes; `None` if it does not say. It may block for
    /// as long as a disk does.
    pub async fn room(&self) -> Option<Room> {
        let state = self.0.paths.state.clone();
        tokio::task::spawn_blocking(move || Room::at(&state)).await.ok()?.ok()
    }

    /// What a sandbox has cost since it was created.
    pub async fn cost(&self, which: &SandboxRef) -> Result<Cost, SandboxError> {
        Ok(self.fresh(which).await?.cost())
    }

    /// The telemetry of a sandbox, with its newest samples.
    async fn fresh(&self, which: &SandboxRef) -> Result<Telemetry, SandboxError> {
        let telemetry = self.seated(which, |seat| seat.telemetry.clone())?;
        if let Ok(guest) = self.guest(which) {
            telemetry.refresh(&guest).await;
        }
        Ok(telemetry)
    }

    /// What namespaces have cost in the hours that have a part between the two times. The newest samples of
    /// sandboxes may be missing.
    pub async fn costs(
        &self,
        namespace: Option<&Name>,
        from_ms: u64,
        to_ms: u64,
    ) -> Result<BTreeMap<String, Cost>, SandboxError> {
        let (costs, path) = (self.0.costs.clone(), self.0.paths.costs());
        let namespace = namespace.map(Name::to_string);
        let reading = tokio::task::spawn_blocking(move || {
            costs.of_namespaces(namespace.as_deref(), from_ms, to_ms)
        });
        let read = reading.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        read.map_err(|source| SandboxError::Files { action: "read the costs in", path, source })
    }

    /// What programs, runs and apps have cost on the days that have a part between the two times.
    pub async fn program_costs(
        &self,
        namespace: Option<&Name>,
        from_ms: u64,
        to_ms: u64,
    ) -> Result<Vec<ProgramUse>, SandboxError> {
        let (registry, path) = (self.clone(), self.0.paths.costs());
        let namespace = namespace.map(Name::to_string);
        let reading = tokio::task::spawn_blocking(move || {
            registry.count_ends();
            registry.0.costs.of_programs(namespace.as_deref(), from_ms, to_ms)
        });
        let read = reading.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        read.map_err(|source| SandboxError::Files { action: "read the costs in", path, source })
    }

    /// The directory of a sandbox's output log, running or stopped.
    pub fn log_directory(&self, which: &SandboxRef) -> Result<PathBuf, SandboxError> {
        let id = self.seated(which, |seat| seat.shown.borrow().id.clone())?;
        Ok(log_directory(&self.0.directories(&id).state))
    }

    /// The directory of a sandbox's own files. The sandbox's removal removes it.
    pub fn state_directory(&self, which: &SandboxRef) -> Result<PathBuf, SandboxError> {
        let id = self.seated(which, |seat| seat.shown.borrow().id.clone())?;
        Ok(self.0.directories(&id).state)
    }

    /// The records of a sandbox from now on; they end with its removal. Momentary facts, such as
    /// since when it is idle, are only in [`Registry::get`].
    pub fn watch(&self, which: &SandboxRef) -> Result<watch::Receiver<Record>, SandboxError> {
        self.seated(which, |seat| seat.shown.clone())
    }

    /// Waits for a sandbox, without limit, and returns its last record. A removal ends every wait;
    /// one for a creation that has failed ends with [`SandboxError::NotFound`].
    pub async fn wait(&self, which: &SandboxRef, until: Until) -> Result<Record, SandboxError> {
        let mut shown = self.watch(which)?;
        let has_come = |record: &Record| match until {
            Until::Created => record.state != State::Creating,
            Until::Stopped => record.state.is_over(),
            Until::Removed => false,
        };
        let record = shown.wait_for(has_come).await.map(|record| record.clone());
        match record {
            Ok(record) => Ok(record),
            Err(_) if until == Until::Created => {
                Err(SandboxError::NotFound { which: which.clone() })
            }
            Err(_) => Ok(shown.borrow().clone()),
        }
    }

    fn seated<T>(
        &self,
        which: &SandboxRef,
        look: impl FnOnce(&NameEntry) -> T,
    ) -> Result<T, SandboxError> {
        let seats = self.0.seats();
        let seat = seats.find(which);
        seat.map(look).ok_or_else(|| SandboxError::NotFound { which: which.clone() })
    }
}
