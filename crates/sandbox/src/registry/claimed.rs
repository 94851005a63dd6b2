//! Names that are taken where others have a say about them, from the claim to the owner that gives the name back.

use std::sync::{Arc, Weak};

use super::{Inner, Registry};
use crate::refusal::Code;
use crate::{Incarnation, NameRefused, Names, Record, SandboxError, SandboxRef, Spec};

impl Registry {
    /// Creates one whose name was taken for this bridge before, under this incarnation, if it was.
    pub async fn create_placed(
        &self,
        spec: Spec,
        placed: Option<Incarnation>,
    ) -> Result<Record, SandboxError> {
        Self::check_template(&spec)?;
        self.create_named(&self.0.files, &self.0.defaults, spec, placed).await
    }

    /// Refuses what is for other nodes of a fleet.
    pub(super) fn suits(&self, spec: &Spec) -> Result<(), SandboxError> {
        if spec.node_labels.is_empty() {
            return Ok(());
        }
        let names = self.0.names.as_ref().ok_or(SandboxError::NoNodes)?;
        let refused = |refused| SandboxError::NameRefused { which: spec.which(), refused };
        names.suits(&spec.node_labels).map_err(refused)
    }

    /// A name that was taken before. What goes wrong from here on gives it back.
    pub(super) fn placed(
        &self,
        spec: &Spec,
        placed: Option<Incarnation>,
    ) -> Result<Option<Claimed>, SandboxError> {
        let (Some(names), Some(incarnation)) = (self.0.names.clone(), placed) else {
            return Ok(None);
        };
        let which = spec.which();
        let taken = names.take(&incarnation, &which);
        taken.map_err(|refused| SandboxError::NameRefused { which, refused })?;
        Ok(Some(Claimed { names: Some(names), incarnation }))
    }

    /// Refuses to promise what no log can keep.
    pub(super) async fn can_be_durable(&self, spec: &Spec) -> Result<(), SandboxError> {
        let durability = spec.durability.unwrap_or_default();
        if durability.is_off() {
            return Ok(());
        }
        let logs = self.0.durable_logs.as_ref();
        let logs = logs.ok_or(SandboxError::NoFleet { durability })?;
        logs.ready().await.map_err(|why| SandboxError::NotDurable { durability, why })
    }

    /// Takes the name where others have a say about it.
    pub(super) async fn claim(&self, record: &Record) -> Result<Option<Claimed>, SandboxError> {
        let Some(names) = self.0.names.clone() else { return Ok(None) };
        let refused = |refused| SandboxError::NameRefused { which: record.which(), refused };
        let incarnation = names.claim(record).await.map_err(refused)?;
        Ok(Some(Claimed { names: Some(names), incarnation }))
    }
}

/// A name that was taken for a sandbox that has no owner yet. Dropping it gives the name back.
pub(super) struct Claimed {
    names: Option<Arc<dyn Names>>,
    pub incarnation: Incarnation,
}

impl Claimed {
    /// The owner gives it back from here on.
    pub(super) fn keep(mut self) -> (Arc<dyn Names>, Incarnation) {
        let names = self.names.take().expect("it is taken once");
        (names, std::mem::take(&mut self.incarnation))
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some(names) = self.names.take() {
            let incarnation = std::mem::take(&mut self.incarnation);
            tokio::spawn(async move { names.release(&incarnation).await });
        }
    }
}

pub(super) fn names_lost(which: SandboxRef) -> SandboxError {
    let why = "this node has lost its place in the fleet, and the sandbox was ended";
    let refused = NameRefused { code: Code::Unavailable, why: why.to_owned() };
    SandboxError::NameRefused { which, refused }
}

/// Held by an owner as long as its name is taken; dropping it frees the name.
pub(super) struct NameGuard {
    pub registry: Weak<Inner>,
    pub which: SandboxRef,
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        if let Some(inner) = self.registry.upgrade() {
            inner.seats().taken.remove(&self.which);
        }
    }
}
