//! The forms of apps: requests, apps as they are shown, and refusals.

mod refusal;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::exit::Exit;
use crate::Api;
use crate::forms::ranges::check_range;
use crate::forms::sandboxes::UnansweredNode;
use sandbox::SandboxRef;
use sandbox::refusal::Refusal;
use services::app::limits::{CODE_BYTES_MAX, READY_PATH_BYTES_MAX, READY_TIMEOUT_MAX};
use services::app::{App, AppSpec, Kind, Program, State};

pub use refusal::refusal;

pub const ABOUT: &str = "Answers when the app itself has answered a request, with any status. \
`code` is a Python file. For the types `flask`, `fastapi` (any ASGI app) and `streamlit`, the \
framework serves it; code that starts its own server gets the same port. The app is the variable \
`app` or `application`, else the only app in the file, else the result of `create_app()`. A \
`command` must listen on `$PORT` and stay in the foreground. An app is a session with recorded \
output. If it ends before it answers, does not answer in time, or its client disconnects first, \
nothing of it is left; the details of `app_failed` and `app_not_ready` contain the end of its log. \
The app's URL does not ask for a key, so it is reachable from this host only.";

/// The names that apps may have.
const APP_NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$";
/// The longest wait, in milliseconds.
const READY_TIMEOUT_MS_MAX: u64 = READY_TIMEOUT_MAX.as_millis() as u64;

/// How an app is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AppType {
    #[default]
    Flask,
    /// Any ASGI app, by uvicorn.
    Fastapi,
    Streamlit,
    /// A program that runs its own server: a command, or code run as a script.
    Command,
}

/// A command: a line for the shell, or the program and its arguments.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a command is a string, or a list of strings")]
pub enum Command {
    Line(String),
    Argv(#[schemars(length(min = 1, max = 16384))] Vec<String>),
}

/// A web app to start.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["code"] }, { "required": ["command"] }]))]
pub struct StartApp {
    /// Its name; by default a name made from its type. It replaces an ended app of the same name.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("pattern" = APP_NAME))]
    pub name: Option<String>,
    #[serde(rename = "type")]
    pub kind: AppType,
    /// The app's code, a Python file.
    #[serde(default)]
    #[schemars(with = "String", length(max = CODE_BYTES_MAX))]
    pub code: Option<String>,
    /// Only for the type `command`.
    #[serde(default)]
    #[schemars(with = "Command")]
    pub command: Option<Command>,
    /// The port in the sandbox; a free one by default. The app gets it as `$PORT`.
    #[serde(default)]
    pub port: Option<NonZeroU16>,
    /// The port on this host, at 127.0.0.1; 0 takes any free port.
    #[serde(default)]
    pub host_port: u16,
    /// Added to the sandbox's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The working directory; the sandbox's own by default.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub workdir: Option<String>,
    /// The path to request to see whether the app answers.
    #[serde(default = "root")]
    #[schemars(length(max = READY_PATH_BYTES_MAX), extend("pattern" = "^/[!-~]*$"))]
    pub ready_path: String,
    /// How long it may take to answer; one minute by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = READY_TIMEOUT_MS_MAX))]
    pub ready_timeout_ms: Option<u64>,
    /// The interpreter for `code`; `python3` by default.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096))]
    pub python: Option<String>,
}

fn root() -> String {
    "/".to_owned()
}

impl StartApp {
    /// An app of which only the type and the program are given.
    pub fn of(kind: AppType, code: Option<String>, command: Option<String>) -> Self {
        Self {
            name: None,
            kind,
            code,
            command: command.map(Command::Line),
            port: None,
            host_port: 0,
            env: BTreeMap::new(),
            workdir: None,
            ready_path: root(),
            ready_timeout_ms: None,
            python: None,
        }
    }

    pub fn spec(self, which: SandboxRef) -> Result<AppSpec, Refusal> {
        check_range("ready_timeout_ms", self.ready_timeout_ms, 1, READY_TIMEOUT_MS_MAX)?;
        let kind = Kind::from(self.kind);
        let program = match (self.code, self.command) {
            (Some(code), None) => Program::Code { kind, code },
            (None, Some(command)) if kind == Kind::Command => command.into_program()?,
            (None, Some(_)) => {
                let message = format!("an app of the type {} needs `code`", kind.name());
                return Err(Refusal::invalid(message)
                    .hint("a program that runs its own server must have the type `command`"));
            }
            _ => return Err(Refusal::invalid("give exactly one of `code` and `command`")),
        };
        let mut spec = AppSpec::new(which, program);
        spec.name = self.name.map(|name| name.parse()).transpose().map_err(invalid)?;
        spec.port = self.port.map(NonZeroU16::get);
        spec.host_port = self.host_port;
        spec.env = self.env;
        spec.workdir = self.workdir.filter(|path| !path.is_empty());
        spec.ready_path = self.ready_path;
        if let Some(millis) = self.ready_timeout_ms {
            spec.ready_timeout = Duration::from_millis(millis);
        }
        if let Some(python) = self.python {
            spec.python = python;
        }
        Ok(spec)
    }
}

impl Command {
    fn into_program(self) -> Result<Program, Refusal> {
        match self {
            Self::Line(line) => Ok(Program::Line(line)),
            Self::Argv(argv) if argv.is_empty() => {
                Err(Refusal::invalid("the command names no program"))
            }
            Self::Argv(argv) => Ok(Program::Argv(argv)),
        }
    }
}

impl From<AppType> for Kind {
    fn from(kind: AppType) -> Self {
        match kind {
            AppType::Flask => Self::Flask,
            AppType::Fastapi => Self::Fastapi,
            AppType::Streamlit => Self::Streamlit,
            AppType::Command => Self::Command,
        }
    }
}

fn invalid(error: impl std::fmt::Display) -> Refusal {
    Refusal::invalid(error.to_string())
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
    /// The node of the fleet that has it; only in lists of all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub node: Option<String>,
}

impl AppInfo {
    /// What it takes here and in JSON.
    pub fn cost(&self) -> usize {
        const FIELDS_BYTES: usize = 1024;
        FIELDS_BYTES + 2 * self.log.as_ref().map_or(0, String::len)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppList {
    pub apps: Vec<AppInfo>,
    /// Nodes of the fleet that did not answer: what they have is missing here. Absent if all did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<UnansweredNode>,
}

/// An app as clients see it, with the end of its log if it has ended.
pub fn shown(api: &Api, app: App) -> AppInfo {
    let log = app.state.is_over().then(|| {
        let tail = api.apps().log(&app.which, &app.name, services::app::limits::LOG_TOLD_BYTES);
        // One that is removed at this moment has no more to say.
        tail.map(|shown| shown.text).unwrap_or_default()
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
        node: None,
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
