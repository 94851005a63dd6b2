//! `app`: start, list, read and stop web apps in sandboxes. The daemon does the work.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

use super::context::Context;
use super::exit::Exit;
use super::failure::{self, CliError};
use super::values::{parse_duration, resolve_variable};
use super::{output, table};
use control::{AppOrder, AppProgram, AppRow, ClientError, Request, StartApp};
use sandbox::SandboxRef;

/// The default number of log bytes that are shown.
const TAIL_DEFAULT: u64 = 16 * 1024;

/// Start, list and stop web apps
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge app start work -- sh -c 'exec python3 -m http.server $PORT'
  host-bridge app start work --type flask --code app.py --name shop
  curl -s $(host-bridge app url work shop)
  host-bridge app logs work shop
  host-bridge app stop work shop

An app must stay in the foreground and listen on $PORT. Its URL works on this host only and needs no key.")]
pub struct App {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start an app and print its URL
    Start(Box<Start>),
    /// List apps, including those that have exited
    Ls {
        /// List only the apps of this sandbox
        #[arg(value_name = "SANDBOX")]
        which: Option<SandboxRef>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop apps and their child processes
    Stop {
        /// The sandbox: NAME or NAMESPACE/NAME
        #[arg(value_name = "SANDBOX")]
        which: SandboxRef,
        /// The apps, by name
        #[arg(required = true, value_name = "APP")]
        apps: Vec<String>,
    },
    /// Show the latest output of an app
    Logs {
        /// The sandbox: NAME or NAMESPACE/NAME
        #[arg(value_name = "SANDBOX")]
        which: SandboxRef,
        /// The app, by name
        #[arg(value_name = "APP")]
        app: String,
        /// Print at most this many bytes
        #[arg(long, value_name = "BYTES", default_value_t = TAIL_DEFAULT)]
        tail: u64,
    },
    /// Print the URL of an app
    Url {
        /// The sandbox: NAME or NAMESPACE/NAME
        #[arg(value_name = "SANDBOX")]
        which: SandboxRef,
        /// The app, by name
        #[arg(value_name = "APP")]
        app: String,
    },
}

/// The framework that serves a Python file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    Flask,
    Fastapi,
    Streamlit,
    /// The code itself listens on $PORT
    Command,
}

#[derive(Debug, Args)]
struct Start {
    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    which: SandboxRef,

    /// Set the name (default: one made from the type)
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Set the framework that serves --code
    #[arg(long = "type", value_name = "TYPE", value_enum, requires = "code")]
    kind: Option<Type>,

    /// Serve this Python file from the host with the framework of --type
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    code: Option<PathBuf>,

    /// Set the port in the sandbox (default: a free one)
    #[arg(long, value_name = "PORT")]
    port: Option<NonZeroU16>,

    /// Set the port on this host; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    host_port: u16,

    /// Set an environment variable; NAME alone passes the current value; repeatable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,

    /// Set the working directory in the sandbox
    #[arg(short, long, value_name = "DIR")]
    workdir: Option<String>,

    /// Set the path that is requested to check that the app is ready (default: /)
    #[arg(long, value_name = "PATH")]
    ready_path: Option<String>,

    /// Set how long the app may take to become ready, as in 30s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    ready_timeout: Option<Duration>,

    /// Set the Python interpreter for --code
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// A command that serves on $PORT, and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "code")]
    command: Vec<String>,
}

impl App {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        match &self.verb {
            Verb::Start(start) => start.run(context).await,
            Verb::Ls { which, json } => list(context, which.clone(), *json).await,
            Verb::Stop { which, apps } => stop(context, which, apps).await,
            Verb::Logs { which, app, tail } => {
                let (sandbox, app, bytes_max) = (which.clone(), app.clone(), *tail);
                let order = AppOrder::Log { sandbox, app, bytes_max };
                let log = context.daemon().await?.ask::<String>(&Request::App(order)).await?;
                // The words are the guest's, and a terminal would obey them.
                for line in log.lines() {
                    output::print_line(&output::printable(line))?;
                }
                Ok(Exit::SUCCESS)
            }
            Verb::Url { which, app } => {
                let order = AppOrder::Get { sandbox: which.clone(), app: app.clone() };
                let row = context.daemon().await?.ask::<AppRow>(&Request::App(order)).await?;
                let unreachable =
                    || CliError::AppUnreachable { app: row.app.clone(), state: row.state.clone() };
                output::print_line(row.url.as_deref().ok_or_else(unreachable)?)?;
                Ok(Exit::SUCCESS)
            }
        }
    }
}

impl Start {
    async fn run(&self, context: &Context) -> Result<Exit> {
        let what = match &self.code {
            Some(path) => {
                let kind = self.kind.unwrap_or(Type::Flask).to_possible_value();
                let kind = kind.map(|kind| kind.get_name().to_owned()).unwrap_or_default();
                AppProgram::Code { kind, code: read(path)? }
            }
            None => AppProgram::Argv(self.command.clone()),
        };
        let mut env = BTreeMap::new();
        for variable in &self.env {
            env.extend(resolve_variable(variable, |name| std::env::var(name).ok())?);
        }
        let app = StartApp {
            sandbox: self.which.clone(),
            name: self.name.clone(),
            what,
            port: self.port,
            host_port: self.host_port,
            env,
            workdir: self.workdir.clone(),
            ready_path: self.ready_path.clone(),
            ready_timeout_ms: self
                .ready_timeout
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            python: self.python.clone(),
        };
        let request = Request::App(AppOrder::Start(Box::new(app)));
        let row: AppRow = context.daemon().await?.ask(&request).await?;
        for warning in &row.warnings {
            output::note(&output::printable(warning));
        }
        if self.json {
            output::print_json(&row)?;
        } else {
            output::print_line(row.url.as_deref().unwrap_or(&row.app))?;
        }
        Ok(Exit::SUCCESS)
    }
}

fn read(path: &Path) -> Result<String, CliError> {
    fs::read_to_string(path)
        .map_err(|source| CliError::Unreadable { path: path.to_owned(), source })
}

async fn list(context: &Context, sandbox: Option<SandboxRef>, json: bool) -> Result<Exit> {
    let request = Request::App(AppOrder::List { sandbox });
    let rows: Vec<AppRow> = context.daemon().await?.ask(&request).await?;
    if json {
        output::print_json(&rows)?;
    } else {
        let rows: Vec<_> = rows.iter().map(line).collect();
        output::print(&table::align(["APP", "SANDBOX", "TYPE", "STATE", "URL"], &rows))?;
    }
    Ok(Exit::SUCCESS)
}

fn line(row: &AppRow) -> [String; 5] {
    let state = match row.exit_code {
        Some(code) => format!("{} ({code})", row.state),
        None => row.state.clone(),
    };
    let url = row.url.clone().unwrap_or_else(|| "-".to_owned());
    [row.app.clone(), row.sandbox.clone(), row.kind.clone(), state, url]
}

async fn stop(context: &Context, which: &SandboxRef, apps: &[String]) -> Result<Exit> {
    let mut daemon = context.daemon().await?;
    let mut exit = Exit::SUCCESS;
    for app in apps {
        let order = AppOrder::Stop { sandbox: which.clone(), app: app.clone() };
        match daemon.ask::<AppRow>(&Request::App(order)).await {
            Ok(row) => output::print_line(&row.app)?,
            // A refusal of one does not concern the next; a lost bridge does.
            Err(error @ ClientError::Refused(_)) => exit = failure::report(&error.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(exit)
}
