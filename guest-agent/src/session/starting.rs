//! From a start request to a running session.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::rc::Rc;

use protocol::exit::{Cause, ExitRecord, SpawnFailure, SpawnStage, Usage};
use protocol::limits;
use protocol::message::{Channel, Started};
use protocol::requests::{Program, Start, Stdio};
use protocol::sorted::{SortedMap, SortedSet};
use protocol::{ClientId, Fault, FaultCode, Text};
use tokio::io::Interest;
use tokio::sync::watch;

use super::ending::{self, Ending};
use super::input;
use super::keyboard::Keyboard;
use super::program::Session;
use super::pump::{self, Gauge, Pump, Terminal};
use super::registry::Sessions;
use crate::cgroup::SessionGroup;
use crate::flow::Outlet;
use crate::ground::Ground;
use crate::process::{Command, Stdio as ProcessStdio, StdioPlan, environment, spawn_fault, user};
use crate::sys::clock;
use crate::task;

/// The shell of scripts that name none.
const SHELL_DEFAULT: &str = "/bin/sh";

/// Shells for people, the more comfortable first.
const LOGIN_SHELLS: [&str; 2] = ["/bin/bash", SHELL_DEFAULT];

/// Who asks for a start.
#[derive(Clone, Copy)]
pub struct Starter {
    pub client: ClientId,
}

/// What a start is made of besides its request.
struct Streams {
    outputs: Vec<(Channel, Outlet)>,
    gauges: Vec<(Channel, Gauge)>,
    pumps: Vec<Pump>,
    terminal: Option<Terminal>,
    input: Option<Rc<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>>,
}

impl Sessions {
    /// Starts a program, or finds the session that the same request has started before.
    pub fn start(self: &Rc<Self>, ask: &Start, by: Starter) -> Result<Started, Fault> {
        let digest = digest(ask);
        if let Ok(session) = self.get(&ask.session) {
            return session.started_again(digest);
        }
        let ground = &self.ground;
        ground.check_running()?;
        check(ask)?;
        self.make_room()?;

        let mut warnings = Vec::new();
        let group = ground.take_group("the session", ask.limits, &mut warnings);
        let command = command(ground, ask, group.as_ref())?;
        let line = command_line(&command.argv);
        let (started_at_ms, started_us) = (clock::wall_ms(), clock::monotonic_us());
        let started = match ground.reaper.spawn(command) {
            Ok(started) => started,
            Err(failure) => {
                ground.retire_group(group);
                return Err(self.record_failure(ask, digest, line, failure));
            }
        };

        let pid = started.child.pid;
        let streams = match open_streams(ground, ask, started.child.stdio) {
            Ok(streams) => streams,
            Err(error) => {
                // It runs, and nobody could hear it: that is no start.
                ground.reaper.signal(pid, nix::sys::signal::Signal::SIGKILL);
                ground.retire_group(group);
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                let subject = "event loop".to_owned();
                let failure = SpawnFailure { stage: SpawnStage::Stdio, errno, subject };
                return Err(self.record_failure(ask, digest, line, failure));
            }
        };
        let session = Rc::new(Session {
            id: ask.session.clone(),
            digest,
            command: line,
            leader: Some(pid),
            started_at_ms,
            started_us,
            outputs: streams.outputs,
            keyboard: if streams.input.is_some() { Keyboard::default() } else { Keyboard::none() },
            terminal: streams.terminal,
            group: RefCell::new(group),
            memory_limit: ask.limits.memory_bytes,
            tied_to: Cell::new(ask.tied.then_some(by.client)),
            holders: RefCell::new(ask.holders.iter().cloned().collect()),
            views: RefCell::default(),
            claims: RefCell::default(),
            let_go: Cell::new(false),
            killed_by: RefCell::default(),
            timed_out: Cell::new(None),
            leader_reaped: Cell::new(false),
            tree_killed: Cell::new(false),
            exit: watch::Sender::new(None),
        });
        for pump in streams.pumps {
            task::spawn(pump.run());
        }
        if let Some(target) = streams.input {
            task::spawn(input::run(session.clone(), target));
        }
        let ending =
            Ending { exit: started.exit, gauges: streams.gauges, deadline_ms: ask.deadline_ms };
        task::spawn(ending::run(self.clone(), session.clone(), ending));
        self.insert(session);
        // Once this start has been answered.
        let ground = ground.clone();
        task::spawn(async move {
            tokio::task::yield_now().await;
            ground.refill_groups();
        });
        Ok(Started { pid: pid.as_raw() as u32, repeated: false, warnings })
    }

