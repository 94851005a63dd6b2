//! Where a call goes: which node has a sandbox.

use std::collections::HashMap;
use std::time::Instant;

use fleet::event::{Answer, Call};
use fleet::ids::{Incarnation, NodeId};
use host::instant;
use sandbox::SandboxRef;

use crate::limits::{ROUTE_AGE_MAX, THINGS_SEEN_MAX};
use crate::mark::{self, Called, Mark, MarkRefused, Through};
use crate::{Node, incarnation, lock, name_of};

/// Where a sandbox is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// This bridge answers, whether it has the sandbox or not.
    Here,
    There(Placement),
    /// Its node is gone, or no longer has it.
    Lost {
        node: String,
        incarnation: String,
        /// It will be made again at another node.
        returns: bool,
    },
    /// It cannot be found out now.
    Unknown {
        why: String,
    },
}

/// The node of a sandbox that is elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub node: NodeId,
    /// Where its bridge is reached.
    pub address: String,
    /// Absent where no sandbox is meant.
    pub incarnation: Option<String>,
    /// The sandbox that was there a moment ago, when nobody has looked since. The node says if it is there no more.
    pub recalled: Option<SandboxRef>,
}

/// Where sandboxes of other nodes were when somebody looked.
#[derive(Default)]
pub(crate) struct Recalled(HashMap<SandboxRef, (NodeId, Incarnation, Instant)>);

impl Node {
    /// Where a sandbox is. One that is here is found without a look at the fleet.
    pub async fn route(&self, which: &SandboxRef) -> Route {
        let here = self.0.registry.get().and_then(|registry| registry.get(which).ok());
        if let Some(record) = here {
            let life = record.incarnation.as_deref().and_then(incarnation);
            if life.is_none_or(|life| self.holds(life)) {
                return Route::Here;
            }
        }
        let (Some(handle), Ok(name)) = (self.handle(), name_of(which)) else {
            let why = self.standing().err();
            return why.map_or(Route::Here, |why| Route::Unknown { why });
        };
        let answer = handle.call(Call::Find { name }).await;
        if !matches!(answer, Answer::Refused(_)) {
            self.forget_route(which);
        }
        match answer {
            Answer::Found { node, .. } if node == self.0.id => Route::Here,
            Answer::Found { node, incarnation, .. } => {
                self.remember_route(which, &node, incarnation);
                self.placement(node, Some(incarnation.to_string())).await
            }
            Answer::Lost { node, incarnation, returns, .. } => {
                let (node, incarnation) = (node.to_string(), incarnation.to_string());
                Route::Lost { node, incarnation, returns }
            }
            Answer::Absent => Route::Here,
            Answer::Refused(refusal) => {
                Route::Unknown { why: self.standing().err().unwrap_or(refusal.to_string()) }
            }
            _ => Route::Unknown { why: "the fleet gave no answer".to_owned() },
        }
    }

    fn remember_route(&self, which: &SandboxRef, node: &NodeId, life: Incarnation) {
        let mut recalled = lock(&self.0.recalled);
        if recalled.0.len() >= THINGS_SEEN_MAX {
            // Who still needs one looks again.
            recalled.0.clear();
        }
        recalled.0.insert(which.clone(), (node.clone(), life, Instant::now()));
    }

    /// A call has not found a sandbox where it was recalled to be.
    pub fn forget_route(&self, which: &SandboxRef) {
        lock(&self.0.recalled).0.remove(which);
    }

