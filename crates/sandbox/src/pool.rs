//! The warm pool: machines that are started before they are needed.
//!
//! ```text
//!            room             ready                       claim
//!  (entry) ───────▶ starting ───────▶ ready ─────────────────────────▶ a sandbox's
//!     ▲               │ failed          │ dead, silent, old, outdated     │ adopt fails
//!     │ pause, then   ▼                 ▼                                 ▼
//!     └───────────────────────────── ended, nothing left ◀────────────────┘
//! ```
//!
//! Each entry of [`Options`], and each template that is kept warm, has a shelf with so many machines. Those of
//! templates are ready when their commands have said so, and do not outlive their bridge. A pooled machine has an id and
//! directories like a sandbox's, and [`record`] says at each moment whose it is, so that a bridge
//! that is killed leaves nothing that the next one cannot find. Only [`super::Registry`] uses this:
//! it claims for a creation, hands over what an earlier bridge left, and drains at its end. The pool
//! knows no names of sandboxes and nothing of who asks. It gives a machine away at most once: under
//! one lock it is taken off its shelf, and nothing ever puts it back.

mod entry;
mod event;
mod keep;
mod personal;
pub(super) mod record;
mod shape;
mod shelf;
mod start;
mod status;
mod warmed;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

pub use entry::{Entry, Options, TemplateEntry};
pub use event::PoolEvent;
pub use personal::Personal;
pub use shape::Shape;
pub use status::ShelfStatus;
pub(super) use warmed::Reserve;

use self::keep::RetireReason;
use self::shelf::{Made, Ready, Shelf};
use super::snapshot::Snapshot;
use super::stored::{HeldImage, ImageSource};
use super::{Event, EventSink, HostFiles, SandboxError};
use crate::limits::{
    POOL_CLAIM_DEADLINE, POOL_CLAIM_TRIES_MAX, POOL_LIFE_MIN, POOL_MACHINES_MAX, POOL_REFILL_QUIET,
    POOL_REFILL_WAIT_MAX,
};
use host::instant::now_ms;
use host::paths::Paths;
use machine::limits::KILL_DEADLINE;
use machine::{
    Adoption, Directories, MachineError, MachineKind, MachineSpec, Machines, Running, SandboxId,
};

/// All machines that are kept ready. Dropping it ends them without waiting.
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    paths: Paths,
    files: HostFiles,
    machines: Machines,
    events: EventSink,
    options: Options,
    /// Those of the configuration, and of templates that are kept warm.
    shelves: Mutex<Vec<Arc<Shelf>>>,
    source: Arc<ImageSource>,
    /// Begins snapshots, once somebody can.
    reserve: OnceLock<Reserve>,
    /// When a machine was last claimed.
    claimed_at: Mutex<Option<Instant>>,
    /// Held by each start, so that refilling leaves the host to those who work on it.
    starts: Arc<Semaphore>,
    closing: watch::Sender<bool>,
    /// Running starts and ends, which a drain waits for.
    tasks: Mutex<JoinSet<()>>,
}

/// A machine that belongs to its claimer only.
pub(super) struct ClaimedMachine {
    pub id: SandboxId,
    pub directories: Directories,
    pub running: Arc<dyn Running>,
    /// The image of the store that it has as its root.
    pub image: Option<HeldImage>,
    /// What was requested and the machine can no longer get.
    pub warnings: Vec<String>,
}

impl Pool {
    /// A pool with empty shelves. Nothing is started before [`Pool::begin`].
    pub fn new(
        paths: &Paths,
        files: &HostFiles,
        machines: &Machines,
        events: &EventSink,
        source: Arc<ImageSource>,
        options: Options,
    ) -> Result<Self, SandboxError> {
        options.check(paths, files)?;
        let shelves = options.entries.iter().cloned().map(Shelf::new).map(Arc::new).collect();
        Ok(Self(Arc::new(Inner {
            paths: paths.clone(),
            files: files.clone(),
            machines: machines.clone(),
            events: Arc::clone(events),
            shelves: Mutex::new(shelves),
            source,
            reserve: OnceLock::new(),
            claimed_at: Mutex::default(),
            starts: Arc::new(Semaphore::new(options.starts_at_once)),
            options,
            closing: watch::Sender::new(false),
            tasks: Mutex::default(),
        })))
    }

