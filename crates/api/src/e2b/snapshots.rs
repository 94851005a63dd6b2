//! Snapshots and forks over E2B's REST calls. A snapshot is a template for the keys of its namespace.

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::answer::CONTROL;
use super::connect::Message;
use super::control::{draw, page, seat};
use super::forms::{Fork, TakeSnapshot, field, fields, lacking, millis};
use super::limits::{FORKS_MAX, TIMEOUT_SECONDS_DEFAULT};
use super::replies::connected;
use crate::body::json_response;
use crate::call::Call;
use crate::creation::{namespace_of, permitted};
use crate::problem::status;
use crate::route::{Operation, operation};
use crate::shape::{Done, Nothing, Raw};
use sandbox::refusal::Refusal;
use sandbox::snapshot::Snapshot;
use sandbox::{Name, Record, SandboxRef, Spec};

pub fn operations() -> Vec<Operation> {
    let one = "/sandboxes/{sandbox}/snapshots";
    [
        operation(Method::POST, one, "e2b_snapshot", "Take a snapshot.", take).run(),
        operation(Method::GET, "/snapshots", "e2b_snapshots", "List snapshots.", list),
        operation(
            Method::DELETE,
            "/templates/{template}",
            "e2b_remove_snapshot",
            "Remove a snapshot.",
            remove,
        )
        .run(),
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
    page(&fields, &all, place, |snapshot| shown(&snapshot.name), true)
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let template: String = call.parameter("template")?;
    let missing = || Refusal::not_found(format!("there is no template {template:?}"));
    let name: Name = template.parse().map_err(|_| missing())?;
    let which = SandboxRef { namespace: namespace_of(&call.caller, None), name };
    call.api.registry().remove_snapshot(&which).await?;
    Ok(Done)
}

/// Copies are made of a snapshot that is removed again: sandboxes do not need the one that they come of.
async fn fork(call: Call, _: Nothing, Message(ask): Message<Fork>) -> Result<Raw, Refusal> {
    let record = seat(&call)?;
    let count = ask.count.unwrap_or(1);
    if !(1..=FORKS_MAX).contains(&count) {
        return Err(Refusal::invalid(format!("count must be from 1 to {FORKS_MAX}")));
    }
    let ttl_ms = millis(ask.timeout.unwrap_or(TIMEOUT_SECONDS_DEFAULT))?;
    let snapshot = call.api.registry().snapshot(&record.which(), draw(&call)?.name).await?;
    let mut copies = Vec::with_capacity(count as usize);
    for _ in 0..count {
        copies.push(match copy(&call, &record, &snapshot.name, ttl_ms).await {
            Ok(copy) => json!({ "sandbox": copy }),
            Err(refusal) => {
                let code = status(refusal.code).as_u16();
                json!({ "error": { "code": code, "message": refusal.message } })
            }
        });
    }
    call.api.registry().remove_snapshot(&snapshot.which()).await?;
    Ok(Raw(json_response(StatusCode::CREATED, &copies)))
}

async fn copy(
    call: &Call,
    record: &Record,
    snapshot: &Name,
    ttl_ms: u64,
) -> Result<Value, Refusal> {
    let name = draw(call)?.name;
    let mut spec = Spec::new(SandboxRef { namespace: record.namespace.clone(), name });
    spec.snapshot = Some(snapshot.clone());
    spec.labels = record.labels.clone();
    // Whatever the operator's defaults have become: a copy reaches what its original does, and no more.
    spec.egress = Some(record.egress.clone());
    spec.user = record.user.clone();
    spec.workdir = record.workdir.clone();
    spec.idle_ttl_ms = record.idle_ttl_ms;
    spec.on_idle = Some(record.on_idle);
    spec.ttl_ms = Some(ttl_ms);
    spec.keep_stopped_ms = Some(0);
    let spec = permitted(&call.api, &call.caller, spec)?;
    let copy = call.api.registry().create(spec).await?;
    connected(call, &copy)
}
