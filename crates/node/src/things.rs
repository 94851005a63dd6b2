//! Things that are known by an id alone, and which node has them: a sandbox, a kernel, a notebook, an artifact, a
//! session of MCP.
//!
//! ```text
//!  here? ─no─▶ seen before? ─no─▶ every other node is asked, over NATS
//!                                   │ one has it: that one, and it is remembered where ids are never used again
//!                                   │ none has it: this bridge says so
//!                                   └ one did not answer, and none has it: it cannot be said now
//! ```
//!
//! No index is kept: there is nothing to fall out of step with what nodes have. The price is a message to each node
//! the first time that a gateway meets an id.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use fleet::driver::{Handle, Looking};
use fleet::event::{Reply, Request};
use fleet::ids::{Incarnation, NodeId};
use fleet::records::Readiness;
use machine::BoxFuture;
use ring::digest::{SHA256, digest};
use sandbox::{SandboxId, SandboxRef};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::limits::{LOOKS_AT_ONCE, ROSTER_AGE_MAX, THING_BYTES_MAX, THINGS_SEEN_MAX};
use crate::routes::{Placement, Route};
use crate::{Node, incarnation, lock};

/// What kind of thing an id is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Sandbox,
    /// Of Jupyter.
    Kernel,
    /// By its namespace and name.
    Notebook,
    Artifact,
    /// A session of MCP.
    Session,
}

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thing {
    pub kind: Kind,
    pub id: String,
}

/// The text is of no thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoThing;

/// Says whether this bridge has a thing that is no sandbox.
pub type Finder = Box<dyn Fn(Thing) -> BoxFuture<'static, bool> + Send + Sync>;

/// Messages of searches that are under way at once: strangers may cause some.
pub(crate) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LOOKS_AT_ONCE))
}

/// Where things were found, by whose id nothing else is ever meant.
pub(crate) type Seen = HashMap<Thing, (NodeId, Option<Incarnation>)>;

const KINDS: [(Kind, &str); 5] = [
    (Kind::Sandbox, "sandbox"),
    (Kind::Kernel, "kernel"),
    (Kind::Notebook, "notebook"),
    (Kind::Artifact, "artifact"),
    (Kind::Session, "session"),
];

impl Thing {
    pub fn new(kind: Kind, id: &str) -> Self {
        Self { kind, id: id.to_owned() }
    }

    /// Whether another may come to have its id.
    fn is_unique(&self) -> bool {
        self.kind != Kind::Notebook
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("", |(_, word)| word);
        write!(f, "{word}/{}", self.id)
    }
}

impl FromStr for Thing {
    type Err = NoThing;

    fn from_str(text: &str) -> Result<Self, NoThing> {
        let (word, id) = text.split_once('/').ok_or(NoThing)?;
        let kind = KINDS.iter().find(|(_, known)| *known == word).ok_or(NoThing)?.0;
        if id.is_empty() || text.len() > THING_BYTES_MAX {
            Err(NoThing)
        } else {
            Ok(Self::new(kind, id))
        }
    }
}

impl Node {
    /// Sets what knows the things that are no sandboxes.
    pub fn finds_with(&self, finder: Finder) {
        // The first door of a bridge is its only one.
        let _ = self.0.finder.set(finder);
    }

    /// Which node has a thing. `Here` as well if none has it: this bridge says so.
    pub async fn search(&self, thing: &Thing) -> Route {
        if thing.id.len() > THING_BYTES_MAX || self.look(thing).await.is_some() {
            return Route::Here;
        }
        let seen = lock(&self.0.seen).get(thing).cloned();
        match seen {
            Some((node, _)) if self.knows(&node) => return self.at(node).await,
            Some((node, Some(life))) => {
                let (node, incarnation) = (node.to_string(), life.to_string());
                return Route::Lost { node, incarnation, returns: false };
            }
            Some((_, None)) | None => {}
        }
        if let Err(why) = self.standing() {
            return Route::Unknown { why };
        }
        let Some(handle) = self.handle() else { return Route::Here };
        self.ask_all(&handle, thing).await
    }

    /// The other node that has the sandbox of a name or an id.
    pub async fn elsewhere(&self, which: &SandboxRef) -> Option<Placement> {
        // Boxed: few calls wait for it.
        match Box::pin(self.route_or_search(which)).await {
            Route::There(to) => Some(to),
            _ => None,
        }
    }

