//! Web apps in sandboxes: started, waited for, reached at a port of this host, and ended.

mod ask;
mod refusal;

use std::net::{Ipv4Addr, SocketAddr};

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::problem::{Code, Problem};
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Done, Json, Nothing, Query, Reply};
use super::exec::program::check_range;
use super::exit::Exit;
use services::app::limits::LOG_KEPT_BYTES;
use services::app::{App, AppName, Kind, State};

pub use ask::{AppType, StartApp};

/// What of its log is told when nobody says how much.
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
        .about(ask::ABOUT)
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
        ),
    ]
    .map(|operation| operation.tag("apps"))
    .to_vec()
}

/// The state of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AppState {
    /// It has not answered yet.
    Starting,
    Running,
    /// It ended by itself with code 0.
    Exited,
    /// It ended in any other way.
    Failed,
}

/// A web app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppInfo {
    pub app: String,
    /// `namespace/name` of its sandbox.
    pub sandbox: String,
    #[serde(rename = "type")]
    pub kind: AppType,
    pub state: AppState,
    /// Its URL, while it is reachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub url: Option<String>,
    /// The port on this host, at 127.0.0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u16")]
    pub host_port: Option<u16>,
    /// The port in the sandbox; the app gets it as `$PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u16")]
    pub guest_port: Option<u16>,
    /// The app's session, which has its whole output.
    pub session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub pid: Option<u32>,
    pub started_at_ms: u64,
    /// How it ended, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Exit")]
    pub exit: Option<Exit>,
    /// The end of its log, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub log: Option<String>,
    /// Requested options that this host could not provide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppList {
    pub apps: Vec<AppInfo>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// The maximum number of bytes from the end; 16384 by default.
    #[serde(default)]
    #[schemars(with = "u64", range(max = LOG_KEPT_BYTES))]
    pub tail: Option<u64>,
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

/// What is told of an app, with its last words if it has ended.
pub fn shown(api: &super::super::Api, app: App) -> AppInfo {
    let log = app.state.is_over().then(|| {
        let said = api.apps().log(&app.which, &app.name, services::app::limits::LOG_TOLD_BYTES);
        // One that is removed at this moment has no more to say.
        said.map(|shown| shown.text).unwrap_or_default()
    });
    AppInfo {
        app: app.name.to_string(),
        sandbox: app.which.to_string(),
        kind: app.kind.into(),
        state: app.state.into(),
        url: app.host_port.map(|port| {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            format!("http://{address}/")
        }),
        host_port: app.host_port,
        guest_port: app.port,
        session: app.session.to_string(),
        pid: app.pid,
        started_at_ms: app.started_at_ms,
        exit: app.exit.map(Exit::from),
        log,
        warnings: app.warnings,
    }
}

impl From<State> for AppState {
    fn from(state: State) -> Self {
        match state {
            State::Starting => Self::Starting,
            State::Running => Self::Running,
            State::Exited => Self::Exited,
            State::Failed => Self::Failed,
        }
    }
}

impl From<Kind> for AppType {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Flask => Self::Flask,
            Kind::Fastapi => Self::Fastapi,
            Kind::Streamlit => Self::Streamlit,
            Kind::Command => Self::Command,
        }
    }
}

async fn start(
    call: Call,
    _: Nothing,
    Json(asked): Json<StartApp>,
) -> Result<Created<AppInfo>, Problem> {
    // Held until it answers: from then on its session is at work there.
    let inside = call.inside()?;
    let spec = asked.spec(inside.which.clone())?;
    let app = call.api.apps().start(call.api.registry(), spec).await?;
    Ok(Created(shown(&call.api, app)))
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Reply<AppList>, Problem> {
    let which = call.which()?;
    call.api.registry().get(&which)?;
    let apps = call.api.apps().of(&which).into_iter().map(|app| shown(&call.api, app)).collect();
    Ok(Reply(AppList { apps }))
}

async fn list_all(call: Call, _: Nothing, _: Nothing) -> Result<Reply<AppList>, Problem> {
    let apps = call.api.apps().matching(|which| call.caller.covers(&which.namespace));
    Ok(Reply(AppList { apps: apps.into_iter().map(|app| shown(&call.api, app)).collect() }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<AppInfo>, Problem> {
    let (which, name) = (call.which()?, app_name(&call)?);
    call.api.registry().get(&which)?;
    let app = call.api.apps().get(&which, &name)?;
    Ok(Reply(shown(&call.api, app)))
}

async fn log(
    call: Call,
    Query(query): Query<LogQuery>,
    _: Nothing,
) -> Result<Reply<AppLog>, Problem> {
    check_range("tail", query.tail, 0, LOG_KEPT_BYTES as u64)?;
    let (which, name) = (call.which()?, app_name(&call)?);
    call.api.registry().get(&which)?;
    let app = call.api.apps().get(&which, &name)?;
    let bytes_max = query.tail.map_or(LOG_TOLD_DEFAULT, |bytes| bytes as usize);
    let said = call.api.apps().log(&which, &name, bytes_max)?;
    Ok(Reply(AppLog {
        app: name.to_string(),
        session: app.session.to_string(),
        log: said.text,
        total_bytes: said.total_bytes,
    }))
}

async fn stop(call: Call, _: Nothing, _: Nothing) -> Result<Done, Problem> {
    let (which, name) = (call.which()?, app_name(&call)?);
    call.api.registry().get(&which)?;
    call.api.apps().stop(call.api.registry(), &which, &name).await?;
    Ok(Done)
}

fn app_name(call: &Call) -> Result<AppName, Problem> {
    call.parameter("app")
}
