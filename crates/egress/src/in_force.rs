//! The rules of one sandbox as they are now. They may change while it runs: the next name and the next connection are
//! judged by the new ones, and a connection that these do not allow is ended.

use std::net::Ipv4Addr;
use std::sync::Arc;

use agent_client::guest::GuestError;
use protocol::requests::Arrival;
use tokio::sync::watch;

use super::Shared;
use super::gates::{self, Gate};
use super::host::Host;
use super::limits;
use super::rule::Rules;

/// Rules that may be replaced. Clones are the same.
#[derive(Clone, Debug)]
pub struct RulesInForce(Arc<watch::Sender<Rules>>);

impl Default for RulesInForce {
    fn default() -> Self {
        Self::from(Rules::default())
    }
}

impl From<Rules> for RulesInForce {
    fn from(rules: Rules) -> Self {
        Self(Arc::new(watch::Sender::new(rules)))
    }
}

impl RulesInForce {
    /// Puts others in their place, from now on.
    pub fn replace(&self, rules: Rules) {
        self.0.send_replace(rules);
    }

    /// The rule that lets a name be reached at a port, as it was written.
    pub(super) fn allowing(&self, host: &Host, port: u16) -> Option<String> {
        self.0.borrow().allowing(host, port)
    }

    pub(super) fn naming(&self, host: &Host) -> Option<String> {
        self.0.borrow().naming(host)
    }

    pub(super) fn ports(&self, host: &Host) -> Vec<u16> {
        self.0.borrow().ports(host)
    }

    /// How many names may have an address at once: each has gates for all of its ports.
    pub(super) fn names_max(&self) -> usize {
        limits::GATES_MAX / self.0.borrow().ports_max()
    }

    /// Resolves when a name may not be reached at a port.
    pub(super) async fn forbid(&self, host: &Host, port: u16) {
        let mut rules = self.0.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = rules.wait_for(|rules| rules.allowing(host, port).is_none()).await;
    }

    /// Sees each replacement from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<Rules> {
        self.0.subscribe()
    }
}

/// Opens the gates of names that have an address and may be reached at more ports, after each replacement. Those that
/// are too many stay open: what arrives there is refused.
pub(super) async fn follow(shared: Arc<Shared>, mut rules: watch::Receiver<Rules>) {
    while rules.changed().await.is_ok() {
        let mut names = shared.names.lock().await;
        for address in names.allow_at_once(shared.rules.names_max()) {
            shared.gates.forget(address);
        }
        for (host, address) in names.listening() {
            if shared.open_ports(&host, address).is_err() {
                // The rest of them when the name is asked for.
                names.closed(&host);
            }
        }
    }
}

impl Shared {
    /// Opens the gates of a name that are not open yet.
    pub(super) fn open_ports(
        self: &Arc<Self>,
        host: &Host,
        address: Ipv4Addr,
    ) -> Result<(), GuestError> {
        let open = self.gates.ports(address);
        for port in self.rules.ports(host).into_iter().filter(|port| !open.contains(port)) {
            let arrival = Arrival::Connection;
            gates::open(self, Gate { address, port, arrival, host: Some(host.clone()) })?;
        }
        Ok(())
    }
}
