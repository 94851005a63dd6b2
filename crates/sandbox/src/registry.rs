//! The registry: which names there are, and the task that owns each.
//!
//! It changes nothing of a sandbox itself; it hands orders to the owner and shows what the owner
//! last said. A name is taken from the moment a creation begins until its owner has removed all
//! that was kept.

mod means;
mod room;
mod views;

pub use means::RegistryOptions;
use room::RefusalCounts;
pub use views::{Until, Visit};

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::caps::Caps;
use super::commit;
use super::meter::Meter;
use super::owner::{Order, Owner, OwnerSettings, PoolRequest};
use super::pool::{self, Personal, Pool, Shape};
use super::presence::Presence;
use super::record::{RECORD_FILE, StoredRecord};
use super::secrets;
use super::snapshot::{Snapshot, Snapshots};
use super::spec::check_lifetime;
use super::stored::{RequestedImage, image_users};
use super::tallies::Tallies;
use super::{Event, EventSink, Name, Record, SandboxError, SandboxRef, Spec, State, mounted};
use crate::limits::{ORDERS_WAITING_MAX, SANDBOXES_MAX};
use host::instant::now_ms;
use host::paths::Paths;
use host::secret::Secrets;
use image::reference::Reference;
use image::store::User;
use image::{Image, ImageError, Images, Policy, Puller};
use machine::{Directories, MachineKind, Machines, SandboxId};
use workspace::{Report, TransferCounter, Workspaces};

/// All sandboxes of one bridge. Clones are the same registry.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    paths: Paths,
    /// Whose sandboxes end with this process: no door, no next bridge. What is hidden from them is
    /// these, which hold the others.
    hidden_of_alone: Option<Paths>,
    machines: Machines,
    events: EventSink,
    tallies: Tallies,
    pool: Arc<Pool>,
    egress: Arc<egress::Settings>,
    egress_default: egress::Defaults,
    snapshots: Snapshots,
    secrets: Secrets,
    workspaces: Workspaces,
    images: Option<Images>,
    image_policy: Policy,
    puller: Option<Puller>,
    caps: Caps,
    refused: RefusalCounts,
    meter: Meter,
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    taken: HashMap<SandboxRef, NameEntry>,
    /// No new sandboxes: the bridge is stopping.
    closed: bool,
}

/// A taken name.
struct NameEntry {
    orders: mpsc::Sender<Order>,
    shown: watch::Receiver<Record>,
    presence: Arc<Presence>,
}

impl NameEntry {
    fn record(&self) -> Record {
        let record = self.shown.borrow().clone();
        self.presence.show(record)
    }
}

/// Held by an owner as long as its name is taken; dropping it frees the name.
struct NameGuard {
    registry: Weak<Inner>,
    which: SandboxRef,
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        if let Some(inner) = self.registry.upgrade() {
            inner.seats().taken.remove(&self.which);
        }
    }
}

impl Inner {
    fn seats(&self) -> std::sync::MutexGuard<'_, Seats> {
        // Nothing in the map is ever half-changed.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directories(&self, id: &SandboxId) -> Directories {
        super::directories::directories(&self.paths, id)
    }

    fn trouble(&self, which: Option<SandboxRef>, what: String) {
        (self.events)(&Event::Trouble { which, what });
    }

    /// What commands its sandboxes, and so is no workspace.
    fn own_directories(&self) -> Vec<&Path> {
        let all = self.hidden_of_alone.iter().chain([&self.paths]);
        all.flat_map(|paths| [paths.runtime.as_path(), paths.state.as_path()]).collect()
    }
}

impl Registry {
    /// Opens the registry over what earlier bridges have left: takes charge of machines that live,
    /// marks those that ended, and removes what was left half-made. The paths must be prepared and
    /// no other bridge may use them.
    pub async fn open(
        paths: Paths,
        machines: Machines,
        events: EventSink,
    ) -> Result<Self, SandboxError> {
        Self::open_with(paths, machines, events, RegistryOptions::default()).await
    }

    /// The same with what an operator has set up for sandboxes.
    pub async fn open_with(
        paths: Paths,
        machines: Machines,
        events: EventSink,
        means: RegistryOptions,
    ) -> Result<Self, SandboxError> {
        Self::open_inner(paths, None, machines, events, means).await
    }

