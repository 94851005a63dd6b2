//! The verbs that people and scripts type. One file per verb; this one is their table.
//!
//! A verb asks the daemon over `control`, or calls the crates below in its own process, and never sees a frame. This
//! is the only part of the bridge that writes to stdout and stderr, all of it through [`output`], and the only one that
//! may use `anyhow`: errors end here, as a line for a person ([`failure`]) and a code for a script
//! ([`exit`]).

#![forbid(unsafe_code)]

mod all_nodes;
mod app;
mod archive_target;
mod artifact;
mod attach;
mod attempt;
mod audit;
mod background;
mod bind;
mod caps;
mod command_line;
mod completions;
mod context;
mod contexts;
mod cp;
mod daemon;
mod doctor;
mod events;
mod exec;
mod exit;
mod failure;
mod fleet;
mod fleet_guardian;
mod following;
mod fork;
mod group_limits;
mod help;
mod history;
mod image;
mod inspect;
mod keygen;
mod keys;
mod kill;
mod logs;
mod machine_config;
mod machine_kind;
mod man;
mod mcp;
mod missing;
mod node;
mod one_shot;
mod output;
mod pause;
mod pool;
mod port_forward;
mod preview;
mod prompt;
mod ps;
mod receipt;
#[cfg(test)]
mod reference;
mod repl;
mod replay;
mod restart;
mod resume;
mod rm;
mod run;
mod sandbox_options;
mod serve;
mod servers;
mod session;
mod share;
mod snapshot;
mod ssh_config;
mod start;
mod stats;
mod stop;
mod store;
mod sync;
mod table;
pub mod template;
pub mod terminal;
mod top;
mod update;
mod usage;
mod values;
mod verify;
mod version;
mod wait;

use std::cell::OnceCell;
use std::process::ExitCode;

pub use servers::{Served, Servers};

use clap::builder::FalseyValueParser;
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::terminal::guardian;
use context::Context;
use exit::Exit;
use host::instant;

/// Run untrusted code in sandboxes and watch it.
#[derive(Debug, Parser)]
#[command(
    name = "host-bridge",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Try it:
  host-bridge run -- echo hello            run a command in a new sandbox, then remove it
  host-bridge run -it -- bash              run a shell on your terminal
  host-bridge doctor                       check what this host can run

Keep a sandbox (the daemon that it needs starts by itself):
  host-bridge start --name work
  host-bridge exec work -- make test
  host-bridge attach work                  open a shell; ctrl-p ctrl-q detaches

A sandbox is named NAME, or NAMESPACE/NAME outside the \"default\" namespace."
)]
struct Arguments {
    /// Do not start the daemon; fail if none runs
    #[arg(long, global = true, env = "BURROW_NO_DAEMON", hide_env_values = true,
          value_parser = FalseyValueParser::new())]
    no_daemon: bool,

    #[command(subcommand)]
    verb: Verb,
}

