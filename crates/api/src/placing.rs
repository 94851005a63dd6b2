//! Has a new sandbox made at the node of the fleet that has room for it, whatever door asks.
//!
//! ```text
//!  door ─▶ specification ─▶ place ─▶ here: the registry makes it
//!                               └──▶ there: the request goes on (`sent_on`), or a create of the native API (`make_there`)
//! ```
//!
//! `node` decides. A request that goes on names the life that was taken for its sandbox; a door that draws a name takes
//! that of the life then.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::http::uri::PathAndQuery;
use serde_json::{Map, Value, json};

use super::Api;
use super::body::{JSON, Response};
use super::call::{Call, SentFor, Target};
use super::caller::Caller;
use super::forms::sandboxes::Sandbox;
use super::forward::{self, Sender};
use super::idempotency::IDEMPOTENCY_KEY;
use host::id::RandomId;
use node::{Placed, Placement, Placing};
use sandbox::refusal::{Code, Refusal};
use sandbox::{SandboxError, SandboxRef, Spec};

/// Where the sandbox of a call is made. `spec` is what the caller is permitted.
pub async fn place(call: &Call, spec: &Spec) -> Result<Placed, Refusal> {
    match &call.sent_for {
        Some(SentFor { gateway, incarnation }) => {
            call.trail.fact("gateway", gateway.as_str());
            Ok(Placed::Here(incarnation.clone()))
        }
        None => place_for(&call.api, spec, &request_of(call)?).await,
    }
}

/// The same where no request of a client can go on. `request` makes a repeated create the same one.
pub async fn place_for(api: &Api, spec: &Spec, request: &str) -> Result<Placed, Refusal> {
    let Some(node) = api.node() else { return Ok(Placed::Here(None)) };
    let registry = api.registry();
    let image_is_everywhere =
        spec.image.as_ref().is_some_and(|image| api.images().values().any(|root| root == image));
    let defaults = registry.defaults();
    // Boxed: few calls wait for it, and each has room for one.
    Ok(Box::pin(node.place(Placing { spec, defaults, request, image_is_everywhere })).await?)
}

/// The name that was taken for the sandbox of a call at another node, or the one that is drawn here.
pub fn name(
    call: &Call,
    draw: impl FnOnce() -> Result<SandboxRef, Refusal>,
) -> Result<SandboxRef, Refusal> {
    let life = call.sent_for.as_ref().and_then(|sent_for| sent_for.incarnation.as_deref());
    let taken = call.api.node().zip(life).and_then(|(node, life)| node.expects(life));
    taken.map_or_else(draw, Ok)
}

/// Sends the request of a call on to the node of its new sandbox.
pub async fn sent_on(mut call: Call, to: &Placement) -> Result<Response, Refusal> {
    let body = call.was_read.take();
    Box::pin(forward::forward(&mut call, to, body)).await
}

/// Has that node make a sandbox, for who asks here. `asked` is what was asked for, which it judges itself.
pub async fn make_there(
    api: &Api,
    (caller, is_operator): (&Caller, bool),
    to: &Placement,
    asked: &Spec,
) -> Result<Sandbox, Refusal> {
    let target = Target { method: Method::POST, place: PathAndQuery::from_static("/v1/sandboxes") };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON)]);
    let sender = Sender { api, caller: caller.clone(), is_operator };
    let body = Bytes::from(native(asked).to_string());
    let made = Box::pin(forward::post(sender, to, target, headers, body)).await?;
    serde_json::from_slice(&made).map_err(|error| {
        let message = format!("the node {} answers otherwise: {error}", to.node);
        Refusal::new(Code::Unavailable, message)
    })
}

/// A specification as the body of the native API's create.
pub fn native(spec: &Spec) -> Value {
    // Every field is named, so that a new one is thought about: the other node gets it, or need not.
    let Spec {
        namespace,
        name,
        machine,
        image,
        pull,
        snapshot,
        template,
        env,
        hostname,
        scratch_bytes,
        memory_mib,
        cpu_millis,
        workdir,
        user,
        labels,
        ttl_ms,
        idle_ttl_ms,
        on_idle,
        node_labels,
        durability,
        record,
        on_lost,
        keep_stopped_ms,
        egress,
        workspace,
        secrets,
        // What is of one host alone is made there, and is never sent on.
        base: _,
        packages: _,
        address: _,
        mount: _,
        volumes,
        // Nobody has them: they are refused before a node is chosen.
        ports: _,
        // The node that makes it decides these, by its own host and by who calls.
        is_on_disk: _,
        key: _,
        // No door has it: the library does, which sends nothing on.
        hide: _,
        // The fleet says it when it makes one again.
        follows: _,
    } = spec;
    let mut body = json!({
        "name": name,
        "namespace": namespace,
        "image": image,
        "pull": pull,
        "snapshot": snapshot,
        "template": template,
        "machine": machine.map(machine::MachineKind::name),
        "memory_mib": memory_mib,
        "cpus": cpu_millis.map(|millis| f64::from(millis) / 1000.0),
        "env": env.iter().cloned().map(|(key, value)| (key, value.into())).collect::<Map<_, _>>(),
        "workdir": workdir,
        "user": user,
        "hostname": hostname,
        "scratch_bytes": scratch_bytes,
        "labels": labels,
        "ttl_ms": ttl_ms,
        "idle_ttl_ms": idle_ttl_ms,
        "on_idle": on_idle,
        "node_labels": node_labels,
        "durability": durability,
        "record": record,
        "on_lost": on_lost,
        "keep_stopped_ms": keep_stopped_ms,
        "egress": egress,
        "workspace": workspace,
        "secrets": secrets,
        "volumes": volumes,
    });
    if let Value::Object(fields) = &mut body {
        fields.retain(|_, value| !value.is_null());
    }
    body
}

/// What makes a repeated create the same one, at whatever node.
fn request_of(call: &Call) -> Result<String, Refusal> {
    let key = call.headers.get(&IDEMPOTENCY_KEY).and_then(|key| key.to_str().ok());
    match key {
        Some(key) => Ok(format!("{}:{key}", call.caller.label())),
        None => drawn(),
    }
}

/// For a create that nobody repeats.
pub fn drawn() -> Result<String, Refusal> {
    Ok(RandomId::draw().map_err(SandboxError::Draw)?.to_string())
}
