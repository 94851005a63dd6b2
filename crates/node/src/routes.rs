//! Where a call goes: which node has a sandbox, and which gets a new one.

use fleet::event::{Answer, Call};
use fleet::ids::NodeId;
use fleet::placement::Wish;
use host::instant;
use sandbox::refusal::Code;
use sandbox::{NameRefused, Registry, SandboxRef, Spec};

use crate::mark::{self, Called, Mark, MarkRefused, Through};
use crate::{Node, incarnation, lock, name_of, room};

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
}

/// Where a new sandbox goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Under this incarnation.
    Here(String),
    There(Placement),
}

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
        match handle.call(Call::Find { name }).await {
            Answer::Found { node, .. } if node == self.0.id => Route::Here,
            Answer::Found { node, incarnation, .. } => {
                self.placement(node, Some(incarnation.to_string())).await
            }
            Answer::Lost { node, incarnation } => {
                Route::Lost { node: node.to_string(), incarnation: incarnation.to_string() }
            }
            Answer::Absent => Route::Here,
            Answer::Refused(refusal) => {
                Route::Unknown { why: self.standing().err().unwrap_or(refusal.to_string()) }
            }
            _ => Route::Unknown { why: "the fleet gave no answer".to_owned() },
        }
    }

    /// Takes the name of a new sandbox for one node of the fleet. `request` is what makes a repeated call the same.
    /// `needs_image`: nobody pulls its image.
    pub async fn place(
        &self,
        spec: &Spec,
        request: &str,
        needs_image: bool,
    ) -> Result<Placed, NameRefused> {
        let image = spec.image.as_deref().and_then(Registry::image_name);
        if needs_image && image.is_some() {
            // It may have come a moment ago.
            self.describe_images().await;
        }
        let wish = Wish {
            needs: room::needs_of(spec),
            machine: spec.machine.map(|kind| kind.name().to_owned()),
            needs_image: needs_image && image.is_some(),
            image,
            ..Wish::default()
        };
        let (life, node) = self.create(&spec.which(), request, wish).await?;
        if node == self.0.id {
            return Ok(Placed::Here(life.to_string()));
        }
        match self.placement(node, Some(life.to_string())).await {
            Route::There(placement) => Ok(Placed::There(placement)),
            route => Err(NameRefused {
                code: Code::Unavailable,
                why: format!("the node of the new sandbox cannot be reached: {route:?}"),
            }),
        }
    }

    pub(crate) async fn placement(&self, node: NodeId, incarnation: Option<String>) -> Route {
        let known = self.roster().get(&node).cloned();
        let record = match known {
            Some(record) => Some(record),
            None => self.look_around().await.get(&node).cloned(),
        };
        match record {
            Some(record) => {
                Route::There(Placement { node, address: record.address.clone(), incarnation })
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
        };
        Ok(others.map(placement).collect())
    }

    /// The mark of a call to another node.
    pub fn sign(&self, to: &Placement, called: Called<'_>, caller: Through) -> String {
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
        mark::sign(&mark, &self.0.identity.key)
    }

    /// The mark of a call from another node.
    pub async fn read_mark(&self, header: &str, called: Called<'_>) -> Result<Mark, MarkRefused> {
        let read = |roster: &_| mark::read(header, &self.0.id, called, roster, instant::now_ms());
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
}