/// Generates the verbs from their table: the definition, the groups of the help, and the function
/// of each.
macro_rules! verbs {
    (@run $verb:ident, $context:ident) => { $verb.run($context()?).await };
    (@run $verb:ident, $context:ident, $run:expr) => { $run };
    ($verb:ident, $context:ident;
     $($title:literal { $($name:ident($arguments:ty) $(=> $run:expr)?;)* })*) => {
        #[derive(Debug, Subcommand)]
        enum Verb {
            $($($name($arguments),)*)*
            /// Restores the terminal of an attached person whose bridge was killed.
            #[command(name = guardian::VERB, hide = true)]
            TerminalGuard,
            /// Runs a probe in a separate process, because it would change ours.
            #[command(name = doctor::probe::VERB, hide = true)]
            Probe(doctor::probe::Probe),
            /// Carries a directory of the host into a sandbox.
            #[command(name = machine::process::bind::VERB, hide = true)]
            Bind(bind::BindArguments),
            /// Becomes the daemon that shares a directory of the host with a machine.
            #[command(name = machine::qemu::share::VERB, hide = true)]
            Share(share::ShareArguments),
            /// Ends the sandboxes of a node whose lease is over.
            #[command(name = ::node::guardian::VERB, hide = true)]
            FleetGuardian(fleet_guardian::GuardianArguments),
            /// Becomes a program that ends with its parent.
            #[command(name = fleet::CHILD_VERB, hide = true)]
            FleetChild(fleet::Child),
        }

        /// The groups of the help, and how many verbs each has.
        const GROUPS: &[(&str, usize)] = &[$(($title, [$(stringify!($name)),*].len())),*];

        async fn run_verb<S: Servers>(verb: Verb, may_start: bool) -> anyhow::Result<Exit> {
            let known = OnceCell::new();
            let $context = || match known.get() {
                Some(context) => Ok::<&Context, anyhow::Error>(context),
                None => {
                    let context = Context::from_environment(may_start)?;
                    Ok(known.get_or_init(|| context))
                }
            };
            let exit = match verb {
                $($(Verb::$name($verb) => verbs!(@run $verb, $context $(, $run)?),)*)*
                // They ran before there was a loop.
                Verb::TerminalGuard
                | Verb::Probe(_)
                | Verb::Bind(_)
                | Verb::Share(_)
                | Verb::FleetGuardian(_)
                | Verb::FleetChild(_) => {
                    Ok(Exit::SUCCESS)
                }
            };
            match (exit, known.get()) {
                (Err(error), Some(context)) => Err(context.explain_lost(error).await),
                (exit, _) => exit,
            }
        }
    };
}

// A row is a verb and the arguments that its file defines; a function behind it replaces `run(context)`. Help and
// the page of commands have the same groups and the same order. The `mod` lines above stay apart from the rows:
// rustfmt does not format a file whose `mod` line a macro writes.
verbs! { verb, context;
    "Run" {
        Run(run::Run);
        Repl(repl::Repl);
        Exec(exec::Exec);
        Attach(attach::Attach);
        Context(contexts::Contexts);
        History(history::History) => verb.run(context()?);
    }
    "Sandboxes" {
        Start(start::Start);
        Ps(ps::Ps);
        Inspect(inspect::Inspect);
        Logs(logs::Logs);
        Replay(replay::Replay);
        Verify(verify::Verify);
        Receipt(receipt::ReceiptVerb);
        Events(events::Events);
        Stats(stats::Stats);
        Top(top::Top);
        Wait(wait::Wait);
        Stop(stop::Stop);
        Restart(restart::Restart);
        Kill(kill::Kill);
        Rm(rm::Rm);
        Pause(pause::Pause);
        Resume(resume::Resume);
        Update(update::Update);
        Snapshot(snapshot::Snapshot);
        Template(template::Template);
        Fork(fork::Fork);
        Try(attempt::Try);
    }
    "Files, ports and artifacts" {
        Cp(cp::Cp);
        Sync(sync::Sync);
        PortForward(port_forward::PortForward);
        Preview(preview::Preview);
        App(app::App);
        Artifact(artifact::Artifact);
    }
    "Images and machines" {
        Image(image::Image);
        Pool(pool::Pool);
        MachineConfig(machine_config::MachineConfig) => verb.run();
    }
    "Serve programs" {
        Serve(serve::Serve) => verb.run::<S>(context()?).await;
        Daemon(daemon::Daemon);
        Node(node::Node);
        Fleet(fleet::Fleet) => verb.run().await;
        Mcp(mcp::Mcp) => verb.run::<S>(context()?).await;
        Keygen(keygen::Keygen);
        Keys(keys::Keys);
        SshConfig(ssh_config::SshConfig) => verb.run(context()?);
        Caps(caps::Caps);
        Usage(usage::Usage);
        Audit(audit::Audit);
        Store(store::Store) => verb.run(context()?);
    }
    "This program" {
        Doctor(doctor::Doctor);
        Completions(completions::Completions) => verb.run(&Arguments::command());
        Man(man::Man) => verb.run(Arguments::command());
        Version(version::Version);
    }
}

