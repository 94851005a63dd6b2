//! From a start request to a running session.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use protocol::exit::{Cause, ExitRecord, SpawnFailure, SpawnStage, Usage};
use protocol::limits;
use protocol::message::{Channel, Reply, Started};
use protocol::requests::{Program, Start, Stdio};
use protocol::sorted::{SortedMap, SortedSet};
use protocol::{ClientId, Fault, FaultCode, Text};
use tokio::io::Interest;
use tokio::sync::{Notify, watch};

use super::ending::{self, Ending};
use super::input;
use super::keyboard::Keyboard;
use super::program::Session;
use super::pump::{self, Gauge, Pump, Terminal};
use super::registry::Sessions;
use crate::cgroup::SessionGroup;
use crate::flow::Outlet;
use crate::ground::Ground;
use crate::lookup;
use crate::pid1::reaper::{Outcome, Starting};
use crate::process::{
    Command, Stdio as ProcessStdio, StdioPlan, environment, prepare, spawn_fault, user,
};
use crate::sys::clock;
use crate::task::{self, Work};

/// The shell of scripts that name none.
const SHELL_DEFAULT: &str = "/bin/sh";

/// Shells for people, the more comfortable first.
const LOGIN_SHELLS: [&str; 2] = ["/bin/bash", SHELL_DEFAULT];

/// Who requests a start.
#[derive(Clone, Copy)]
pub struct Starter {
    pub client: ClientId,
}

/// What a start consists of besides its request.
struct Streams {
    outputs: Vec<(Channel, Outlet)>,
    gauges: Vec<(Channel, Gauge)>,
    pumps: Vec<Pump>,
    terminal: Option<Terminal>,
    input: Option<Rc<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>>,
}

/// A session whose program is being started.
struct Begun {
    session: Rc<Session>,
    outcome: Outcome,
    warnings: Vec<String>,
}

impl Sessions {
    /// Starts a program, or finds the session that the same request has started before. The session is there when
    /// this returns; the work waits for the program to execute.
    pub fn start(self: &Rc<Self>, ask: &Start, by: Starter) -> Work<Result<Reply, Fault>> {
        let digest = digest(ask);
        if let Ok(session) = self.get(&ask.session) {
            return Box::pin(async move {
                if digest == session.digest {
                    session.begun().await;
                }
                session.started_again(digest).map(Reply::Started)
            });
        }
        let begun = self.begin(ask, digest, by);
        let sessions = self.clone();
        Box::pin(async move { sessions.started(begun?).await.map(Reply::Started) })
    }

    fn begin(self: &Rc<Self>, ask: &Start, digest: u64, by: Starter) -> Result<Begun, Fault> {
        let ground = &self.ground;
        ground.check_running()?;
        check(ask)?;
        self.make_room()?;

        let mut warnings = Vec::new();
        let group = ground.take_group("the session", ask.limits, &mut warnings);
        let command = command(ground, ask, group.as_ref())?;
        let sandbox_oom_kills = ground.sandbox_oom_kills();
        let line = command_line(&command.argv);
        let (started_at_ms, started_us) = (clock::wall_ms(), clock::monotonic_us());
        let prepared = prepare(command).and_then(|(prepared, stdio)| {
            Ok((prepared, open_streams(ground, ask, stdio).map_err(|error| no_streams(&error))?))
        });
        let (prepared, streams) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => {
                ground.retire_group(group);
                return Err(self.record_failure(ask, digest, line, failure));
            }
        };
        let Starting { birth, exit, outcome } = ground.reaper.spawn(prepared);
        let session = Rc::new(Session {
            birth: Some(birth),
            is_starting: Cell::new(true),
            leader_reaped: Cell::new(false),
            started_at_ms,
            started_us,
            outputs: streams.outputs,
            keyboard: if streams.input.is_some() { Keyboard::default() } else { Keyboard::none() },
            terminal: streams.terminal,
            group: RefCell::new(group),
            memory_limit: ask.limits.memory_bytes,
            sandbox_oom_kills,
            tied_to: Cell::new(ask.tied.then_some(by.client)),
            ..Session::without_program(ask, digest, line)
        });
        for pump in streams.pumps {
            task::spawn(pump.run());
        }
        if let Some(target) = streams.input {
            task::spawn(input::run(session.clone(), target));
        }
        let ending = Ending { exit, gauges: streams.gauges, deadline_ms: ask.deadline_ms };
        task::spawn(ending::run(self.clone(), session.clone(), ending));
        self.insert(&session);
        Ok(Begun { session, outcome, warnings })
    }

    /// Waits until the program has executed.
    async fn started(&self, begun: Begun) -> Result<Started, Fault> {
        let Begun { session, outcome, warnings } = begun;
        let started = outcome.known().await;
        if let Err(failure) = &started {
            session.record_failure(failure.clone());
            self.ground.retire_group(session.group.borrow_mut().take());
        }
        session.begin();
        self.changed(&session);
        let pid = started.map_err(spawn_fault)?;
        // Once this start has been answered.
        let ground = self.ground.clone();
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
        let session = Rc::new(Session::without_program(ask, digest, command));
        session.record_failure(failure.clone());
        self.insert(&session);
        spawn_fault(failure)
    }
}

/// Nobody could read the program.
fn no_streams(error: &std::io::Error) -> SpawnFailure {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    SpawnFailure { stage: SpawnStage::Stdio, errno, subject: "event loop".to_owned() }
}

impl Session {
    /// A session that has nothing but its request.
    fn without_program(ask: &Start, digest: u64, command: String) -> Self {
        Self {
            id: ask.session.clone(),
            digest,
            command,
            birth: None,
            is_starting: Cell::new(false),
            begun: Notify::new(),
            early_signal: Cell::default(),
            started_at_ms: clock::wall_ms(),
            started_us: clock::monotonic_us(),
            outputs: Vec::new(),
            keyboard: Keyboard::none(),
            terminal: None,
            group: RefCell::new(None),
            memory_limit: None,
            sandbox_oom_kills: 0,
            tied_to: Cell::default(),
            holders: RefCell::new(ask.holders.iter().cloned().collect::<SortedSet<_>>()),
            views: RefCell::new(SortedMap::new()),
            claims: RefCell::default(),
            let_go: Cell::new(false),
            killed_by: RefCell::default(),
            timed_out: Cell::new(None),
            leader_reaped: Cell::new(true),
            tree_killed: Cell::new(false),
            exit: watch::Sender::new(None),
        }
    }

    /// Sets the record of a program that never ran.
    fn record_failure(&self, failure: SpawnFailure) {
        let record = ExitRecord {
            cause: Cause::SpawnFailed { failure },
            started_at_ms: self.started_at_ms,
            ended_at_ms: clock::wall_ms(),
            duration_us: clock::monotonic_us() - self.started_us,
            usage: Usage::default(),
            outputs: Vec::new(),
            left_behind: Vec::new(),
            left_behind_count: 0,
        };
        self.leader_reaped.set(true);
        self.exit.send_replace(Some(Rc::new(record)));
    }

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
                pid: self.leader().map_or(0, |leader| leader.as_raw() as u32),
                repeated: true,
                warnings: Vec::new(),
            }),
        }
    }
}

/// The content of a start, in one number.
fn digest(ask: &Start) -> u64 {
    let mut hasher = DefaultHasher::new();
    ask.hash(&mut hasher);
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
    let mut there = shells.filter(|shell| lookup::exists(shell.as_str()));
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
