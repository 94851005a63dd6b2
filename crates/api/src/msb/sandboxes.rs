//! Sandboxes over microsandbox's API: made, looked at, listed, stopped and started, removed.
//!
//! ```text
//!  running ── stop: its programs and contexts end ──▶ stopped (paused) ── start ──▶ running
//!     ├────── stop of an ephemeral one ───────────────▶ stopped ── a moment ──▶ removed
//!     └────── remove ─────────────────────────────────▶ removed
//! ```
//!
//! microsandbox keeps the files of a stopped sandbox, and so a stop is a pause here. One that was idle sleeps,
//! and goes on with the next call into it: to the clients it runs.

use std::collections::BTreeMap;

use hyper::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::API;
use super::create::Create;
use super::limits::{PAGE_DEFAULT, PAGE_MAX, STOP_GRACE, STOP_WAIT_MAX};
use super::seat::{find, is_ephemeral, is_there};
use crate::body::json_response;
use crate::call::Call;
use crate::creation::permitted;
use crate::placing;
use crate::route::{Operation, operation};
use crate::sessions::end_all::end_all;
use crate::shape::{Json, MaybeJson, Nothing, Query, Raw};
use host::instant::format;
use node::Placed;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Record, SandboxError, State};

pub fn operations() -> Vec<Operation> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let all = "/msb/v1/sandboxes";
    let one = "/msb/v1/sandboxes/{sandbox}";
    let named = "/msb/v1/sandboxes/by-name/{sandbox}";
    let looks = [
        operation(get.clone(), all, "msb_list", "List sandboxes.", list),
        operation(get.clone(), named, "msb_get", "One sandbox by its name.", get_one),
        operation(get, one, "msb_get", "One sandbox.", get_one),
    ];
    let changes = [
        operation(post.clone(), all, "msb_create", "Make a sandbox.", create),
        operation(delete.clone(), named, "msb_remove", "End and remove a sandbox.", remove),
        operation(delete, one, "msb_remove", "End and remove a sandbox.", remove),
        operation(
            post.clone(),
            "/msb/v1/sandboxes/by-name/{sandbox}/stop",
            "msb_stop",
            "Stop a sandbox.",
            stop,
        ),
        operation(
            post.clone(),
            "/msb/v1/sandboxes/{sandbox}/stop",
            "msb_stop",
            "Stop a sandbox.",
            stop,
        ),
        operation(
            post.clone(),
            "/msb/v1/sandboxes/by-name/{sandbox}/start",
            "msb_start",
            "Start a sandbox that has stopped.",
            start,
        ),
        operation(
            post,
            "/msb/v1/sandboxes/{sandbox}/start",
            "msb_start",
            "Start a sandbox that has stopped.",
            start,
        ),
    ]
    .map(Operation::run);
    looks.into_iter().chain(changes).map(|operation| operation.refusing(API)).collect()
}

/// How long a client waits for a sandbox. A sandbox that is answered runs, or there is a refusal.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Waiting {
    start: Option<bool>,
    wait_for: Option<String>,
    wait_timeout: Option<u64>,
}

/// Which sandboxes are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Wanted {
    cursor: Option<String>,
    limit: Option<usize>,
    /// An object of JSON.
    labels: Option<String>,
}

/// The clients send an empty object.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Empty {}

/// The clients' word for a state.
fn state(record: &Record) -> &'static str {
    match record.state {
        State::Creating => "starting",
        State::Running => "running",
        State::Paused { .. } if record.state.is_asleep() => "running",
        State::Paused { .. } | State::Stopped { .. } => "stopped",
        State::Stopping => "stopping",
        State::Lost { .. } | State::Damaged { .. } => "failed",
    }
}

fn shown(record: &Record) -> Value {
    let created = format(record.created_at_ms);
    let reason = match &record.state {
        State::Lost { reason } | State::Damaged { reason } => Some(reason),
        _ => None,
    };
    json!({
        "id": record.id,
        "org_id": record.namespace,
        "name": record.name,
        "slug": record.name,
        "status": state(record),
        "ephemeral": is_ephemeral(record),
        "created_at": created,
        "started_at": created,
        "last_failure_message": reason,
    })
}

fn answer(record: &Record) -> Raw {
    Raw(json_response(StatusCode::OK, &shown(record)))
}