    /// Keeps the record of a program that never ran, and makes the fault that says so.
    fn record_failure(
        &self,
        ask: &Start,
        digest: u64,
        command: String,
        failure: SpawnFailure,
    ) -> Fault {
        let now = clock::wall_ms();
        let record = ExitRecord {
            cause: Cause::SpawnFailed { failure: failure.clone() },
            started_at_ms: now,
            ended_at_ms: now,
            duration_us: 0,
            usage: Usage::default(),
            outputs: Vec::new(),
            left_behind: Vec::new(),
            left_behind_count: 0,
        };
        self.insert(Rc::new(Session {
            id: ask.session.clone(),
            digest,
            command,
            leader: None,
            started_at_ms: now,
            started_us: clock::monotonic_us(),
            outputs: Vec::new(),
            keyboard: Keyboard::none(),
            terminal: None,
            group: RefCell::new(None),
            memory_limit: None,
            tied_to: Cell::default(),
            holders: RefCell::new(ask.holders.iter().cloned().collect::<SortedSet<_>>()),
            views: RefCell::new(SortedMap::new()),
            claims: RefCell::default(),
            let_go: Cell::new(false),
            killed_by: RefCell::default(),
            timed_out: Cell::new(None),
            leader_reaped: Cell::new(true),
            tree_killed: Cell::new(false),
            exit: watch::Sender::new(Some(Rc::new(record))),
        }));
        spawn_fault(failure)
    }
}

impl Session {
    /// The answer to a start of a session that exists.
    fn started_again(&self, digest: u64) -> Result<Started, Fault> {
        if digest != self.digest {
            let message = format!("session {} exists and was started differently", self.id);
            return Err(Fault::new(FaultCode::Conflict, message));
        }
        match self.record().as_deref() {
            Some(ExitRecord { cause: Cause::SpawnFailed { failure }, .. }) => {
                Err(spawn_fault(failure.clone()))
            }
            _ => Ok(Started {
                pid: self.leader.map_or(0, |leader| leader.as_raw() as u32),
                repeated: true,
                warnings: Vec::new(),
            }),
        }
    }
}

/// The content of a start, in one number.
fn digest(ask: &Start) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{ask:?}").hash(&mut hasher);
    hasher.finish()
}

fn check(ask: &Start) -> Result<(), Fault> {
    let invalid = |message: String| Err(Fault::new(FaultCode::Invalid, message));
    let arguments: &[Text] = match &ask.program {
        Program::Argv { argv } if argv.is_empty() => {
            return invalid("the argument vector is empty".to_owned());
        }
        Program::Argv { argv } => argv,
        Program::Script { script, .. } => std::slice::from_ref(script),
        Program::LoginShell {} => &[],
    };
    if arguments.len() > limits::ARGUMENTS_MAX {
        let count = arguments.len();
        return invalid(format!("{count} arguments exceed the limit of {}", limits::ARGUMENTS_MAX));
    }
    let environment =
        ask.env.iter().map(|(name, value)| name.as_bytes().len() + value.as_bytes().len());
    let bytes: usize = arguments.iter().map(|text| text.as_bytes().len()).chain(environment).sum();
    if bytes > limits::ARGUMENTS_BYTES_MAX {
        let max = limits::ARGUMENTS_BYTES_MAX;
        return invalid(format!(
            "{bytes} bytes of arguments and environment exceed the limit of {max}"
        ));
    }
    environment::check_names(&ask.env)?;
    if let Some(holder) = ask.holders.iter().find(|name| !protocol::ids::is_name(name, b"_.-")) {
        return invalid(format!("{holder:?} is not a name of a holder"));
    }
    if ask.holders.len() > limits::HOLDERS_MAX {
        let (count, max) = (ask.holders.len(), limits::HOLDERS_MAX);
        return invalid(format!("{count} holders exceed the limit of {max}"));
    }
    if let Some(bytes) = ask.spool.bytes
        && !(limits::SPOOL_BYTES_MIN as u64..=limits::SPOOL_BYTES_MAX as u64).contains(&bytes)
    {
        let (min, max) = (limits::SPOOL_BYTES_MIN, limits::SPOOL_BYTES_MAX);
        return invalid(format!("a spool of {bytes} bytes is not within {min} and {max}"));
    }
    Ok(())
}

