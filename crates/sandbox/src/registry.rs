//! The registry: which names there are, and the task that owns each.
//!
//! It changes nothing of a sandbox itself: it sends orders to the owner and shows the state that
//! the owner last published. A name is taken from the moment a creation begins until its owner has
//! removed everything.

mod changed;
mod claimed;
mod create;
mod fork;
mod found;
mod held;
mod image_names;
mod means;
mod orders;
mod restart;
mod room;
mod shared;
mod snapshots;
mod templates;
mod views;
mod volumes;

use claimed::NameGuard;
pub use means::RegistryOptions;
pub use orders::Update;
use room::RefusalCounts;
pub use snapshots::{Import, ListedSnapshot};
pub use templates::TemplateInfo;
pub use views::{Until, Visit};

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::again::Remaking;
use super::caps::Caps;
use super::commit;
use super::costs::Costs;
use super::meter::Meter;
use super::options::Defaults;
use super::owner::{Order, Owner, OwnerSettings};
use super::pool::Pool;
use super::presence::Presence;
use super::record::StoredRecord;
use super::saver::{Carrier, Saver};
use super::snapshot::Snapshots;
use super::snapshot::retention::Retention;
use super::stored::{ImageSource, RequestedImage, image_users};
use super::tallies::Tallies;
use super::telemetry::Telemetry;
use super::template::Templates;
use super::{
    DurableLogs, Event, EventSink, HostFiles, Incarnation, Name, Names, Record, SandboxError,
    SandboxRef, SharedTemplates, Spec, State,
};
use crate::limits::{ORDERS_WAITING_MAX, SANDBOXES_MAX};
use host::paths::Paths;
use host::secret::Secrets;
use image::digest::Digest;
use image::reference::Reference;
use image::store::User;
use image::{Image, ImageError, Images, Puller};
use machine::{Directories, Machines, SandboxId};
use workspace::volume::Volumes;
use workspace::{TransferCounter, Workspaces};

/// All sandboxes of one bridge. Clones are the same registry.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    paths: Paths,
    /// Set if the sandboxes end with this process: no door, no next bridge. These paths, which
    /// contain the other sandboxes, are hidden from them.
    hidden_of_alone: Option<Paths>,
    machines: Machines,
    events: EventSink,
    tallies: Tallies,
    files: HostFiles,
    defaults: Defaults,
    operator_defaults: Defaults,
    pool: Arc<Pool>,
    egress: Arc<egress::Settings>,
    egress_default: egress::Defaults,
    snapshots: Snapshots,
    retention: Retention,
    secrets: Secrets,
    workspaces: Workspaces,
    volumes: Arc<Volumes>,
    source: Arc<ImageSource>,
    templates: Arc<Templates>,
    shared_templates: Option<Arc<dyn SharedTemplates>>,
    caps: Caps,
    names: Option<Arc<dyn Names>>,
    durable_logs: Option<Arc<dyn DurableLogs>>,
    program_events: bool,
    refused: RefusalCounts,
    meter: Meter,
    costs: Costs,
    saver: Arc<OnceLock<Saver>>,
    carrier: OnceLock<Carrier>,
    seats: Mutex<Seats>,
    /// Nothing of the fleet may go on; see [`Registry::hold`].
    is_held: AtomicBool,
}

#[derive(Default)]
struct Seats {
    taken: HashMap<SandboxRef, NameEntry>,
    /// No new sandboxes: the bridge is stopping.
    closed: bool,
}

impl Seats {
    /// A sandbox by its name, or by its id in its namespace.
    fn find(&self, which: &SandboxRef) -> Option<&NameEntry> {
        self.taken.get(which).or_else(|| {
            let id: SandboxId = which.name.as_str().parse().ok()?;
            self.taken.values().find(|seat| {
                let record = seat.shown.borrow();
                record.id == id && record.namespace == which.namespace
            })
        })
    }
}

/// A taken name.
struct NameEntry {
    orders: mpsc::Sender<Order>,
    shown: watch::Receiver<Record>,
    presence: Arc<Presence>,
    telemetry: Telemetry,
}

