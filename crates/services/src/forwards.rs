//! Ports of this host that lead into sandboxes.
//!
//! ```text
//!  open ─▶ listening ─┬─▶ a connection ─▶ carried to a port inside
//!            │        └─▶ …
//!            └─▶ closed: by a client, or because the sandbox is gone
//! ```
//!
//! Each forward is a task that owns its listener and its connections; when it ends, so do they. It
//! does not count as activity itself: a sandbox is idle while nobody is connected. Forwards are not
//! kept over a restart of the bridge.
//!
//! Single connections are [`reach`](Forwards::reach)ed without a port of this host.
//!
//! Others open and close them; this knows nothing of who asks or why.

mod carry;
pub mod limits;
mod reach;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};

use agent_client::guest::{Guest, GuestError};
use limits::{
    ACCEPT_PAUSE, ANY_PORT_TRIES_MAX, CONNECTIONS_PER_SANDBOX_MAX, FORWARDS_MAX,
    FORWARDS_PER_SANDBOX_MAX, PORTS_DEFAULT, PORTS_TRIED_MAX,
};
pub use reach::{ReachError, Reached};
use sandbox::{Activity, Record, Registry, SandboxError, SandboxId, SandboxRef, Until};

/// All forwards of a bridge. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Forwards(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// Ports that may be used, if the operator has set them.
    ports: Option<RangeInclusive<u16>>,
    /// By the port on this host, which clients use as the name.
    open: BTreeMap<u16, Entry>,
    /// Semaphores for connections into a sandbox, while somebody may take one.
    places: HashMap<SandboxId, Weak<Semaphore>>,
}

#[derive(Debug)]
struct Entry {
    sandbox: SandboxId,
    which: SandboxRef,
    address: SocketAddr,
    port: u16,
    /// Cloned by every connection.
    connected: Arc<()>,
    task: JoinHandle<()>,
}

/// The present state of a forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The port on this host.
    pub address: SocketAddr,
    /// The port in the sandbox.
    pub port: u16,
    pub connections: usize,
}

/// Why a port is not forwarded.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(
        "port {port} of this host is not one of {first} to {last}, which this server gives to clients; \
         others need the scope `admin`"
    )]
    OutOfRange { port: u16, first: u16, last: u16 },
    #[error("no port from {first} to {last} of this host is free")]
    NoneFree { first: u16, last: u16 },
    #[error("port {port} of this host is already forwarded")]
    Taken { port: u16 },
    #[error("{which} has {limit} forwarded ports, which is the limit")]
    TooManyOfSandbox { which: SandboxRef, limit: usize },
    #[error("this host forwards {limit} ports, which is the limit")]
    TooMany { limit: usize },
}

