//! Sandboxes: made, listed, looked at, ended, waited for.

mod kind;
mod shape;

use std::time::Duration;

use hyper::Method;
use serde_json::json;

use super::super::Api;
use super::super::call::Call;
use super::super::caller::Caller;
use super::super::images::workspace_of;
use super::super::problem::{Code, Problem};
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Json, MaybeJson, Nothing, Query, Reply};
use super::ranges::{check_range, cpu_millis};
use crate::limits::DEADLINE_MAX;
use machine::limits::STOP_GRACE_MAX;
use sandbox::limits::STOP_GRACE_DEFAULT;
use sandbox::{Filter, Name, SandboxRef, Selector, Spec, Until};

pub use kind::Machine;
pub use shape::{CreateSandbox, LABEL_KEY, LIFETIME_MS_MAX, NAME, PullPolicy, Sandbox};
use shape::{
    ExtendSandbox, ListQuery, PAGE_MAX, RemoveQuery, SandboxPage, StopSandbox, WaitFor, WaitQuery,
};

pub fn operations() -> Vec<Operation> {
    let all = "/v1/sandboxes";
    let one = "/v1/sandboxes/{namespace}/{name}";
    [
        operation(Method::POST, all, "create_sandbox", "Make a sandbox and start it.", create)
            .run()
            .idempotent()
            .about("Answers when the agent inside is ready.")
            .problems(&[
                // The snapshot that it is to be made of.
                Code::NotFound,
                Code::Conflict,
                Code::Unsupported,
                Code::StartFailed,
                Code::LimitReached,
                Code::CapExceeded,
                Code::UnknownSecret,
                Code::SecretFailed,
                Code::PullFailed,
                Code::UnknownWorkspace,
                Code::WorkspaceFailed,
            ]),
        operation(Method::GET, all, "list_sandboxes", "List the sandboxes.", list)
            .about("Ordered by namespace and name, one page at a time."),
        operation(Method::GET, one, "get_sandbox", "One sandbox.", get),
        operation(
            Method::PATCH,
            one,
            "extend_sandbox",
            "Change the time to live of a sandbox.",
            extend,
        )
        .run()
        .problems(&[Code::CapExceeded]),
        operation(
            Method::DELETE,
            one,
            "remove_sandbox",
            "Remove a stopped sandbox's record and logs and free its name.",
            remove,
        )
        .run(),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/stop",
            "stop_sandbox",
            "Stop a sandbox cleanly and wait for it.",
            stop,
        )
        .run()
        .about(
            "Does nothing to a sandbox that has stopped. The record and the logs are kept until \
        it is removed.",
        ),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/kill",
            "kill_sandbox",
            "End a sandbox at once.",
            kill,
        )
        .run(),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/wait",
            "wait_for_sandbox",
            "Wait until a sandbox reaches a state.",
            wait,
        )
        .about("Answers with the sandbox when it reaches the state or the time is up."),
    ]
    .map(|operation| operation.tag("sandboxes"))
    .to_vec()
}

async fn create(
    call: Call,
    _: Nothing,
    Json(asked): Json<CreateSandbox>,
) -> Result<Created<Sandbox>, Problem> {
    let spec = spec_of(&call.api, &call.caller, asked)?;
    call.trail.creation(&spec);
    call.reaches(&spec.namespace)?;
    let record = call.api.registry().create(spec).await?;
    call.trail.image(None, record.image_digest.map(|digest| digest.to_string()));
    Ok(Created(record.into()))
}

/// What is asked for, with the defaults of this server for what is not.
pub fn spec_of(api: &Api, caller: &Caller, asked: CreateSandbox) -> Result<Spec, Problem> {
    let namespace = match (asked.namespace, caller.only_namespace()) {
        (Some(namespace), _) => namespace,
        (None, Some(own)) => own.clone(),
        (None, None) => Name::default_namespace(),
    };
    let defaults = api.defaults();
    let mut spec = Spec::new(SandboxRef { namespace, name: asked.name });
    spec.key = caller.key();
    spec.machine = match asked.machine {
        Some(Machine(kind)) if !kind.is_started() => {
            let message = format!("machine: this call does not start {kind} machines");
            return Err(Problem::new(Code::Unsupported, message)
                .hint(format!("`host-bridge start --machine {kind}` connects to one")));
        }
        Some(Machine(kind)) => kind,
        None => defaults.machine,
    };
    let pull = api.pull_of(caller, asked.pull)?;
    spec.pull = Some(pull);
    let root = |image: String| api.root_of(caller, spec.machine, &image, pull);
    spec.image = asked.image.map(root).transpose()?;
    // A snapshot has decided on these, and another wish is refused there.
    let is_restored = asked.snapshot.is_some();
    if is_restored && asked.machine.is_some() {
        return Err(Problem::invalid("machine: the snapshot sets it; leave it out"));
    }
    spec.snapshot = asked.snapshot;
    spec.memory_mib = asked.memory_mib.or(defaults.memory_mib.filter(|_| !is_restored));
    spec.cpu_millis = match asked.cpus {
        Some(cpus) => Some(cpu_millis(cpus)?),
        None => defaults.cpu_millis.filter(|_| !is_restored),
    };
    spec.env = asked.env.into_iter().collect();
    spec.workdir = asked.workdir;
    spec.user = asked.user;
    spec.hostname = asked.hostname;
    spec.scratch_bytes = asked.scratch_bytes;
    spec.labels = asked.labels;
    spec.ttl_ms = asked.ttl_ms.or(defaults.ttl_ms);
    spec.idle_ttl_ms = asked.idle_ttl_ms.or(defaults.idle_ttl_ms);
    spec.keep_stopped_ms = asked.keep_stopped_ms.or(defaults.keep_stopped_ms);
    spec.egress = asked.egress;
    let permitted = |name: String| workspace_of(caller, name);
    spec.workspace = asked.workspace.map(permitted).transpose()?;
    spec.secrets = asked.secrets;
    Ok(spec)
}

