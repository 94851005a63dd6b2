//! Sandboxes over E2B's REST calls: made, listed, looked at, given more time, paused, ended.

use hyper::Method;
use hyper::StatusCode;
use serde_json::Value;

use super::answer::CONTROL;
use super::connect::Message;
use super::forms::{
    Create, Mount, NetworkUpdate, Pause, Refresh, Timeout, field, fields, lacking, metadata, millis,
};
use super::limits::{TIMEOUT_SECONDS_DEFAULT, TIMEOUT_SECONDS_OLD};
use super::page::{self, PageQuery};
use super::replies::{
    AUTO_RESUME, OWN_LABELS, TEMPLATE, connected, detailed, is_there, is_usual, listed, state,
    template,
};
use crate::body::json_response;
use crate::call::Call;
use crate::creation::{drawn_name, namespace_of, permitted};
use crate::gather::{self, Order};
use crate::placing;
use crate::route::{Operation, operation};
use crate::samples;
use crate::shape::{Done, Nothing, Raw};
use host::instant::{now_ms, parse};
use node::Placed;
use sandbox::refusal::{Code, Refusal};
use sandbox::{
    Name, OnIdle, Record, SandboxError, SandboxRef, Spec, State, TemplateName, TemplateRef, Update,
};
use workspace::volume::VolumeMount;

pub fn operations() -> Vec<Operation> {
    let (v1, v2) = ("/sandboxes", "/v2/sandboxes");
    let one = "/sandboxes/{sandbox}";
    let (get, post, put, delete) = (Method::GET, Method::POST, Method::PUT, Method::DELETE);
    let connect = "/v2/sandboxes/{sandbox}/connect";
    let old_connect = "/sandboxes/{sandbox}/connect";
    [
        operation(post.clone(), v2, "e2b_create", "Make a sandbox.", create).run().idempotent(),
        operation(post.clone(), v1, "e2b_create_old", "Make a sandbox.", create_old)
            .run()
            .idempotent(),
        operation(get.clone(), v2, "e2b_list", "List sandboxes.", list),
        operation(get.clone(), v1, "e2b_list_old", "List sandboxes.", list),
        operation(get.clone(), one, "e2b_get", "One sandbox.", get_one),
        operation(delete, one, "e2b_kill", "End and remove a sandbox.", kill).run(),
        operation(
            post.clone(),
            "/sandboxes/{sandbox}/timeout",
            "e2b_timeout",
            "Set when a sandbox ends.",
            set_timeout,
        )
        .run(),
        operation(
            post.clone(),
            "/sandboxes/{sandbox}/refreshes",
            "e2b_refresh",
            "Give a sandbox more time.",
            refresh,
        )
        .run(),
        operation(post.clone(), connect, "e2b_connect", "Connect to a sandbox.", reconnect).run(),
        operation(post.clone(), old_connect, "e2b_connect_old", "Connect to it.", reconnect).run(),
        operation(
            post.clone(),
            "/sandboxes/{sandbox}/resume",
            "e2b_resume",
            "Resume a sandbox.",
            resume,
        )
        .run(),
        operation(post, "/sandboxes/{sandbox}/pause", "e2b_pause", "Pause a sandbox.", pause).run(),
        operation(
            get,
            "/sandboxes/{sandbox}/metrics",
            "e2b_metrics",
            "What a sandbox used.",
            metrics,
        ),
        operation(
            put,
            "/sandboxes/{sandbox}/network",
            "e2b_network",
            "Change what a sandbox may reach.",
            network,
        )
        .run(),
    ]
    .map(|operation| operation.refusing(CONTROL))
    .to_vec()
}

async fn create(call: Call, _: Nothing, message: Message<Create>) -> Result<Raw, Refusal> {
    make(call, message.0, TIMEOUT_SECONDS_DEFAULT).await
}

async fn create_old(call: Call, _: Nothing, message: Message<Create>) -> Result<Raw, Refusal> {
    make(call, message.0, TIMEOUT_SECONDS_OLD).await
}

