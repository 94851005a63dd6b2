//! What becomes of a sandbox of a fleet that is lost with its node: nothing, or it is made again at another node.
//!
//! What it was asked for is kept beside its name from before it runs until it is removed. The registry hands that over;
//! `node` keeps it, and makes the sandbox again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;
use crate::{Incarnation, Name, Spec};
use machine::SandboxId;

/// What becomes of a sandbox that is lost with its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLost {
    /// It is gone.
    #[default]
    Lose,
    /// It is made again at another node, as it was asked for: with empty memory and files of its image.
    Restart,
    /// The same, from the snapshot of it that was exported to a bucket last, if there is one.
    Restore,
}

words!(OnLost, "what can become of a sandbox that is lost", {
    Lose: "lose",
    Restart: "restart",
    Restore: "restore",
});

impl OnLost {
    pub fn is_lose(&self) -> bool {
        *self == Self::Lose
    }
}

/// What a sandbox is made of again, and whether for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returning {
    /// The life that was lost, or will be.
    pub incarnation: Incarnation,
    pub id: SandboxId,
    /// As it was asked for, with its environment. Of secrets it has names.
    pub spec: Spec,
    /// It has what the operator's own sandboxes have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_operators: bool,
    /// The object of the snapshot that was exported last, for [`OnLost::Restore`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported: Option<String>,
}

impl Returning {
    /// Whether it begins with what was exported of it last.
    pub fn restores(&self) -> Option<&str> {
        let exported = self.exported.as_deref();
        exported.filter(|_| self.spec.on_lost == Some(OnLost::Restore))
    }
}

/// The sandbox that another follows, under the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Followed {
    /// Its id.
    #[schemars(with = "String")]
    pub id: SandboxId,
    /// Its life in the fleet.
    pub incarnation: Incarnation,
    /// The node that it was lost with.
    pub node: String,
    /// The object that its files and memory came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported: Option<String>,
    /// The snapshot on this host that was made of that, until it has started.
    #[serde(skip)]
    pub snapshot: Option<Name>,
}

impl Spec {
    /// What it is made of that only this host has. A directory as its image is for the operator to know.
    pub fn of_this_host(&self) -> Option<&'static str> {
        [
            (self.snapshot.is_some(), "its snapshot"),
            (self.workspace.is_some(), "its workspace"),
            (!self.volumes.is_empty(), "its volumes"),
            (self.packages.is_some() || self.base.is_some(), "its packages"),
            (self.address.is_some(), "the machine at its address"),
        ]
        .into_iter()
        .find_map(|(is_so, what)| is_so.then_some(what))
    }

    /// Begins with a snapshot, which decides what its machine is.
    pub(super) fn begin_with(&mut self, snapshot: Name) {
        self.snapshot = Some(snapshot);
        (self.image, self.template, self.machine) = (None, None, None);
        (self.memory_mib, self.cpu_millis, self.scratch_bytes) = (None, None, None);
    }
}
