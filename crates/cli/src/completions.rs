//! `completions`: print a shell's completion script for our command lines, and answer its queries.
//!
//! The script asks this program for each word, so that names of sandboxes, sessions, images and
//! snapshots are those that there are. To ask never starts the daemon, and takes a second at most.

use std::ffi::OsStr;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Arg, Args, Command};
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};

use super::context::Context;
use super::exit::Exit;
use super::output;
use control::{List, Request};
use image::Images;
use image::reference::Reference;
use sandbox::{ListedSnapshot, Record, SandboxRef, TemplateInfo};

/// Set by the script, to the shell that asks.
const VARIABLE: &str = "HOST_BRIDGE_COMPLETE";
/// How long a shell waits for names: a longer wait is worse than none.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Print shell completions
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(host-bridge completions bash)
  host-bridge completions zsh > ~/.zfunc/_host-bridge
  host-bridge completions fish > ~/.config/fish/completions/host-bridge.fish

Names of sandboxes, sessions, images, snapshots and templates are completed too. The script asks this program, so \
print it again after an update.")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(&self, command: &Command) -> Result<Exit> {
        let name = command.get_name();
        let called = std::env::args_os().next().unwrap_or_default();
        let called = called.to_string_lossy();
        // Called by a path, it is not on the search path as a rule.
        let completer = if called.contains('/') {
            std::path::absolute(&*called)?.display().to_string()
        } else {
            name.to_owned()
        };
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell.to_string()).context("an unknown shell")?;
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, name, name, &completer, &mut script)?;
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::SUCCESS)
    }
}

/// Answers a shell that asks, and ends the process then.
pub fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(|| with_names(without_hidden(&command()))).var(VARIABLE).complete();
}

/// The command without hidden verbs, which would be suggested.
fn without_hidden(command: &Command) -> Command {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("host-bridge")
        .about(command.get_about().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
        .subcommands(verbs)
}

/// Sets where the values of arguments come from, by their names in help.
fn with_names(command: Command) -> Command {
    let verb = command.get_name().to_owned();
    let command = command.mut_args(|argument| match completer(&verb, &argument) {
        Some(completer) => argument.add(completer),
        None => argument,
    });
    command.mut_subcommands(with_names)
}

fn completer(verb: &str, argument: &Arg) -> Option<ArgValueCompleter> {
    let named = argument.get_value_names().unwrap_or_default().first()?.as_str();
    // These two name a session that does not exist yet.
    let is_new = matches!(verb, "run" | "exec");
    match (named, argument.get_id().as_str()) {
        ("SANDBOX" | "SANDBOX] [FILE" | "SOURCE" | "DESTINATION", _) => {
            Some(ArgValueCompleter::new(Names(sandboxes, named != "SANDBOX")))
        }
        ("SESSION", _) | (_, "session") if !is_new => {
            Some(ArgValueCompleter::new(Names(sessions, false)))
        }
        ("IMAGE", _) => Some(ArgValueCompleter::new(Names(images, true))),
        ("TEMPLATE", _) => Some(ArgValueCompleter::new(Names(templates, false))),
        ("SNAPSHOT", _) => Some(ArgValueCompleter::new(Names(snapshots, false))),
        (_, "egress") => Some(ArgValueCompleter::new(Names(rules, false))),
        _ => None,
    }
}

/// Names of one kind, and whether a path of the host may stand there too.
struct Names(fn(&Context) -> Vec<String>, bool);

impl ValueCompleter for Names {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let Ok(context) = Context::from_environment(false) else { return Vec::new() };
        let begun = current.to_string_lossy();
        let names = (self.0)(&context).into_iter().filter(|name| name.starts_with(&*begun));
        let mut found: Vec<_> = names.map(CompletionCandidate::new).collect();
        if self.1 {
            found.extend(PathCompleter::any().complete(current));
        }
        found
    }
}

fn within<T>(asking: impl Future<Output = Result<T>>) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async { tokio::time::timeout(WAIT_MAX, asking).await }).ok()?.ok()
}

fn records(context: &Context) -> Vec<Record> {
    let list = List { all: true, ..List::default() };
    let asking = async { Ok(context.running().await?.list(list).await?) };
    within(asking).unwrap_or_default()
}

fn sandboxes(context: &Context) -> Vec<String> {
    records(context).iter().map(|record| record.which().to_string()).collect()
}

fn snapshots(context: &Context) -> Vec<String> {
    let asking = async {
        let listing = Request::Snapshots {};
        Ok(context.running().await?.ask::<Vec<ListedSnapshot>>(&listing).await?)
    };
    let found = within(asking).unwrap_or_default();
    found.iter().map(|listed| listed.snapshot.which().to_string()).collect()
}

/// The egress rules that have a name.
fn rules(_: &Context) -> Vec<String> {
    egress::preset_names().chain(["public", "none"]).map(str::to_owned).collect()
}

fn templates(context: &Context) -> Vec<String> {
    let asking = async {
        Ok(context.running().await?.ask::<Vec<TemplateInfo>>(&Request::Templates {}).await?)
    };
    let found = within(asking).unwrap_or_default();
    found.iter().map(|template| template.which().to_string()).collect()
}

/// The sessions of the sandbox that the line names before.
fn sessions(context: &Context) -> Vec<String> {
    let known: Vec<SandboxRef> = records(context).iter().map(Record::which).collect();
    let named = std::env::args().filter_map(|word| word.parse().ok());
    let Some(which) = named.into_iter().find(|which| known.contains(which)) else {
        return Vec::new();
    };
    let asking = async {
        let guest = context.look(&which, "complete").await?;
        let listed = guest.sessions(0).await?.sessions;
        guest.close().await;
        Ok(listed)
    };
    let listed = within(asking).unwrap_or_default();
    listed.iter().map(|session| session.session.to_string()).collect()
}

fn images(context: &Context) -> Vec<String> {
    let Ok(images) = Images::open(&context.paths) else { return Vec::new() };
    let Ok(listed) = images.list() else { return Vec::new() };
    let names = listed.iter().flat_map(|one| &one.names);
    names.filter_map(|named| Some(named.name.parse::<Reference>().ok()?.short())).collect()
}
