//! The verbs that people and scripts type. One file per verb; this one is their table.
//!
//! It uses `sandbox`, `control` and `guest`, and never sees a frame. It is the only part of the
//! bridge that writes to stdout and stderr, all of it through [`output`], and the only one that
//! may use `anyhow`: errors end here, as a line for a person ([`failure`]) and a code for a script
//! ([`exit`]).

#![forbid(unsafe_code)]

mod app;
mod artifact;
mod attach;
mod audit;
mod bind;
mod caps;
mod completions;
mod context;
mod contexts;
mod cp;
mod doctor;
mod exec;
mod exit;
mod failure;
mod history;
mod image;
mod inspect;
mod keygen;
mod keys;
mod kill;
mod logs;
mod machine_config;
mod machine_kind;
mod mcp;
mod missing;
mod output;
mod pause;
mod pool;
mod port_forward;
mod prompt;
mod ps;
#[cfg(test)]
mod reference;
mod repl;
mod resume;
mod rm;
mod run;
mod serve;
mod servers;
mod session;
mod share;
mod snapshot;
mod start;
mod stop;
mod sync;
mod table;
pub mod terminal;
mod values;
mod version;

use std::process::ExitCode;

pub use servers::{Served, Servers};

use clap::{CommandFactory, Parser, Subcommand};

use crate::terminal::guardian;
use context::Context;
use exit::Exit;
use host::instant;

/// Run untrusted code in sandboxes and watch it.
#[derive(Debug, Parser)]
#[command(
    name = "host-bridge",
    version,
    about,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Try it:
  host-bridge run -- echo hello            run a command in a new sandbox, then remove it
  host-bridge run -it -- bash              run a shell on your terminal
  host-bridge doctor                       check what this host can run

A sandbox that keeps running needs the daemon:
  host-bridge serve &
  host-bridge start --name work
  host-bridge exec work -- make test
  host-bridge attach work                  open a shell; ctrl-p ctrl-q detaches

A sandbox is named NAME, or NAMESPACE/NAME outside the \"default\" namespace."
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Run),
    Start(start::Start),
    Exec(exec::Exec),
    Repl(repl::Repl),
    Context(contexts::Contexts),
    Attach(attach::Attach),
    Ps(ps::Ps),
    Pool(pool::Pool),
    Caps(caps::Caps),
    Inspect(inspect::Inspect),
    Logs(logs::Logs),
    History(history::History),
    Cp(cp::Cp),
    PortForward(port_forward::PortForward),
    Kill(kill::Kill),
    Pause(pause::Pause),
    Resume(resume::Resume),
    Snapshot(snapshot::Snapshot),
    App(app::App),
    Artifact(artifact::Artifact),
    Audit(audit::Audit),
    Image(image::Image),
    Stop(stop::Stop),
    Sync(sync::Sync),
    Rm(rm::Rm),
    Serve(serve::Serve),
    Mcp(mcp::Mcp),
    MachineConfig(machine_config::MachineConfig),
    Keygen(keygen::Keygen),
    Keys(keys::Keys),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    Version(version::Version),
    /// Restores the terminal of an attached person whose bridge was killed.
    #[command(name = guardian::VERB, hide = true)]
    TerminalGuard,
    /// Tries in a process of its own what must not be tried in ours.
    #[command(name = doctor::probe::VERB, hide = true)]
    Probe(doctor::probe::Probe),
    /// Carries a directory of the host into a sandbox.
    #[command(name = machine::process::bind::VERB, hide = true)]
    Bind(bind::BindArguments),
    /// Becomes what shows a directory of the host to a machine.
    #[command(name = machine::qemu::share::VERB, hide = true)]
    Share(share::ShareArguments),
}

/// The whole program.
pub fn main<S: Servers>() -> ExitCode {
    host::helper::offer_this_program();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error).into(),
    };
    // These must run before there is any thread.
    match arguments.verb {
        Verb::TerminalGuard => {
            guardian::watch();
            Exit::SUCCESS.into()
        }
        Verb::Probe(probe) => probe.run().into(),
        Verb::Bind(carry) => carry.run().into(),
        Verb::Share(show) => show.run().into(),
        verb => run_with_loop::<S>(verb),
    }
}

/// All other verbs wait for something.
fn run_with_loop<S: Servers>(verb: Verb) -> ExitCode {
    // A server has many at once to wait for; a verb has one.
    let mut builder = match &verb {
        Verb::Serve(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = match builder.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::note(&format!("cannot start an event loop: {error}"));
            return Exit::FAILED_ITSELF.into();
        }
    };
    let exit = runtime.block_on(run_verb::<S>(verb));
    // A thread that still reads the keyboard must not keep us.
    runtime.shutdown_background();
    exit.unwrap_or_else(|error| failure::report(&error)).into()
}

