//! The life of a bridge that serves: locks, what is left from before, the socket and the door for
//! programs, and its end.
//!
//! ```text
//!  prepare ─▶ lock ─▶ adopt ─▶ listen ──signal──▶ calls under way ─▶ leave or stop the sandboxes ─▶ end
//!                                                  signal again: end at once
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;

use super::audit as audit_log;
use super::door::{Door, DoorError};
use super::server::{Ended, Life, Server};
use super::telemetry;
use access::audit::{Audit, AuditError};
use api::Threads;
use control::{
    CheckedSettings, InvalidSettings, check_settings, client_defaults, egress_defaults,
    egress_settings, operator_defaults, own_files, served_files,
};
use host::lock::{LockError, Locks};
use host::notify::Notifier;
use host::paths::{Paths, PathsError};
use host::secret::{self, Secrets};
use image::{ImageError, Images, Puller};
use machine::Machines;
use node::{Node, NodeError};
use otel::Otel;
use sandbox::limits::STOP_GRACE_DEFAULT;
use sandbox::{
    DurableLogs, Event, EventSink, Names, Registry, RegistryOptions, SandboxError, SharedTemplates,
};
use services::artifact::{self, ArtifactError, Artifacts};
use services::events::Events;
use services::notebook::Notebooks;
use services::store::Store;
use services::webhooks::{Webhook, Webhooks};
use settings::{BoxesAtEnd, Settings};
use workspace::Workspaces;

/// The options of a serving bridge.
pub struct ServeOptions {
    pub paths: Paths,
    /// The settings.
    pub settings: Settings,
    /// Receives every event; the daemon itself prints nothing.
    pub events: EventSink,
    /// Telemetry, which is sent from here on.
    pub otel: Otel,
    /// Whether a verb started it by itself.
    pub is_unattended: bool,
}

/// Why the daemon ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Paths(#[from] PathsError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Images(#[from] ImageError),
    #[error(transparent)]
    InvalidSettings(#[from] InvalidSettings),
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    #[error("cannot listen on {socket:?}: {source}")]
    Listen { socket: PathBuf, source: io::Error },
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Door(#[from] DoorError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error("cannot start the threads that serve: {0}")]
    Threads(io::Error),
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    /// A second signal came before shutdown was complete.
    #[error("ended at once: some sandboxes may still be stopping; the next bridge takes them over")]
    Hurried,
}

/// Serves until a client ends it, or a signal: SIGTERM, SIGINT, or SIGHUP when its terminal is closed.
/// One that a verb started also ends when nothing needs it.
pub async fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let ServeOptions { paths, settings, events, otel, is_unattended } = options;
    let CheckedSettings { pool, image_policy, sources, tls, .. } = check_settings(&settings)?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(ServeError::Signals)?;
    allow_descriptors();
    machine::process::bounds::make_room();
    secret::guard_process();
    paths.prepare()?;
    let locks = Locks::take(&paths)?;
    paths.link_state();
    let egress_events = EventSink::clone(&events);
    let egress_events = Box::new(move |what| egress_events(&Event::Trouble { which: None, what }));
    let audit = if settings.audit.enabled {
        Audit::open(paths.audit(), control::audit::options(&settings.audit), egress_events)?
    } else {
        Audit::default()
    };
    telemetry::observe(&audit, &otel);
    let events = telemetry::recording(audit_log::recording(events, audit.clone()), &otel);
    let stream = open_events(&paths, &events);
    let events = match &stream {
        Some(stream) => stream.recording(events),
        None => events,
    };
    let store_of_images = Images::open(&paths)?;
    let pull = settings.image_policy.pull;
    // A server without keys serves one person.
    let sources = if settings.server.dev { sources } else { sources.for_clients() };
    let node = if settings.fleet.is_joined() {
        // Before anything is taken up that may run elsewhere by now.
        node::guardian::end_what_has_no_lease(&paths).await;
        let node = Node::open(&settings, &paths, EventSink::clone(&events))?;
        audit.is_of_node(node.id().as_str());
        Some(node)
    } else {
        None
    };
    let puller = Some(Puller::new(store_of_images.clone(), sources, pull));
    let images = Some(store_of_images);
    let (machines, sink) = (Machines::default(), EventSink::clone(&events));
    let means = RegistryOptions {
        files: served_files(&settings),
        defaults: client_defaults(&settings),
        operator_defaults: operator_defaults(&settings),
        pool,
        images,
        image_policy,
        puller,
        templates: control::templates(&settings)?,
        names: node.clone().map(|node| Arc::new(node) as Arc<dyn Names>),
        shared_templates: node.clone().map(|node| Arc::new(node) as Arc<dyn SharedTemplates>),
        durable_logs: node.clone().map(|node| Arc::new(node) as Arc<dyn DurableLogs>),
        ..means_of(&settings)
    };
    let opening = Registry::open_with(paths.clone(), machines, sink, means);
    let registry = tokio::select! {
        registry = opening => registry?,
        _ = signals.next() => return Ok(()),
    };
    if let Some(stream) = &stream {
        stream.settle(registry.list(None));
    }
    let refused = |what| events(&Event::Trouble { which: None, what });
    let store = Store::open_or_refuse(&paths, refused).await;
    let artifacts = Artifacts::open(&paths, store.clone(), artifact::Limits::default()).await?;
    let socket = paths.control_socket();
    let server = Server::bind(&socket);
    let server = server.map_err(|source| ServeError::Listen { socket: socket.clone(), source })?;
    let trouble = EventSink::clone(&events);
    let trouble = move |what| trouble(&Event::Trouble { which: None, what });
    let notebooks = Notebooks::new(paths.clone(), registry.clone(), store, trouble);
    let stores = (notebooks.clone(), artifacts, stream.clone());
    let webhooks = stream.as_ref().map(|stream| start_webhooks(&settings, &paths, stream, &events));
    // They end last: sandboxes that connections have made live on them.
    let threads = Arc::new(Threads::start().map_err(ServeError::Threads)?);
    let means = (tls, &threads, node.clone(), otel.clone());
    let door = Door::open(&settings, &paths, &registry, stores, audit.clone(), means).await?;
    let exporter = telemetry::start(&otel, door.api());
    events(&Event::Listening { on: socket.display().to_string() });
    for on in door.addresses() {
        events(&Event::Listening { on: on.clone() });
    }
    if let Some(node) = &node {
        let reached = door.addresses().iter().find(|address| address.starts_with("http"));
        node.join(&registry, reached.map(String::as_str))?;
        tokio::spawn(api::bring_lost_back(door.api().clone()));
    }
    let manager = Notifier::from_environment();
    manager.ready(&format!("listening on {}", door.addresses().join(" and ")));
    let idle_end = settings.server.idle_end.filter(|_| is_unattended);
    let life = Life { is_unattended, idle_end };
    let ended = tokio::select! {
        ended = server.run(door.api().clone(), life) => Some(ended),
        () = manager.keep_alive() => None,
        _ = signals.next() => None,
    };
    let stops = settings.server.boxes_at_end == BoxesAtEnd::Stop
        || ended == Some(Ended::Ordered { stop_sandboxes: true });
    manager.stopping("ending");
    drop(server);
    let ending = async {
        door.close().await;
        notebooks.end().await;
        // By default they run on, keep what they say in their agents' spools, and are taken up
        // again by the next bridge.
        if stops {
            registry.stop_all(STOP_GRACE_DEFAULT).await;
        }
        registry.leave().await
    };
    let running = tokio::select! {
        running = ending => running,
        () = manager.keep_alive() => unreachable!("signs of life have no end"),
        _ = signals.next() => return Err(ServeError::Hurried),
    };
    events(&Event::Ending { running });
    // What is not sent yet, the next bridge sends.
    drop(webhooks);
    if let Some(stream) = stream {
        stream.close().await;
    }
    audit.close().await;
    tokio::select! {
        () = exporter.close() => {}
        () = manager.keep_alive() => unreachable!("signs of life have no end"),
        _ = signals.next() => return Err(ServeError::Hurried),
    }
    drop(threads);
    drop(locks);
    Ok(())
}

