//! Accepts connections at the gates of one guest and passes them to their handlers. Each connection has
//! its own task, so a stalled one delays no other.
//!
//! ```text
//!  open ─▶ asked ──arrived──▶ asked again, and what has come is served
//!            └── not to be had: again after a pause
//!  closed, with all that it serves: its name has lost its address, or the egress ends
//! ```

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::egress::EGRESS_ADDRESS;
use protocol::requests::Arrival;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::carry::Stream;
use super::event::EventSubject;
use super::host::Host;
use super::limits::GATE_PAUSE;
use super::proxy::THE_PROXY;
use super::{NAME_SERVER_PORT, PROXY_PORT, Shared, connection, proxy, resolver};
use agent_client::guest::{Awaited, GuestError};

/// A place where connections may arrive.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub address: Ipv4Addr,
    pub port: u16,
    pub arrival: Arrival,
    /// The name that the address stands for, as long as this is open; none for our own services.
    pub host: Option<Host>,
}

/// The gates that are open, by their addresses. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Gates(Arc<Inner>);

/// The tasks of each address and port; those of port 0 are no gates.
type Open = HashMap<(Ipv4Addr, u16), JoinSet<()>>;

#[derive(Debug)]
struct Inner {
    /// `None` once they are closed for good.
    open: Mutex<Option<Open>>,
    closed: watch::Sender<bool>,
}

impl Default for Gates {
    fn default() -> Self {
        let (open, closed) = (Mutex::new(Some(HashMap::new())), watch::Sender::new(false));
        Self(Arc::new(Inner { open, closed }))
    }
}

impl Gates {
    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        // Nothing in it is ever half-changed.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the gates of one address and ends their connections.
    pub fn forget(&self, address: Ipv4Addr) {
        if let Some(open) = self.open().as_mut() {
            open.retain(|(of, _), _| *of != address);
        }
    }

    /// The ports that are open at an address.
    pub fn ports(&self, address: Ipv4Addr) -> Vec<u16> {
        let open = self.open();
        let keys = open.as_ref().into_iter().flat_map(HashMap::keys);
        keys.filter(|(of, _)| *of == address).map(|(_, port)| *port).collect()
    }

    /// Runs a task until they are closed.
    pub fn attend(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn((EGRESS_ADDRESS, 0), task);
    }

    fn spawn(&self, at: (Ipv4Addr, u16), task: impl Future<Output = ()> + Send + 'static) {
        if let Some(open) = self.open().as_mut() {
            open.entry(at).or_default().spawn(task);
        }
    }

    /// Closes all of them for good.
    pub fn close(&self) {
        *self.open() = None;
        self.0.closed.send_replace(true);
    }

    /// Resolves when they are closed.
    pub async fn closed(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.closed.subscribe().wait_for(|closed| *closed).await;
    }
}

/// Opens a gate. The guest confirms it before this returns, so a later DNS answer finds it open.
pub(super) fn open(shared: &Arc<Shared>, gate: Gate) -> Result<(), GuestError> {
    let answer = ask(shared, &gate)?;
    let at = (gate.address, gate.port);
    shared.gates.spawn(at, keep(Arc::clone(shared), gate, answer));
    Ok(())
}

fn ask(shared: &Shared, gate: &Gate) -> Result<Awaited, GuestError> {
    shared.guest.accept_now(gate.address, gate.port, gate.arrival)
}

type ConnectionFuture = Pin<Box<dyn Future<Output = Result<Stream, GuestError>> + Send>>;

fn arriving(answer: Awaited) -> ConnectionFuture {
    Box::pin(async move {
        let (writer, output) = answer.arrived().await?;
        Ok(Stream::new(writer, output))
    })
}

/// Keeps a gate open, until the guest is gone.
async fn keep(shared: Arc<Shared>, gate: Gate, answer: Awaited) {
    let mut next = arriving(answer);
    let mut work = JoinSet::new();
    let mut gone = std::pin::pin!(shared.guest.lost());
    loop {
        let arrived = tokio::select! {
            arrived = &mut next => arrived,
            Some(_) = work.join_next() => continue,
            _ = &mut gone => return,
        };
        if arrived.is_err() {
            tokio::time::sleep(GATE_PAUSE).await;
        }
        next = match ask(&shared, &gate) {
            Ok(answer) => arriving(answer),
            // There are too many requests at the moment, or the guest is gone.
            Err(error) => Box::pin(async move {
                tokio::time::sleep(GATE_PAUSE).await;
                Err(error)
            }),
        };
        if let Ok(stream) = arrived {
            admit(&shared, &mut work, &gate, stream);
        }
    }
}

/// Starts the task of a new connection, if there is room for it. A connection that is not taken is
/// reset.
fn admit(shared: &Arc<Shared>, work: &mut JoinSet<()>, gate: &Gate, stream: Stream) {
    let Gate { address, port, .. } = *gate;
    let is_own = address == EGRESS_ADDRESS;
    if is_own && port == NAME_SERVER_PORT {
        let Ok(place) = Arc::clone(&shared.askers).try_acquire_owned() else { return };
        let shared = Arc::clone(shared);
        work.spawn(async move {
            resolver::serve(&shared, stream).await;
            drop(place);
        });
        return;
    }
    let refuse = |why: &str| match &gate.host {
        Some(host) => {
            shared.reporter.refuse(EventSubject::Connection, host.as_str(), Some(port), why);
        }
        None => shared.reporter.refuse(EventSubject::Connection, THE_PROXY, None, why),
    };
    if !shared.rate.try_take() {
        return refuse("too many new connections in a short time");
    }
    let Ok(place) = Arc::clone(&shared.places).try_acquire_owned() else {
        return refuse("too many connections at once");
    };
    let shared = Arc::clone(shared);
    work.spawn(async move {
        if is_own && port == PROXY_PORT {
            proxy::serve(&shared, stream).await;
        } else {
            connection::serve(&shared, address, port, stream).await;
        }
        drop(place);
    });
}
