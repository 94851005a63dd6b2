//! The server's door: HTTP for programs, on loopback unless configured otherwise.
//!
//! ```text
//!  server ─▶ dispatch ─▶ rpc   JSON-RPC as the first SDKs speak it
//!   (connections)    ├─▶ a2a   the routes of an outside client of the sandbox surface
//!                    ├─▶ v1    the native API: one file per resource
//!                    ├─▶ e2b   both planes of E2B's own clients
//!                    ├─▶ daytona  the API and the toolbox of Daytona's own clients
//!                    ├─▶ msb   the API of sandboxes and the agent of microsandbox's own clients
//!                    ├─▶ jupyter  kernels for Jupyter's servers and clients
//!                    ├─▶ preview  ports of sandboxes, for browsers and programs
//!                    ├─▶ mcp   tools for agents, also over the control socket
//!                    ├─▶ console the page for people
//!                    └─▶ pages OpenAPI, reference, health, Prometheus
//! ```
//!
//! Only this crate knows the shapes of requests and answers; it turns them into calls of the crates below, and
//! never sees a frame. `daemon` starts it beside the control socket.

#![forbid(unsafe_code)]

mod a2a;
mod admission;
mod body;
mod budget;
mod call;
mod caller;
mod capture;
mod clues;
mod console;
mod counters;
mod creation;
mod daytona;
mod dispatch;
mod document;
mod e2b;
mod entrance;
mod entries;
mod environment;
mod forms;
mod forward;
mod gather;
mod idempotency;
mod images;
mod jupyter;
pub mod limits;
mod listen;
mod loglines;
mod lost;
pub mod mcp;
mod msb;
mod multipart;
mod operator;
mod options;
mod origin;
mod outflow;
mod pace;
mod pages;
mod parameters;
mod peer;
mod places;
mod placing;
mod preview;
mod problem;
mod prometheus;
mod proxy;
mod reference;
mod refusal;
mod render;
mod response;
mod returning;
mod route;
mod rpc;
mod samples;
mod sandbox_end;
#[cfg(test)]
mod sandbox_options;
mod server;
mod sessions;
mod shape;
mod stream;
mod subprotocol;
mod threads;
mod trail;
mod v1;
mod websocket;
mod whereabouts;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

pub use call::SentFor;
pub use caller::RateOption;
pub use limits::Limits;
pub use operator::Operator;
pub use options::Options;
pub use origin::Origins;
pub use places::Connections;
pub use prometheus::MetricLabels;
pub use returning::keep as bring_lost_back;
pub use server::Server;
pub use threads::Threads;

use bytes::Bytes;
use hyper::header::HeaderValue;

use admission::Admission;
use budget::Budget;
use call::Inside;
use caller::Door;
use counters::Counters;
use idempotency::IdempotentCalls;
use limits::{MEMORY_HOST_SHARE, MEMORY_KEY_SHARE};
use route::Routes;
use sandbox::refusal::{Code, Refusal};
use trail::UnknownCallers;

use access::audit::Audit;
use access::keys::Keyring;
use access::preview::Previews;
use host::dial::Dialler;
use node::{Kind, Node, Thing};
use otel::Otel;
use sandbox::{Registry, SandboxRef, Visit};
use services::app::Apps;
use services::artifact::Artifacts;
use services::events::Events;
use services::forwards::Forwards;
use services::notebook::Notebooks;
use services::timeline::PausedTimelines;

/// The door of one bridge. Clones are the same.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

/// A door that this does not keep open.
struct WeakApi(Weak<Inner>);

impl WeakApi {
    fn upgrade(&self) -> Option<Api> {
        self.0.upgrade().map(Api)
    }
}

struct Inner {
    registry: Registry,
    door: Door,
    origins: Origins,
    limits: Limits,
    images: BTreeMap<String, String>,
    notebooks: Option<Notebooks>,
    artifacts: Option<Artifacts>,
    node: Option<Node>,
    peers: forward::Peers,
    mutual_tls: bool,
    operator: OnceLock<Operator>,
    events: Option<Events>,
    audit: Audit,
    otel: Otel,
    labels: prometheus::ExportedLabels,
    samples: prometheus::Samples,
    strangers: UnknownCallers,
    routes: Routes,
    admission: Admission,
    budget: Budget,
    remembered: IdempotentCalls,
    counters: Counters,
    places: Connections,
    starts: v1::Starts,
    forwards: Forwards,
    previews: Previews,
    /// Which pages may show those of a port in a frame.
    framers: Option<HeaderValue>,
    console: bool,
    apps: Apps,
    mcp: mcp::Sessions,
    e2b: e2b::Memory,
    typists: sessions::typing::Typists,
    timelines: PausedTimelines,
    jupyter: jupyter::Memory,
    /// What sets this process's request ids apart from others'.
    epoch: u64,
    requests: AtomicU64,
    ready: AtomicBool,
    document: OnceLock<Pages>,
}

/// What is made of the table of operations when it is first asked for.
struct Pages {
    document: Bytes,
    reference: Bytes,
}