    /// A registry whose sandboxes are this process's alone, and end with it however it ends. `paths`
    /// are below those of `outer`, which are hidden from them.
    pub async fn open_alone(
        paths: Paths,
        outer: Paths,
        machines: Machines,
        events: EventSink,
    ) -> Result<Self, SandboxError> {
        Self::open_inner(paths, Some(outer), machines, events, RegistryOptions::default()).await
    }

    async fn open_inner(
        paths: Paths,
        hidden_of_alone: Option<Paths>,
        machines: Machines,
        events: EventSink,
        means: RegistryOptions,
    ) -> Result<Self, SandboxError> {
        let seats = Mutex::new(Seats::default());
        let snapshots = Snapshots::open(paths.snapshots())?;
        let (meter, unread) = Meter::open(&paths.usage());
        let tallies = Tallies::default();
        let events = tallies.counting(events);
        let pool = Arc::new(Pool::new(&paths, &machines, &events, means.pool)?);
        let RegistryOptions { secrets, workspaces, images, image_policy, puller, caps, .. } = means;
        let inner = Inner {
            paths,
            hidden_of_alone,
            machines,
            events,
            tallies,
            pool,
            snapshots,
            egress: Arc::new(means.egress),
            egress_default: means.egress_default,
            secrets,
            workspaces,
            images,
            image_policy,
            puller,
            caps,
            refused: RefusalCounts::default(),
            meter,
            seats,
        };
        let registry = Self(Arc::new(inner));
        if let Some(error) = unread {
            registry.0.trouble(None, format!("today's use cannot be read: {error}"));
        }
        let mut adoptions = JoinSet::new();
        let inner = &registry.0;
        for directory in subdirectories(&inner.paths.state_boxes())? {
            let Some(id) = id_of(&directory) else { continue };
            let place = directory.display();
            match StoredRecord::read(&directory) {
                Ok(kept) if kept.record.id == id => {
                    pool::record::forget(&directory);
                    if let Some(owner) = registry.seat_found(kept) {
                        adoptions.spawn(owner.adopt());
                    }
                }
                Ok(kept) => {
                    let what = format!("the record in {place} belongs to {}", kept.record.id);
                    inner.trouble(None, what);
                }
                Err(_) if !directory.join(RECORD_FILE).exists() => {
                    let registry = registry.clone();
                    adoptions.spawn(async move {
                        if !registry.0.pool.recover(&id, &directory).await {
                            registry.clean(id, pool::record::explain(&directory)).await;
                        }
                    });
                }
                Err(error) => {
                    inner.trouble(None, format!("the record in {place} cannot be read: {error}"));
                }
            }
        }
        while adoptions.join_next().await.is_some() {}
        for directory in subdirectories(&inner.paths.runtime_boxes())? {
            let Some(id) = id_of(&directory) else { continue };
            if !inner.directories(&id).state.exists() {
                registry.clean(id, "its record is missing").await;
            }
        }
        inner.pool.begin();
        registry.begin_metering();
        Ok(registry)
    }