async fn run_verb<S: Servers>(verb: Verb) -> anyhow::Result<Exit> {
    if let Verb::Completions(completions) = verb {
        return completions.run(&Arguments::command());
    }
    let context = Context::from_environment()?;
    match verb {
        Verb::Run(verb) => verb.run(&context).await,
        Verb::Start(verb) => verb.run(&context).await,
        Verb::Exec(verb) => verb.run(&context).await,
        Verb::Repl(verb) => verb.run(&context).await,
        Verb::Context(verb) => verb.run(&context).await,
        Verb::Attach(verb) => verb.run(&context).await,
        Verb::Ps(verb) => verb.run(&context).await,
        Verb::Pool(verb) => verb.run(&context).await,
        Verb::Caps(verb) => verb.run(&context).await,
        Verb::Inspect(verb) => verb.run(&context).await,
        Verb::Logs(verb) => verb.run(&context).await,
        Verb::History(verb) => verb.run(&context),
        Verb::Cp(verb) => verb.run(&context).await,
        Verb::PortForward(verb) => verb.run(&context).await,
        Verb::Kill(verb) => verb.run(&context).await,
        Verb::Pause(verb) => verb.run(&context).await,
        Verb::Resume(verb) => verb.run(&context).await,
        Verb::Snapshot(verb) => verb.run(&context).await,
        Verb::App(verb) => verb.run(&context).await,
        Verb::Artifact(verb) => verb.run(&context).await,
        Verb::Audit(verb) => verb.run(&context).await,
        Verb::Image(verb) => verb.run(&context).await,
        Verb::Stop(verb) => verb.run(&context).await,
        Verb::Sync(verb) => verb.run(&context).await,
        Verb::Rm(verb) => verb.run(&context).await,
        Verb::Serve(verb) => verb.run::<S>(&context).await,
        Verb::Mcp(verb) => verb.run::<S>(&context).await,
        Verb::MachineConfig(verb) => verb.run(),
        Verb::Keygen(verb) => verb.run(&context).await,
        Verb::Keys(verb) => verb.run(&context).await,
        Verb::Doctor(verb) => verb.run(&context).await,
        Verb::Version(verb) => verb.run(&context).await,
        Verb::Completions(_)
        | Verb::TerminalGuard
        | Verb::Probe(_)
        | Verb::Bind(_)
        | Verb::Share(_) => Ok(Exit::SUCCESS),
    }
}

