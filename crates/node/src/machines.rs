//! What the fleet asks of this host: to expect a sandbox, to end one or all, and to keep the lease.
//!
//! None of it waits: a task of its own writes the lease file, in order, and others end sandboxes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use fleet::driver::{Looking, Machinery, Machines};
use fleet::event::{Note, Reply};
use fleet::ids::{Incarnation, Millis, Name};
use fleet::lease::Leash;
use machine::ProcessIdentity;
use sandbox::{Event, Registry, SandboxRef};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::leash::{GuardianLock, LeashFile};
use crate::limits::{GUARDIAN_LOOK_PAUSE, GUARDIAN_WAIT_MAX, PLACED_COUNT_MAX, PLACED_MAX};
use crate::{Inner, Node, guardian, incarnation, lock};

/// A name that was taken for this bridge.
pub(crate) struct Expected {
    pub name: Name,
    /// Where the end of it is reported if nobody comes for it.
    pub report: Machinery,
}

/// What becomes of the lease, in order.
pub(crate) enum Lease {
    Until(Millis),
    /// Everything of the lease that ends there has been ended by this bridge.
    Ended(Millis),
}

pub(crate) struct HostMachines {
    node: Weak<Inner>,
    leases: mpsc::UnboundedSender<Lease>,
    end_at: Millis,
}

impl HostMachines {
    pub(crate) fn new(node: &Node) -> Self {
        let (leases, written) = mpsc::unbounded_channel();
        tokio::spawn(keep_lease(Arc::downgrade(&node.0), written));
        let _ = node.0.leashes.set(leases.clone());
        Self { node: Arc::downgrade(&node.0), leases, end_at: 0 }
    }

    fn node(&self) -> Option<Node> {
        self.node.upgrade().map(Node)
    }
}

impl Machines for HostMachines {
    /// The name is this bridge's now. Its sandbox is made by the call that has asked for the name; if that does not
    /// come, the name is given back.
    fn start(&mut self, incarnation: Incarnation, name: Name, _: Arc<str>, report: Machinery) {
        let Some(node) = self.node() else { return };
        let weak = self.node.clone();
        tokio::spawn(async move {
            let started = node.expect(incarnation, name, report.clone()).await;
            drop(node);
            let is_expected = started.is_ok();
            report.started(incarnation, started).await;
            if !is_expected {
                return;
            }
            tokio::time::sleep(PLACED_MAX).await;
            let Some(inner) = weak.upgrade() else { return };
            let forgotten = lock(&inner.expected).remove(&incarnation);
            if let Some(Expected { report, .. }) = forgotten {
                report.removed(incarnation).await;
            }
        });
    }

    fn end(&mut self, incarnation: Incarnation, report: Machinery) {
        let Some(node) = self.node() else { return };
        lock(&node.0.held).remove(&incarnation);
        lock(&node.0.expected).remove(&incarnation);
        tokio::spawn(async move {
            if let Some(which) = node.found(incarnation) {
                end(node.0.registry.get().cloned(), which).await;
            }
            report.ended(incarnation).await;
        });
    }

    fn end_all(&mut self) {
        let Some(node) = self.node() else { return };
        let (leases, end_at) = (self.leases.clone(), self.end_at);
        let held = std::mem::take(&mut *lock(&node.0.held));
        lock(&node.0.expected).clear();
        tokio::spawn(async move {
            let mut ending = JoinSet::new();
            for which in held.into_iter().filter_map(|incarnation| node.found(incarnation)) {
                ending.spawn(end(node.0.registry.get().cloned(), which));
            }
            while ending.join_next().await.is_some() {}
            // The lease that it was about may be followed by another already: the file has the later one.
            let _ = leases.send(Lease::Ended(end_at));
        });
    }

    fn leash(&mut self, leash: Leash) {
        self.end_at = leash.end_at;
        if let Some(node) = self.node() {
            node.0.leash.send_replace(leash);
        }
        let _ = self.leases.send(Lease::Until(leash.end_at));
    }

    fn look(&mut self, thing: &str) -> Looking {
        match self.node() {
            Some(node) => node.answer_look(thing),
            None => Box::pin(std::future::ready(Reply::HasNot)),
        }
    }

