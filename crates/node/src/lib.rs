//! This bridge as a node of a fleet.
//!
//! ```text
//!  daemon ─▶ Node ─▶ fleet (decides) ─▶ NATS
//!    │         ├─▶ guardian, by the lease file: ends the sandboxes of a lease that is over
//!    │         ├─▶ placing: which node makes a new sandbox, for all doors
//!    │         ├─▶ names: what the registry asks for before it makes a sandbox
//!    │         ├─▶ templates and images: what all nodes have, and what each has
//!    │         ├─▶ durable and lost: the fleet's logs of output, written here and read for nodes that are gone
//!    │         ├─▶ routes and things: where a sandbox is, by its name or by an id
//!    │         └─▶ marks: who calls through which node
//!    └─ serves whether NATS answers or not; without NATS nothing is created
//! ```
//!
//! `daemon` starts it, `api` asks it where to send a call. It makes no sandbox itself, and no byte of one goes through
//! it.

#![forbid(unsafe_code)]

mod durable;
pub mod guardian;
mod held;
mod identity;
mod images;
mod keys;
mod leash;
pub mod limits;
mod lost;
mod machines;
mod mark;
mod names;
mod placing;
mod removed;
mod returning;
mod room;
mod routes;
mod row;
mod tallies;
mod templates;
mod things;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fleet::driver::{self, Adopted, Handle, Left};
use fleet::event::{Answer, Call};
use fleet::ids::{Incarnation, Name, NodeId};
use fleet::lease::{Leash, Phase};
use fleet::nats::{Link, LinkError, Place};
use fleet::records::NodeRecord;
use fleet::{Me, Status};
use host::id::random_bytes;
use host::paths::Paths;
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Refusal};
use sandbox::{EventSink, Registry, SandboxRef};
use settings::Settings;
use tokio::sync::{Semaphore, mpsc, watch};

pub use fleet::records::Readiness;
pub use identity::IdentityError;
pub use lost::{LogAway, LostEntries, LostHistory, LostLog, LostSession, Remains};
pub use mark::{Called, Mark, MarkRefused, Through};
pub use placing::{NODE_LABEL, Placed, Placing};
pub use returning::{LostOne, Waiting, pause_after};
pub use routes::{Placement, Route};
pub use row::NodeRow;
pub use tallies::{FleetFigures, QuotaUse};
pub use things::{Finder, Kind, Thing};

use identity::Identity;
use leash::LeashFile;
use limits::{CONNECT_PAUSE, ROSTER_AGE_MAX};
use machines::{Expected, HostMachines};
use removed::RemovedNotes;
use tallies::Tallies;

/// Why this bridge cannot be a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(
        "the host's name {0:?} cannot be a node's; set fleet.node to 1 to 63 letters, digits, '_' and '-'"
    )]
    Name(String),
    #[error("other bridges cannot reach {0}; set fleet.address to where they reach this one")]
    Address(String),
    #[error("cannot make a random number: {0}")]
    Draw(std::io::Error),
}

/// This bridge in its fleet. Clones are the same.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

type Roster = Arc<BTreeMap<NodeId, Arc<NodeRecord>>>;

struct Inner {
    id: NodeId,
    place: Place,
    grace: Duration,
    settings: settings::Fleet,
    /// The streams of durable output are there.
    has_logs: tokio::sync::Mutex<bool>,
    tallies: Tallies,
    paths: Paths,
    events: EventSink,
    identity: Identity,
    record: Mutex<NodeRecord>,
    /// Absent until NATS has answered once.
    handle: watch::Sender<Option<Handle>>,
    /// Why it has not.
    trouble: Mutex<Option<String>>,
    registry: OnceLock<Registry>,
    /// Names that were taken for this bridge, and whose sandboxes are not made yet.
    expected: Mutex<HashMap<Incarnation, Expected>>,
    /// The lives that may run here.
    held: Mutex<HashSet<Incarnation>>,
    /// Those of them that are made again when they are lost.
    returning: Mutex<HashMap<Incarnation, Name>>,
    removed: RemovedNotes,
    /// Those that end here to be made again at another node.
    moving: Mutex<HashSet<Incarnation>>,
    /// Lost ones that this node is to make again.
    waiting: Mutex<(mpsc::UnboundedSender<Waiting>, Option<mpsc::UnboundedReceiver<Waiting>>)>,
    roster: RwLock<(Option<Instant>, Roster)>,
    /// The latest, for those who pause sandboxes by it.
    leash: watch::Sender<Leash>,
    leashes: OnceLock<mpsc::UnboundedSender<machines::Lease>>,
    finder: OnceLock<Finder>,
    seen: Mutex<things::Seen>,
    recalled: Mutex<routes::Recalled>,
    looks: Arc<Semaphore>,
}

/// What a node says of itself, and how it is.
#[derive(Clone, Debug)]
pub struct About {
    pub id: NodeId,
    pub record: Arc<NodeRecord>,
    /// It is the one that was asked.
    pub is_here: bool,
}

