//! The life of a bridge that serves: locks, what is left from before, the socket and the door for
//! programs, and its end.
//!
//! ```text
//!  prepare ─▶ lock ─▶ adopt ─▶ listen ──signal──▶ calls under way ─▶ leave or stop the sandboxes ─▶ end
//!                                                  signal again: end at once
//! ```

use std::io;
use std::path::PathBuf;

use futures_util::StreamExt as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;

use super::audit as audit_log;
use super::door::{Door, DoorError};
use super::server::Server;
use access::audit::{Audit, AuditError};
use control::{CheckedSettings, InvalidSettings, check_settings, egress_settings, own_files};
use host::lock::{LockError, Locks};
use host::notify::Notifier;
use host::paths::{Paths, PathsError};
use host::secret::{self, Secrets};
use image::{ImageError, Images, Puller};
use machine::Machines;
use sandbox::limits::STOP_GRACE_DEFAULT;
use sandbox::{Event, EventSink, Registry, RegistryOptions, SandboxError};
use services::artifact::{self, ArtifactError, Artifacts};
use services::notebook::Notebooks;
use services::store::{Store, StoreError};
use settings::{BoxesAtEnd, Settings};
use workspace::Workspaces;

/// The options of a serving bridge.
pub struct ServeOptions {
    pub paths: Paths,
    /// The settings.
    pub settings: Settings,
    /// Receives every event; the daemon itself prints nothing.
    pub events: EventSink,
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
    Store(#[from] StoreError),
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    #[error("cannot listen on {socket:?}: {source}")]
    Listen { socket: PathBuf, source: io::Error },
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Door(#[from] DoorError),
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    /// A second signal came before shutdown was complete.
    #[error("ended at once: some sandboxes may still be stopping; the next bridge takes them over")]
    Hurried,
}

/// Serves until a signal ends it: SIGTERM, SIGINT, or SIGHUP when its terminal is closed.
pub async fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let ServeOptions { paths, settings, events } = options;
    let CheckedSettings { pool, image_policy, sources, tls, .. } = check_settings(&settings)?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(ServeError::Signals)?;
    allow_descriptors();
    secret::guard_process();
    paths.prepare()?;
    let locks = Locks::take(&paths)?;
    let told = EventSink::clone(&events);
    let told = Box::new(move |what| told(&Event::Trouble { which: None, what }));
    let audit = if settings.audit.enabled {
        Audit::open(paths.audit(), control::audit::options(&settings.audit), told)?
    } else {
        Audit::default()
    };
    let events = audit_log::recording(events, audit.clone());
    let store_of_images = Images::open(&paths)?;
    let pull = settings.image_policy.pull;
    let puller = Some(Puller::new(store_of_images.clone(), sources, pull));
    let images = Some(store_of_images);
    let egress = egress_settings(&settings.egress);
    let (machines, sink) = (Machines::default(), EventSink::clone(&events));
    let secrets = Secrets::new(settings.secrets.clone());
    let caps = settings.caps.clone();
    let workspaces = Workspaces::new(settings.workspaces.clone(), secrets.clone());
    let workspaces = workspaces.apart_from(own_files(&settings));
    let means = RegistryOptions {
        pool,
        egress,
        egress_default: egress_defaults(&settings),
        secrets,
        workspaces,
        images,
        image_policy,
        puller,
        caps,
    };
    let opening = Registry::open_with(paths.clone(), machines, sink, means);
    let registry = tokio::select! {
        registry = opening => registry?,
        _ = signals.next() => return Ok(()),
    };
    let store = Store::open(&paths).await?;
    let artifacts = Artifacts::open(&paths, store.clone(), artifact::Limits::default()).await?;
    let socket = paths.control_socket();
    let server = Server::bind(&socket);
    let server = server.map_err(|source| ServeError::Listen { socket: socket.clone(), source })?;
    let trouble = EventSink::clone(&events);
    let trouble = move |what| trouble(&Event::Trouble { which: None, what });
    let notebooks = Notebooks::new(paths.clone(), registry.clone(), store, trouble);
    let kept = (notebooks.clone(), artifacts);
    let door = Door::open(&settings, &paths, &registry, kept, audit.clone(), tls).await?;
    events(&Event::Listening { on: socket.display().to_string() });
    for on in door.addresses() {
        events(&Event::Listening { on: on.clone() });
    }
    let manager = Notifier::from_environment();
    manager.ready(&format!("listening on {}", door.addresses().join(" and ")));
    tokio::select! {
        () = server.run(door.api().clone()) => {}
        () = manager.keep_alive() => {}
        _ = signals.next() => {}
    }
    manager.stopping("ending");
    drop(server);
    let ending = async {
        door.close().await;
        notebooks.end().await;
        // By default they run on, keep what they say in their agents' spools, and are taken up
        // again by the next bridge.
        if settings.server.boxes_at_end == BoxesAtEnd::Stop {
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
    audit.close().await;
    drop(locks);
    Ok(())
}

/// The default egress rules of each namespace, from the settings.
fn egress_defaults(set: &Settings) -> egress::Defaults {
    let own = |(name, namespace): (&String, &settings::Namespace)| {
        namespace.egress.clone().map(|rules| (name.clone(), rules))
    };
    egress::Defaults {
        all: set.defaults.egress.clone(),
        namespaces: set.namespaces.iter().filter_map(own).collect(),
    }
}

/// Takes as many descriptors as the host lets this process have: each connection is one, and each
/// sandbox some. Agents and their programs set bounds of their own.
fn allow_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // Without it there is room for fewer, and whoever finds none is told.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