    fn note(&mut self, note: &Note) {
        let Some(node) = self.node() else { return };
        if let Note::Marked { readiness } = note {
            node.0.identity.keep(*readiness);
        }
        if matches!(note, Note::Lost { .. }) {
            node.0.tallies.lost.fetch_add(1, Ordering::Relaxed);
        }
        let what = match note {
            Note::Freed { incarnation } => return node.0.removed.forget(*incarnation),
            Note::Waits { name, incarnation } => return node.0.wait_for_return(name, *incarnation),
            Note::Joined { .. } => return tracing::info!(node = %node.0.id, "joined the fleet"),
            Note::Marked { readiness } => {
                return tracing::info!(node = %node.0.id, ?readiness, "marked");
            }
            Note::Twin => format!(
                "another bridge is in the fleet as {:?}: give this one another name with fleet.node, or \
                 wait until the lease of the other is over",
                node.0.id.as_str()
            ),
            Note::Over => "the lease in the fleet is over; its sandboxes were ended".to_owned(),
            Note::Buried { node } => format!("the node {node} is gone"),
            Note::Lost { name, node, .. } => format!("{name} was lost with the node {node}"),
        };
        (node.0.events)(&Event::Trouble { which: None, what });
    }
}

/// Ends one whose name is no longer this bridge's, with all that is kept of it.
async fn end(registry: Option<Registry>, which: SandboxRef) {
    let Some(registry) = registry else { return };
    if let Err(error) = registry.discard(&which).await {
        tracing::warn!(%which, %error, "a sandbox of a lease that is over could not be removed");
    }
}

impl Node {
    /// Expects a sandbox, when its guardian is there: a bridge that has just joined still starts it.
    async fn expect(&self, life: Incarnation, name: Name, report: Machinery) -> Result<(), String> {
        let deadline = Instant::now() + GUARDIAN_WAIT_MAX;
        while !GuardianLock::is_taken(&self.0.paths) {
            if Instant::now() > deadline {
                return Err("its guardian does not run".to_owned());
            }
            tokio::time::sleep(GUARDIAN_LOOK_PAUSE).await;
        }
        let mut expected = lock(&self.0.expected);
        if expected.len() >= PLACED_COUNT_MAX {
            return Err("it waits for too many sandboxes to be made".to_owned());
        }
        expected.insert(life, Expected { name, report });
        Ok(())
    }

    /// The sandbox of a life, if it is here.
    fn found(&self, life: Incarnation) -> Option<SandboxRef> {
        let records = self.0.registry.get()?.list(None);
        let is_it = |text: &Option<String>| text.as_deref().and_then(incarnation) == Some(life);
        let record = records.into_iter().find(|record| is_it(&record.incarnation));
        record.map(|record| record.which())
    }
}

/// Writes the lease file and keeps a guardian, in the order of what has happened.
async fn keep_lease(node: Weak<Inner>, mut leases: mpsc::UnboundedReceiver<Lease>) {
    let own = ProcessIdentity::of(std::process::id());
    let mut last = 0;
    while let Some(lease) = leases.recv().await {
        let Some(inner) = node.upgrade() else { return };
        let (end_at_ms, is_ended) = match lease {
            Lease::Until(end_at_ms) => (end_at_ms, false),
            Lease::Ended(end_at_ms) if end_at_ms == last => (end_at_ms, true),
            Lease::Ended(_) => continue,
        };
        last = end_at_ms;
        let written = match &own {
            Ok(bridge) => {
                LeashFile { end_at_ms, bridge: bridge.clone(), is_ended }.write(&inner.paths)
            }
            Err(error) => Err(std::io::Error::new(error.kind(), error.to_string())),
        };
        let trouble = match written {
            // The guardian goes by the file before it, and ends sandboxes that could have gone on.
            Err(error) => Some(format!("the lease could not be written for its guardian: {error}")),
            Ok(()) => guardian::ensure(&inner.paths).await.err().map(|error| error.to_string()),
        };
        if let Some(what) = trouble {
            (inner.events)(&Event::Trouble { which: None, what });
        }
    }
}