    /// Where a sandbox was a moment ago, if it is not here. A call that goes there carries its life, and the node refuses
    /// it if that is no longer its own: so a wrong place costs a call more and nothing else.
    /// While NATS cannot be asked it is a longer moment: as long as a node without NATS has its sandboxes.
    pub fn recall(&self, which: &SandboxRef) -> Option<Placement> {
        let can_ask = self.handle().is_some_and(|handle| handle.link.is_connected());
        let age_max = if can_ask { ROUTE_AGE_MAX } else { self.0.grace };
        let known = lock(&self.0.recalled).0.get(which).cloned();
        let (node, life, _) = known.filter(|(_, _, at)| at.elapsed() < age_max)?;
        let is_here = self.0.registry.get().is_some_and(|registry| registry.get(which).is_ok());
        let address = self.roster().get(&node).filter(|_| !is_here)?.address.clone();
        let (incarnation, recalled) = (Some(life.to_string()), Some(which.clone()));
        Some(Placement { node, address, incarnation, recalled })
    }

    pub(crate) async fn placement(&self, node: NodeId, incarnation: Option<String>) -> Route {
        let known = self.roster().get(&node).cloned();
        let record = match known {
            Some(record) => Some(record),
            None => self.look_around().await.get(&node).cloned(),
        };
        match record {
            Some(record) => {
                let address = record.address.clone();
                Route::There(Placement { node, address, incarnation, recalled: None })
            }
            None => Route::Unknown { why: format!("the node {node} does not say where it is") },
        }
    }

    /// All other nodes, as they have described themselves. `Err`: why this one knows none.
    pub async fn others(&self) -> Result<Vec<Placement>, String> {
        if self.handle().is_none() {
            self.standing()?;
        }
        let others = self.nodes().await.into_iter().filter(|about| !about.is_here);
        let placement = |about: crate::About| Placement {
            node: about.id,
            address: about.record.address.clone(),
            incarnation: None,
            recalled: None,
        };
        Ok(others.map(placement).collect())
    }

    /// The mark of a call to another node; `None` if that has left the fleet.
    pub fn sign(&self, to: &Placement, called: Called<'_>, caller: Through) -> Option<String> {
        let theirs = self.roster().get(&to.node)?.key.clone();
        let mark = Mark {
            from: self.0.id.clone(),
            to: to.node.clone(),
            at_ms: instant::now_ms(),
            method: called.method.to_owned(),
            path: called.path.to_owned(),
            host: called.host.map(str::to_owned),
            caller,
            incarnation: to.incarnation.clone(),
        };
        mark::sign(&mark, &self.0.identity.key, &theirs)
    }

    /// The mark of a call from another node.
    pub async fn read_mark(&self, header: &str, called: Called<'_>) -> Result<Mark, MarkRefused> {
        let me = (&self.0.id, &self.0.identity.key);
        let read = |roster: &_| mark::read(header, me, called, roster, instant::now_ms());
        match read(&*self.roster()) {
            // It may have joined a moment ago.
            Err(MarkRefused::Stranger(_) | MarkRefused::Signature) => {
                read(&*self.look_around().await)
            }
            read => read,
        }
    }

    /// The host of the address of a node: a name, or an address without brackets.
    pub fn host_of(&self, node: &NodeId) -> Option<String> {
        let address = self.roster().get(node)?.address.clone();
        let (_, rest) = address.split_once("://")?;
        let authority = rest.split(['/', '?']).next()?;
        let host = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?.0,
            None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
        };
        Some(host.to_ascii_lowercase())
    }

    /// Whether a node is in the fleet, as far as this one has seen lately.
    pub fn knows(&self, node: &NodeId) -> bool {
        self.roster().contains_key(node)
    }

    /// Whether a life that a mark names is this node's: here, or about to be made.
    pub fn has(&self, life: &str) -> bool {
        let Some(life) = incarnation(life) else { return false };
        self.holds(life) || lock(&self.0.expected).contains_key(&life)
    }

    /// The sandbox that this node is about to make under a life, which a mark names.
    pub fn expects(&self, life: &str) -> Option<SandboxRef> {
        let expected = lock(&self.0.expected);
        let (namespace, name) = expected.get(&incarnation(life)?)?.name.parts();
        Some(SandboxRef { namespace: namespace.parse().ok()?, name: name.parse().ok()? })
    }
}
