//! Web apps in sandboxes: started, waited for, reached at a port of this host, and ended.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::gather;
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Done, Json, Nothing, Query, Reply};
use crate::forms::apps::{ABOUT, AppInfo, AppList, StartApp, refusal, shown};
use crate::forms::ports::check_host_port;
use crate::forms::ranges::check_range;
use sandbox::refusal::{Code, Refusal};
use services::app::AppName;
use services::app::limits::LOG_KEPT_BYTES;

/// How much of its log is returned by default.
const LOG_TOLD_DEFAULT: usize = 16 * 1024;

pub fn operations() -> Vec<Operation> {
    let all = "/v1/sandboxes/{namespace}/{name}/apps";
    let one = "/v1/sandboxes/{namespace}/{name}/apps/{app}";
    [
        operation(
            Method::POST,
            all,
            "start_app",
            "Start a web app, and wait until it answers.",
            start,
        )
        .about(ABOUT)
        .run()
        .idempotent()
        .problems(&[
            Code::AppFailed,
            Code::AppNotReady,
            Code::ModuleMissing,
            Code::SpawnFailed,
            Code::Unsupported,
            Code::Gone,
            Code::Io,
            Code::LimitReached,
        ]),
        operation(Method::GET, all, "list_apps", "List the apps of a sandbox.", list).about(
            "Includes apps that ended by themselves, with how they ended, until they are removed \
            or another app takes their name.",
        ),
        operation(Method::GET, one, "get_app", "One app.", get),
        operation(
            Method::GET,
            "/v1/sandboxes/{namespace}/{name}/apps/{app}/log",
            "read_app_log",
            "Read the end of an app's log.",
            log,
        )
        .about("Both outputs, in order of arrival. The output of the app's session has all of it."),
        operation(Method::DELETE, one, "stop_app", "Stop an app.", stop)
            .about("Ends it with all that it started, and frees its port, its files and its name.")
            .run(),
        operation(
            Method::GET,
            "/v1/apps",
            "list_all_apps",
            "List the apps of all sandboxes that the key covers.",
            list_all,
        )
        .about(
            "With `all_nodes`, of the whole fleet: each entry has its node, at whose 127.0.0.1 its URL is, and \
            `unanswered` names nodes whose apps are not in the list.",
        )
        .problems(&[Code::Unsupported, Code::Unavailable]),
    ]
    .map(|operation| operation.tag("apps"))
    .to_vec()
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// The maximum number of bytes from the end; 16384 by default.
    #[serde(default)]
    #[schemars(with = "u64", range(max = LOG_KEPT_BYTES))]
    pub tail: Option<u64>,
}

/// Whose apps to list.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppsQuery {
    /// Those of all nodes of the fleet, instead of the one that is asked.
    #[serde(default)]
    pub all_nodes: bool,
}

/// The log of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppLog {
    pub app: String,
    pub session: String,
    /// The text; invalid UTF-8 is shown as U+FFFD.
    pub log: String,
    /// Bytes of the whole log, including what is not shown here.
    pub total_bytes: u64,
}

async fn start(
    call: Call,
    _: Nothing,
    Json(request): Json<StartApp>,
) -> Result<Created<AppInfo>, Refusal> {
    // Held until it answers: from then on its session is at work there.
    let inside = call.inside().await?;
    let spec = request.spec(inside.which.clone())?;
    check_host_port(&call.api, &call.caller, spec.host_port)?;
    let app = call.api.apps().start(call.api.registry(), spec).await.map_err(refusal)?;
    Ok(Created(shown(&call.api, app)))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Reply<AppList>, Refusal> {
    let which = call.which()?;
    call.api.registry().get(&which)?;
    let apps = call.api.apps().of(&which).into_iter().map(|app| shown(&call.api, app)).collect();
    Ok(Reply(AppList { apps, unanswered: Vec::new() }))
}

async fn list_all(
    call: Call,
    Query(query): Query<AppsQuery>,
    _: Nothing,
) -> Result<Reply<AppList>, Refusal> {
    let apps = call.api.apps().matching(|which| call.caller.covers(&which.namespace));
    let here: Vec<_> = apps.into_iter().map(|app| shown(&call.api, app)).collect();
    let Some(node) = gather::wanted(&call, query.all_nodes)? else {
        return Ok(Reply(AppList { apps: here, unanswered: Vec::new() }));
    };
    let mut apps = Vec::new();
    let mut add = |name: &str, list: AppList| -> Result<(), Refusal> {
        call.memory.grow(list.apps.iter().map(AppInfo::cost).sum())?;
        let of_node = |app| AppInfo { node: Some(name.to_owned()), ..app };
        apps.extend(list.apps.into_iter().map(of_node));
        Ok(())
    };
    add(node.id().as_str(), AppList { apps: here, unanswered: Vec::new() })?;
    let place = gather::same_question(&call);
    let unanswered = gather::gather(&call, node, |_| Ok(place.clone()), add).await?;
    apps.sort_by(|one, other| (&one.sandbox, &one.app).cmp(&(&other.sandbox, &other.app)));
    Ok(Reply(AppList { apps, unanswered }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<AppInfo>, Refusal> {
    let (which, name) = (call.which()?, app_name(&call)?);
    call.api.registry().get(&which)?;
    let app = call.api.apps().get(&which, &name).map_err(refusal)?;
    Ok(Reply(shown(&call.api, app)))
}

async fn log(
    call: Call,
    Query(query): Query<LogQuery>,
    _: Nothing,
) -> Result<Reply<AppLog>, Refusal> {
    check_range("tail", query.tail, 0, LOG_KEPT_BYTES as u64)?;
    let (which, name) = (call.which()?, app_name(&call)?);
    call.api.registry().get(&which)?;
    let app = call.api.apps().get(&which, &name).map_err(refusal)?;
    let bytes_max = query.tail.map_or(LOG_TOLD_DEFAULT, |bytes| bytes as usize);
    let tail = call.api.apps().log(&which, &name, bytes_max).map_err(refusal)?;
    Ok(Reply(AppLog {
        app: name.to_string(),
        session: app.session.to_string(),
        log: tail.text,
        total_bytes: tail.total_bytes,
    }))
}

async fn stop(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let (which, name) = (call.which()?, app_name(&call)?);
    call.api.registry().get(&which)?;
    call.api.apps().stop(call.api.registry(), &which, &name).await.map_err(refusal)?;
    Ok(Done)
}

fn app_name(call: &Call) -> Result<AppName, Refusal> {
    call.parameter("app")
}