impl Node {
    /// What the settings say; nothing is joined yet.
    pub fn open(settings: &Settings, paths: &Paths, events: EventSink) -> Result<Self, NodeError> {
        let fleet = &settings.fleet;
        let name = match &fleet.node {
            Some(name) => name.clone(),
            None => nix::unistd::gethostname()
                .ok()
                .and_then(|name| name.into_string().ok())
                .map(|name| name.split('.').next().unwrap_or_default().to_owned())
                .unwrap_or_default(),
        };
        let id = NodeId::parse(&name).map_err(|_| NodeError::Name(name))?;
        let identity = Identity::open(paths)?;
        let removed = RemovedNotes::open(paths)?;
        let place = Place {
            servers: fleet.servers.join(","),
            credentials: fleet.credentials.clone(),
            ca: fleet.ca.clone(),
            certificate: fleet.certificate.clone().zip(fleet.key.clone()),
            replicas: fleet.replicas,
        };
        let mut labels: BTreeMap<_, _> =
            fleet.label_pairs().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        labels.insert(NODE_LABEL.to_owned(), id.to_string());
        let record = NodeRecord {
            address: fleet.address.clone().unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            room: room::of(fleet),
            labels,
            machines: room::machines(settings.defaults.machine),
            images: std::collections::BTreeSet::new(),
            readiness: identity.readiness,
            key: identity.key.public().to_owned(),
        };
        let (handle, _) = watch::channel(None);
        let (lost, told) = mpsc::unbounded_channel();
        let (leash, _) = watch::channel(LeashFile::last(paths, fleet.grace));
        Ok(Self(Arc::new(Inner {
            id,
            place,
            grace: fleet.grace,
            settings: fleet.clone(),
            has_logs: tokio::sync::Mutex::default(),
            tallies: Tallies::default(),
            paths: paths.clone(),
            events,
            identity,
            record: Mutex::new(record),
            handle,
            trouble: Mutex::new(Some("this node has not joined the fleet yet".to_owned())),
            registry: OnceLock::new(),
            expected: Mutex::default(),
            held: Mutex::default(),
            returning: Mutex::default(),
            removed,
            moving: Mutex::default(),
            waiting: Mutex::new((lost, Some(told))),
            roster: RwLock::default(),
            leash,
            leashes: OnceLock::new(),
            finder: OnceLock::new(),
            seen: Mutex::default(),
            recalled: Mutex::default(),
            looks: things::places(),
        })))
    }

    /// Joins with what an earlier bridge has left, and goes on trying while NATS does not answer. `address` is where
    /// the others reach this bridge if the settings do not say.
    pub fn join(&self, registry: &Registry, address: Option<&str>) -> Result<(), NodeError> {
        let inner = &self.0;
        {
            let mut record = lock(&inner.record);
            if record.address.is_empty() {
                address.unwrap_or_default().clone_into(&mut record.address);
            }
            if !record.address.starts_with("http") || record.address.contains("//0.0.0.0") {
                return Err(NodeError::Address(format!("{:?}", record.address)));
            }
        }
        let seed = random_bytes::<8>().map(u64::from_le_bytes).map_err(NodeError::Draw)?;
        let _ = inner.registry.set(registry.clone());
        let left = Left { adopted: self.adopted(registry), removed: self.removed_before() };
        tokio::spawn(held::keep(Arc::downgrade(inner), inner.leash.subscribe()));
        let node = self.clone();
        tokio::spawn(async move {
            let link = node.connect().await;
            let me = Me {
                id: node.0.id.clone(),
                installation: node.0.identity.installation.clone(),
                record: lock(&node.0.record).clone(),
                grace_ms: node.0.grace.as_millis() as u64,
                seed,
            };
            let machines = HostMachines::new(&node);
            match driver::run(me, link, machines, left).await {
                Ok(handle) => {
                    node.0.handle.send_replace(Some(handle));
                    tokio::join!(
                        node.keep_roster(),
                        node.keep_images_described(),
                        node.keep_templates()
                    );
                }
                Err(error) => node.trouble(&error),
            }
        });
        Ok(())
    }

    async fn connect(&self) -> Link {
        let mut was_told = false;
        loop {
            match Link::connect(&self.0.place, self.0.id.as_str()).await {
                Ok(link) => return link,
                Err(error) => {
                    if !std::mem::replace(&mut was_told, true) {
                        self.trouble(&error);
                    }
                    tokio::time::sleep(CONNECT_PAUSE).await;
                }
            }
        }
    }

    fn trouble(&self, error: &LinkError) {
        let what = format!("this node is not in its fleet: {error}");
        *lock(&self.0.trouble) = Some(what.clone());
        (self.0.events)(&sandbox::Event::Trouble { which: None, what });
    }