/// The stream of events. Sandboxes go on without it.
fn open_events(paths: &Paths, events: &EventSink) -> Option<Events> {
    let trouble = EventSink::clone(events);
    let trouble = move |what| trouble(&Event::Trouble { which: None, what });
    match Events::open(&paths.events(), Box::new(trouble)) {
        Ok(stream) => Some(stream),
        Err(error) => {
            let what = format!("events are not recorded: {}: {error}", paths.events().display());
            events(&Event::Trouble { which: None, what });
            None
        }
    }
}

/// Begins to send events to those who are configured.
fn start_webhooks(
    settings: &Settings,
    paths: &Paths,
    stream: &Events,
    events: &EventSink,
) -> Webhooks {
    let hooks = settings.webhooks.clone().into_iter().map(|(name, hook)| {
        let settings::Webhook { url, secret, namespaces, kinds, allow_private, ca, attempts } =
            hook;
        (name, Webhook { url, secret, namespaces, kinds, allow_private, ca, attempts })
    });
    let secrets = Secrets::new(settings.secrets.clone());
    let trouble = EventSink::clone(events);
    let trouble = Arc::new(move |what| trouble(&Event::Trouble { which: None, what }));
    Webhooks::start(hooks, stream, &secrets, &paths.webhooks(), &(trouble as _))
}

/// What sandboxes may ask for by name, what they may reach and what bounds them.
pub(super) fn means_of(settings: &Settings) -> RegistryOptions {
    let secrets = Secrets::new(settings.secrets.clone());
    let workspaces = Workspaces::new(settings.workspaces.clone(), secrets.clone());
    RegistryOptions {
        egress: egress_settings(&settings.egress),
        egress_default: egress_defaults(settings),
        secrets,
        workspaces: workspaces.apart_from(own_files(settings)),
        caps: settings.caps.clone(),
        retention: settings.snapshots,
        program_events: settings.events.programs,
        ..RegistryOptions::default()
    }
}

/// Takes as many descriptors as the host lets this process have: each connection is one, and each
/// sandbox some. Agents and their programs set bounds of their own.
fn allow_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // Without it there is room for fewer clients, and the others are refused.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
