//! Sandboxes: created, listed, shown, ended, waited for.

mod create;
mod nodes;

use std::time::Duration;

use hyper::Method;
use serde_json::json;

use super::super::call::Call;
use super::super::forward::Carried;
use super::super::gather;
use super::super::placing;
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Json, MaybeJson, Nothing, Query, Reply};
use crate::creation::{install, namespace_of, permitted};
use crate::forms::ranges::check_range;
use crate::forms::sandboxes::{
    ExtendSandbox, ListQuery, PAGE_MAX, RemoveQuery, Sandbox, SandboxPage, StopSandbox, WaitFor,
    WaitQuery,
};
use crate::limits::DEADLINE_MAX;
use create::CreateSandbox;
use machine::limits::STOP_GRACE_MAX;
use node::Placed;
use sandbox::limits::STOP_GRACE_DEFAULT;
use sandbox::refusal::{Code, Refusal};
use sandbox::{Filter, Selector, TemplateRef, Until, Update};

pub fn operations() -> Vec<Operation> {
    let all = "/v1/sandboxes";
    let one = "/v1/sandboxes/{namespace}/{name}";
    [
        operation(Method::POST, all, "create_sandbox", "Make a sandbox and start it.", create)
            .run()
            .idempotent()
            .about("Answers when the agent inside is ready.")
            .problems(&[
                // The snapshot or the template to make it of.
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
            .about(
                "Ordered by namespace and name, one page at a time. With `all_nodes`, of the whole \
                 fleet: each entry has its node, and `unanswered` names nodes whose sandboxes are \
                 not in the page.",
            )
            .problems(&[Code::Unsupported, Code::Unavailable]),
        operation(Method::GET, one, "get_sandbox", "One sandbox.", get),
        operation(
            Method::PATCH,
            one,
            "extend_sandbox",
            "Change the time to live of a sandbox, or what it may reach.",
            extend,
        )
        .about(
            "New rules of egress hold for the next name and the next connection, and end connections that they do \
             not allow.",
        )
        .run()
        .problems(&[Code::CapExceeded, Code::Unsupported, Code::Conflict, Code::StartFailed]),
        operation(
            Method::DELETE,
            one,
            "remove_sandbox",
            "Remove a stopped sandbox's record and logs and free its name.",
            remove,
        )
        .giving_up_the_lost()
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
    Json(request): Json<CreateSandbox>,
) -> Result<Carried<Created<Sandbox>>, Refusal> {
    let packages = request.packages.clone().filter(|packages| !packages.is_empty());
    if packages.is_some() && request.template.is_some() {
        let message = "packages: the template sets what is installed; build an image that has them";
        return Err(Refusal::invalid(message));
    }
    refresh_template(&call, &request).await;
    let mut spec = permitted(&call.api, &call.caller, request.spec(&call.caller)?)?;
    spec.durability = spec.durability.or(call.api.registry().defaults().durability);
    call.trail.creation(&spec);
    call.reaches(&spec.namespace)?;
    let _packages = install(&call.api, &call.caller, &mut spec, packages).await?;
    let placed = match placing::place(&call, &spec).await? {
        Placed::Here(placed) => placed,
        Placed::There(to) => {
            return Ok(Carried::There(Box::new(placing::sent_on(call, &to).await?)));
        }
    };
    let making = call.api.registry().create_placed(spec, placed);
    let record = call.trail.making(making).await?;
    call.trail.image(None, record.image_digest.map(|digest| digest.to_string()));
    Ok(Carried::Here(Created(record.into())))
}

/// Has this node know the template of a new sandbox as the fleet has it now.
async fn refresh_template(call: &Call, request: &CreateSandbox) {
    if let (Some(node), Some(name)) = (call.api.node(), request.template.clone()) {
        let namespace = namespace_of(&call.caller, request.namespace.clone());
        if call.caller.covers(&namespace) {
            Box::pin(node.refresh_template(&TemplateRef { namespace, name })).await;
        }
    }
}

async fn list(
    call: Call,
    Query(query): Query<ListQuery>,
    _: Nothing,
) -> Result<Reply<SandboxPage>, Refusal> {
    let namespace = call.one_namespace(query.namespace)?;
    if let Some(limit) = query.limit.filter(|limit| !(1..=PAGE_MAX).contains(limit)) {
        return Err(Refusal::invalid(format!("limit must be from 1 to {PAGE_MAX}, not {limit}")));
    }
    let labels = query.label.iter().map(|text| {
        text.parse::<Selector>().map_err(|error| Refusal::invalid(format!("label: {error}")))
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
    let here = SandboxPage { sandboxes, next, unanswered: Vec::new() };
    match gather::wanted(&call, query.all_nodes)? {
        Some(node) => {
            let limit = query.limit.unwrap_or(PAGE_MAX);
            nodes::list(&call, node, here, limit).await.map(Reply)
        }
        None => Ok(Reply(here)),
    }
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Sandbox>, Refusal> {
    Ok(Reply(call.api.registry().get(&call.which()?)?.into()))
}

async fn extend(
    call: Call,
    _: Nothing,
    Json(request): Json<ExtendSandbox>,
) -> Result<Reply<Sandbox>, Refusal> {
    let which = call.which()?;
    let ExtendSandbox { ttl_ms, idle_ttl_ms, egress } = request;
    let update = Update { ttl_ms, idle_ttl_ms, egress };
    Ok(Reply(call.api.registry().update(&which, update).await?.into()))
}

async fn remove(
    call: Call,
    Query(query): Query<RemoveQuery>,
    _: Nothing,
) -> Result<Reply<Sandbox>, Refusal> {
    let which = call.which()?;
    Ok(Reply(call.api.registry().remove(&which, query.force).await?.into()))
}

async fn stop(
    call: Call,
    _: Nothing,
    MaybeJson(request): MaybeJson<StopSandbox>,
) -> Result<Reply<Sandbox>, Refusal> {
    let which = call.which()?;
    let grace = request.grace_ms.map_or(STOP_GRACE_DEFAULT, Duration::from_millis);
    if grace > STOP_GRACE_MAX {
        let max = STOP_GRACE_MAX.as_millis() as u64;
        let message = format!("grace_ms must be at most {max}");
        return Err(Refusal::invalid(message).details(json!({ "limit": max })));
    }
    Ok(Reply(call.api.registry().stop(&which, grace).await?.into()))
}

async fn kill(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Sandbox>, Refusal> {
    let which = call.which()?;
    Ok(Reply(call.api.registry().kill(&which).await?.into()))
}

async fn wait(
    call: Call,
    Query(query): Query<WaitQuery>,
    _: Nothing,
) -> Result<Reply<Sandbox>, Refusal> {
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