    /// The sandboxes of the fleet that are here.
    fn adopted(&self, registry: &Registry) -> Vec<Adopted> {
        let mut adopted = Vec::new();
        for record in registry.list(None) {
            let incarnation = record.incarnation.as_deref().and_then(incarnation);
            let (Some(incarnation), Ok(name)) = (incarnation, name_of(&record.which())) else {
                continue;
            };
            lock(&self.0.held).insert(incarnation);
            if !record.on_lost.is_lose() {
                lock(&self.0.returning).insert(incarnation, name.clone());
                if record.state.is_over() {
                    self.forget_returning(incarnation, false);
                }
            }
            adopted.push(Adopted { incarnation, name, needs: room::needs(&record) });
        }
        adopted
    }

    /// The sandboxes that an earlier bridge has removed without NATS. They are not made again.
    fn removed_before(&self) -> Vec<Incarnation> {
        let noted = self.0.removed.all();
        for (life, name) in &noted {
            if let Some(name) = name {
                lock(&self.0.returning).insert(*life, name.clone());
                self.forget_returning(*life, true);
            }
        }
        noted.into_iter().map(|(life, _)| life).collect()
    }

    /// Keeps what the others say of themselves, for those who cannot wait for it.
    async fn keep_roster(&self) {
        let weak = Arc::downgrade(&self.0);
        loop {
            let Some(inner) = weak.upgrade() else { return };
            Self(inner).look_around().await;
            tokio::time::sleep(ROSTER_AGE_MAX).await;
        }
    }

    /// The nodes, as they describe themselves now.
    async fn look_around(&self) -> Roster {
        let nodes = match self.handle() {
            Some(handle) => handle.call(Call::Nodes).await,
            None => Answer::Nodes(Vec::new()),
        };
        let roster = match nodes {
            Answer::Nodes(nodes) => Arc::new(nodes.into_iter().collect()),
            _ => Roster::default(),
        };
        let mut kept = self.0.roster.write().unwrap_or_else(PoisonError::into_inner);
        *kept = (Some(Instant::now()), Arc::clone(&roster));
        roster
    }

    fn roster(&self) -> Roster {
        self.0.roster.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    fn handle(&self) -> Option<Handle> {
        self.0.handle.borrow().clone()
    }

    pub fn id(&self) -> &NodeId {
        &self.0.id
    }

    /// How it is in the fleet; `None` before NATS has answered for the first time.
    pub fn status(&self) -> Option<Status> {
        self.handle().map(|handle| handle.status())
    }

    /// Whether it holds its lease, and why not.
    pub fn standing(&self) -> Result<Status, String> {
        let Some(handle) = self.handle() else {
            let trouble = lock(&self.0.trouble).clone();
            return Err(trouble.unwrap_or_else(|| "this node is joining its fleet".to_owned()));
        };
        let status = handle.status();
        match status.phase {
            Phase::Held => Ok(status),
            Phase::Paused if !handle.link.is_connected() => {
                Err("this node has no connection to NATS".to_owned())
            }
            Phase::Paused => Err("this node could not renew its lease".to_owned()),
            Phase::Over => Err("this node has no lease in its fleet".to_owned()),
        }
    }

    fn about(&self) -> About {
        let record = Arc::new(lock(&self.0.record).clone());
        About { id: self.0.id.clone(), record, is_here: true }
    }

    /// All nodes that have described themselves.
    pub async fn nodes(&self) -> Vec<About> {
        let roster = self.look_around().await;
        let about = |(id, record): (&NodeId, &Arc<NodeRecord>)| About {
            id: id.clone(),
            record: Arc::clone(record),
            is_here: *id == self.0.id,
        };
        roster.iter().map(about).collect()
    }

    /// Says whether a node takes sandboxes.
    pub async fn set_readiness(&self, node: &str, readiness: Readiness) -> Result<(), Refusal> {
        let none = || Refusal::not_found(format!("there is no node {node:?} in this fleet"));
        let id = NodeId::parse(node).map_err(|_| none())?;
        let away = |why: String| Refusal::new(Code::Unavailable, why).retry_after(BUSY_PAUSE);
        self.standing().map_err(away)?;
        if !self.look_around().await.contains_key(&id) {
            return Err(none());
        }
        let handle = self.handle().ok_or_else(|| away("this node is joining its fleet".into()))?;
        match handle.call(Call::Mark { node: id, readiness }).await {
            Answer::Marked => Ok(()),
            _ => Err(away(format!("the node {node} does not answer"))),
        }
    }

    fn holds(&self, incarnation: Incarnation) -> bool {
        lock(&self.0.held).contains(&incarnation)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing behind these is ever half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn incarnation(text: &str) -> Option<Incarnation> {
    Incarnation::try_from(text.to_owned()).ok()
}

/// The same name in words of the fleet. Every name of a sandbox can be one.
fn name_of(which: &SandboxRef) -> Result<Name, fleet::ids::NameError> {
    Name::parse(which.namespace.as_str(), which.name.as_str())
}
