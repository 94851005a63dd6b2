//! Sandboxes over Daytona's API: made, looked at, started and stopped, given more time, copied, removed.
//!
//! ```text
//!  started ── stop: its programs and contexts end ──▶ stopped (paused) ── start ──▶ started
//!     └────── pause, or idle for too long ──────────▶ stopped (paused, with all that runs)
//! ```
//!
//! Daytona keeps the files of a stopped sandbox, and so a stop is a pause here. One that was idle also goes on
//! with the next call into it.

use hyper::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{API, lacking};
use super::create::{Create, Reach, delete_interval};
use super::limits::{MINUTE_MS, STOP_WAIT_MAX};
use super::listing;
use super::replies::{is_ephemeral, proxy, shown, shown_as};
use super::seat::find;
use crate::body::json_response;
use crate::call::Call;
use crate::creation::{drawn_name, permitted};
use crate::placing;
use crate::route::{Operation, operation};
use crate::sessions::end_all::end_all;
use crate::shape::{Json, MaybeJson, Nothing, Raw};
use node::Placed;
use sandbox::refusal::{Code, Refusal};
use sandbox::{ForkRequest, Record, SandboxError, State, Update};

pub fn operations() -> Vec<Operation> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let all = "/daytona/sandbox";
    let one = "/daytona/sandbox/{sandbox}";
    let looks = [
        operation(get.clone(), all, "daytona_list", "List sandboxes.", listing::list),
        operation(get.clone(), one, "daytona_get", "One sandbox.", get_one),
        operation(
            get,
            "/daytona/sandbox/{sandbox}/toolbox-proxy-url",
            "daytona_proxy",
            "Where the toolbox of a sandbox is.",
            proxy_url,
        ),
    ];
    let changes = [
        operation(post.clone(), all, "daytona_create", "Make a sandbox.", create),
        operation(delete, one, "daytona_delete", "End and remove a sandbox.", remove),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/start",
            "daytona_start",
            "Start a sandbox that has stopped.",
            start,
        ),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/stop",
            "daytona_stop",
            "Stop a sandbox.",
            stop,
        ),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/pause",
            "daytona_pause",
            "Pause a sandbox.",
            pause,
        ),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/last-activity",
            "daytona_activity",
            "Say that a sandbox is used.",
            activity,
        ),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/fork",
            "daytona_fork",
            "Make a copy of a running sandbox.",
            fork,
        ),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/snapshot",
            "daytona_snapshot",
            "Take a snapshot.",
            snapshot,
        ),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/public/{value}",
            "daytona_public",
            "Say whether ports are public.",
            public,
        ),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/autostop/{minutes}",
            "daytona_auto_stop",
            "Set how long it may be idle.",
            set_idle,
        ),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/autopause/{minutes}",
            "daytona_auto_pause",
            "Set how long it may be idle.",
            set_idle,
        ),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/ttl/{minutes}",
            "daytona_ttl",
            "Set how long it lives.",
            set_ttl,
        ),
        operation(
            post.clone(),
            "/daytona/sandbox/{sandbox}/network-settings",
            "daytona_network",
            "Change what a sandbox may reach.",
            set_network,
        ),
        operation(
            post,
            "/daytona/sandbox/{sandbox}/autodelete/{minutes}",
            "daytona_auto_delete",
            "Say whether it is removed when it stops.",
            set_delete,
        ),
    ]
    .map(Operation::run);
    let operations = looks.into_iter().chain(changes);
    operations.map(|operation| operation.refusing(API)).collect()
}

/// A name for what is made of a sandbox.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct Named {
    name: Option<String>,
    /// Absent means yes.
    include_memory: Option<bool>,
}

fn answer(call: &Call, record: &Record) -> Raw {
    Raw(json_response(StatusCode::OK, &shown(call, record)))
}

async fn create(call: Call, _: Nothing, Json(ask): Json<Create>) -> Result<Raw, Refusal> {
    let spec = ask.into_spec(&call)?;
    let asked = spec.image.clone().unwrap_or_default();
    let spec = permitted(&call.api, &call.caller, spec).map_err(|refusal| {
        // The clients know an image that is not there by the status.
        let is_unknown = refusal.code == Code::Unsupported && refusal.message.starts_with("image:");
        let message = format!("{asked:?} was not found: {}", refusal.message);
        if is_unknown { Refusal { code: Code::NotFound, message, ..refusal } } else { refusal }
    })?;
    call.trail.creation(&spec);
    let placed = match placing::place(&call, &spec).await? {
        Placed::Here(placed) => placed,
        Placed::There(to) => return Ok(Raw(placing::sent_on(call, &to).await?)),
    };
    let record = call.api.registry().create_placed(spec, placed).await?;
    Ok(answer(&call, &record))
}

