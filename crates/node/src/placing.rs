//! Which node makes a new sandbox: one answer for all doors, and for the command line.
//!
//! ```text
//!  specification ─▶ of this host alone? ─▶ here
//!                └▶ offers of the nodes that could ─▶ the best has the name ─▶ here, or there: the door sends it on
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet::ids::{Incarnation, NodeId};
use fleet::placement::Wish;
use fleet::records::NodeRecord;
use sandbox::options::{Defaults, called};
use sandbox::refusal::Code;
use sandbox::{Labels, NameRefused, Registry, SandboxError, Spec, TemplateRef};

use crate::names::Claiming;
use crate::routes::{Placement, Route};
use crate::{Node, lock, room};

/// The label that each node has with its name, whatever its own are.
pub const NODE_LABEL: &str = "node";
/// Nodes that a refusal names with their labels.
const NODES_SHOWN_MAX: usize = 8;

/// Where a new sandbox is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Under this incarnation, if its name was taken already. If not, the registry takes it for this node.
    Here(Option<String>),
    There(Placement),
}

/// A sandbox to place.
#[derive(Clone, Copy, Debug)]
pub struct Placing<'a> {
    pub spec: &'a Spec,
    /// What it has where that says nothing.
    pub defaults: &'a Defaults,
    /// What makes a repeated create the same.
    pub request: &'a str,
    /// Its image is a directory that every node has by its own configuration.
    pub image_is_everywhere: bool,
}

/// Whether a sandbox is made of what only this host has.
fn is_of_here(spec: &Spec, image_is_everywhere: bool) -> bool {
    let is_directory = spec.image.as_ref().is_some_and(|image| image.starts_with('/'));
    spec.of_this_host().is_some() || (is_directory && !image_is_everywhere)
}

/// What a node must have for it.
pub(crate) fn wish_of(registry: &Registry, spec: &Spec) -> Wish {
    let image = registry.stored_image(spec);
    Wish {
        needs: room::needs_of(spec),
        labels: spec.node_labels.clone(),
        machine: spec.machine.map(|kind| kind.name().to_owned()),
        needs_image: image.is_some() && registry.needs_image(spec),
        image,
        ..Wish::default()
    }
}

impl Node {
    /// Takes the name of a new sandbox for the node that has most room for it. What only this host can make stays here.
    pub async fn place(&self, placing: Placing<'_>) -> Result<Placed, SandboxError> {
        let Placing { spec, defaults, request, image_is_everywhere } = placing;
        let Some(registry) = self.0.registry.get() else { return Ok(Placed::Here(None)) };
        spec.check_everywhere()?;
        if is_of_here(spec, image_is_everywhere) {
            return Ok(Placed::Here(None));
        }
        if let Some(name) = spec.template.clone() {
            let namespace = spec.namespace.clone();
            Box::pin(self.refresh_template(&TemplateRef { namespace, name })).await;
        }
        let (mut settled, is_everywhere) = registry.filled(spec)?;
        if !is_everywhere || (spec.template.is_some() && is_of_here(&settled, false)) {
            return Ok(Placed::Here(None));
        }
        defaults.fill(&mut settled);
        let refused = |refused| SandboxError::NameRefused { which: spec.which(), refused };
        self.take_place(registry, &settled, request).await.map_err(refused)
    }

    async fn take_place(
        &self,
        registry: &Registry,
        spec: &Spec,
        request: &str,
    ) -> Result<Placed, NameRefused> {
        let wish = wish_of(registry, spec);
        if wish.needs_image {
            // It may have come a moment ago.
            self.describe_images().await;
        }
        let returns = spec.on_lost.is_some_and(|on_lost| !on_lost.is_lose());
        let claiming = Claiming { request, wish, returns, in_place_of: None };
        let taken = match self.create(&spec.which(), claiming).await {
            Err(refused) if refused.code == Code::LimitReached => {
                return Err(self.without_labels(&spec.node_labels, refused).await);
            }
            taken => taken?,
        };
        self.placed(taken).await
    }

    /// Where the node is that a name was given to.
    pub(crate) async fn placed(
        &self,
        (life, node): (Incarnation, NodeId),
    ) -> Result<Placed, NameRefused> {
        if node == self.0.id {
            return Ok(Placed::Here(Some(life.to_string())));
        }
        match self.placement(node, Some(life.to_string())).await {
            Route::There(placement) => Ok(Placed::There(placement)),
            route => Err(NameRefused {
                code: Code::Unavailable,
                why: format!("the node of the new sandbox cannot be reached: {route:?}"),
            }),
        }
    }

    /// Says that no node has the labels that were asked for, where that is why there is none.
    async fn without_labels(&self, wanted: &Labels, refused: NameRefused) -> NameRefused {
        if wanted.is_empty() {
            return refused;
        }
        let roster = self.look_around().await;
        let wanted_text = shown(wanted);
        if roster.values().any(|node| has(&node.labels, wanted)) {
            let why = format!("{} (of those with {wanted_text})", refused.why);
            return NameRefused { why, ..refused };
        }
        NameRefused { code: Code::Unsupported, why: no_such_node(&wanted_text, &roster) }
    }

    /// Refuses labels that this node has not.
    pub(crate) fn has_labels(&self, wanted: &Labels) -> Result<(), NameRefused> {
        let own = lock(&self.0.record).labels.clone();
        if has(&own, wanted) {
            return Ok(());
        }
        let why = format!(
            "{}: it is made of what only the node {} has, which is not {}",
            called("node_labels"),
            self.0.id,
            shown(wanted)
        );
        Err(NameRefused { code: Code::Unsupported, why })
    }
}

fn has(labels: &BTreeMap<String, String>, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn shown(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(", ")
}

fn no_such_node(wanted: &str, roster: &BTreeMap<NodeId, Arc<NodeRecord>>) -> String {
    let nodes: Vec<_> = roster
        .iter()
        .take(NODES_SHOWN_MAX)
        .map(|(id, node)| format!("{id} has {}", shown(&node.labels)))
        .collect();
    let more = match roster.len().saturating_sub(NODES_SHOWN_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let called = called("node_labels");
    format!("{called}: no node of this fleet is {wanted}: {}{more}", nodes.join("; "))
}