    /// Sets what begins the snapshots of templates' machines. Only the first counts.
    pub fn reserve_with(&self, reserve: Reserve) {
        let _ = self.0.reserve.set(reserve);
    }

    /// Fills the shelves from now on, and whenever something was taken.
    pub fn begin(&self) {
        for shelf in self.0.shelves() {
            tokio::spawn(start::refill(Arc::clone(&self.0), shelf));
        }
    }

    /// Keeps sandboxes of one more template ready, if there is room for them.
    pub fn add(&self, entry: Entry) -> Result<(), SandboxError> {
        let shelf = Arc::new(Shelf::new(entry));
        let mut shelves = self.0.lock_shelves();
        let value = shelves.iter().chain([&shelf]).map(|shelf| shelf.entry.count).sum::<usize>();
        if value > POOL_MACHINES_MAX {
            let (what, value, max) =
                ("the number of pooled machines", value as u64, POOL_MACHINES_MAX as u64);
            return Err(SandboxError::OutOfRange { what, value, min: 0, max });
        }
        shelves.push(Arc::clone(&shelf));
        drop(shelves);
        tokio::spawn(start::refill(Arc::clone(&self.0), shelf));
        Ok(())
    }

    /// Keeps none of a revision of a template any more, and ends those that nobody has claimed.
    pub fn take_away(&self, revision: &str) {
        let mut shelves = self.0.lock_shelves();
        let of = |shelf: &Arc<Shelf>| shelf.entry.revision() == Some(revision);
        let (gone, kept) = shelves.drain(..).partition::<Vec<_>, _>(of);
        *shelves = kept;
        drop(shelves);
        for shelf in gone {
            shelf.close();
            shelf.warmed.clear();
            for ready in shelf.empty() {
                self.0.spawn_end(&shelf, ready);
            }
        }
    }

    /// What is kept of a revision of a template.
    pub fn status_of(&self, revision: &str) -> Option<ShelfStatus> {
        let shelves = self.0.shelves();
        shelves
            .iter()
            .find(|shelf| shelf.entry.revision() == Some(revision))
            .map(|shelf| shelf.status())
    }

    /// The snapshots that machines of templates are restored from.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.0.shelves().iter().filter_map(|shelf| shelf.warmed.snapshot()).collect()
    }

    /// Restores a machine of this shape from its template's snapshot, for the sandbox of this specification. `None`
    /// if there is none; why not, if it fails.
    pub async fn restore(
        &self,
        requested: &Shape,
        spec: &MachineSpec,
    ) -> Option<Result<Arc<dyn Running>, MachineError>> {
        let shelves = self.0.shelves().into_iter().filter(|_| !self.0.is_closing());
        let has = |shelf: Arc<Shelf>| shelf.warmed.of(requested).map(|kept| (shelf, kept));
        let (shelf, kept) = shelves
            .filter(|shelf| shelf.entry.revision() == requested.template.as_deref())
            .find_map(has)?;
        let machine = self.0.machines.get(requested.machine);
        let restored = kept.restore(machine.as_ref(), spec).await;
        match &restored {
            Ok(_) => shelf.warmed.has_restored(),
            Err(error) => self.0.not_restored(&shelf, &kept, error),
        }
        Some(restored)
    }

    /// Takes a machine of this shape for the caller; `None` if one must be started. A defective
    /// pooled machine costs the caller only one more try.
    pub async fn claim(&self, requested: &Shape, personal: &Personal) -> Option<ClaimedMachine> {
        for _ in 0..POOL_CLAIM_TRIES_MAX {
            let (shelf, ready) = self.0.take(requested)?;
            let directories = super::directories::directories(&self.0.paths, &ready.id);
            match self.0.hand_over(&shelf, &ready, &directories, personal).await {
                Ok(warnings) => {
                    *self.0.claimed_at() = Some(Instant::now());
                    shelf.claimed();
                    let Ready { id, running, image, .. } = ready;
                    return Some(ClaimedMachine { id, directories, running, image, warnings });
                }
                Err(gone) => self.0.discard(&shelf, ready, &gone),
            }
        }
        self.0.missed(requested);
        None
    }

    /// Takes over a machine that an earlier bridge had ready, or ends it. `directory` is its own,
    /// and has no sandbox's record. Returns whether there was a record of the pool.
    pub async fn recover(&self, id: &SandboxId, directory: &Path) -> bool {
        let Ok(pooled) = record::Pooled::read(directory) else { return false };
        let kind = pooled.shape.machine;
        let shelf = (pooled.id == *id).then(|| self.0.place_for(&pooled)).flatten();
        let Some(shelf) = shelf else {
            self.0.end(kind, id, None).await;
            self.0.tell(PoolEvent::Cleared { id: id.clone() });
            return true;
        };
        let machine = self.0.machines.get(kind);
        let directories = super::directories::directories(&self.0.paths, id);
        let adoption = machine.adopt(id.clone(), directories, pooled.trace.clone()).await;
        let running = match adoption {
            Adoption::Alive(running) => Some(running),
            Adoption::Dead => None,
        };
        let answers = match &running {
            Some(running) => keep::check(running, &shelf.entry).await.is_ok(),
            None => false,
        };
        match running {
            Some(running) if answers => {
                let made = Made { shape: pooled.shape, running, image: None };
                self.0.shelve(&shelf, id.clone(), made, pooled.ready_at_ms);
                self.0.tell(PoolEvent::Recovered { id: id.clone() });
            }
            running => {
                self.0.end(kind, id, running.as_ref()).await;
                shelf.give_up_start();
                self.0.tell(PoolEvent::Cleared { id: id.clone() });
            }
        }
        true
    }

    /// Ends everything, and waits until it is gone. Nothing is claimed or started from then on.
    pub async fn drain(&self) {
        self.0.close();
        self.0.drop_snapshots();
        loop {
            for shelf in self.0.shelves() {
                for ready in shelf.empty() {
                    self.0.spawn_end(&shelf, ready);
                }
            }
            // A start that was all but done may put its machine on the shelf meanwhile.
            let mut tasks = std::mem::take(&mut *self.0.tasks());
            if tasks.is_empty() {
                return;
            }
            while tasks.join_next().await.is_some() {}
            // One that was all but written may have been kept.
            self.0.drop_snapshots();
        }
    }

    pub fn status(&self) -> Vec<ShelfStatus> {
        self.0.shelves().iter().map(|shelf| shelf.status()).collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.close();
        self.0.drop_snapshots();
        for ready in self.0.shelves().iter().flat_map(|shelf| shelf.empty()) {
            // The next bridge removes what it leaves on disk.
            ready.running.kill();
        }
    }
}

