//! Makes sandboxes again that were lost with their node.
//!
//! ```text
//!  node says which ─▶ is it still lost? ─▶ place ─▶ here: from what was kept, or from what was exported of it
//!                                             └──▶ there: that node is asked to, and reads the same
//! ```
//!
//! No client waits for it. What does not succeed is tried again for a while, with longer and longer pauses; after that it is
//! a trouble for the operator, and each later scan of names begins again while the name is lost.

use std::collections::HashSet;

use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::http::uri::PathAndQuery;

use super::Api;
use super::body::JSON;
use super::call::{Call, Target};
use super::caller::Caller;
use super::forward::{self, Sender};
use super::limits::{RETURN_ATTEMPTS, RETURNS_AT_ONCE};
use super::operator::operator;
use super::route::{Operation, operation};
use super::shape::{Nothing, Reply};
use crate::forms::sandboxes::Sandbox;
use node::{LostOne, Node, Placed, Placement, Waiting};
use sandbox::refusal::{Code, Refusal};
use sandbox::{Followed, InvalidName, Name, NameRefused, Returning, SandboxRef};
use tokio::task::JoinSet;
use workspace::s3::{InvalidObjectUrl, ObjectUrl};

const RETURN: &str = "/.fleet/return/{namespace}/{name}";
/// Characters of a life in the name of the snapshot that its successor begins with.
const LIFE_CHARS: usize = 12;

pub fn operations() -> Vec<Operation> {
    let about = "For other nodes.";
    let operation = operation(Method::POST, RETURN, "fleet_return", about, there);
    vec![operation.known_by(operator).tag("fleet").undocumented().run()]
}

/// Makes lost sandboxes again until the bridge ends.
pub async fn keep(api: Api) {
    let Some(mut waiting) = api.node().and_then(Node::waiting) else { return };
    let (mut returning, mut under_way) = (JoinSet::new(), HashSet::new());
    loop {
        tokio::select! {
            lost = waiting.recv(), if returning.len() < RETURNS_AT_ONCE => {
                let Some(lost) = lost else { return };
                // A scan of names finds it once more while it is tried.
                if under_way.insert(lost.clone()) {
                    returning.spawn(bring_back(api.clone(), lost));
                }
            }
            Some(ended) = returning.join_next() => {
                match ended {
                    Ok(lost) => under_way.remove(&lost),
                    // A fault in one of them; which one is not known any more.
                    Err(_) => std::mem::take(&mut under_way).is_empty(),
                };
            }
        }
    }
}

async fn bring_back(api: Api, lost: Waiting) -> Waiting {
    let Some(node) = api.node() else { return lost };
    // What the name was taken with again: if the sandbox does not start, the name is free, and lost no more.
    let mut taken = None;
    for attempt in 0..RETURN_ATTEMPTS {
        match once(&api, node, &lost, &mut taken).await {
            Ok(true) => return lost,
            Ok(false) => {}
            // Somebody has used the name meanwhile.
            Err(error) if error.code == Code::Conflict && taken.is_some() => return lost,
            Err(error) => {
                let is_last = attempt + 1 == RETURN_ATTEMPTS;
                let after = if is_last { "and could not be" } else { "and is not" };
                let what = format!("it was lost with its node, {after} made again: {error}");
                api.registry().report(lost.which.clone(), what);
            }
        }
        tokio::time::sleep(node::pause_after(attempt)).await;
    }
    lost
}

/// Says whether there is nothing left to do.
async fn once(
    api: &Api,
    node: &Node,
    lost: &Waiting,
    taken: &mut Option<(Box<Returning>, Followed)>,
) -> Result<bool, Refusal> {
    let is_first = taken.is_none();
    let (returning, mut followed) = match taken.clone() {
        Some(taken) => taken,
        None => match node.lost_one(lost).await.map_err(refusal)? {
            LostOne::Waits(returning, followed) => (returning, followed),
            LostOne::NotYet => return Ok(false),
            LostOne::Over => return Ok(true),
        },
    };
    let snapshot = import(api, &returning, &followed).await?;
    followed.snapshot = snapshot.as_ref().map(|which| which.name.clone());
    let life = is_first.then_some(lost.incarnation.as_str());
    let made = match node.place_again(&returning, snapshot.is_some(), life).await {
        Ok(placed) => {
            *taken = Some((returning.clone(), followed.clone()));
            match placed {
                Placed::Here(Some(life)) => {
                    let registry = api.registry();
                    registry
                        .create_again(*returning, followed, life)
                        .await
                        .map(drop)
                        .map_err(Refusal::from)
                }
                Placed::Here(None) => Err(Refusal::new(Code::Internal, "it was given no life")),
                Placed::There(to) => tell(api, &to, (&returning, &followed)).await,
            }
        }
        Err(refused) => Err(refusal(refused)),
    };
    if let Some(snapshot) = snapshot {
        // It has been read, or is imported again.
        let _ = api.registry().remove_snapshot(&snapshot).await;
    }
    made.map(|()| true)
}

fn refusal(refused: NameRefused) -> Refusal {
    Refusal::new(refused.code, refused.why)
}

/// Imports what was exported of it last, if it begins with that.
async fn import(
    api: &Api,
    returning: &Returning,
    followed: &Followed,
) -> Result<Option<SandboxRef>, Refusal> {
    let Some(object) = &followed.exported else { return Ok(None) };
    let from: ObjectUrl =
        object.parse().map_err(|error: InvalidObjectUrl| Refusal::invalid(error.to_string()))?;
    let life: String = followed.incarnation.chars().take(LIFE_CHARS).collect();
    let namespace = returning.spec.namespace.clone();
    let name: Name = format!("returns-{life}")
        .parse()
        .map_err(|error: InvalidName| Refusal::invalid(error.to_string()))?;
    let which = SandboxRef { namespace, name };
    // What an earlier attempt has left.
    let _ = api.registry().remove_snapshot(&which).await;
    let (registry, key) = (api.registry(), returning.spec.key.clone());
    registry.import_from_bucket(Some(which.clone()), &which.namespace, key, &from).await?;
    Ok(Some(which))
}

/// Has the node make it that has taken its name.
async fn tell(api: &Api, to: &Placement, what: (&Returning, &Followed)) -> Result<(), Refusal> {
    let SandboxRef { namespace, name } = what.0.spec.which();
    let place = RETURN.replace("{namespace}", namespace.as_str()).replace("{name}", name.as_str());
    let place =
        PathAndQuery::try_from(place).map_err(|error| Refusal::of(Code::Internal, &error))?;
    let target = Target { method: Method::POST, place };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON)]);
    let body = serde_json::to_vec(&what).map_err(|error| Refusal::of(Code::Internal, &error))?;
    let sender = Sender { api, caller: Caller::Local, is_operator: true };
    forward::post(sender, to, target, headers, body.into()).await.map(drop)
}

/// Makes one whose name another node has taken for this one.
async fn there(mut call: Call, _: Nothing, _: Nothing) -> Result<Reply<Sandbox>, Refusal> {
    let body = call.read_body().await?;
    let read: Result<(Returning, Followed), _> = serde_json::from_slice(&body);
    let (returning, followed) = read.map_err(|error| Refusal::invalid(error.to_string()))?;
    let life = call.sent_for.as_ref().and_then(|sent_for| sent_for.incarnation.clone());
    let life = life.ok_or_else(|| Refusal::invalid("no name was taken for it"))?;
    call.trail.creation(&returning.spec);
    let making = call.api.registry().create_again(returning, followed, life);
    Ok(Reply(call.trail.making(making).await?.into()))
}
