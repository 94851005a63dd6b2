//! Names for the registry's sandboxes, from the fleet.

use std::sync::atomic::Ordering;

use fleet::event::{Answer, Call, CreateCall, Refusal};
use fleet::ids::{Incarnation, NodeId};
use fleet::placement::Wish;
use fleet::quota::QuotaError;
use host::id::RandomId;
use machine::BoxFuture;
use sandbox::refusal::Code;
use sandbox::{Labels, NameRefused, Names, Record, Returning, SandboxRef};

use crate::machines::Expected;
use crate::{Node, incarnation, lock, name_of, room};

/// A name to take in the fleet.
pub(crate) struct Claiming<'a> {
    /// What makes a repeated create the same.
    pub request: &'a str,
    pub wish: Wish,
    /// Its sandbox is made again when it is lost.
    pub returns: bool,
    /// The lost life that it follows, and whose name it takes.
    pub in_place_of: Option<Incarnation>,
}

impl Names for Node {
    fn claim<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Result<String, NameRefused>> {
        Box::pin(async move {
            let wish = Wish {
                needs: room::needs(record),
                machine: None,
                // A sandbox of this registry is made here.
                node: Some(self.0.id.clone()),
                ..Wish::default()
            };
            let request = RandomId::draw().map_err(|error| failed(error.to_string()))?;
            let claiming = Claiming {
                request: request.as_str(),
                wish,
                returns: !record.on_lost.is_lose(),
                in_place_of: None,
            };
            let (life, node) = self.create(&record.which(), claiming).await?;
            if node != self.0.id {
                return Err(failed(format!("the name was given to the node {node}")));
            }
            self.take(&life.to_string(), &record.which())?;
            Ok(life.to_string())
        })
    }

    fn take(&self, life: &str, which: &SandboxRef) -> Result<(), NameRefused> {
        let gone = || NameRefused {
            code: Code::Unavailable,
            why:
                "its name was taken for this node, and given back because it took too long; repeat \
                  the call"
                    .to_owned(),
        };
        let (Some(life), Ok(name)) = (incarnation(life), name_of(which)) else {
            return Err(gone());
        };
        let mut expected = lock(&self.0.expected);
        let is_it = expected.get(&life).is_some_and(|Expected { name: known, .. }| *known == name);
        if !is_it {
            return Err(gone());
        }
        expected.remove(&life);
        // Under the lock: a lease that is over takes both away.
        lock(&self.0.held).insert(life);
        Ok(())
    }

    fn suits(&self, node_labels: &Labels) -> Result<(), NameRefused> {
        self.has_labels(node_labels)
    }

    fn keep<'a>(&'a self, returning: &'a Returning) -> BoxFuture<'a, Result<(), NameRefused>> {
        Box::pin(self.keep_returning(returning))
    }

    fn changed<'a>(
        &'a self,
        record: &'a Record,
        exported: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), NameRefused>> {
        Box::pin(self.keep_changed(record, exported))
    }

    fn stopped(&self, life: &str) {
        let life = incarnation(life).filter(|life| !lock(&self.0.moving).contains(life));
        if let Some(life) = life {
            self.forget_returning(life, false);
        }
    }

    fn holds(&self, life: &str) -> bool {
        incarnation(life).is_some_and(|life| Self::holds(self, life))
    }

    fn release<'a>(&'a self, life: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(life) = incarnation(life) else { return };
            if !lock(&self.0.held).remove(&life) {
                return;
            }
            let moves = lock(&self.0.moving).remove(&life);
            let call = if moves {
                Call::Lose { incarnation: life }
            } else {
                Call::Release { incarnation: life }
            };
            // One that cannot be given back now is given back by a later look at all names.
            let is_free = if let Some(handle) = self.handle() {
                handle.call(call).await == Answer::Removed
            } else {
                self.call_when_joined(call);
                false
            };
            if !moves {
                if !is_free {
                    self.note_removed(life).await;
                }
                self.forget_returning(life, true);
            }
        })
    }
}

impl Node {
    /// Before a removal is answered whose name is not free yet: the next bridge goes on with it if this one dies.
    async fn note_removed(&self, life: Incarnation) {
        let returning = lock(&self.0.returning).get(&life).cloned();
        let node = self.clone();
        let keep = move || node.0.removed.keep(life, returning.as_ref());
        if let Ok(Err(error)) = tokio::task::spawn_blocking(keep).await {
            tracing::warn!(%life, %error, "a removal could not be noted for the next bridge");
        }
    }

    /// A node that has not reached NATS yet will join with all that it had when it came up: it learns then what has gone.
    fn call_when_joined(&self, call: Call) {
        let mut handles = self.0.handle.subscribe();
        tokio::spawn(async move {
            let handle = handles.wait_for(Option::is_some).await.ok().and_then(|it| it.clone());
            if let Some(handle) = handle {
                handle.call(call).await;
            }
        });
    }

    /// Takes a name in the fleet, for the node that has most room of those that the wish allows.
    pub(crate) async fn create(
        &self,
        which: &SandboxRef,
        claiming: Claiming<'_>,
    ) -> Result<(Incarnation, NodeId), NameRefused> {
        self.standing().map_err(|why| away(&why))?;
        let handle = self.handle().ok_or_else(|| away("this node is joining its fleet"))?;
        let name = name_of(which).map_err(|error| failed(error.to_string()))?;
        let limit = self.0.settings.quota(which.namespace.as_str());
        let Claiming { request, wish, returns, in_place_of } = claiming;
        let (image, only) = (wish.image.clone().filter(|_| wish.needs_image), wish.node.clone());
        let (request, spec) = (request.into(), "".into());
        let call = CreateCall { name, request, wish, spec, limit, returns, in_place_of };
        let answer = handle.call(Call::Create(Box::new(call))).await;
        let tallies = &self.0.tallies;
        let is_placed = matches!(answer, Answer::Created { .. });
        let count = if is_placed { &tallies.placed } else { &tallies.refused };
        count.fetch_add(1, Ordering::Relaxed);
        match answer {
            Answer::Created { incarnation, node, .. } => Ok((incarnation, node)),
            Answer::Failed { why } => Err(away(&why)),
            Answer::Refused(refusal) => Err(refused(refusal, image.as_deref(), only.as_ref())),
            _ => Err(failed("the fleet gave another answer than to a create".to_owned())),
        }
    }
}

fn away(why: &str) -> NameRefused {
    NameRefused { code: Code::Unavailable, why: format!("nothing was created: {why}") }
}

fn failed(why: String) -> NameRefused {
    NameRefused { code: Code::Internal, why }
}

/// `only` is the node that alone was asked for an offer, if one was.
fn refused(refusal: Refusal, image: Option<&str>, only: Option<&NodeId>) -> NameRefused {
    let code = match refusal {
        Refusal::Taken => Code::Conflict,
        Refusal::Quota(QuotaError::Full { .. }) | Refusal::NoRoom => Code::LimitReached,
        _ => Code::Unavailable,
    };
    let why = match (refusal, image, only) {
        (Refusal::NoRoom, _, Some(node)) => {
            format!(
                "only the node {node} makes this sandbox, and it has no room for it or takes none"
            )
        }
        (Refusal::NoRoom, Some(image), None) => format!("{refusal} and has the image {image}"),
        _ => refusal.to_string(),
    };
    NameRefused { code, why }
}
