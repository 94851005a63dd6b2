//! What an app is asked for with.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;
use crate::v1::exec::program::check_range;
use sandbox::SandboxRef;
use services::app::limits::{CODE_BYTES_MAX, READY_PATH_BYTES_MAX, READY_TIMEOUT_MAX};
use services::app::{AppSpec, Kind, Program};

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
    /// One of which only its type and what it runs is said.
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

    pub fn spec(self, which: SandboxRef) -> Result<AppSpec, Problem> {
        check_range("ready_timeout_ms", self.ready_timeout_ms, 1, READY_TIMEOUT_MS_MAX)?;
        let kind = Kind::from(self.kind);
        let program = match (self.code, self.command) {
            (Some(code), None) => Program::Code { kind, code },
            (None, Some(command)) if kind == Kind::Command => command.into_program()?,
            (None, Some(_)) => {
                let message = format!("an app of the type {} needs `code`", kind.name());
                return Err(Problem::invalid(message)
                    .hint("a program that runs its own server must have the type `command`"));
            }
            _ => return Err(Problem::invalid("give exactly one of `code` and `command`")),
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
    fn into_program(self) -> Result<Program, Problem> {
        match self {
            Self::Line(line) => Ok(Program::Line(line)),
            Self::Argv(argv) if argv.is_empty() => {
                Err(Problem::invalid("the command names no program"))
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

fn invalid(error: impl std::fmt::Display) -> Problem {
    Problem::invalid(error.to_string())
}
