//! Sandboxes that are made again at another node when they are lost.
//!
//! ```text
//!  create ─▶ what it was asked for is kept beside its name ─▶ it runs … it stops or is removed ─▶ that is forgotten
//!                          │
//!  its node is gone ─▶ its name is declared lost ─▶ one node reads what was kept ─▶ places it ─▶ another life, elsewhere
//! ```
//!
//! Who declares a name lost makes the sandbox again. If that node dies on the way, each scan of names finds it once more. The
//! life that was lost is the key of the create: however many nodes try, there is one new life. If the node of that dies before
//! it has begun, its key says in whose place it was, and another takes its place.

use std::sync::Arc;
use std::time::Duration;

use fleet::event::{Answer, Call, Outcome};
use fleet::ids::{Incarnation, Name};
use fleet::limits::RECORD_BYTES_MAX;
use fleet::nats::Shelf;
use host::id::RandomId;
use sandbox::refusal::Code;
use sandbox::{Followed, NameRefused, Record, Returning, SandboxRef};
use tokio::sync::mpsc;

use crate::limits::{DOCUMENT_WRITES_MAX, FORGET_PAUSE};
use crate::names::Claiming;
use crate::placing::wish_of;
use crate::{Inner, Node, Placed, incarnation, lock, name_of};

/// What the key of a create begins with that makes a lost sandbox again.
const RETURN: &str = "return:";

/// A sandbox that was lost, and that this node is to make again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    pub which: SandboxRef,
    /// Its life.
    pub incarnation: String,
}

/// What has become of a life that may be lost.
#[derive(Debug)]
pub enum LostOne {
    /// It waits to be made again, of this.
    Waits(Box<Returning>, Followed),
    /// It is not written yet that it is lost.
    NotYet,
    /// It was made again, or somebody has removed it or used its name.
    Over,
}

/// The key of the create that takes the place of a lost life: what was kept, and the life if it is one that was to be made of
/// that and never began.
fn request_of(kept: &str, lost: &str) -> String {
    if kept == lost { format!("{RETURN}{kept}") } else { format!("{RETURN}{kept}:{lost}") }
}