impl NameEntry {
    fn record(&self) -> Record {
        let record = self.shown.borrow().clone();
        self.presence.show(record)
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

    /// Directories that control its sandboxes, and so cannot be workspaces.
    fn own_directories(&self) -> Vec<&Path> {
        let all = self.hidden_of_alone.iter().chain([&self.paths]);
        all.flat_map(|paths| [paths.runtime.as_path(), paths.state.as_path()]).collect()
    }
}

impl Registry {
    /// Opens the registry over what earlier bridges have left: adopts machines that live, marks
    /// those that ended, and removes what is half-made. The paths must be prepared and no other
    /// bridge may use them.
    pub async fn open(
        paths: Paths,
        machines: Machines,
        events: EventSink,
    ) -> Result<Self, SandboxError> {
        Self::open_with(paths, machines, events, RegistryOptions::default()).await
    }

    /// Opens it with an operator's settings for sandboxes.
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
        means: RegistryOptions,
    ) -> Result<Self, SandboxError> {
        Self::open_inner(paths, Some(outer), machines, events, means).await
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
        let exists = |id: &SandboxId| super::directories::directories(&paths, id).state.exists();
        let (costs, uncounted) = Costs::open(&paths.costs(), exists);
        let tallies = Tallies::default();
        let events = tallies.counting(events);
        let RegistryOptions { images, image_policy: policy, puller, secrets, workspaces, .. } =
            means;
        let of_store = hidden_of_alone.as_ref().unwrap_or(&paths).clone();
        let source = Arc::new(ImageSource { paths: of_store, images, policy, puller });
        let (templates, unread_templates) = Templates::open(paths.templates(), means.templates)?;
        let (volumes, unread_volumes) = Volumes::open(paths.volumes());
        let from = Arc::clone(&source);
        let pool = Pool::new(&paths, &means.files, &machines, &events, from, means.pool)?;
        let pool = Arc::new(pool);
        let program_events = means.program_events;
        let RegistryOptions { caps, names, retention, shared_templates, durable_logs, .. } = means;
        let inner = Inner {
            paths,
            hidden_of_alone,
            machines,
            events,
            tallies,
            files: means.files,
            defaults: means.defaults,
            operator_defaults: means.operator_defaults,
            pool,
            snapshots,
            retention,
            egress: Arc::new(means.egress),
            egress_default: means.egress_default,
            secrets,
            workspaces,
            volumes: Arc::new(volumes),
            source,
            templates: Arc::new(templates),
            shared_templates,
            caps,
            names,
            durable_logs,
            program_events,
            refused: RefusalCounts::default(),
            meter,
            costs,
            saver: Arc::default(),
            carrier: OnceLock::new(),
            seats,
            is_held: AtomicBool::new(false),
        };
        let registry = Self(Arc::new(inner));
        if let Some(error) = unread {
            registry.0.trouble(None, format!("today's use cannot be read: {error}"));
        }
        if let Some(error) = uncounted {
            let what = format!("the costs of earlier days and sandboxes cannot be read: {error}");
            registry.0.trouble(None, what);
        }
        for what in unread_templates.into_iter().chain(unread_volumes) {
            registry.0.trouble(None, what);
        }
        let inner = Arc::downgrade(&registry.0);
        registry.0.pool.reserve_with(Box::new(move |record, state| {
            let registry = Self(inner.upgrade().ok_or(SandboxError::Stopping)?);
            registry.begin_snapshot(record, state, Name::generate().map_err(SandboxError::Draw)?)
        }));
        registry.take_up().await?;
        registry.0.pool.begin();
        registry.warm_templates();
        registry.begin_metering();
        registry.begin_sweeping();
        registry.begin_measuring();
        Ok(registry)
    }

    /// Starts a sandbox and waits until its agent has answered. The creation continues if the
    /// caller stops waiting.
    pub async fn create(&self, spec: Spec) -> Result<Record, SandboxError> {
        Self::check_template(&spec)?;
        self.create_over(&self.0.files, &self.0.defaults, spec).await
    }

    /// Creates a sandbox for the bridge's own user, whose machine this is: without an image it has the host's
    /// root, like a sandbox of a verb without a daemon.
    pub async fn create_for_operator(
        &self,
        mut spec: Spec,
        placed: Option<Incarnation>,
    ) -> Result<Record, SandboxError> {
        spec.durability = spec.durability.or(self.0.operator_defaults.durability);
        Self::check_template(&spec)?;
        let files = self.0.files.for_operator();
        self.create_named(&files, &self.0.operator_defaults, spec, placed).await
    }

