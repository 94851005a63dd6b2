//! Which node has what a call is about.
//!
//! `clues` says it of most requests, by their heads. What makes a kernel or a notebook says so in its body, and its handler
//! looks.

use std::fmt;

use super::Api;
use super::call::{Call, LostLife};
use super::lost::lost;
use node::{Kind, Placement, Route, Thing};
use sandbox::SandboxRef;
use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Reason, Refusal};

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// By a name, which may be an id.
    Sandbox(SandboxRef),
    Thing(Thing),
    /// One that is made when it is first used.
    Made(Thing),
}

/// A notebook, by its namespace and name.
pub fn notebook(which: &SandboxRef) -> Thing {
    Thing::new(Kind::Notebook, &which.to_string())
}

/// The node that has what a call is about, if it is not this one. The caller's key must reach the namespace: others learn
/// what they would of a bridge of its own.
pub async fn elsewhere(call: &Call, subject: &Subject) -> Result<Option<Placement>, Refusal> {
    let Some(node) = call.api.node() else { return Ok(None) };
    if let Some(sent_for) = &call.sent_for {
        call.trail.fact("gateway", sent_for.gateway.as_str());
        return sent_for.is_for(node, subject).map(|()| None);
    }
    if let Subject::Sandbox(which) = subject
        && !call.caller.covers(&which.namespace)
    {
        return Ok(None);
    }
    // Boxed: few calls wait for it, and each connection has room for one.
    Box::pin(find(&call.api, subject)).await
}

/// Where the sandbox of a call was a moment ago, if that was another node; or longer ago, while NATS cannot be asked.
pub fn lately(call: &Call, subject: &Subject) -> Option<Placement> {
    let Subject::Sandbox(which) = subject else { return None };
    let node = call.api.node().filter(|_| call.sent_for.is_none())?;
    if !call.caller.covers(&which.namespace) {
        return None;
    }
    node.recall(&call.api.registry().resolve(which.clone()))
}

/// The same, without looking at the caller.
pub async fn find(api: &Api, subject: &Subject) -> Result<Option<Placement>, Refusal> {
    let Some(node) = api.node() else { return Ok(None) };
    let route = match subject {
        // Boxed: few calls wait for these, and each has room for one.
        Subject::Thing(thing) => Box::pin(node.search(thing)).await,
        Subject::Made(thing) => Box::pin(node.search_or_home(thing)).await,
        Subject::Sandbox(which) => {
            let which = api.registry().resolve(which.clone());
            Box::pin(node.route_or_search(&which)).await
        }
    };
    match route {
        Route::Here => Ok(None),
        Route::There(placement) => Ok(Some(placement)),
        Route::Lost { node, incarnation, returns } => {
            Err(lost(subject, &node, &incarnation, returns))
        }
        Route::Unknown { why } => {
            let message = format!("where {subject} is cannot be found out now: {why}");
            Err(Refusal::new(Code::Unavailable, message).retry_after(BUSY_PAUSE))
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sandbox(which) => write!(f, "{which}"),
            Self::Thing(thing) | Self::Made(thing) => write!(f, "{thing}"),
        }
    }
}

/// The life that a refusal says was lost.
pub fn lost_life(refusal: &Refusal) -> Option<LostLife> {
    let details = refusal.details.as_ref().filter(|_| refusal.reason == Some(Reason::Lost))?;
    let text = |name: &str| details.get(name)?.as_str().map(str::to_owned);
    Some(LostLife { node: text("node")?, incarnation: text("incarnation")? })
}

/// A refusal with what is left of the sandbox, where it says that one was lost.
pub async fn with_remains(api: &Api, subject: &Subject, refusal: Refusal) -> Refusal {
    let named = (api.node(), lost_life(&refusal), subject);
    let (Some(node), Some(life), Subject::Sandbox(which)) = named else { return refusal };
    // What cannot be read now is left out.
    let Ok(left) = node.remains(which, (&life.node, &life.incarnation)).await else {
        return refusal;
    };
    refusal.details(serde_json::json!({
        "at_ms": left.at_ms,
        "last_durable_offset": left.last_durable_offset,
    }))
}

/// A lost sandbox that is removed is not made again. The removal is refused like any other call: it is gone.
pub async fn given_up(api: &Api, subject: &Subject, refusal: Refusal) -> Refusal {
    let Some((life, node, Subject::Sandbox(which))) =
        lost_life(&refusal).zip(api.node()).map(|(life, node)| (life, node, subject))
    else {
        return refusal;
    };
    match node.give_up(which, &life.incarnation).await {
        Ok(()) => with_remains(api, subject, refusal).await.hint("it is not made again"),
        Err(refused) => Refusal::new(refused.code, refused.why).retry_after(BUSY_PAUSE),
    }
}