async fn list(
    call: Call,
    Query(query): Query<ListQuery>,
    _: Nothing,
) -> Result<Reply<SandboxPage>, Problem> {
    let namespace = call.one_namespace(query.namespace)?;
    if let Some(limit) = query.limit.filter(|limit| !(1..=PAGE_MAX).contains(limit)) {
        return Err(Problem::invalid(format!("limit must be from 1 to {PAGE_MAX}, not {limit}")));
    }
    let labels = query.label.iter().map(|text| {
        text.parse::<Selector>().map_err(|error| Problem::invalid(format!("label: {error}")))
    });
    let filter = Filter {
        namespace,
        labels: labels.collect::<Result<_, _>>()?,
        phases: query.state,
        after: query.after,
        limit: query.limit.map(usize::from),
    };
    let page = call.api.registry().page(&filter);
    let next = page.next.map(|which| format!("{}/{}", which.namespace, which.name));
    let sandboxes = page.records.into_iter().map(Sandbox::from).collect();
    Ok(Reply(SandboxPage { sandboxes, next }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Sandbox>, Problem> {
    Ok(Reply(call.api.registry().get(&call.which()?)?.into()))
}

async fn extend(
    call: Call,
    _: Nothing,
    Json(asked): Json<ExtendSandbox>,
) -> Result<Reply<Sandbox>, Problem> {
    let which = call.which()?;
    let extended = call.api.registry().extend(&which, asked.ttl_ms, asked.idle_ttl_ms).await?;
    Ok(Reply(extended.into()))
}

async fn remove(
    call: Call,
    Query(query): Query<RemoveQuery>,
    _: Nothing,
) -> Result<Reply<Sandbox>, Problem> {
    let which = call.which()?;
    Ok(Reply(call.api.registry().remove(&which, query.force).await?.into()))
}

async fn stop(
    call: Call,
    _: Nothing,
    MaybeJson(asked): MaybeJson<StopSandbox>,
) -> Result<Reply<Sandbox>, Problem> {
    let which = call.which()?;
    let grace = asked.grace_ms.map_or(STOP_GRACE_DEFAULT, Duration::from_millis);
    if grace > STOP_GRACE_MAX {
        let max = STOP_GRACE_MAX.as_millis() as u64;
        let message = format!("grace_ms must be at most {max}");
        return Err(Problem::invalid(message).details(json!({ "limit": max })));
    }
    Ok(Reply(call.api.registry().stop(&which, grace).await?.into()))
}

async fn kill(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Sandbox>, Problem> {
    let which = call.which()?;
    Ok(Reply(call.api.registry().kill(&which).await?.into()))
}

async fn wait(
    call: Call,
    Query(query): Query<WaitQuery>,
    _: Nothing,
) -> Result<Reply<Sandbox>, Problem> {
    check_range("timeout_ms", query.timeout_ms, 0, DEADLINE_MAX.as_millis() as u64)?;
    let which = call.which()?;
    let until = match query.until {
        Some(WaitFor::Created) => Until::Created,
        Some(WaitFor::Stopped) | None => Until::Stopped,
        Some(WaitFor::Removed) => Until::Removed,
    };
    let registry = call.api.registry();
    let waiting = registry.wait(&which, until);
    let record = match query.timeout_ms.map(Duration::from_millis) {
        None => waiting.await?,
        Some(limit) => match tokio::time::timeout(limit, waiting).await {
            Ok(waited) => waited?,
            Err(_) => registry.get(&which)?,
        },
    };
    Ok(Reply(record.into()))
}