    /// Starts a sandbox and waits until its agent has answered. It goes on when the caller does not
    /// wait.
    pub async fn create(&self, mut spec: Spec) -> Result<Record, SandboxError> {
        if let Some(name) = spec.snapshot.clone() {
            let which = SandboxRef { namespace: spec.namespace.clone(), name };
            self.0.snapshots.get(&which)?.fill(&mut spec)?;
        }
        self.bound(&mut spec)?;
        spec.settle_egress(self.0.egress_default.of(spec.namespace.as_str()))?;
        spec.check()?;
        let workspace = mounted::find(&spec, &self.0.workspaces, &self.0.own_directories())?;
        let id = SandboxId::draw().map_err(SandboxError::Draw)?;
        let mut record = Record::new(id.clone(), &spec, now_ms());
        record.mounted = workspace.as_ref().is_some_and(|workspace| workspace.policy.mount);
        record.env_names.extend(secrets::variables(&self.0.secrets, &spec, &spec.rules()?)?);
        let mut owner =
            self.seat(StoredRecord { record, trace: machine::Trace::default() }, true)?;
        // Behind the name that is taken: a provider costs the host something.
        let given = secrets::resolve(&self.0.secrets, &spec, &self.0.events).await?;
        let secrets = given.variables;
        let is_injected = !given.injections.is_empty();
        owner.inject(given.injections);
        let directories = self.0.directories(&id);
        let mut machine_spec = match &self.0.hidden_of_alone {
            Some(outer) => spec.machine_spec(id, outer, None),
            None => spec.machine_spec(id, &self.0.paths, Some(directories)),
        };
        machine_spec.bind = mounted::at_boot(&spec, workspace.as_ref());
        let kept_at = self.0.hidden_of_alone.as_ref().unwrap_or(&self.0.paths);
        let wanted = RequestedImage::of(&spec, kept_at, self.0.images.as_ref());
        let wanted = wanted.map(|wanted| {
            let allowed = wanted.allowed_by(&self.0.image_policy);
            allowed.pulled_by(self.0.puller.as_ref(), spec.pull)
        });
        // What is kept ready has roots that are directories or files.
        // What is kept ready has interpreters too: they are the agent's own user's, and have read
        // whom they trust.
        let is_usual = wanted.is_none() && spec.user.is_none() && !is_injected;
        let shape = is_usual.then(|| Shape::of(&spec, &machine_spec)).flatten();
        let ahead = shape.map(|shape| {
            let hostname = machine_spec.hostname.clone();
            let (env, secrets, workdir) = (spec.env, secrets.clone(), spec.workdir);
            let personal = Personal { hostname, env, secrets, workdir };
            PoolRequest { pool: Arc::clone(&self.0.pool), shape, personal }
        });
        machine_spec.secrets = secrets;
        let (reply, answer) = oneshot::channel();
        tokio::spawn(owner.create(machine_spec, wanted, ahead, reply));
        answer.await.unwrap_or(Err(SandboxError::Stopping))
    }

    /// The images of this host, where this bridge has opened them.
    pub fn images(&self) -> Option<&Images> {
        self.0.images.as_ref()
    }

    /// How often what has happened since this bridge began.
    pub fn tallies(&self) -> &Tallies {
        &self.0.tallies
    }

    /// How much workspaces have carried since this bridge began.
    pub fn carried(&self) -> &TransferCounter {
        self.0.workspaces.carried()
    }

    /// What pulls images, where this bridge can.
    pub fn puller(&self) -> Option<&Puller> {
        self.0.puller.as_ref()
    }

    /// Makes an image of what a running sandbox has become since it was made of one of the store's. It
    /// is not cut off half-way when nobody waits any more.
    pub async fn commit(&self, which: &SandboxRef, name: Reference) -> Result<Image, SandboxError> {
        let record = self.get(which)?;
        let unsupported = |why| SandboxError::Unsupported {
            what: "an image of this sandbox",
            why,
            hint: "`host-bridge cp` takes files out of every sandbox",
        };
        if record.workspace.is_some() {
            return Err(unsupported("it has a workspace, and those files belong to the host"));
        }
        let digest = record.image_digest;
        let digest =
            digest.ok_or_else(|| unsupported("its root is not an image from the store"))?;
        let images = self.0.images.clone();
        let images = images.ok_or_else(|| unsupported("this bridge has no images"))?;
        let finding = images.clone();
        let base = tokio::task::spawn_blocking(move || finding.find(&digest.to_string()));
        let base = base.await.unwrap_or(Err(ImageError::Busy))?;
        let (guest, activity) = (self.guest(which)?, self.activity(which));
        let committed = which.clone();
        let work = Box::pin(async move {
            // Whoever stops the sandbox drops its errands; the reading learns it from its machine.
            let committing = tokio::spawn(async move {
                let _activity = activity;
                commit::commit(guest, images, base, &committed, name).await
            });
            committing.await.unwrap_or(Err(SandboxError::Stopping))
        });
        self.order(which, |reply| Order::Commit { work, reply }).await
    }

    /// Who has images as roots.
    pub fn image_users(&self) -> Vec<User> {
        image_users(&self.0.paths)
    }

    /// Stops a sandbox in order and waits until it is gone. One that has stopped stays so.
    pub async fn stop(&self, which: &SandboxRef, grace: Duration) -> Result<Record, SandboxError> {
        self.order(which, |reply| Order::Stop { grace, reply }).await
    }

