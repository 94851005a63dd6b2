//! Names that are taken where others have a say about them, from the claim to the owner that gives the name back.

use std::sync::{Arc, Weak};

use super::{Inner, Registry};
use crate::refusal::Code;
use crate::{
    Followed, HostFiles, Incarnation, NameRefused, Names, Record, Returning, SandboxError,
    SandboxRef, Spec,
};

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
        if spec.record.is_some_and(|record| !record.has_output()) {
            let why = "with record \"off\" nothing of its output is kept".to_owned();
            return Err(SandboxError::NotDurable { durability, why });
        }
        let logs = self.0.durable_logs.as_ref();
        let none = SandboxError::NoFleet { option: "durability", value: durability.name() };
        let logs = logs.ok_or(none)?;
        logs.ready().await.map_err(|why| SandboxError::NotDurable { durability, why })
    }

    /// What the sandbox is made of again when it is lost, as it was asked for, if that is asked for.
    pub(super) fn as_asked(
        &self,
        files: &HostFiles,
        spec: &Spec,
    ) -> Result<Option<Box<AsAsked>>, SandboxError> {
        let on_lost = spec.on_lost.unwrap_or_default();
        if on_lost.is_lose() {
            return Ok(None);
        }
        if self.0.names.is_none() {
            return Err(SandboxError::NoFleet { option: "on_lost", value: on_lost.name() });
        }
        if let Some(what) = spec.of_this_host() {
            return Err(SandboxError::OfThisHost { on_lost, what });
        }
        let is_operators = *files == self.0.files.for_operator() && *files != self.0.files;
        Ok(Some(Box::new(AsAsked { spec: spec.clone(), is_operators })))
    }

    /// Keeps what the sandbox is made of again. Whatever happens to it from then on, the fleet knows that.
    pub(super) async fn keep_returning(
        claimed: Option<&Claimed>,
        asked: Option<Box<AsAsked>>,
        record: &Record,
    ) -> Result<(), SandboxError> {
        let names = claimed.and_then(|claimed| Some((claimed, claimed.names.as_ref()?)));
        let Some(((claimed, names), asked)) = names.zip(asked) else { return Ok(()) };
        let AsAsked { spec, is_operators } = *asked;
        let returning = Returning {
            incarnation: claimed.incarnation.clone(),
            id: record.id.clone(),
            exported: spec.follows.as_ref().and_then(|lost| lost.exported.clone()),
            spec,
            is_operators,
        };
        let kept = names.keep(&returning).await;
        kept.map_err(|refused| SandboxError::NameRefused { which: record.which(), refused })
    }

    /// Makes a sandbox again that was lost with another node, under a name that was taken for this bridge.
    pub async fn create_again(
        &self,
        returning: Returning,
        followed: Followed,
        placed: Incarnation,
    ) -> Result<Record, SandboxError> {
        let Returning { mut spec, is_operators, .. } = returning;
        spec.follows = Some(followed);
        let placed = Some(placed);
        if is_operators {
            return self.create_for_operator(spec, placed).await;
        }
        self.create_placed(spec, placed).await
    }

    /// Takes the name where others have a say about it.
    pub(super) async fn claim(&self, record: &Record) -> Result<Option<Claimed>, SandboxError> {
        let Some(names) = self.0.names.clone() else { return Ok(None) };
        let refused = |refused| SandboxError::NameRefused { which: record.which(), refused };
        let incarnation = names.claim(record).await.map_err(refused)?;
        Ok(Some(Claimed { names: Some(names), incarnation }))
    }
}

/// What a sandbox was asked for, before the bridge has filled it in.
pub(super) struct AsAsked {
    spec: Spec,
    /// It is the operator's, who may ask for more.
    is_operators: bool,
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
