//! Connections to the other nodes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use hyper::client::conn::http1::{self, SendRequest};

use super::{Passing, origin_of, unreachable};
use crate::limits::{FORWARD_CONNECT_MAX, FORWARD_IDLE_MAX};
use host::dial::Dialler;
use node::Placement;
use sandbox::refusal::Refusal;

/// Connections to the other nodes that wait for the next call, each for calls of the thread that it was made on: one of
/// another thread would wake that thread twice.
#[derive(Default)]
pub struct Peers {
    dialler: Dialler,
    idle: Mutex<HashMap<ThreadId, Waiting>>,
    pub(super) answered: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// By the address of the node.
type Waiting = HashMap<String, Vec<SendRequest<Passing>>>;

impl Peers {
    pub fn new(dialler: Dialler) -> Self {
        Self { dialler, ..Self::default() }
    }

    /// Calls that another node has answered, and calls that none has.
    pub fn tally(&self) -> (u64, u64) {
        (self.answered.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    pub(super) fn take(&self, address: &str) -> Option<SendRequest<Passing>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let of_thread = idle.get_mut(&thread::current().id())?;
        let waiting = of_thread.get_mut(address)?;
        while let Some(connection) = waiting.pop() {
            if connection.is_ready() {
                return Some(connection);
            }
        }
        of_thread.remove(address);
        None
    }

    pub(super) fn put(&self, address: &str, connection: SendRequest<Passing>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let of_thread = idle.entry(thread::current().id()).or_default();
        let waiting = of_thread.entry(address.to_owned()).or_default();
        waiting.retain(|connection| !connection.is_closed());
        if waiting.len() < FORWARD_IDLE_MAX {
            waiting.push(connection);
        }
    }

    pub(super) async fn connect(&self, to: &Placement) -> Result<SendRequest<Passing>, Refusal> {
        let origin = origin_of(&to.address).ok_or_else(|| unreachable(to, "it has no address"))?;
        let dialled = self.dialler.dial(&origin, FORWARD_CONNECT_MAX).await;
        let io = dialled.map_err(|error| unreachable(to, &error.to_string()))?;
        let (sender, connection) =
            http1::handshake(io).await.map_err(|error| unreachable(to, &error.to_string()))?;
        // Its end is seen by who uses it.
        tokio::spawn(async move { drop(connection.with_upgrades().await) });
        Ok(sender)
    }
}
