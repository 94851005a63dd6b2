//! `context`: list, open, restart, interrupt and close the interpreters of a sandbox.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use protocol::ContextName;
use protocol::repl::{ContextInfo, ContextState, Grace, Interrupt, OpenContext};
use serde_json::json;

use super::context::Context;
use super::exit::Exit;
use super::failure::CliError;
use super::group_limits::GroupLimitArguments;
use super::missing::explain_missing;
use super::output::printable;
use super::repl::InterpreterArguments;
use super::repl::language::Language;
use super::values::human_duration;
use super::{instant, output, table};
use agent_client::guest::Guest;
use sandbox::SandboxRef;

/// Manage the interpreters of a sandbox
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge context ls work
  host-bridge context open work python             start it before its first run
  host-bridge context open work old --lang python --program python3.9
  host-bridge context interrupt work               as ctrl-c does; there is only one
  host-bridge context restart work python          start again with an empty state
  host-bridge context open work small --memory 256M --processes 20
  host-bridge context ls --json work | jq -r '.[] | select(.state == \"running\") | .context'

A context is an interpreter that keeps its state between runs of code. `repl`, `attach --repl` and
programs that use the API share a context when they use the same name.")]
pub struct Contexts {
    #[command(subcommand)]
    act: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the contexts of a sandbox
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Start an interpreter unless it is running
    Open(Box<Open>),
    /// Replace the interpreter with a new one
    Restart {
        #[command(flatten)]
        common: CommonArguments,
        #[command(flatten)]
        which: ContextArgument,
    },
    /// Interrupt a run, with increasing force
    Interrupt {
        #[command(flatten)]
        common: CommonArguments,
        #[command(flatten)]
        which: ContextArgument,
        /// Interrupt only this run, running or queued (default: the current one)
        #[arg(long, value_name = "NUMBER")]
        run: Option<u64>,
        /// Kill the interpreter at once instead
        #[arg(long)]
        now: bool,
    },
    /// Close a context and kill its processes
    #[command(visible_alias = "rm")]
    Close {
        #[command(flatten)]
        common: CommonArguments,
        #[command(flatten)]
        which: ContextArgument,
    },
}

#[derive(Debug, Args)]
struct CommonArguments {
    /// The sandbox: NAME or NAMESPACE/NAME
    #[arg(value_name = "SANDBOX")]
    place: SandboxRef,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ContextArgument {
    /// The context (default: the only one)
    #[arg(value_name = "NAME")]
    name: Option<ContextName>,
}

#[derive(Debug, Args)]
struct Open {
    #[command(flatten)]
    common: CommonArguments,

    /// The context's name; a language's name selects that language
    #[arg(value_name = "NAME")]
    name: ContextName,

    #[command(flatten)]
    interpreter: InterpreterArguments,

    #[command(flatten)]
    limits: GroupLimitArguments,
}

impl Contexts {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let common = self.act.common();
        let guest = context.guest(&common.place, "context").await?;
        let done = self.act.run(&guest, common).await;
        guest.close().await;
        done.map(|()| Exit::SUCCESS)
    }
}

impl Verb {
    fn common(&self) -> &CommonArguments {
        match self {
            Self::Ls { common }
            | Self::Restart { common, .. }
            | Self::Interrupt { common, .. }
            | Self::Close { common, .. } => common,
            Self::Open(open) => &open.common,
        }
    }

    async fn run(&self, guest: &Guest, common: &CommonArguments) -> Result<()> {
        match self {
            Self::Ls { .. } => list(guest, common).await,
            Self::Open(open) => open.run(guest).await,
            Self::Restart { which, .. } => {
                let name = which.find(guest, common).await?;
                let info = guest.restart_context(&name).await.map_err(explain_missing)?;
                print_context(&info, common)
            }
            Self::Interrupt { which, run, now, .. } => {
                let name = which.find(guest, common).await?;
                let at_once = now.then_some(0);
                let grace = Grace { polite_ms: at_once, firm_ms: at_once };
                let ask = Interrupt { context: name.clone(), run: *run, grace };
                tell_interrupted(guest.interrupt(ask).await?, &name, common)
            }
            Self::Close { which, .. } => {
                let name = which.find(guest, common).await?;
                guest.close_context(&name).await?;
                if common.json {
                    output::print_json(&json!({ "closed": name }))?;
                }
                Ok(())
            }
        }
    }
}