/// Help and the version are what was asked for; anything else is our failure, as for docker.
fn usage(error: &clap::Error) -> Exit {
    if error.use_stderr() {
        output::note_verbatim(&error.render().to_string());
        Exit::FAILED_ITSELF
    } else {
        let _ = error.print();
        Exit::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Arguments;

    #[test]
    fn the_definition_of_the_verbs_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_verb_teaches_with_examples() {
        for verb in Arguments::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = help.matches("host-bridge ").count();
            assert!(examples >= 2, "{} has {examples} examples", verb.get_name());
            assert!(verb.get_about().is_some(), "{} says nothing of itself", verb.get_name());
        }
    }

    /// Every command that people see, with its path.
    fn shown(parent: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
        let children = parent.get_subcommands().filter(|child| !child.is_hide_set());
        let children = children.filter(|child| child.get_name() != "help");
        children
            .flat_map(|child| {
                let path = format!("{path} {}", child.get_name());
                let below = shown(child, &path);
                [(path, child.clone())].into_iter().chain(below)
            })
            .collect()
    }

    #[test]
    fn every_command_opens_with_one_short_line() {
        const WORDS_MAX: usize = 8;
        for (path, command) in shown(&Arguments::command(), "host-bridge") {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let words = about.split_whitespace().count();
            assert!((1..=WORDS_MAX).contains(&words), "{path}: {about:?} has {words} words");
            assert!(about.starts_with(char::is_uppercase), "{path}: {about:?}");
        }
    }

    #[test]
    fn every_argument_says_what_it_sets() {
        for (path, command) in shown(&Arguments::command(), "host-bridge") {
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{path}: {} has no help", argument.get_id());
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.split_whitespace().any(|word| word == "box"), "{path}: {help}");
            }
        }
    }

    #[test]
    fn a_commands_own_options_are_its_own() {
        for line in [
            "host-bridge run ls -la --color",
            "host-bridge run -it -e A=1 --timeout 5s -- sh -c 'echo $A'",
            "host-bridge run --name x --image /srv/root --machine process --scratch 64M -- ls -i",
            "host-bridge exec -i -t -d box ls -d -i --env",
            "host-bridge exec --env A=1 --env-file f --cwd / --user 1:1 --timeout 5 ns/box -- ls",
            "host-bridge repl",
            "host-bridge repl work a.py --lang node --context x --program /usr/bin/node22",
            "host-bridge repl work -c -1 -e A=1 -w / -u 1:1 --timeout 5s --json",
            "host-bridge repl --save-displays out --image /srv/root --scratch 64M -",
            "host-bridge context ls work --json",
            "host-bridge context open work py2 --lang python --program python3.12 -e A=1",
            "host-bridge context restart work",
            "host-bridge context interrupt work python --run 7 --now",
            "host-bridge context close work python",
            "host-bridge attach box --session abc --read-only --detach-keys ctrl-x,x",
            "host-bridge attach --uds /run/agent.sock",
            "host-bridge attach --hybrid /run/v.sock --port 1024",
            "host-bridge attach --cid 3 --port 1024 --take",
            "host-bridge logs -f --tail 10 --since 5m --stderr box",
            "host-bridge cp -q - box:/tmp/x",
            "host-bridge port-forward box 8080:80 0:443",
            "host-bridge kill -s HUP box abc",
            "host-bridge mcp --namespace team --machine qemu --image full",
            "host-bridge keygen --namespace * --expire never --scope read,admin --name ci --json",
            "host-bridge keys ls -aq",
            "host-bridge keys revoke 0123456789ab ba9876543210",
            "host-bridge keys rotate --finish",
            "host-bridge pause a b",
            "host-bridge resume a",
            "host-bridge snapshot work base",
            "host-bridge snapshot ls --json",
            "host-bridge snapshot rm base team/base",
            "host-bridge run --image alpine:3",
            "host-bridge image ls --json",
            "host-bridge image inspect python:3.12",
            "host-bridge image import saved.tar --name team/app:2",
            "host-bridge image rm python:3.12 0123456789ab",
            "host-bridge image prune",
            "host-bridge image save python:3.12 0123456789ab -o - --format docker",
            "host-bridge image pull ghcr.io/team/app:2 --quiet",
            "host-bridge artifact ls --box team/work --category image -n 5 --json",
            "host-bridge artifact get 0123456789abcdef -o plot.png",
            "host-bridge artifact rm 0123456789abcdef fedcba9876543210",
            "host-bridge audit --since 1h --outcome refused -f --json",
            "host-bridge audit verify --json",
            "host-bridge start --secret a --secret b",
            "host-bridge start --snapshot base --name x",
            "host-bridge stop --grace 3s a b",
            "host-bridge pool --json",
        ] {
            let parsed = Arguments::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.expect_err("is an error"));
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for line in [
            "host-bridge run",
            "host-bridge exec box",
            "host-bridge attach",
            "host-bridge attach box --uds /run/agent.sock",
            "host-bridge attach --hybrid /run/v.sock",
            "host-bridge attach --cid 3",
            "host-bridge attach box --take --read-only",
            "host-bridge repl a b c",
            "host-bridge repl --lang",
            "host-bridge repl --context a/b",
            "host-bridge repl --json --save-displays out",
            "host-bridge context",
            "host-bridge context ls",
            "host-bridge context open work",
            "host-bridge mcp work",
            "host-bridge mcp --namespace a/b",
            "host-bridge logs --stdout --stderr box",
            "host-bridge cp onlyone",
            "host-bridge image save",
            "host-bridge image save x --format zip",
            "host-bridge keygen --scope write",
            "host-bridge keygen --namespace a/b",
            "host-bridge keys",
            "host-bridge keys revoke",
            "host-bridge keys revoke msb_x",
            "host-bridge keys rotate --drop-old --finish",
            "host-bridge port-forward box",
            "host-bridge pause",
            "host-bridge snapshot",
            "host-bridge snapshot work",
            "host-bridge snapshot work a/b",
            "host-bridge snapshot rm",
            "host-bridge artifact",
            "host-bridge image",
            "host-bridge image rm",
            "host-bridge image import x --name A:B:C",
            "host-bridge artifact ls --category nice",
            "host-bridge artifact get ../x",
            "host-bridge artifact rm",
            "host-bridge audit --outcome well",
            "host-bridge audit -f verify",
        ] {
            assert!(Arguments::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