    /// Ends a sandbox at once and waits until it is gone.
    pub async fn kill(&self, which: &SandboxRef) -> Result<Record, SandboxError> {
        self.order(which, |reply| Order::Kill { reply }).await
    }

    /// Removes what is kept of a stopped sandbox and frees its name; with `force`, kills it first.
    pub async fn remove(&self, which: &SandboxRef, force: bool) -> Result<Record, SandboxError> {
        self.order(which, |reply| Order::Remove { force, reply }).await
    }

    /// Gives a living sandbox other times to live, both from now on; what is absent stays, 0 is for
    /// ever. To ask for it counts as activity.
    pub async fn extend(
        &self,
        which: &SandboxRef,
        ttl_ms: Option<u64>,
        idle_ttl_ms: Option<u64>,
    ) -> Result<Record, SandboxError> {
        check_lifetime("ttl_ms", ttl_ms.filter(|ms| *ms > 0))?;
        check_lifetime("idle_ttl_ms", idle_ttl_ms.filter(|ms| *ms > 0))?;
        if let Some(ttl_ms) = ttl_ms {
            self.bound_life(&self.get(which)?, ttl_ms, now_ms())?;
        }
        self.order(which, |reply| Order::Extend { ttl_ms, idle_ttl_ms, reply }).await
    }

    /// Lets a sandbox stand still, with all that is in it; one that does stays so. Time in a pause
    /// counts for its absolute time to live, and not for the idle one.
    pub async fn pause(&self, which: &SandboxRef) -> Result<Record, SandboxError> {
        self.order(which, |reply| Order::Pause { reply }).await
    }

    /// Lets a paused sandbox go on, with its clock stepped.
    pub async fn resume(&self, which: &SandboxRef) -> Result<Record, SandboxError> {
        let record = self.get(which)?;
        if matches!(record.state, State::Paused { .. }) {
            self.room_to_go_on(&record)?;
        }
        self.order(which, |reply| Order::Resume { reply }).await
    }

    /// Brings back what a running sandbox has changed in its workspace, and says what came of it.
    pub async fn sync(&self, which: &SandboxRef) -> Result<Report, SandboxError> {
        self.order(which, |reply| Order::Sync { reply }).await
    }

    /// Writes a running sandbox down under a name of its namespace. It goes on.
    pub async fn snapshot(&self, which: &SandboxRef, name: Name) -> Result<Snapshot, SandboxError> {
        let record = self.get(which)?;
        if !record.secrets.is_empty() {
            return Err(SandboxError::HoldsSecrets { which: which.clone() });
        }
        let state = self.0.directories(&record.id).state;
        let draft = Box::new(self.begin_snapshot(&record, &state, name)?);
        self.order(which, |reply| Order::Snapshot { draft, reply }).await
    }

    /// The snapshots of one namespace or of all, by name.
    pub fn snapshots(&self, namespace: Option<&Name>) -> Vec<Snapshot> {
        self.0.snapshots.list(namespace)
    }

    pub fn get_snapshot(&self, which: &SandboxRef) -> Result<Snapshot, SandboxError> {
        self.0.snapshots.get(which)
    }

    /// Removes a snapshot. Sandboxes that were made of it do not need it.
    pub async fn remove_snapshot(&self, which: &SandboxRef) -> Result<Snapshot, SandboxError> {
        let (snapshots, which) = (self.0.snapshots.clone(), which.clone());
        let removed = tokio::task::spawn_blocking(move || snapshots.remove(&which)).await;
        removed.unwrap_or(Err(SandboxError::Stopping))
    }

    /// Takes no new sandboxes and stops all that run.
    pub async fn stop_all(&self, grace: Duration) {
        let mut stops = JoinSet::new();
        for which in self.close() {
            let registry = self.clone();
            stops.spawn(async move { registry.stop(&which, grace).await });
        }
        while let Some(stopped) = stops.join_next().await {
            if let Ok(Err(error)) = stopped {
                self.0.trouble(None, error.to_string());
            }
        }
        self.mark();
    }

    /// Takes no new sandboxes and lets go of those that run, for the next bridge to find. Returns
    /// how many they are.
    pub async fn leave(&self) -> usize {
        let mut left = JoinSet::new();
        for which in self.close() {
            let registry = self.clone();
            left.spawn(async move { registry.order(&which, |reply| Order::Leave { reply }).await });
        }
        let mut running = 0;
        while let Some(answer) = left.join_next().await {
            running += usize::from(matches!(answer, Ok(Ok(record)) if !record.state.is_over()));
        }
        // They hold nobody's work, and the next bridge may want others.
        self.0.pool.drain().await;
        self.mark();
        running
    }