    /// The defaults of the operator's sandboxes.
    pub fn operator_defaults(&self) -> &Defaults {
        &self.0.operator_defaults
    }

    /// The defaults of clients' sandboxes.
    pub fn defaults(&self) -> &Defaults {
        &self.0.defaults
    }

    fn wanted_image(&self, spec: &Spec) -> Option<RequestedImage> {
        self.0.source.wanted(spec)
    }

    /// The stored image that a specification names, pulled if necessary and allowed by the policy: for builds
    /// on top of it before the sandbox is created.
    pub async fn base_image(&self, spec: &Spec) -> Result<Option<Digest>, SandboxError> {
        match self.wanted_image(spec) {
            Some(wanted) => Ok(Some(wanted.resolve().await?)),
            None => Ok(None),
        }
    }

    /// The images of this host, where this bridge has opened them.
    pub fn images(&self) -> Option<&Images> {
        self.0.source.images.as_ref()
    }

    /// Tells the operator of something that nobody waits for.
    pub fn report(&self, which: SandboxRef, what: String) {
        self.0.trouble(Some(which), what);
    }

    /// Counts of events since this bridge began.
    pub fn tallies(&self) -> &Tallies {
        &self.0.tallies
    }

    /// Bytes that workspaces have transferred since this bridge began.
    pub fn carried(&self) -> &TransferCounter {
        self.0.workspaces.carried()
    }

    /// Pulls images, if this bridge can.
    pub fn puller(&self) -> Option<&Puller> {
        self.0.source.puller.as_ref()
    }