/// Whether a life that was created with this key was to be made of what was kept.
fn is_made_of(kept: &str, request: &str) -> bool {
    let rest = request.strip_prefix(RETURN).and_then(|request| request.strip_prefix(kept));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

fn key_of(name: &Name) -> String {
    let (namespace, name) = name.parts();
    format!("{namespace}.{name}")
}

fn refused(code: Code, why: String) -> NameRefused {
    NameRefused { code, why }
}

impl Node {
    /// Keeps what a sandbox of this node is made of again.
    pub(crate) async fn keep_returning(&self, returning: &Returning) -> Result<(), NameRefused> {
        let which = returning.spec.which();
        let failed = |why: String| refused(Code::Internal, why);
        let life = incarnation(&returning.incarnation);
        let name = name_of(&which).map_err(|error| failed(error.to_string()))?;
        let life = life.ok_or_else(|| failed("its life has no number".to_owned()))?;
        let bytes = serde_json::to_vec(returning).map_err(|error| failed(error.to_string()))?;
        if bytes.len() > RECORD_BYTES_MAX {
            let why = format!(
                "what it is made of again has {} bytes, and {RECORD_BYTES_MAX} may be",
                bytes.len()
            );
            return Err(refused(Code::TooLarge, why));
        }
        self.write_returning(&name, Some(&bytes), |_| true).await?;
        lock(&self.0.returning).insert(life, name);
        Ok(())
    }

    /// Has a sandbox of this node be what it is now, when it is made again.
    pub(crate) async fn keep_changed(
        &self,
        record: &Record,
        exported: Option<&str>,
    ) -> Result<(), NameRefused> {
        let failed = |why: String| refused(Code::Internal, why);
        let name = name_of(&record.which()).map_err(|error| failed(error.to_string()))?;
        let Some(mut returning) = self.read_returning(&name).await? else { return Ok(()) };
        if Some(&returning.incarnation) != record.incarnation.as_ref() {
            return Ok(());
        }
        let spec = &mut returning.spec;
        spec.egress = Some(record.egress.clone());
        (spec.ttl_ms, spec.idle_ttl_ms) = (record.ttl_ms, record.idle_ttl_ms);
        if let Some(object) = exported {
            returning.exported = Some(object.to_owned());
        }
        self.keep_returning(&returning).await
    }

    async fn read_returning(&self, name: &Name) -> Result<Option<Returning>, NameRefused> {
        let link = self.documents()?;
        let found = link.read_document(Shelf::Returning, &key_of(name)).await;
        let found = found.map_err(|error| refused(Code::Unavailable, error.to_string()))?;
        Ok(found.bytes.and_then(|bytes| parse(name, &bytes)))
    }

    /// Writes over what is there, or removes it, if that is as wished.
    async fn write_returning(
        &self,
        name: &Name,
        bytes: Option<&[u8]>,
        is_wished: impl Fn(Option<&Returning>) -> bool,
    ) -> Result<(), NameRefused> {
        let away = |why: &str| refused(Code::Unavailable, format!("nothing was kept: {why}"));
        let link = self.documents()?;
        let key = key_of(name);
        for _ in 0..DOCUMENT_WRITES_MAX {
            let found = link.read_document(Shelf::Returning, &key).await;
            let found = found.map_err(|error| away(&error.to_string()))?;
            let known = found.bytes.as_ref().and_then(|bytes| parse(name, bytes));
            if (bytes.is_none() && found.bytes.is_none()) || !is_wished(known.as_ref()) {
                return Ok(());
            }
            let written = link.write_document(Shelf::Returning, &key, found.revision, bytes).await;
            match written {
                Outcome::Stored(_) => return Ok(()),
                Outcome::Conflict => {}
                Outcome::Unavailable => return Err(away("NATS does not answer")),
            }
        }
        Err(away("others change it at the same moment"))
    }

    /// A sandbox of this node has stopped or was removed: it is not made again. Goes on trying while the name is this
    /// node's, and no longer: what ends with the lease is lost.
    pub(crate) fn forget_returning(&self, life: Incarnation, is_released: bool) {
        let Some(name) = lock(&self.0.returning).remove(&life) else { return };
        let weak = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            while let Some(node) = weak.upgrade().map(Node) {
                if !is_released && !node.holds(life) {
                    return;
                }
                if node.forget_lost(&name, life).await.is_ok() {
                    return;
                }
                drop(node);
                tokio::time::sleep(FORGET_PAUSE).await;
            }
        });
    }

    async fn forget_lost(&self, name: &Name, life: Incarnation) -> Result<(), NameRefused> {
        let is_it = |known: Option<&Returning>| {
            known.is_some_and(|known| incarnation(&known.incarnation) == Some(life))
        };
        self.write_returning(name, None, is_it).await
    }

    /// Somebody has removed a sandbox that is lost: it is not made again.
    pub async fn give_up(&self, which: &SandboxRef, life: &str) -> Result<(), NameRefused> {
        let waiting = Waiting { which: which.clone(), incarnation: life.to_owned() };
        let LostOne::Waits(returning, _) = self.lost_one(&waiting).await? else { return Ok(()) };
        match (name_of(which), incarnation(&returning.incarnation)) {
            (Ok(name), Some(kept)) => self.forget_lost(&name, kept).await,
            _ => Ok(()),
        }
    }

    /// This sandbox ends here to begin elsewhere. Says whether it can be made again.
    pub fn moves(&self, record: &Record) -> bool {
        let life = record.incarnation.as_deref().and_then(incarnation);
        let returning = life.filter(|life| lock(&self.0.returning).contains_key(life));
        returning.is_some_and(|life| {
            lock(&self.0.moving).insert(life);
            true
        })
    }

    /// It does not end here after all.
    pub fn stays(&self, record: &Record) {
        if let Some(life) = record.incarnation.as_deref().and_then(incarnation) {
            lock(&self.0.moving).remove(&life);
        }
    }

    /// The lost sandboxes that this node is to make again, for the one who does it.
    pub fn waiting(&self) -> Option<mpsc::UnboundedReceiver<Waiting>> {
        lock(&self.0.waiting).1.take()
    }

    /// What a life that was lost is made of again.
    pub async fn lost_one(&self, waiting: &Waiting) -> Result<LostOne, NameRefused> {
        let (Some(handle), Ok(name)) = (self.handle(), name_of(&waiting.which)) else {
            return Ok(LostOne::Over);
        };
        let is_it = |life: Incarnation| life.to_string() == waiting.incarnation;
        let (node, request) = match handle.call(Call::Find { name: name.clone() }).await {
            Answer::Lost { incarnation, node, request, .. } if is_it(incarnation) => {
                (node, request)
            }
            Answer::Found { incarnation, .. } if is_it(incarnation) => return Ok(LostOne::NotYet),
            Answer::Refused(refusal) => {
                return Err(refused(Code::Unavailable, refusal.to_string()));
            }
            _ => return Ok(LostOne::Over),
        };
        let Some(returning) = self.read_returning(&name).await? else { return Ok(LostOne::Over) };
        let kept = &returning.incarnation;
        if *kept != waiting.incarnation && !is_made_of(kept, &request) {
            return Ok(LostOne::Over);
        }
        let followed = Followed {
            id: returning.id.clone(),
            incarnation: kept.clone(),
            node: node.to_string(),
            exported: returning.restores().map(str::to_owned),
            snapshot: None,
        };
        Ok(LostOne::Waits(Box::new(returning), followed))
    }

    /// Takes the name of a lost life again, for the node that has most room, or for this one. Once it was taken and given
    /// back, it is that of a lost life no more.
    pub async fn place_again(
        &self,
        returning: &Returning,
        is_here: bool,
        lost: Option<&str>,
    ) -> Result<Placed, NameRefused> {
        let gone = || refused(Code::Unavailable, "this node is joining its fleet".to_owned());
        let registry = self.0.registry.get().ok_or_else(gone)?;
        let failed = |error: sandbox::SandboxError| refused(Code::Internal, error.to_string());
        let (mut settled, _) = registry.filled(&returning.spec).map_err(failed)?;
        let defaults =
            if returning.is_operators { registry.operator_defaults() } else { registry.defaults() };
        defaults.fill(&mut settled);
        let mut wish = wish_of(registry, &settled);
        wish.node = is_here.then(|| self.0.id.clone());
        let kept = &returning.incarnation;
        let (request, in_place_of) = if let Some(lost) = lost {
            (request_of(kept, lost), incarnation(lost))
        } else {
            let drawn = RandomId::draw();
            let drawn = drawn.map_err(|error| refused(Code::Internal, error.to_string()))?;
            (request_of(kept, &drawn.to_string()), None)
        };
        let claiming = Claiming { request: &request, wish, returns: true, in_place_of };
        let taken = self.create(&settled.which(), claiming).await?;
        self.placed(taken).await
    }
}