impl Api {
    pub fn new(registry: Registry, options: Options) -> Self {
        let Options { keyring, rate, origins, limits, images, .. } = options;
        let Options { notebooks, artifacts, events, audit, otel, metric_labels, .. } = options;
        let forwards = Forwards::within(options.forwarded_ports.clone());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let framers = origins.framers();
        let api = Self(Arc::new(Inner {
            registry,
            door: Door::new(keyring, rate),
            origins,
            admission: Admission::new(limits.runs_max, limits.runs_per_key_max),
            budget: budget(&limits),
            places: Connections::new(limits.connections_max),
            starts: v1::Starts::default(),
            limits,
            images,
            notebooks,
            artifacts,
            peers: forward::Peers::new(
                Dialler::new(options.fleet_ca).showing(options.fleet_certificate),
            ),
            mutual_tls: options.mutual_tls,
            node: options.node,
            operator: OnceLock::new(),
            events,
            audit,
            otel,
            labels: prometheus::ExportedLabels::new(metric_labels),
            samples: prometheus::Samples::default(),
            strangers: UnknownCallers::default(),
            routes: Routes::new(operations()),
            remembered: options.answers.map(IdempotentCalls::open).unwrap_or_default(),
            apps: Apps::new(forwards.clone()),
            forwards,
            previews: options.previews,
            framers,
            console: options.console,
            mcp: mcp::Sessions::default(),
            e2b: e2b::Memory::default(),
            typists: sessions::typing::Typists::default(),
            timelines: PausedTimelines::default(),
            jupyter: jupyter::Memory::default(),
            counters: Counters::default(),
            epoch: since.as_millis() as u64,
            requests: AtomicU64::new(1),
            ready: AtomicBool::new(true),
            document: OnceLock::new(),
        }));
        if let Some(node) = api.node() {
            let door = api.downgrade();
            node.finds_with(Box::new(move |thing| {
                let door = door.upgrade();
                Box::pin(async move {
                    match door {
                        Some(api) => api.has(&thing).await,
                        None => false,
                    }
                })
            }));
        }
        api
    }

    /// Whether a thing that is no sandbox is here, whosever it is.
    async fn has(&self, thing: &Thing) -> bool {
        let id = thing.id.as_str();
        match thing.kind {
            Kind::Sandbox => false,
            Kind::Kernel => jupyter::has_kernel(self, id),
            Kind::Session => self.mcp().has(id),
            Kind::Artifact => match (self.artifact_store(), id.parse()) {
                (Some(artifacts), Ok(id)) => artifacts.get(&id).await.is_ok(),
                _ => false,
            },
            Kind::Notebook => match (self.0.notebooks.as_ref(), id.parse::<SandboxRef>()) {
                (Some(notebooks), Ok(which)) => {
                    notebooks.get(&which.namespace, &which.name).await.is_ok()
                }
                _ => false,
            },
        }
    }

    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// The keys that this server accepts, if it asks for any.
    pub fn keyring(&self) -> Option<&Keyring> {
        self.0.door.keyring()
    }

    /// What runs have left, where it is kept.
    pub fn artifact_store(&self) -> Option<&Artifacts> {
        self.0.artifacts.as_ref()
    }

    /// This bridge in its fleet, if it is of one.
    pub fn node(&self) -> Option<&Node> {
        self.0.node.as_ref()
    }

    /// Whether another node must show its certificate.
    fn asks_nodes_for_certificates(&self) -> bool {
        self.0.mutual_tls
    }

    /// Connections to other nodes.
    fn peers(&self) -> &forward::Peers {
        &self.0.peers
    }

    /// The connections of all servers of this door.
    pub fn places(&self) -> &Connections {
        &self.0.places
    }

