//! The sandbox that a call of envd or of the code interpreter is for, and who may call it.

use hyper::header::{HeaderMap, HeaderName};

use super::account::{Account, account, requested};
use super::answer::gone;
use super::passes::{self, is_token};
use super::place::Place;
use super::replies::wakes_itself;
use crate::Api;
use crate::call::{Call, Inside};
use crate::caller::Caller;
use crate::proxy::{Visit, admit};
use crate::route::Asked;
use machine::SandboxId;
use sandbox::SandboxRef;
use sandbox::refusal::Refusal;

const TOKEN: HeaderName = HeaderName::from_static("x-access-token");
/// The only one that the calls about contexts carry.
const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");

/// A running sandbox, and who acts in it.
pub struct Seat {
    pub inside: Inside,
    pub account: Account,
}

/// The sandbox of a request.
pub fn find(api: &Api, headers: &HeaderMap) -> Result<(SandboxRef, SandboxId), Refusal> {
    let Some(place) = Place::of(headers) else {
        return Err(Refusal::invalid("the header E2b-Sandbox-Id is missing"));
    };
    let id: Option<SandboxId> = place.sandbox.parse().ok();
    let found = id.and_then(|id| Some((api.registry().find(&id)?, id)));
    found.ok_or_else(|| gone(place.sandbox))
}

/// Lets in by the token of the sandbox, or by a key.
pub fn known(api: &Api, asked: &Asked<'_>) -> Result<Caller, Refusal> {
    let (which, id) = find(api, asked.headers)?;
    let token = [TOKEN, TRAFFIC_TOKEN].iter().find_map(|name| asked.headers.get(name));
    let caller = match token.and_then(|token| token.to_str().ok()) {
        Some(token) => passes::holder(api, (&which, &id), token, asked.peer),
        None => asked.admit(api),
    }?;
    if caller.covers(&which.namespace) { Ok(caller) } else { Err(gone(id.as_str())) }
}

/// The same at a port of a program, which may also be reached by a link to it, or be for everybody.
pub fn known_at_port(api: &Api, asked: &Asked<'_>) -> Result<Caller, Refusal> {
    if [TOKEN, TRAFFIC_TOKEN].iter().any(|name| is_token(asked.headers.get(name))) {
        return known(api, asked);
    }
    let Some(Place { sandbox, port }) = Place::of(asked.headers) else {
        return Err(Refusal::invalid("the header E2b-Sandbox-Id is missing"));
    };
    let found = find(api, asked.headers).ok();
    let visit = Visit { which: found.as_ref().map(|(which, _)| which), port };
    admit(api, asked, &visit, || gone(sandbox))
}

/// The sandbox of a call, if it runs.
pub async fn inside(call: &Call) -> Result<Inside, Refusal> {
    let (which, _) = find(&call.api, &call.headers)?;
    call.trail.sandbox(&which);
    enter(call, which).await
}

/// A sandbox that a client works in. One that is asleep is woken, if its client has asked for that.
pub async fn enter(call: &Call, which: SandboxRef) -> Result<Inside, Refusal> {
    let record = call.api.registry().get(&which)?;
    if record.state.is_asleep() && !wakes_itself(&record) {
        return Err(gone(record.id.as_str()));
    }
    call.enter(which).await
}

impl Seat {
    pub async fn of(call: &Call) -> Result<Self, Refusal> {
        let inside = inside(call).await?;
        let account = account(&call.api, &inside, requested(&call.headers).as_deref()).await?;
        Ok(Self { inside, account })
    }
}

/// The environment of every program, under any account.
pub fn environment(inside: &Inside, account: &Account) -> Vec<(String, String)> {
    let mut env = vec![
        ("E2B_SANDBOX".to_owned(), "true".to_owned()),
        ("E2B_SANDBOX_ID".to_owned(), inside.id.to_string()),
    ];
    if account.user.is_none() {
        env.push(("HOME".to_owned(), account.home.clone()));
    }
    env
}
