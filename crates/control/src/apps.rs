//! The app messages of the control socket.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use sandbox::SandboxRef;
use services::app::{App, State};

/// A request about apps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AppOrder {
    /// Answered when the app answers requests, or has failed to start.
    Start(Box<StartApp>),
    /// The apps of one sandbox, or of all.
    List {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sandbox: Option<SandboxRef>,
    },
    Get {
        sandbox: SandboxRef,
        app: String,
    },
    /// Answered when all its processes have ended.
    Stop {
        sandbox: SandboxRef,
        app: String,
    },
    /// The latest output of an app.
    Log {
        sandbox: SandboxRef,
        app: String,
        bytes_max: u64,
    },
}

/// An app to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartApp {
    pub sandbox: SandboxRef,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub what: AppProgram,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<NonZeroU16>,
    /// 0 picks a free port.
    #[serde(default)]
    pub host_port: u16,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
}

/// The program that serves the app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AppProgram {
    /// A Python file, and the name of the framework that serves it.
    Code {
        kind: String,
        code: String,
    },
    Argv(Vec<String>),
}

/// The state of an app. The fields are those of the native API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRow {
    pub app: String,
    pub sandbox: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_port: Option<u16>,
    pub session: String,
    pub started_at_ms: u64,
    /// The exit code that a shell would report, if the app has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl AppOrder {
    /// The operation in the words of the native API, and the sandbox that it is about.
    pub fn operation(&self) -> (&'static str, Option<&SandboxRef>) {
        match self {
            Self::Start(app) => ("start_app", Some(&app.sandbox)),
            Self::List { sandbox: None } => ("list_all_apps", None),
            Self::List { sandbox } => ("list_apps", sandbox.as_ref()),
            Self::Get { sandbox, .. } => ("get_app", Some(sandbox)),
            Self::Stop { sandbox, .. } => ("stop_app", Some(sandbox)),
            Self::Log { sandbox, .. } => ("read_app_log", Some(sandbox)),
        }
    }

    /// Whether the request only reads.
    pub fn looks(&self) -> bool {
        !matches!(self, Self::Start(_) | Self::Stop { .. })
    }
}

impl From<App> for AppRow {
    fn from(app: App) -> Self {
        let state = match app.state {
            State::Starting => "starting",
            State::Running => "running",
            State::Exited => "exited",
            State::Failed => "failed",
        };
        let url = app.host_port.map(|port| {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            format!("http://{address}/")
        });
        Self {
            app: app.name.to_string(),
            sandbox: app.which.to_string(),
            kind: app.kind.name().to_owned(),
            state: state.to_owned(),
            url,
            host_port: app.host_port,
            guest_port: app.port,
            session: app.session.to_string(),
            started_at_ms: app.started_at_ms,
            exit_code: app.exit.map(|record| record.cause.shell_code()),
            warnings: app.warnings,
        }
    }
}