async fn make(call: Call, ask: Create, seconds: i64) -> Result<Raw, Refusal> {
    ask.check()?;
    let which = placing::name(&call, || draw(&call))?;
    call.reaches(&which.namespace)?;
    let mut spec = Spec::new(which);
    let time = Some(millis(ask.timeout.unwrap_or(seconds))?);
    if ask.pauses() {
        (spec.idle_ttl_ms, spec.on_idle) = (time, Some(OnIdle::Pause));
    } else {
        spec.ttl_ms = time;
    }
    // E2B keeps nothing of a sandbox that has ended.
    spec.keep_stopped_ms = Some(0);
    spec.egress = ask.egress()?;
    if ask.resumes() {
        spec.labels.insert(AUTO_RESUME.to_owned(), String::new());
    }
    spec.volumes = mounts(ask.volume_mounts.unwrap_or_default())?;
    spec.env = ask.env.unwrap_or_default().into_iter().collect();
    spec.env.retain(|(name, _)| !name.starts_with("E2B_SANDBOX"));
    for (key, value) in ask.metadata.unwrap_or_default() {
        if key.starts_with(OWN_LABELS) {
            return Err(Refusal::invalid(format!("metadata: {key:?} is this server's own")));
        }
        spec.labels.insert(key, value);
    }
    let template = if ask.template.is_empty() { "base" } else { &ask.template };
    spec.labels.insert(TEMPLATE.to_owned(), template.to_owned());
    spec.env.push(("E2B_TEMPLATE_ID".to_owned(), template.to_owned()));
    refresh_template(&call, &spec, template).await;
    choose(&call, &mut spec, template);
    let spec = permitted(&call.api, &call.caller, spec).map_err(|refusal| {
        // The client knows a template that is not there by its status.
        let is_unknown = refusal.code == Code::Unsupported && refusal.message.starts_with("image:");
        let message = format!("template {template:?} was not found: {}", refusal.message);
        if is_unknown { Refusal { code: Code::NotFound, message, ..refusal } } else { refusal }
    })?;
    call.trail.creation(&spec);
    let placed = match placing::place(&call, &spec).await? {
        Placed::Here(placed) => placed,
        Placed::There(to) => return Ok(Raw(placing::sent_on(call, &to).await?)),
    };
    let making = call.api.registry().create_placed(spec, placed);
    let record = call.trail.making(making).await?;
    Ok(Raw(json_response(StatusCode::CREATED, &connected(&call, &record)?)))
}

/// The volumes that are asked for.
fn mounts(asked: Vec<Mount>) -> Result<Vec<VolumeMount>, Refusal> {
    let mounts = asked.into_iter().map(|Mount { name, path }| {
        let mount = VolumeMount { name, path };
        if mount.is_of_host() {
            let message = format!("volumeMounts: there is no volume {:?}", mount.name);
            return Err(Refusal::not_found(message));
        }
        Ok(mount)
    });
    mounts.collect()
}

/// Has this node know a template as the fleet has it now.
async fn refresh_template(call: &Call, spec: &Spec, template: &str) {
    if let (Some(node), Ok(name)) = (call.api.node(), template.parse::<TemplateName>())
        && !is_usual(template)
    {
        let namespace = spec.namespace.clone();
        Box::pin(node.refresh_template(&TemplateRef { namespace, name })).await;
    }
}

/// A name that no other sandbox has, in the namespace of the caller.
pub fn draw(call: &Call) -> Result<SandboxRef, Refusal> {
    let (namespace, name) = (namespace_of(&call.caller, None), drawn_name("e2b")?);
    Ok(SandboxRef { namespace, name })
}