impl Inner {
    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_shelves(&self) -> MutexGuard<'_, Vec<Arc<Shelf>>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelves(&self) -> Vec<Arc<Shelf>> {
        self.lock_shelves().clone()
    }

    fn claimed_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.claimed_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no machine was claimed for a while: a start would take the processors from the
    /// claimer.
    async fn quiet(&self) {
        let latest = Instant::now() + POOL_REFILL_WAIT_MAX;
        loop {
            let quiet = self.claimed_at().map(|at| (at + POOL_REFILL_QUIET).min(latest));
            match quiet {
                Some(quiet) if quiet > Instant::now() => sleep_until(quiet).await,
                _ => return,
            }
        }
    }

    fn drop_snapshots(&self) {
        self.shelves().iter().for_each(|shelf| shelf.warmed.clear());
    }

    fn tell(&self, event: PoolEvent) {
        (self.events)(&Event::Pool(event));
    }

    fn close(&self) {
        self.closing.send_replace(true);
    }

    fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Starts a machine in a reserved place. Called under the lock, so that no task begins after a drain has
    /// found none.
    fn spawn_start(self: &Arc<Self>, shelf: &Arc<Shelf>, permit: OwnedSemaphorePermit) {
        let (inner, shelf) = (Arc::clone(self), Arc::clone(shelf));
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        if !self.is_closing() {
            tasks.spawn(async move { inner.start(shelf, permit).await });
        }
    }

    /// Takes a machine off its shelf, for good. It keeps its place until it is claimed or gone.
    fn take(&self, requested: &Shape) -> Option<(Arc<Shelf>, Ready)> {
        if self.is_closing() {
            return None;
        }
        for shelf in self.shelves() {
            if let Some(ready) = shelf.take(|ready| ready.shape == *requested) {
                ready.keeper.abort();
                return Some((shelf, ready));
            }
        }
        self.missed(requested);
        None
    }

    /// Counts a machine that would have been taken had there been one.
    fn missed(&self, requested: &Shape) {
        let wanted = |shelf: &&Arc<Shelf>| {
            shelf.entry.shape(&self.paths, &self.files).as_ref() == Some(requested)
        };
        if let Some(shelf) = self.shelves().iter().find(wanted) {
            shelf.stock().counts.missed += 1;
        }
    }

    /// Gives a machine to its claimer, on disk first, so that no later bridge takes it for an
    /// unused one.
    async fn hand_over(
        &self,
        shelf: &Shelf,
        ready: &Ready,
        directories: &Directories,
        personal: &Personal,
    ) -> Result<Vec<String>, RetireReason> {
        record::mark_claimed(&directories.state).map_err(RetireReason::Record)?;
        let guest = ready.running.guest().ok_or(RetireReason::Silent)?;
        // Its link is on the thread that started it; the next requests come from this one.
        guest.move_here();
        let entry = &shelf.entry;
        let adopted = async {
            keep::check_start(&guest, entry).await?;
            let adopted = personal::personalise(&guest, personal, &entry.contexts, false).await;
            adopted.map_err(RetireReason::Refused)
        };
        timeout(POOL_CLAIM_DEADLINE, adopted).await.unwrap_or(Err(RetireReason::Silent))
    }

    /// The shelf that has room for a machine that was found; the place is taken.
    fn place_for(&self, pooled: &record::Pooled) -> Option<Arc<Shelf>> {
        let fits = |shelf: &Arc<Shelf>| {
            shelf.entry.contexts == pooled.contexts
                && pooled.release == env!("CARGO_PKG_VERSION")
                && shelf.entry.shape(&self.paths, &self.files).as_ref() == Some(&pooled.shape)
        };
        self.shelves().into_iter().find(|shelf| fits(shelf) && shelf.take_place())
    }

    /// Puts a machine that is ready on its shelf and watches it there.
    fn shelve(self: &Arc<Self>, shelf: &Arc<Shelf>, id: SandboxId, made: Made, ready_at_ms: u64) {
        let Made { shape, running, image } = made;
        let age_ms = now_ms().saturating_sub(ready_at_ms);
        let watched = keep::Watched { id: id.clone(), shape: shape.clone(), age_ms };
        let mut stock = shelf.stock();
        // It is on the shelf before its keeper can find that it has to go: the lock is held.
        let kept = Arc::clone(shelf);
        let keeper = keep::keep(Arc::downgrade(self), kept, watched, Arc::clone(&running));
        let keeper = tokio::spawn(keeper).abort_handle();
        stock.starting -= 1;
        stock.ready.push_back(Ready { id, shape, running, image, keeper, since_ms: ready_at_ms });
    }

    /// Ends a machine that was taken off its shelf and cannot be used.
    fn discard(self: &Arc<Self>, shelf: &Arc<Shelf>, ready: Ready, gone: &RetireReason) {
        let lived = Duration::from_millis(now_ms().saturating_sub(ready.since_ms));
        let mut stock = shelf.stock();
        stock.counts.replaced += 1;
        // A machine that dies at once would be replaced at once, forever.
        let is_a_failure = lived < POOL_LIFE_MIN && gone.is_its_own_fault();
        let pause = is_a_failure.then(|| stock.failed(gone.to_string()));
        drop(stock);
        self.tell(PoolEvent::Replaced { id: ready.id.clone(), why: gone.to_string(), pause });
        self.spawn_end(shelf, ready);
    }

    /// Ends a machine and gives its place back when nothing is left of it.
    fn spawn_end(self: &Arc<Self>, shelf: &Arc<Shelf>, ready: Ready) {
        let (inner, shelf) = (Arc::clone(self), Arc::clone(shelf));
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            inner.end(ready.shape.machine, &ready.id, Some(&ready.running)).await;
            shelf.ended();
        });
    }

    /// Ends a machine and removes all that it has on the host.
    async fn end(&self, kind: MachineKind, id: &SandboxId, running: Option<&Arc<dyn Running>>) {
        if let Some(running) = running {
            running.kill();
            let _ = timeout(KILL_DEADLINE, running.exited()).await;
            if let Some(guest) = running.guest() {
                guest.machine_ended();
            }
        }
        let directories = super::directories::directories(&self.paths, id);
        let machine = self.machines.get(kind);
        machine.clean(id.clone(), Some(directories.clone())).await;
        // The state is removed last, so that what a crash leaves is still found.
        for path in [directories.runtime, directories.state] {
            let _ = tokio::fs::remove_dir_all(path).await;
        }
    }
}