    pub fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Relaxed)
    }

    /// Reports that the server ends, so that a load balancer uses another one.
    pub fn end(&self) {
        self.0.ready.store(false, Ordering::Relaxed);
        self.0.apps.end();
        self.0.mcp.end();
        if let Some(events) = &self.0.events {
            events.release();
        }
    }

    fn door(&self) -> &Door {
        &self.0.door
    }

    fn origins(&self) -> &Origins {
        &self.0.origins
    }

    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// From the names of images that clients send to the roots here.
    fn images(&self) -> &BTreeMap<String, String> {
        &self.0.images
    }

    fn notebooks(&self) -> Result<&Notebooks, Refusal> {
        self.0.notebooks.as_ref().ok_or_else(|| {
            let message = "this server has no state directory, so it has no notebooks";
            Refusal::new(Code::Unsupported, message)
        })
    }

    /// The same for calls that cannot do without.
    fn artifacts(&self) -> Result<&Artifacts, Refusal> {
        self.artifact_store().ok_or_else(|| {
            Refusal::new(Code::Unsupported, "this bridge keeps no artifacts")
                .hint("start the bridge with a state directory to keep them")
        })
    }

    /// What happens to sandboxes, where it is recorded.
    pub fn event_stream(&self) -> Option<&Events> {
        self.0.events.as_ref()
    }

    /// The same for calls that cannot do without.
    fn events(&self) -> Result<&Events, Refusal> {
        self.event_stream().ok_or_else(|| {
            Refusal::new(Code::Unsupported, "this bridge records no events")
                .hint("its log says why; a bridge that `serve` starts records them")
        })
    }

    /// Where operations are recorded.
    pub fn audit(&self) -> &Audit {
        &self.0.audit
    }

    /// Where spans of requests go.
    fn otel(&self) -> &Otel {
        &self.0.otel
    }

    /// Where the trail of an operation ends.
    fn ends(&self) -> trail::Ends {
        let (audit, registry) = (self.audit().clone(), self.registry().clone());
        trail::Ends { audit, registry, otel: self.otel().clone() }
    }

    /// All figures of `/metrics`, of this moment.
    pub async fn figures(&self) -> Vec<otel::Family> {
        prometheus::figures(self).await
    }

    /// The labels of sandboxes that are in the figures.
    fn labels(&self) -> &prometheus::ExportedLabels {
        &self.0.labels
    }

    /// What sandboxes used lately, as scrapes see it.
    fn samples(&self) -> &prometheus::Samples {
        &self.0.samples
    }

    /// The door while somebody else keeps it alive.
    fn downgrade(&self) -> WeakApi {
        WeakApi(Arc::downgrade(&self.0))
    }

    /// Those who come without a good key.
    fn strangers(&self) -> &UnknownCallers {
        &self.0.strangers
    }

    fn routes(&self) -> &Routes {
        &self.0.routes
    }

    fn admission(&self) -> &Admission {
        &self.0.admission
    }

    /// The memory of all calls.
    fn budget(&self) -> &Budget {
        &self.0.budget
    }

    fn remembered(&self) -> &IdempotentCalls {
        &self.0.remembered
    }

    /// Connections to ports of sandboxes.
    pub fn forwards(&self) -> &Forwards {
        &self.0.forwards
    }

    /// Who may look at ports of sandboxes, and under which names.
    pub fn previews(&self) -> &Previews {
        &self.0.previews
    }

    fn framers(&self) -> Option<&HeaderValue> {
        self.0.framers.as_ref()
    }

    /// Whether browsers find the console here.
    fn has_console(&self) -> bool {
        self.0.console
    }

    /// Web apps in sandboxes.
    pub fn apps(&self) -> &Apps {
        &self.0.apps
    }

    /// Takes up what an earlier bridge has left in sandboxes that run on.
    pub async fn take_up(&self) {
        self.apps().adopt(self.registry()).await;
    }

    /// The sessions of clients of MCP over HTTP.
    fn mcp(&self) -> &mcp::Sessions {
        &self.0.mcp
    }

    /// Timelines that are read page by page.
    fn timelines(&self) -> &PausedTimelines {
        &self.0.timelines
    }

    /// Whose turn it is to type into sessions.
    fn typists(&self) -> &sessions::typing::Typists {
        &self.0.typists
    }

    /// What is remembered between calls of E2B's clients.
    fn e2b(&self) -> &e2b::Memory {
        &self.0.e2b
    }

    /// What is remembered between calls of Jupyter's clients.
    fn jupyter(&self) -> &jupyter::Memory {
        &self.0.jupyter
    }

    fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Sessions that were started under chosen names.
    fn starts(&self) -> &v1::Starts {
        &self.0.starts
    }

    fn next_request_id(&self) -> String {
        let number = self.0.requests.fetch_add(1, Ordering::Relaxed);
        format!("{:x}-{number:x}", self.0.epoch)
    }

    /// A running sandbox, which does not count as idle while the answer is held. One that is asleep is woken.
    async fn inside(&self, which: SandboxRef) -> Result<Inside, Refusal> {
        let visit = self.registry().visit(&which).await?;
        let Visit { id, workdir, user, guest, activity, woke_in } = visit;
        Ok(Inside { which, id, workdir, user, guest, activity, woke_in })
    }

    fn pages(&self) -> &Pages {
        self.0.document.get_or_init(|| {
            let document = document::document(self.routes().all());
            let reference = reference::page(&document).into();
            // Maps with keys of text are always JSON.
            let document = serde_json::to_vec(&document).unwrap_or_default();
            Pages { document: document.into(), reference }
        })
    }
}

/// The largest body that is allowed must be readable beside what else its key holds. The rest of the
/// host's memory is for sandboxes.
fn budget(limits: &Limits) -> Budget {
    let body_bytes = limits.body_bytes_max.saturating_mul(2);
    let host_share =
        host::memory::total_bytes().map_or(u64::MAX, |bytes| bytes / MEMORY_HOST_SHARE);
    let all = limits.memory_bytes_max.min(host_share).max(body_bytes);
    Budget::new(all, (all / MEMORY_KEY_SHARE).max(body_bytes))
}

/// Every operation there is.
fn operations() -> Vec<route::Operation> {
    [
        pages::operations(),
        console::operations(),
        prometheus::operations(),
        rpc::operations(),
        returning::operations(),
        a2a::operations(),
        e2b::operations(),
        daytona::operations(),
        msb::operations(),
        jupyter::operations(),
        preview::operations(),
        mcp::operations(),
        operator::operations(),
        v1::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