/// Why a connection into a sandbox does not come about.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("the sandbox of this forward is gone")]
    Another,
    #[error(transparent)]
    Carry(#[from] carry::CarryError),
    #[error(transparent)]
    Guest(#[from] GuestError),
}

impl Forwards {
    /// Forwards that take their ports from a range of the operator's.
    pub fn within(ports: RangeInclusive<u16>) -> Self {
        Self(Arc::new(Mutex::new(Table { ports: Some(ports), ..Table::default() })))
    }

    /// Refuses a port of this host that is not for everybody; 0 is none yet.
    pub fn check(&self, host_port: u16) -> Result<(), ForwardError> {
        let ports = self.ports();
        if host_port == 0 || ports.contains(&host_port) {
            return Ok(());
        }
        let (first, last) = ports.into_inner();
        Err(ForwardError::OutOfRange { port: host_port, first, last })
    }

    fn ports(&self) -> RangeInclusive<u16> {
        self.table().ports.clone().unwrap_or(PORTS_DEFAULT)
    }

    /// Listens at any port that may be given out. The kernel knows best which is free; it is asked
    /// for one of a narrower range by name.
    async fn listen_anywhere(&self, host: IpAddr) -> Result<TcpListener, ForwardError> {
        let ports = self.ports();
        let bind = async |port| {
            let address = SocketAddr::new(host, port);
            let refuse = |source| ForwardError::Listen { address, source };
            TcpListener::bind(address).await.map_err(refuse)
        };
        if ports == PORTS_DEFAULT {
            return bind(0).await;
        }
        let (first, last) = ports.into_inner();
        for port in (first..=last).take(PORTS_TRIED_MAX) {
            if self.table().open.contains_key(&port) {
                continue;
            }
            match bind(port).await {
                Err(ForwardError::Listen { source, .. })
                    if source.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        Err(ForwardError::NoneFree { first, last })
    }

    /// Forwards a port of this host, any if `host_port` is 0, to a port inside a sandbox.
    pub async fn open(
        &self,
        registry: &Registry,
        record: &Record,
        port: u16,
        host: IpAddr,
        host_port: u16,
    ) -> Result<Forward, ForwardError> {
        let mut tries = 1..=ANY_PORT_TRIES_MAX;
        loop {
            let requested = SocketAddr::new(host, host_port);
            let refuse = |source| ForwardError::Listen { address: requested, source };
            let listener = match host_port {
                0 => self.listen_anywhere(host).await?,
                _ => TcpListener::bind(requested).await.map_err(refuse)?,
            };
            let address = listener.local_addr().map_err(refuse)?;
            tries.next();
            match self.enter(registry, record, port, address, listener) {
                // The kernel has given out a port that is ours on another address.
                Err(ForwardError::Taken { .. }) if host_port == 0 && !tries.is_empty() => {}
                entered => return entered,
            }
        }
    }

    fn enter(
        &self,
        registry: &Registry,
        record: &Record,
        port: u16,
        address: SocketAddr,
        listener: TcpListener,
    ) -> Result<Forward, ForwardError> {
        let places = self.places(&record.id);
        let mut table = self.table();
        if table.open.contains_key(&address.port()) {
            return Err(ForwardError::Taken { port: address.port() });
        }
        if table.open.len() >= FORWARDS_MAX {
            return Err(ForwardError::TooMany { limit: FORWARDS_MAX });
        }
        let of_sandbox = table.open.values().filter(|entry| entry.sandbox == record.id).count();
        if of_sandbox >= FORWARDS_PER_SANDBOX_MAX {
            let (which, limit) = (record.which(), FORWARDS_PER_SANDBOX_MAX);
            return Err(ForwardError::TooManyOfSandbox { which, limit });
        }
        let connected = Arc::new(());
        let inside = Inside { registry: registry.clone(), record: record.clone(), port };
        let accepting = accept(listener, inside.clone(), Arc::downgrade(&connected), places);
        let forwards = self.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = inside.gone() => {}
                () = accepting => {}
            }
            // Under the lock that the entry was made with, so that it is there by now.
            forwards.table().open.remove(&address.port());
        });
        let (sandbox, which) = (record.id.clone(), record.which());
        let entry = Entry { sandbox, which, address, port, connected, task };
        let forward = entry.shown();
        table.open.insert(address.port(), entry);
        Ok(forward)
    }

    /// The forwards of a sandbox, by their ports on this host.
    pub fn of(&self, which: &SandboxRef) -> Vec<Forward> {
        let table = self.table();
        table.open.values().filter(|entry| entry.which == *which).map(Entry::shown).collect()
    }

    /// Ends a forward of a sandbox and its connections, and says whether there was one. The port is
    /// free afterwards.
    pub async fn close(&self, which: &SandboxRef, host_port: u16) -> bool {
        let entry = {
            let mut table = self.table();
            let is_of = table.open.get(&host_port).is_some_and(|entry| entry.which == *which);
            is_of.then(|| table.open.remove(&host_port)).flatten()
        };
        let Some(Entry { task, .. }) = entry else { return false };
        task.abort();
        // Its end was requested.
        let _ = task.await;
        true
    }

    /// A place for one connection into a sandbox, if there is one.
    pub fn place(&self, sandbox: &SandboxId) -> Option<OwnedSemaphorePermit> {
        self.places(sandbox).try_acquire_owned().ok()
    }

    fn places(&self, sandbox: &SandboxId) -> Arc<Semaphore> {
        let mut table = self.table();
        if let Some(places) = table.places.get(sandbox).and_then(Weak::upgrade) {
            return places;
        }
        table.places.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(CONNECTIONS_PER_SANDBOX_MAX));
        table.places.insert(sandbox.clone(), Arc::downgrade(&places));
        places
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in it is ever half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn shown(&self) -> Forward {
        let connections = Arc::strong_count(&self.connected) - 1;
        Forward { address: self.address, port: self.port, connections }
    }
}

/// A port inside a sandbox.
#[derive(Clone)]
struct Inside {
    registry: Registry,
    record: Record,
    port: u16,
}

impl Inside {
    /// Resolves when the sandbox has stopped.
    async fn gone(&self) {
        // An unknown sandbox is gone, too.
        let _ = self.registry.wait(&self.record.which(), Until::Stopped).await;
    }

    /// The way in at this moment, if it is still the same sandbox.
    async fn enter(&self) -> Result<(Guest, Option<Activity>), ConnectError> {
        let which = self.record.which();
        if self.registry.get(&which)?.id != self.record.id {
            return Err(ConnectError::Another);
        }
        let visit = self.registry.visit(&which).await?;
        Ok((visit.guest, visit.activity))
    }

    async fn carry(&self, stream: TcpStream) -> Result<(), ConnectError> {
        let stream = carry::Connection::new(stream);
        let (guest, _activity) = self.enter().await?;
        let (writer, output) = guest.forward(None, self.port).await?;
        // A forward must not keep a link that everybody else has dropped.
        drop(guest);
        Ok(stream.carry(writer, output).await?)
    }
}

/// Takes connections as long as there are places for them; more wait in the kernel's queue.
async fn accept(
    listener: TcpListener,
    inside: Inside,
    connected: Weak<()>,
    places: Arc<Semaphore>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepting = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accepting => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: until some are closed, all would fail.
                tracing::warn!(%error, "cannot accept a connection to a forwarded port");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (inside, connected) = (inside.clone(), connected.upgrade());
        connections.spawn(async move {
            if let Err(error) = inside.carry(stream).await {
                let (sandbox, port) = (inside.record.which(), inside.port);
                tracing::debug!(%sandbox, port, %error, "a forwarded connection broke");
            }
            drop((connected, place));
        });
    }
}