/// The whole program.
pub fn main<S: Servers>() -> ExitCode {
    host::helper::offer_this_program();
    completions::answer(definition);
    // Only help and errors need the shape, and that takes longer than all else that a verb has to do first.
    let matches =
        Arguments::command().try_get_matches().or_else(|_| definition().try_get_matches());
    let arguments = match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return command_line::report(&error).into(),
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
        Verb::FleetGuardian(guardian) => guardian.run().into(),
        Verb::FleetChild(child) => child.run().into(),
        verb => run_with_loop::<S>(verb, !arguments.no_daemon),
    }
}

/// The definition of the verbs, for the reader's terminal.
fn definition() -> Command {
    help::command(Arguments::command(), help::width())
}

/// All other verbs wait for something.
fn run_with_loop<S: Servers>(verb: Verb, may_start: bool) -> ExitCode {
    if let Verb::Serve(serve) = &verb
        && serve.is_unattended()
    {
        background::detach();
    }
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
    let exit = runtime.block_on(run_verb::<S>(verb, may_start));
    // A thread that still reads the keyboard must not keep us.
    runtime.shutdown_background();
    exit.unwrap_or_else(|error| failure::report(&error)).into()
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
    fn a_public_key_may_begin_with_a_dash() {
        let line = ["host-bridge", "receipt", "verify", "build.receipt", "--key", "-Kq"];
        assert!(Arguments::try_parse_from(line).is_ok());
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
            "host-bridge replay box build --speed 2.5 --from @4096 --max-idle 2s",
            "host-bridge replay box --export html page.html",
            "host-bridge verify --json team/box build",
            "host-bridge receipt box build",
            "host-bridge receipt key",
            "host-bridge receipt verify a b --key k",
            "host-bridge cp -q - box:/tmp/x",
            "host-bridge port-forward box 8080:80 0:443",
            "host-bridge preview work 3000 --for 7d --json",
            "host-bridge preview ls team/work --json",
            "host-bridge preview rm work 0123456789ab ba9876543210",
            "host-bridge kill -s HUP box abc",
            "host-bridge mcp --namespace team --machine qemu --image full",
            "host-bridge keygen --namespace * --expire never --scope read,admin --name ci --json",
            "host-bridge keys ls -aq",
            "host-bridge keys revoke 0123456789ab ba9876543210",
            "host-bridge keys rotate --finish",
            "host-bridge keys add-ssh 0123456789ab id.pub",
            "host-bridge ssh-config team/work --address [::1]:22",
            "host-bridge serve --ssh --dev",
            "host-bridge serve --ssh 0.0.0.0:2222",
            "host-bridge pause a b",
            "host-bridge fork work one two --json",
            "host-bridge fork team/work --count 50",
            "host-bridge try --keep --json work -- ls -l /",
            "host-bridge resume a",
            "host-bridge update a b --ttl 2h --idle-ttl none --egress @pypi --egress example.org",
            "host-bridge update work --no-egress",
            "host-bridge snapshot work base",
            "host-bridge snapshot ls --json",
            "host-bridge snapshot rm base team/base",
            "host-bridge template ls --json",
            "host-bridge template show shop:v2",
            "host-bridge template create shop --image app:1 -e A=1 --start ./serve --ready true --ready-timeout 30s --warm 2",
            "host-bridge template rm shop team/shop:v2",
            "host-bridge start --template shop:v2",
            "host-bridge run --image alpine:3",
            "host-bridge image ls --json",
            "host-bridge image inspect python:3.12",
            "host-bridge image import saved.tar --name team/app:2",
            "host-bridge image rm python:3.12 0123456789ab",
            "host-bridge image prune",
            "host-bridge image save python:3.12 0123456789ab -o - --format docker",
            "host-bridge image pull ghcr.io/team/app:2 --quiet",
            "host-bridge artifact ls --sandbox team/work --category image -n 5 --json",
            // Earlier spellings still work.
            "host-bridge artifact ls --box work",
            "host-bridge serve --stop-boxes",
            "host-bridge artifact get 0123456789abcdef -o plot.png",
            "host-bridge artifact rm 0123456789abcdef fedcba9876543210",
            "host-bridge events -f --since 1200 --kind exited --json box",
            "host-bridge events --dead-letters --json",
            "host-bridge audit --since 1h --outcome refused -f --json",
            "host-bridge audit verify --json",
            "host-bridge usage --namespace ci --since 24h --until 2026-01-31 --json",
            "host-bridge start --secret a --secret b",
            "host-bridge start --snapshot base --name x",
            "host-bridge stop --grace 3s a b",
            "host-bridge restart -e TOKEN --grace 3s a",
            "host-bridge wait --timeout 3s a b",
            "host-bridge wait a --session build",
            "host-bridge stats --json a",
            "host-bridge ps --no-daemon",
            "host-bridge --no-daemon ps",
            "host-bridge pool --json",
            "host-bridge node ls --json",
            "host-bridge node cordon host2",
            "host-bridge fleet dev --nodes 5 --json",
            "host-bridge serve --fleet nats://10.0.0.1:4222 --fleet nats://10.0.0.2:4222",
            "host-bridge store repair --json",
        ] {
            let parsed = Arguments::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.expect_err("is an error"));
        }
    }

    #[test]
    fn contradicting_options_are_refused() {
        for line in [
            "host-bridge run",
            "host-bridge exec box",
            "host-bridge wait",
            "host-bridge restart",
            "host-bridge man",
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
            "host-bridge replay box --speed -1",
            "host-bridge replay box --from soon",
            "host-bridge replay box --speed 2 --export html page.html",
            "host-bridge replay box --export html",
            "host-bridge receipt box",
            "host-bridge receipt verify a",
            "host-bridge cp onlyone",
            "host-bridge image save",
            "host-bridge image save x --format zip",
            "host-bridge keygen --scope write",
            "host-bridge keygen --namespace a/b",
            "host-bridge keys",
            "host-bridge keys revoke",
            "host-bridge keys revoke msb_x",
            "host-bridge keys add-ssh 0123456789ab",
            "host-bridge ssh-config --address here",
            "host-bridge keys rotate --drop-old --finish",
            "host-bridge port-forward box",
            "host-bridge preview work",
            "host-bridge preview work 0",
            "host-bridge preview ls",
            "host-bridge preview rm work",
            "host-bridge pause",
            "host-bridge update work",
            "host-bridge update --ttl 2h",
            "host-bridge update work --ttl soon",
            "host-bridge update work --egress a.org --no-egress",
            "host-bridge fork",
            "host-bridge fork work one --count 2",
            "host-bridge fork work a/b",
            "host-bridge try work",
            "host-bridge snapshot",
            "host-bridge snapshot work",
            "host-bridge snapshot work a/b",
            "host-bridge snapshot rm",
            "host-bridge template",
            "host-bridge template create",
            "host-bridge template create a/b/c",
            "host-bridge start --template a/b",
            "host-bridge start --template a --image b",
            "host-bridge artifact",
            "host-bridge image",
            "host-bridge image rm",
            "host-bridge image import x --name A:B:C",
            "host-bridge artifact ls --category nice",
            "host-bridge artifact get ../x",
            "host-bridge artifact rm",
            "host-bridge events --kind born",
            "host-bridge events --namespace team work",
            "host-bridge events --dead-letters -f",
            "host-bridge audit --outcome well",
            "host-bridge audit -f verify",
            "host-bridge store",
        ] {
            assert!(Arguments::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