fn command<'a>(
    ground: &Ground,
    ask: &'a Start,
    group: Option<&'a SessionGroup>,
) -> Result<Command<'a>, Fault> {
    let argv = match &ask.program {
        Program::Argv { argv } => argv.clone(),
        Program::Script { script, shell } => {
            let shell = shell.clone().unwrap_or_else(|| SHELL_DEFAULT.into());
            vec![shell, "-c".into(), script.clone()]
        }
        Program::LoginShell {} => vec![login_shell(ask.user.as_deref()).into(), "-l".into()],
    };
    let mut env = ground.environment.with(&ask.env);
    let terminal_unnamed = !env.iter().any(|(name, _)| name.as_bytes() == b"TERM");
    let stdio = match ask.stdio {
        Stdio::Pipes { stdin } => StdioPlan::Pipes { stdin },
        Stdio::Pty { size } => {
            if size.rows == 0 || size.columns == 0 {
                let message = "a terminal has at least one row and column";
                return Err(Fault::new(FaultCode::Invalid, message));
            }
            if terminal_unnamed {
                env.push(("TERM".into(), "xterm-256color".into()));
            }
            StdioPlan::Pty { rows: size.rows, cols: size.columns }
        }
    };
    Ok(Command {
        session: ask.session.as_str(),
        argv,
        env,
        cwd: ask.cwd.clone(),
        user: ask.user.clone(),
        stdio,
        control: None,
        group,
    })
}

/// The shell of a user's account if it is there, or one that is.
fn login_shell(user: Option<&str>) -> String {
    let own = nix::unistd::geteuid().to_string();
    let account = user::resolve(Some(user.unwrap_or(&own))).ok().map(|user| user.shell);
    let shells = account.into_iter().chain(LOGIN_SHELLS.map(str::to_owned));
    let mut there = shells.filter(|shell| Path::new(shell).exists());
    // Without any, the start fails and names this one.
    there.next().unwrap_or_else(|| SHELL_DEFAULT.to_owned())
}

/// One line for people.
fn command_line(argv: &[Text]) -> String {
    let words: Vec<_> = argv.iter().map(Text::to_string_lossy).collect();
    protocol::fault::clip_to(words.join(" "), limits::COMMAND_BYTES_MAX)
}

fn open_streams(ground: &Ground, ask: &Start, stdio: ProcessStdio) -> std::io::Result<Streams> {
    let bytes = ask.spool.bytes.map_or(limits::SPOOL_BYTES_DEFAULT, |bytes| bytes as usize);
    let mut streams = Streams {
        outputs: Vec::new(),
        gauges: Vec::new(),
        pumps: Vec::new(),
        terminal: None,
        input: None,
    };
    let mut add = |channel, source| {
        let outlet = Outlet::output(bytes, ask.spool.policy, &ground.budget, &ask.holders);
        let (pump, gauge) = Pump::new(source, outlet.clone());
        streams.outputs.push((channel, outlet));
        streams.gauges.push((channel, gauge));
        streams.pumps.push(pump);
    };
    match stdio {
        ProcessStdio::Pipes { stdin, stdout, stderr } => {
            add(Channel::Stdout, pump::register(stdout, Interest::READABLE)?);
            add(Channel::Stderr, pump::register(stderr, Interest::READABLE)?);
            streams.input =
                stdin.map(|stdin| pump::register(stdin, Interest::WRITABLE)).transpose()?;
        }
        ProcessStdio::Pty { controller } => {
            let both = Interest::READABLE | Interest::WRITABLE;
            let controller = pump::register(controller, both)?;
            add(Channel::Terminal, controller.clone());
            streams.terminal = Some(Terminal::new(controller.clone()));
            streams.input = Some(controller);
        }
    }
    Ok(streams)
}