    fn close(&self) -> Vec<SandboxRef> {
        let mut seats = self.0.seats();
        seats.closed = true;
        seats.taken.keys().cloned().collect()
    }

    async fn order<T>(
        &self,
        which: &SandboxRef,
        order: impl FnOnce(oneshot::Sender<Result<T, SandboxError>>) -> Order,
    ) -> Result<T, SandboxError> {
        let gone = || SandboxError::NotFound { which: which.clone() };
        let orders = self.0.seats().taken.get(which).map(|seat| seat.orders.clone());
        let (reply, answer) = oneshot::channel();
        orders.ok_or_else(gone)?.send(order(reply)).await.map_err(|_| gone())?;
        // It has ended before the order was carried out, or is gone altogether.
        answer.await.unwrap_or_else(|_| {
            let state = self.get(which)?.state;
            Err(SandboxError::NotRunning { which: which.clone(), state })
        })
    }

    /// Takes a name for a sandbox; for a new one where the caps leave room for it.
    fn seat(&self, kept: StoredRecord, is_new: bool) -> Result<Owner, SandboxError> {
        let which = kept.record.which();
        let mut seats = self.0.seats();
        if seats.closed {
            return Err(SandboxError::Stopping);
        }
        if let Some(seat) = seats.taken.get(&which) {
            let record = seat.shown.borrow();
            let (id, state) = (record.id.clone(), record.state.clone());
            return Err(SandboxError::NameTaken { which, id, state });
        }
        if seats.taken.len() >= SANDBOXES_MAX {
            return Err(SandboxError::TooMany);
        }
        if is_new {
            self.room_for(&seats, &kept.record)?;
        }
        let (orders, ordered) = mpsc::channel(ORDERS_WAITING_MAX);
        let (show, shown) = watch::channel(kept.record.clone());
        let presence = Presence::new();
        let seat = NameEntry { orders, shown, presence: Arc::clone(&presence) };
        seats.taken.insert(which.clone(), seat);
        let place = OwnerSettings {
            directories: self.0.directories(&kept.record.id),
            machine: Arc::clone(self.0.machines.get(kept.record.machine)),
            events: Arc::clone(&self.0.events),
            egress: Arc::clone(&self.0.egress),
            secrets: self.0.secrets.clone(),
            meter: self.0.meter.clone(),
            presence,
            workspaces: self.0.workspaces.clone(),
            _occupied: Box::new(NameGuard { registry: Arc::downgrade(&self.0), which }),
        };
        Ok(Owner::new(kept, place, show, ordered))
    }

    /// Takes the name of a sandbox that an earlier bridge had.
    fn seat_found(&self, kept: StoredRecord) -> Option<Owner> {
        let which = kept.record.which();
        let seated = self.seat(kept, false);
        if let Err(error) = &seated {
            self.0.trouble(Some(which), format!("it could not be adopted: {error}"));
        }
        seated.ok()
    }

    /// Removes what is left of a sandbox without a record, and so of a machine of any kind.
    async fn clean(&self, id: SandboxId, why: &str) {
        let directories = self.0.directories(&id);
        for kind in MachineKind::ALL {
            let machine = self.0.machines.get(kind);
            machine.clean(id.clone(), Some(directories.clone())).await;
        }
        let _ = fs::remove_dir_all(directories.runtime);
        let _ = fs::remove_dir_all(directories.state);
        (self.0.events)(&Event::Cleaned { id: id.to_string(), why: why.to_owned() });
    }
}

fn id_of(directory: &Path) -> Option<SandboxId> {
    directory.file_name()?.to_str()?.parse().ok()
}

/// The directories in `path`; none when it is not there.
fn subdirectories(path: &Path) -> Result<Vec<PathBuf>, SandboxError> {
    let failed =
        |source| SandboxError::Files { action: "look through", path: path.to_owned(), source };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut directories = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            directories.push(entry.path());
        }
    }
    Ok(directories)
}

#[cfg(test)]
mod tests;