    /// Saves the files of a running sandbox as an image; its root must be an image of the store. It continues
    /// if the caller stops waiting.
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
        if !record.volumes.is_empty() {
            return Err(unsupported("it has volumes, and those files are not its own"));
        }
        let digest = record.image_digest;
        let digest =
            digest.ok_or_else(|| unsupported("its root is not an image from the store"))?;
        let images = self.0.source.images.clone();
        let images = images.ok_or_else(|| unsupported("this bridge has no images"))?;
        let images = images.of_namespace(Some(which.namespace.as_str()));
        let finding = images.clone();
        let base = tokio::task::spawn_blocking(move || finding.find(&digest.to_string()));
        let base = base.await.unwrap_or(Err(ImageError::Busy))?;
        let Visit { guest, activity, .. } = self.visit(which).await?;
        let committed = which.clone();
        let work = Box::pin(async move {
            // Stopping the sandbox drops its errands; the reader sees that by its machine.
            let committing = tokio::spawn(async move {
                let _activity = activity;
                commit::commit(guest, images, base, &committed, name).await
            });
            committing.await.unwrap_or(Err(SandboxError::Stopping))
        });
        self.order(which, |reply| Order::Commit { work, reply }).await
    }

    /// The users of images as roots.
    pub fn image_users(&self) -> Vec<User> {
        image_users(&self.0.paths)
    }

    /// Stops a sandbox in order and waits until it is gone. One that has stopped stays so.
    pub async fn stop(&self, which: &SandboxRef, grace: Duration) -> Result<Record, SandboxError> {
        // What cannot be saved is marked as unsaved for its next user.
        let _ = self.save_inside(which).await;
        self.order(which, |reply| Order::Stop { grace, reply }).await
    }

    /// Ends a sandbox at once and waits until it is gone.
    pub async fn kill(&self, which: &SandboxRef) -> Result<Record, SandboxError> {
        self.order(which, |reply| Order::Kill { reply }).await
    }

    /// Removes a stopped sandbox and frees its name; with `force`, kills it first. Refused if something in it
    /// cannot be saved before, because killing it would lose that.
    pub async fn remove(&self, which: &SandboxRef, force: bool) -> Result<Record, SandboxError> {
        if force {
            self.save_inside(which).await?;
        }
        self.order(which, |reply| Order::Remove { force, reply }).await
    }

    /// Removes a sandbox whatever it contains, on behalf of the owner of that.
    pub async fn discard(&self, which: &SandboxRef) -> Result<Record, SandboxError> {
        self.order(which, |reply| Order::Remove { force: true, reply }).await
    }

    /// Saves what can be saved in a sandbox, and removes it in any case.
    pub async fn save_and_discard(&self, which: &SandboxRef) -> Result<Record, SandboxError> {
        // What cannot be saved is marked as unsaved for its next user.
        let _ = self.save_inside(which).await;
        self.discard(which).await
    }

    /// Sets what saves the content of sandboxes before they are stopped or removed, or expire. Only the first
    /// saver counts.
    pub fn save_with(&self, saver: Saver) {
        let _ = self.0.saver.set(saver);
    }

    /// Sets what carries the saved content of sandboxes into their forks. Only the first carrier counts.
    pub fn carry_with(&self, carrier: Carrier) {
        let _ = self.0.carrier.set(carrier);
    }

    async fn save_inside(&self, which: &SandboxRef) -> Result<(), SandboxError> {
        let Some(saver) = self.0.saver.get() else { return Ok(()) };
        if self.get(which)?.state.is_asleep() {
            // One that cannot be woken has nothing left to save.
            let _ = self.wake(which).await;
        }
        let record = self.get(which)?;
        if record.state != State::Running {
            return Ok(());
        }
        let which = record.which();
        let saved = saver(which.clone(), record.id).await;
        saved.map_err(|what| SandboxError::Unsaved { which, what })
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
        self.mark_costs();
    }

    /// Takes no new sandboxes and releases those that run, for the next bridge to find. Returns
    /// their number.
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
        // Nobody uses them, and the next bridge may want others.
        self.0.pool.drain().await;
        self.mark();
        self.mark_costs();
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
        let orders = self.0.seats().find(which).map(|seat| seat.orders.clone());
        let (reply, answer) = oneshot::channel();
        orders.ok_or_else(gone)?.send(order(reply)).await.map_err(|_| gone())?;
        // It has ended before the order was carried out, or is gone altogether.
        answer.await.unwrap_or_else(|_| {
            let state = self.get(which)?.state;
            Err(SandboxError::NotRunning { which: which.clone(), state })
        })
    }

    /// Reserves a name; for a new sandbox only if the caps allow it.
    /// What restores machines from disk, unless sandboxes end with this process.
    fn remaking(&self) -> Option<Remaking> {
        let inner = &self.0;
        inner.hidden_of_alone.is_none().then(|| Remaking {
            paths: inner.paths.clone(),
            files: inner.files.clone(),
            source: Arc::clone(&inner.source),
        })
    }

    fn seat(&self, stored: StoredRecord, is_new: bool) -> Result<Owner, SandboxError> {
        let which = stored.record.which();
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
            self.room_for(&seats, &stored.record)?;
        }
        let (orders, ordered) = mpsc::channel(ORDERS_WAITING_MAX);
        let (show, shown) = watch::channel(stored.record.clone());
        let presence = Presence::new();
        let directories = self.0.directories(&stored.record.id);
        let (costs, events) = (self.0.costs.clone(), Arc::clone(&self.0.events));
        let telemetry = Telemetry::new(
            &stored.record,
            &directories.state,
            self.0.hidden_of_alone.is_none(),
            costs,
            events,
        );
        let (shared, kept) = (Arc::clone(&presence), telemetry.clone());
        let seat = NameEntry { orders, shown, presence: shared, telemetry: kept };
        seats.taken.insert(which.clone(), seat);
        let place = OwnerSettings {
            directories,
            machine: Arc::clone(self.0.machines.get(stored.record.machine)),
            machines: self.0.machines.clone(),
            events: Arc::clone(&self.0.events),
            egress: Arc::clone(&self.0.egress),
            secrets: self.0.secrets.clone(),
            meter: self.0.meter.clone(),
            presence,
            telemetry,
            workspaces: self.0.workspaces.clone(),
            volumes: Arc::clone(&self.0.volumes),
            names: self.0.names.clone(),
            remaking: self.remaking(),
            room_asleep: self.room_asleep(),
            durable_logs: self.0.durable_logs.clone(),
            program_events: self.0.program_events,
            saver: Arc::clone(&self.0.saver),
            _occupied: Box::new(NameGuard { registry: Arc::downgrade(&self.0), which }),
        };
        Ok(Owner::new(stored, place, show, ordered))
    }
}

#[cfg(test)]
mod tests;
