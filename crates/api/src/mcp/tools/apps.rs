//! Web apps in sandboxes.

use std::num::NonZeroU16;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forms::apps::{AppInfo, AppList, AppType, StartApp, refusal, shown as shown_app};
use crate::mcp::tool::{Answer, Effect, Entered, Entry, Work, tool};
use access::keys::Access;
use sandbox::refusal::Refusal;
use services::app::{AppError, AppName};

pub fn entries() -> Vec<Entry> {
    vec![
        tool(
            "start_web_app",
            "Start a web app",
            "Starts a web app in a sandbox, waits until it answers, and returns its URL on the \
            server's host. Flask and FastAPI: define `app`; `app.run()` is not needed. Streamlit: \
            give the script as it is. A command must listen on $PORT and stay in the foreground. \
            An error has the end of the app's log.",
            Access::Run,
            Effect::Runs,
            start_web_app,
        ),
        tool(
            "list_web_apps",
            "List web apps",
            "Lists web apps with their URLs. An app that ended by itself has its exit and the end \
            of its log.",
            Access::Read,
            Effect::Reads,
            list_web_apps,
        ),
        tool(
            "stop_web_app",
            "Stop a web app",
            "Ends a web app with all that it started, and frees its port and its name.",
            Access::Run,
            Effect::Ends,
            stop_web_app,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StartWebApp {
    /// The app's code, a Python file. Not for a `command`.
    #[serde(default)]
    code: Option<String>,
    /// How it is served; `flask` by default.
    #[serde(default)]
    app_type: AppType,
    /// The port in the sandbox; a free one by default.
    #[serde(default)]
    port: Option<NonZeroU16>,
    /// A command line instead of code, for the type `command`.
    #[serde(default)]
    command: Option<String>,
    /// The app's name; its type by default. It replaces an ended app of the same name.
    #[serde(default)]
    #[schemars(length(max = 40))]
    name: Option<String>,
    /// Seconds within which it must answer; 60 by default.
    #[serde(default)]
    #[schemars(range(max = 600))]
    timeout: Option<f64>,
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListWebApps {
    /// The name of the sandbox; all sandboxes of this session's namespace by default.
    #[serde(default)]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StopWebApp {
    /// The name of the app.
    app: String,
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct WebAppStopped {
    sandbox: String,
    app: String,
}

async fn start_web_app(work: Work, request: StartWebApp) -> Result<Answer<AppInfo>, Refusal> {
    let limit = request.timeout.map(|seconds| work.time_limit(Some(seconds))).transpose()?;
    // A command says by itself what it is. Models fill in what they do not mean.
    let command = request.command.filter(|command| !command.is_empty());
    let code = request.code.filter(|code| command.is_none() || !code.is_empty());
    let is_command = code.is_none() && command.is_some();
    let kind = if is_command { AppType::Command } else { request.app_type };
    let mut start = StartApp::of(kind, code, command);
    (start.name, start.port) = (request.name, request.port);
    start.ready_timeout_ms = limit.map(|limit| limit.as_millis() as u64);
    let Entered { inside, note } = work.enter(request.sandbox.as_deref()).await?;
    let spec = start.spec(inside.which.clone())?;
    // What is cancelled before it answers leaves nothing behind.
    let app = tokio::select! {
        app = work.api.apps().start(work.api.registry(), spec) => app.map_err(refusal)?,
        () = work.context.ct.cancelled() => return Err(refusal(AppError::Abandoned)),
    };
    let mut info = shown_app(&work.api, app);
    info.warnings.extend(note);
    Ok(Answer::of(info))
}

async fn list_web_apps(work: Work, request: ListWebApps) -> Result<Answer<AppList>, Refusal> {
    let apps = if let Some(name) = request.sandbox.as_deref() {
        let which = work.which(Some(name))?;
        work.api.registry().get(&which)?;
        work.api.apps().of(&which)
    } else {
        let namespace = work.session.namespace(&work.caller);
        let is_ours = work.caller.covers(&namespace);
        work.api.apps().matching(|which| is_ours && which.namespace == namespace)
    };
    let apps = apps.into_iter().map(|app| shown_app(&work.api, app)).collect();
    Ok(Answer::of(AppList { apps, unanswered: Vec::new() }))
}

async fn stop_web_app(work: Work, request: StopWebApp) -> Result<Answer<WebAppStopped>, Refusal> {
    let which = work.which(request.sandbox.as_deref())?;
    let name: AppName =
        request.app.parse().map_err(|error| Refusal::invalid(format!("app: {error}")))?;
    let stopped = work.api.apps().stop(work.api.registry(), &which, &name).await;
    stopped.map_err(refusal)?;
    Ok(Answer::of(WebAppStopped { sandbox: which.to_string(), app: name.to_string() }))
}