/// What is kept, if it is about this name.
fn parse(name: &Name, bytes: &[u8]) -> Option<Returning> {
    let returning: Option<Returning> = serde_json::from_slice(bytes).ok();
    let is_it =
        |returning: &Returning| name_of(&returning.spec.which()).is_ok_and(|own| own == *name);
    let returning = returning.filter(is_it);
    if returning.is_none() {
        tracing::warn!(%name, "what a sandbox is made of again is not one of ours");
    }
    returning
}

impl Inner {
    /// Tells the one who makes lost sandboxes again.
    pub(crate) fn wait_for_return(&self, name: &Name, incarnation: Incarnation) {
        let (namespace, name) = name.parts();
        let (Ok(namespace), Ok(name)) = (namespace.parse(), name.parse()) else { return };
        let which = SandboxRef { namespace, name };
        let waiting = Waiting { which, incarnation: incarnation.to_string() };
        // A bridge that makes none has dropped the other end.
        let _ = lock(&self.waiting).0.send(waiting);
    }
}

/// The pause before another attempt to make a sandbox again.
pub fn pause_after(attempt: u32) -> Duration {
    let doubled = crate::limits::RETURN_PAUSE.saturating_mul(1 << attempt.min(6));
    doubled.min(crate::limits::RETURN_PAUSE_MAX)
}