async fn get_one(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    Ok(answer(&call, &record))
}

async fn proxy_url(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    find(&call)?;
    Ok(Raw(json_response(StatusCode::OK, &json!({ "url": proxy(&call) }))))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    discard(&call, &record).await?;
    Ok(Raw(json_response(StatusCode::OK, &shown_as(&call, &record, "destroyed"))))
}

async fn discard(call: &Call, record: &Record) -> Result<(), Refusal> {
    match call.api.registry().remove(&record.which(), true).await {
        // Its own end was quicker.
        Ok(_) | Err(SandboxError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn start(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    if !matches!(record.state, State::Paused { .. }) {
        return Ok(answer(&call, &record));
    }
    let record = call.api.registry().resume(&record.which()).await?;
    Ok(answer(&call, &record))
}

async fn stop(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    if is_ephemeral(&record) {
        discard(&call, &record).await?;
        return Ok(Raw(json_response(StatusCode::OK, &shown_as(&call, &record, "destroyed"))));
    }
    let (which, registry) = (record.which(), call.api.registry());
    // One that is asleep would be woken by the next call.
    let is_awake = if record.state.is_asleep() {
        matches!(registry.resume(&which).await?.state, State::Running)
    } else {
        matches!(record.state, State::Running)
    };
    if is_awake {
        end_all(&registry.guest(&which)?, STOP_WAIT_MAX).await?;
    }
    let record = registry.pause(&which).await?;
    Ok(answer(&call, &record))
}

async fn pause(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    let record = call.api.registry().pause(&record.which()).await?;
    Ok(answer(&call, &record))
}

async fn activity(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    if matches!(record.state, State::Running) {
        call.enter(record.which()).await?;
    }
    Ok(Raw(json_response(StatusCode::OK, &Value::Null)))
}

fn minutes(call: &Call) -> Result<u64, Refusal> {
    call.parameter::<u64>("minutes").map(|minutes| minutes.saturating_mul(MINUTE_MS))
}

async fn set_idle(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let which = find(&call)?.which();
    let idle_ms = minutes(&call)?;
    let update = Update { idle_ttl_ms: Some(idle_ms), ..Update::default() };
    let record = call.api.registry().update(&which, update).await?;
    Ok(answer(&call, &record))
}

async fn set_network(call: Call, _: Nothing, Json(reach): Json<Reach>) -> Result<Raw, Refusal> {
    let which = find(&call)?.which();
    let update = Update::egress_or(reach.egress(), call.api.registry(), &which.namespace);
    let record = call.api.registry().update(&which, update).await?;
    Ok(answer(&call, &record))
}

async fn set_ttl(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let which = find(&call)?.which();
    let ttl_ms = minutes(&call)?;
    let update = Update { ttl_ms: Some(ttl_ms), ..Update::default() };
    let record = call.api.registry().update(&which, update).await?;
    Ok(answer(&call, &record))
}

async fn set_delete(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    if delete_interval(call.parameter("minutes")?)? == is_ephemeral(&record) {
        return Ok(answer(&call, &record));
    }
    Err(lacking("a change of auto_delete_interval; set it when you make the sandbox"))
}

async fn public(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    let wanted: bool = call.parameter("value")?;
    if wanted == call.api.previews().is_public(&record.namespace) {
        return Ok(answer(&call, &record));
    }
    Err(lacking("a change of `public`; the operator says which namespaces are"))
}

async fn fork(call: Call, _: Nothing, MaybeJson(ask): MaybeJson<Named>) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    let name = match ask.name {
        Some(name) => name.parse().map_err(|error| Refusal::invalid(format!("name: {error}")))?,
        None => drawn_name("daytona")?,
    };
    let request = ForkRequest {
        names: vec![name],
        key: call.caller.key(),
        keep_stopped_ms: Some(0),
        ..ForkRequest::default()
    };
    let forked = call.api.registry().fork(&record.which(), request).await?;
    let copy = forked.forks.first();
    let copy = copy.ok_or_else(|| Refusal::new(Code::Internal, "no copy"))?;
    Ok(answer(&call, copy))
}

async fn snapshot(call: Call, _: Nothing, Json(ask): Json<Named>) -> Result<Raw, Refusal> {
    let record = find(&call)?;
    if ask.include_memory == Some(false) {
        return Err(lacking("snapshots of the files alone"));
    }
    let name = ask.name.ok_or_else(|| Refusal::invalid("name is missing"))?;
    let name = name.parse().map_err(|error| Refusal::invalid(format!("name: {error}")))?;
    call.api.registry().snapshot(&record.which(), name).await?;
    Ok(answer(&call, &record))
}