    /// Where the sandbox of a name is, or of an id where none has that name.
    pub async fn route_or_search(&self, which: &SandboxRef) -> Route {
        let found = Box::pin(self.route(which)).await;
        let is_id = which.name.as_str().parse::<SandboxId>().is_ok();
        if found != Route::Here || !is_id {
            return found;
        }
        self.search(&Thing::new(Kind::Sandbox, which.name.as_str())).await
    }

    /// Resolves when a node is no longer in the fleet. One whose host is gone would never say so.
    pub async fn left(&self, node: &NodeId) {
        while self.knows(node) {
            tokio::time::sleep(ROSTER_AGE_MAX).await;
        }
    }

    /// Which node has a thing that is made when it is first used: if no node has it, the one that makes it, which is the
    /// same for every caller.
    pub async fn search_or_home(&self, thing: &Thing) -> Route {
        let found = self.search(thing).await;
        if found != Route::Here || self.look(thing).await.is_some() {
            return found;
        }
        let text = thing.to_string();
        let weight = |node: &NodeId| {
            let drawn = digest(&SHA256, format!("{node} {text}").as_bytes());
            drawn.as_ref().to_vec()
        };
        let nodes = self.look_around().await;
        let ready = nodes.iter().filter(|(_, record)| record.readiness == Readiness::Ready);
        match ready.map(|(node, _)| node.clone()).max_by_key(weight) {
            Some(home) if home != self.0.id => self.at(home).await,
            _ => Route::Here,
        }
    }

    /// The call is bound to no life: the id is, and the node knows whether it still has it.
    async fn at(&self, node: NodeId) -> Route {
        self.placement(node, None).await
    }

    async fn ask_all(&self, handle: &Handle, thing: &Thing) -> Route {
        // Boxed in a task each: a fleet may have a thousand nodes, and what waits is small so.
        let mut asked = JoinSet::new();
        for node in self.look_around().await.keys().filter(|node| **node != self.0.id).cloned() {
            let (link, places) = (handle.link.clone(), Arc::clone(&self.0.looks));
            let request = Request::Look { thing: thing.to_string().into() };
            asked.spawn(async move {
                let _place = places.acquire().await;
                let reply = link.ask(&node, &request).await;
                (node, reply)
            });
        }
        let mut silent = None;
        while let Some(answered) = asked.join_next().await {
            let Ok((node, reply)) = answered else { continue };
            match reply {
                Some(Reply::Has { incarnation }) => {
                    self.remember(thing, &node, incarnation);
                    return self.at(node).await;
                }
                Some(Reply::HasNot) => {}
                _ => silent = Some(node),
            }
        }
        match silent {
            Some(node) => Route::Unknown { why: format!("the node {node} does not answer") },
            None => Route::Here,
        }
    }

    fn remember(&self, thing: &Thing, node: &NodeId, life: Option<Incarnation>) {
        if !thing.is_unique() {
            return;
        }
        let mut seen = lock(&self.0.seen);
        if seen.len() >= THINGS_SEEN_MAX {
            // Who still needs one asks again.
            seen.clear();
        }
        seen.insert(thing.clone(), (node.clone(), life));
    }

    /// What another node asks.
    pub(crate) fn answer_look(&self, thing: &str) -> Looking {
        let (node, thing) = (self.clone(), thing.parse::<Thing>());
        Box::pin(async move {
            let found = match thing {
                Ok(thing) => node.look(&thing).await,
                Err(NoThing) => None,
            };
            found.map_or(Reply::HasNot, |incarnation| Reply::Has { incarnation })
        })
    }

    /// A thing of this bridge, with the life of the sandbox that it is.
    async fn look(&self, thing: &Thing) -> Option<Option<Incarnation>> {
        if thing.kind != Kind::Sandbox {
            let finder = self.0.finder.get()?;
            return finder(thing.clone()).await.then_some(None);
        }
        let registry = self.0.registry.get()?;
        let which = registry.find(&thing.id.parse::<SandboxId>().ok()?)?;
        let record = registry.get(&which).ok()?;
        Some(record.incarnation.as_deref().and_then(incarnation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_read_from_its_own_text() {
        for (kind, word) in KINDS {
            let thing = Thing::new(kind, "team/work");
            assert_eq!(thing.to_string(), format!("{word}/team/work"));
            assert_eq!(thing.to_string().parse(), Ok(thing));
        }
    }

    #[test]
    fn what_is_no_thing_is_not_looked_for() {
        let long = format!("sandbox/{}", "a".repeat(THING_BYTES_MAX));
        for text in ["", "sandbox", "sandbox/", "/a", "house/a", &long] {
            assert_eq!(text.parse::<Thing>(), Err(NoThing), "{text}");
        }
    }
}