/// Sets what a sandbox is made of: a template, a snapshot, an image, or the server's usual root for the templates that
/// clients name by themselves, unless the operator has images of these names.
fn choose(call: &Call, spec: &mut Spec, template: &str) {
    let of_name = template.parse().ok().filter(|name: &TemplateName| {
        let which = TemplateRef { namespace: spec.namespace.clone(), name: name.clone() };
        call.api.registry().get_template(&which).is_ok()
    });
    let snapshot = template.parse().ok().filter(|name: &Name| {
        let which = SandboxRef { namespace: spec.namespace.clone(), name: name.clone() };
        call.api.registry().get_snapshot(&which).is_ok()
    });
    if of_name.is_some() {
        spec.template = of_name;
    } else if snapshot.is_some() {
        spec.snapshot = snapshot;
    } else if !is_usual(template) || call.api.images().contains_key(template) {
        spec.image = Some(template.to_owned());
    }
}

/// The sandbox that the path names, if it is there and the key reaches it. Of others it says nothing.
pub fn seat(call: &Call) -> Result<Record, Refusal> {
    let id: String = call.parameter("sandbox")?;
    let missing = || Refusal::not_found(format!("sandbox {id:?} was not found"));
    let machine = id.parse().map_err(|_| missing())?;
    let registry = call.api.registry();
    let which = registry.find(&machine).filter(|which| call.caller.covers(&which.namespace));
    let which = which.ok_or_else(missing)?;
    call.trail.sandbox(&which);
    registry.get(&which).ok().filter(is_there).ok_or_else(missing)
}

async fn get_one(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = seat(&call)?;
    Ok(Raw(json_response(StatusCode::OK, &detailed(&call, &record)?)))
}

async fn kill(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let which = seat(&call)?.which();
    match call.api.registry().remove(&which, true).await {
        // Its own end was quicker.
        Ok(_) | Err(SandboxError::NotFound { .. }) => Ok(Done),
        Err(error) => Err(error.into()),
    }
}

async fn set_timeout(
    call: Call,
    _: Nothing,
    Message(ask): Message<Timeout>,
) -> Result<Done, Refusal> {
    let record = seat(&call)?;
    let seconds = ask.timeout.ok_or_else(|| Refusal::invalid("timeout is missing"))?;
    // No time at all is the shortest that there is: 0 would be no limit.
    let ttl_ms = millis(seconds).unwrap_or(1);
    lengthen(&call, &record, ttl_ms).await?;
    Ok(Done)
}

/// Gives a sandbox so much time from now on: until it ends, or until it is paused if it is idle.
async fn lengthen(call: &Call, record: &Record, ms: u64) -> Result<(), Refusal> {
    let (ttl_ms, idle_ttl_ms) = match record.on_idle {
        OnIdle::Stop => (Some(ms), None),
        OnIdle::Pause | OnIdle::Snapshot => (None, Some(ms)),
    };
    let update = Update { ttl_ms, idle_ttl_ms, egress: None };
    call.api.registry().update(&record.which(), update).await?;
    Ok(())
}

async fn refresh(call: Call, _: Nothing, Message(ask): Message<Refresh>) -> Result<Done, Refusal> {
    let record = seat(&call)?;
    prolong(&call, &record, ask.duration.unwrap_or(TIMEOUT_SECONDS_OLD)).await?;
    Ok(Done)
}

/// Moves the end of a sandbox later, and never earlier.
async fn prolong(call: &Call, record: &Record, seconds: i64) -> Result<(), Refusal> {
    let ttl_ms = millis(seconds)?;
    let ends = now_ms().saturating_add(ttl_ms);
    let is_later = match record.on_idle {
        OnIdle::Stop => record.expires_at_ms.is_some_and(|at_ms| at_ms < ends),
        OnIdle::Pause | OnIdle::Snapshot => {
            record.idle_ttl_ms.is_some_and(|idle_ttl_ms| idle_ttl_ms < ttl_ms)
        }
    };
    if is_later { lengthen(call, record, ttl_ms).await } else { Ok(()) }
}