impl ContextArgument {
    /// The named context, or the only one.
    async fn find(&self, guest: &Guest, common: &CommonArguments) -> Result<ContextName> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let mut names: Vec<_> =
            guest.contexts().await?.into_iter().map(|info| info.context).collect();
        let which = common.place.clone();
        match (names.pop(), names.is_empty()) {
            (None, _) => Err(CliError::NoContexts(which).into()),
            (Some(name), true) => Ok(name),
            (Some(last), false) => {
                let names = names.iter().chain([&last]).map(ToString::to_string).collect();
                Err(CliError::SeveralContexts { which, names }.into())
            }
        }
    }
}

impl Open {
    async fn run(&self, guest: &Guest) -> Result<()> {
        let called = || Language::called(self.name.as_str());
        let language = self.interpreter.lang.clone().or_else(called).unwrap_or_default();
        let limits = self.limits.limits();
        let ask = OpenContext { limits, ..self.interpreter.open(self.name.clone(), &language)? };
        let info = guest.open_context(&ask).await.map_err(explain_missing)?;
        info.warnings.iter().for_each(|warning| output::note(&printable(warning)));
        print_context(&info, &self.common)
    }
}

async fn list(guest: &Guest, common: &CommonArguments) -> Result<()> {
    let contexts = guest.contexts().await?;
    if common.json {
        return Ok(output::print_json(&contexts)?);
    }
    let now_ms = instant::now_ms();
    let rows: Vec<_> = contexts.iter().map(|info| row(info, now_ms)).collect();
    let head = ["CONTEXT", "LANGUAGE", "VERSION", "STATE", "RUNS", "WAITING", "PID", "AGE"];
    Ok(output::print(&table::align(head, &rows))?)
}

fn row(info: &ContextInfo, now_ms: u64) -> [String; 8] {
    let age = Duration::from_millis(now_ms.saturating_sub(info.opened_at_ms));
    let living = |tell: fn(&protocol::repl::Interpreter) -> String| {
        info.interpreter.as_ref().map_or_else(|| "-".to_owned(), tell)
    };
    [
        info.context.to_string(),
        printable(&info.language),
        living(|interpreter| printable(&interpreter.version)),
        state(info),
        info.runs.to_string(),
        info.queued.to_string(),
        living(|interpreter| interpreter.pid.to_string()),
        human_duration(age),
    ]
}

fn state(info: &ContextInfo) -> String {
    let state = match info.state {
        ContextState::Cold => "cold",
        ContextState::Starting => "starting",
        ContextState::Idle => "idle",
        ContextState::Running => "running",
        ContextState::Interrupting => "interrupting",
    };
    let running = info.running.map(|run| format!(" {run}")).unwrap_or_default();
    let lost = if info.lost.is_some() { " (lost)" } else { "" };
    format!("{state}{running}{lost}")
}

fn print_context(info: &ContextInfo, common: &CommonArguments) -> Result<()> {
    if common.json {
        return Ok(output::print_json(info)?);
    }
    Ok(output::print_line(info.context.as_str())?)
}

fn tell_interrupted(run: Option<u64>, name: &ContextName, common: &CommonArguments) -> Result<()> {
    if common.json {
        return Ok(output::print_json(&json!({ "run": run }))?);
    }
    match run {
        Some(run) => output::note(&format!("interrupting run {run} of {name}")),
        None => output::note(&format!("nothing is running in {name}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::repl::Interpreter;

    use super::*;

    #[test]
    fn a_context_is_a_row() {
        let mut info = ContextInfo {
            context: "python".parse().expect("a name"),
            language: "python".to_owned(),
            state: ContextState::Running,
            interpreter: Some(Interpreter {
                pid: 7,
                program: "/usr/bin/python3".to_owned(),
                version: "3.1\x1b[2J".to_owned(),
            }),
            interpreters: 1,
            runs: 3,
            running: Some(4),
            queued: 2,
            opened_at_ms: 1000,
            cwd: None,
            lost: None,
            warnings: Vec::new(),
        };
        let cells = row(&info, 13_000);
        let expected = ["python", "python", "3.1\\u{1b}[2J", "running 4", "3", "2", "7", "12s"];
        assert_eq!(cells, expected);
        info.state = ContextState::Cold;
        (info.running, info.interpreter) = (None, None);
        info.lost = Some("killed".to_owned());
        let cells = row(&info, 0);
        assert_eq!(cells[2..4], ["-".to_owned(), "cold (lost)".to_owned()]);
    }
}
