//! Snapshots and forks over E2B's REST calls. A snapshot is a template for the keys of its namespace.

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::answer::CONTROL;
use super::connect::Message;
use super::control::{draw, seat};
use super::forms::{Fork, TakeSnapshot, field, fields, lacking, millis};
use super::limits::{FORKS_MAX, TIMEOUT_SECONDS_DEFAULT};
use super::page::{self, PageQuery};
use super::replies::connected;
use crate::body::json_response;
use crate::call::Call;
use crate::gather::Order;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Raw};
use sandbox::refusal::Refusal;
use sandbox::snapshot::Snapshot;
use sandbox::{ForkRequest, Name, Record};

pub fn operations() -> Vec<Operation> {
    let one = "/sandboxes/{sandbox}/snapshots";
    [
        operation(Method::POST, one, "e2b_snapshot", "Take a snapshot.", take).run(),
        operation(Method::GET, "/snapshots", "e2b_snapshots", "List snapshots.", list),
        operation(
            Method::POST,
            "/sandboxes/{sandbox}/fork",
            "e2b_fork",
            "Make copies of a running sandbox.",
            fork,
        )
        .run(),
    ]
    .map(|operation| operation.refusing(CONTROL))
    .to_vec()
}

fn shown(name: &Name) -> Value {
    json!({ "snapshotID": name, "names": [name] })
}

async fn take(call: Call, _: Nothing, Message(ask): Message<TakeSnapshot>) -> Result<Raw, Refusal> {
    let record = seat(&call)?;
    if ask.memory == Some(false) {
        return Err(lacking("snapshots of the files alone"));
    }
    let name = match ask.name {
        Some(name) => name.parse().map_err(|error| Refusal::invalid(format!("name: {error}")))?,
        None => draw(&call)?.name,
    };
    let snapshot = call.api.registry().snapshot(&record.which(), name).await?;
    Ok(Raw(json_response(StatusCode::CREATED, &shown(&snapshot.name))))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let fields = fields(&call)?;
    let (of_sandbox, named) = (field(&fields, "sandboxID"), field(&fields, "name"));
    let namespace = call.one_namespace(None)?;
    let mut all = call.api.registry().snapshots(namespace.as_ref());
    all.retain(|snapshot| {
        of_sandbox.is_none_or(|id| snapshot.id.as_str() == id)
            && named.is_none_or(|name| snapshot.name.as_str() == name)
    });
    let place = |snapshot: &Snapshot| format!("{}/{}", snapshot.namespace, snapshot.name);
    all.sort_by_cached_key(place);
    let query = PageQuery::read(&fields, Order::Ascending)?;
    Ok(Raw(page::answer(query.part(&all, place, |snapshot| shown(&snapshot.name)))))
}

async fn fork(call: Call, _: Nothing, Message(ask): Message<Fork>) -> Result<Raw, Refusal> {
    let record = seat(&call)?;
    let count = ask.count.unwrap_or(1);
    if !(1..=FORKS_MAX).contains(&count) {
        return Err(Refusal::invalid(format!("count must be from 1 to {FORKS_MAX}")));
    }
    let names: Result<Vec<Name>, Refusal> =
        (0..count).map(|_| draw(&call).map(|drawn| drawn.name)).collect();
    let request = ForkRequest {
        names: names?,
        key: call.caller.key(),
        ttl_ms: Some(millis(ask.timeout.unwrap_or(TIMEOUT_SECONDS_DEFAULT))?),
        keep_stopped_ms: Some(0),
        // E2B's forks have what runs in their original.
        needs_memory: true,
        ..ForkRequest::default()
    };
    let forked = call.api.registry().fork(&record.which(), request).await?;
    let shown = |fork: &Record| Ok(json!({ "sandbox": connected(&call, fork)? }));
    let copies: Result<Vec<Value>, Refusal> = forked.forks.iter().map(shown).collect();
    Ok(Raw(json_response(StatusCode::CREATED, &copies?)))
}