async fn create(
    call: Call,
    Query(wait): Query<Waiting>,
    Json(ask): Json<Create>,
) -> Result<Raw, Refusal> {
    check(&wait)?;
    let spec = ask.into_spec(&call)?;
    let spec = permitted(&call.api, &call.caller, spec)?;
    call.trail.creation(&spec);
    let placed = match placing::place(&call, &spec).await? {
        Placed::Here(placed) => placed,
        Placed::There(to) => return Ok(Raw(placing::sent_on(call, &to).await?)),
    };
    let record = call.api.registry().create_placed(spec, placed).await?;
    Ok(answer(&record))
}

/// A sandbox is started with its creation, and its creation waits until it runs.
fn check(wait: &Waiting) -> Result<(), Refusal> {
    if let Some(other) = wait.wait_for.as_deref().filter(|state| *state != "running") {
        return Err(Refusal::invalid(format!("wait_for must be running, not {other:?}")));
    }
    // The server's own bounds hold, whatever a client waits for.
    let _ = (wait.start, wait.wait_timeout);
    Ok(())
}

async fn get_one(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    Ok(answer(&find(&call)?))
}

async fn list(call: Call, Query(wanted): Query<Wanted>, _: Nothing) -> Result<Raw, Refusal> {
    let limit = wanted.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Refusal::invalid(format!("limit must be from 1 to {PAGE_MAX}, not {limit}")));
    }
    let labels: BTreeMap<String, String> = match wanted.labels.as_deref() {
        None => BTreeMap::new(),
        Some(text) => serde_json::from_str(text).map_err(|error| {
            Refusal::invalid(format!("labels is no object of JSON with texts: {error}"))
        })?,
    };
    let namespace = call.one_namespace(None)?;
    let mut records = call.api.registry().list(namespace.as_ref());
    let has_labels =
        |record: &Record| labels.iter().all(|(key, value)| record.labels.get(key) == Some(value));
    records.retain(|record| is_there(record) && has_labels(record));
    let place = |record: &Record| format!("{:016x}-{}", record.created_at_ms, record.id);
    records.sort_by_cached_key(place);
    let is_after = |record: &&Record| {
        wanted.cursor.as_deref().is_none_or(|cursor| place(record).as_str() > cursor)
    };
    let mut rest = records.iter().filter(is_after);
    let page: Vec<&Record> = rest.by_ref().take(limit).collect();
    let next = page.last().filter(|_| rest.next().is_some()).map(|last| place(last));
    let data: Vec<Value> = page.into_iter().map(shown).collect();
    Ok(Raw(json_response(StatusCode::OK, &json!({ "data": data, "next_cursor": next }))))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    discard(&call, &record).await?;
    let message = format!("the sandbox {} was removed", record.name);
    Ok(Raw(json_response(StatusCode::OK, &json!({ "message": message }))))
}

async fn discard(call: &Call, record: &Record) -> Result<(), Refusal> {
    match call.api.registry().remove(&record.which(), true).await {
        // Its own end was quicker.
        Ok(_) | Err(SandboxError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn start(
    call: Call,
    Query(wait): Query<Waiting>,
    MaybeJson(_): MaybeJson<Empty>,
) -> Result<Raw, Refusal> {
    check(&wait)?;
    let record = find(&call)?;
    if !matches!(record.state, State::Paused { .. }) {
        return Ok(answer(&record));
    }
    let record = call.api.registry().resume(&record.which()).await?;
    Ok(answer(&record))
}

async fn stop(call: Call, _: Nothing, MaybeJson(_): MaybeJson<Empty>) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    if is_ephemeral(&record) {
        let record = call.api.registry().stop(&record.which(), STOP_GRACE).await?;
        return Ok(answer(&record));
    }
    if matches!(record.state, State::Paused { .. }) && !record.state.is_asleep() {
        return Ok(answer(&record));
    }
    let (which, registry) = (record.which(), call.api.registry());
    // A machine that cannot pause refuses before any program has ended.
    registry.pause(&which).await.map_err(|error| {
        let refusal = Refusal::from(error);
        if refusal.code != Code::Unsupported {
            return refusal;
        }
        refusal.hint("remove it, or make it with ephemeral=True: a stop then removes it")
    })?;
    registry.resume(&which).await?;
    end_all(&registry.guest(&which)?, STOP_WAIT_MAX).await?;
    let record = registry.pause(&which).await?;
    Ok(answer(&record))
}