async fn reconnect(call: Call, _: Nothing, Message(ask): Message<Timeout>) -> Result<Raw, Refusal> {
    let record = seat(&call)?;
    let is_paused = matches!(record.state, State::Paused { .. });
    if is_paused {
        call.api.registry().resume(&record.which()).await?;
    }
    prolong(&call, &record, ask.timeout.unwrap_or(TIMEOUT_SECONDS_DEFAULT)).await?;
    let status = if is_paused { StatusCode::CREATED } else { StatusCode::OK };
    Ok(Raw(json_response(status, &connected(&call, &record)?)))
}

async fn resume(call: Call, _: Nothing, Message(ask): Message<Timeout>) -> Result<Raw, Refusal> {
    let record = seat(&call)?;
    if !matches!(record.state, State::Paused { .. }) {
        return Err(Refusal::new(Code::Conflict, "the sandbox is not paused"));
    }
    call.api.registry().resume(&record.which()).await?;
    prolong(&call, &record, ask.timeout.unwrap_or(TIMEOUT_SECONDS_DEFAULT)).await?;
    Ok(Raw(json_response(StatusCode::CREATED, &connected(&call, &record)?)))
}

async fn pause(call: Call, _: Nothing, Message(ask): Message<Pause>) -> Result<Done, Refusal> {
    let record = seat(&call)?;
    if matches!(record.state, State::Paused { .. }) {
        return Err(Refusal::new(Code::Conflict, "the sandbox is paused already"));
    }
    if ask.memory == Some(false) {
        return Err(lacking("a pause that keeps only the files"));
    }
    call.api.registry().pause(&record.which()).await?;
    Ok(Done)
}

async fn network(
    call: Call,
    _: Nothing,
    Message(ask): Message<NetworkUpdate>,
) -> Result<Done, Refusal> {
    let which = seat(&call)?.which();
    let egress = ask.network.egress(ask.allow_internet_access)?;
    let update = Update::egress_or(egress, call.api.registry(), &which.namespace);
    call.api.registry().update(&which, update).await?;
    Ok(Done)
}

async fn metrics(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let record = seat(&call)?;
    let fields = fields(&call)?;
    let seconds = |name| field(&fields, name).and_then(|text| text.parse::<u64>().ok());
    let from_ms = seconds("start").map(|start| start.saturating_mul(1000));
    // The whole of the last second is meant.
    let to_ms = seconds("end").map(|end| end.saturating_mul(1000).saturating_add(999));
    let used = samples::used(&call.api, &record, from_ms, to_ms).await?;
    let shown: Vec<Value> = used.iter().map(samples::Used::shown).collect();
    Ok(Raw(json_response(StatusCode::OK, &shown)))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let fields = fields(&call)?;
    let wanted = metadata(field(&fields, "metadata").unwrap_or_default())?;
    let states = field(&fields, "state").map(|text| text.split(',').collect::<Vec<_>>());
    let after = field(&fields, "startedAfter").map(|text| {
        parse(text).ok_or_else(|| Refusal::invalid(format!("startedAfter: {text:?} is no time")))
    });
    let after = after.transpose()?;
    let of_template = field(&fields, "template");
    let is_ascending = field(&fields, "order") == Some("asc");
    let order = if is_ascending { Order::Ascending } else { Order::Descending };
    let query = PageQuery::read(&fields, order)?;
    let namespace = call.one_namespace(None)?;
    let mut records = call.api.registry().list(namespace.as_ref());
    records.retain(|record| {
        state(record)
            .is_some_and(|state| states.as_ref().is_none_or(|states| states.contains(&state)))
            && wanted.iter().all(|(key, value)| record.labels.get(key) == Some(value))
            && after.is_none_or(|after| record.created_at_ms > after)
            && of_template.is_none_or(|wanted| template(record) == wanted)
    });
    let place = |record: &Record| format!("{:016x}-{}", record.created_at_ms, record.id);
    records.sort_by_cached_key(place);
    if order == Order::Descending {
        records.reverse();
    }
    let page = query.part(&records, place, listed);
    let limit = query.limit;
    Ok(Raw(gather::listed(&call, page, order, limit, page::answer).await?))
}
