//! One living interpreter: its process, its control channel, its pipes, and its end.
//!
//! [`actor`](super::actor) owns it. Dropping it ends the process and everything that it has started.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::exit::{SpawnFailure, SpawnStage};
use protocol::message::Channel as Output;
use protocol::repl::OpenContext;
use protocol::{Fault, Text};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::channel::{Channel, hex};
use super::context::{Context, QueuedRun};
use super::directory::{self, Directory};
use super::language::{Action, Driver, Language, Outputs};
use super::message::{Binary, ToDriver};
use super::source::{NO_RUN, Source};
use crate::cgroup::SessionGroup;
use crate::ground::Ground;
use crate::metrics::UsageSnapshot;
use crate::pid1::reaper::{Exit, Starting};
use crate::process::tree::Tree;
use crate::process::{Command, Stdio, StdioPlan, output_pipe, prepare, spawn_fault, user};
use crate::sys::clock;
use crate::sys::lookup::open_in_proc;
use crate::task::Work;

/// See the module's description.
pub struct Interpreter {
    ground: Rc<Ground>,
    language: &'static Language,
    session: String,
    pub pid: Pid,
    pub channel: Channel,
    pub reaped: bool,
    directory: Option<Directory>,
    /// The program's ends of the next run's pipes.
    handed: Vec<OwnedFd>,
    group: Option<SessionGroup>,
    /// Resets the kernel's peak of resident memory.
    peak: Option<File>,
    /// It has its own memory limit.
    is_limited: bool,
    oom_kills_before: u64,
    /// Parts of the request that were not possible here, and why.
    pub warnings: Vec<String>,
}

/// A start under way.
pub struct Launch {
    pub work: Work<Result<Box<StartedInterpreter>, Fault>>,
    /// The time by which the program must have executed.
    pub until: Instant,
}

/// An interpreter whose program has executed, and the pipes that it was given.
pub struct StartedInterpreter {
    pub interpreter: Interpreter,
    pub exit: oneshot::Receiver<Exit>,
    pub sources: [Source; 2],
}

impl Interpreter {
    /// Starts the first of the language's programs that there is.
    pub async fn start(
        ground: Rc<Ground>,
        context: Rc<Context>,
        generation: u64,
    ) -> Result<Box<StartedInterpreter>, Fault> {
        ground.check_running()?;
        let (language, ask) = (context.language, &context.ask);
        let argv: Vec<String> = match &ask.program {
            Some(program) => vec![program.to_string()],
            None => language.programs.iter().map(|name| (*name).to_owned()).collect(),
        };
        let session = format!("repl.{}.{generation}", ask.context);
        for program in &argv {
            match begin(&ground, language, ask, &session, program).await {
                Ok(begun) => return Ok(Box::new(begun)),
                Err(Refusal::Spawn(failure)) if failure.is_not_found() => {}
                Err(Refusal::Spawn(failure)) => {
                    return Err(spawn_fault(failure));
                }
                Err(Refusal::Io(error)) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    return Err(Fault::io(format!("cannot prepare {program}: {error}"), errno));
                }
            }
        }
        Err(missing(&ground, language, ask, &argv))
    }

    /// Sends a signal to the interpreter, unless it has been reaped.
    fn signal(&self, number: i32) {
        self.ground.reaper.send(self.pid, number);
    }

    /// Carries out a rung of the ladder.
    pub fn act(&mut self, actions: &[Action], run: u64, firm: bool) {
        for action in actions {
            match *action {
                Action::Group(number) => self.ground.reaper.send_group(self.pid, number),
                Action::Interpreter(number) => self.signal(number),
                Action::Others(number) => self.signal_others(number),
                Action::Message => self.channel.send(&ToDriver::Interrupt { run, firm }),
            }
        }
    }

    fn signal_others(&self, number: i32) {
        let Ok(signal) = Signal::try_from(number) else { return };
        for pid in self.tree().pids().into_iter().filter(|pid| *pid != self.pid) {
            // It may have ended meanwhile.
            kill(pid, signal).ok();
        }
    }

    fn tree(&self) -> Tree<'_> {
        Tree {
            session: &self.session,
            leader: self.pid,
            leader_reaped: self.reaped,
            group: self.group.as_ref(),
        }
    }

    /// Sends a signal to the interpreter and to all that it has started.
    pub fn signal_tree(&self, signal: Signal) {
        self.tree().signal(signal);
    }

    /// Whether the kernel has killed something of the current run for want of memory.
    pub fn ran_out_of_memory(&self) -> bool {
        self.oom_kills() > self.oom_kills_before
    }

    /// Itself and all that it has started, for a report of their usage.
    pub fn usage_snapshot(&self) -> UsageSnapshot {
        UsageSnapshot::of(&self.tree())
    }

    fn oom_kills(&self) -> u64 {
        let own = self.group.as_ref().and_then(SessionGroup::oom_kills);
        own.unwrap_or_else(|| self.ground.sandbox_oom_kills())
    }

    /// CPU time that the interpreter has used so far, without its children.
    pub fn cpu_us(&self) -> Option<u64> {
        clock::process_cpu_us(self.pid)
    }

    /// Begins the accounting of a run: its own peak of resident memory, if the kernel supports that, and its
    /// own count of out-of-memory kills.
    pub fn begin_accounts(&mut self) {
        // This reads a file for each run, so only where it can matter.
        if self.is_limited {
            self.oom_kills_before = self.oom_kills();
        }
        if let Some(file) = &mut self.peak
            && file.write_all(b"5").is_err()
        {
            self.peak = None;
        }
    }

    /// Makes the pipes of a run, which are sent with its order.
    pub fn prepare_outputs(&mut self, run: u64) -> io::Result<[Source; 2]> {
        let (stdout, stderr) = match (self.language.outputs, &self.directory) {
            (Outputs::Named, Some(directory)) => {
                (directory.fifo(directory::STDOUT)?, directory.fifo(directory::STDERR)?)
            }
            (Outputs::Passed | Outputs::Named, _) => {
                let (stdout, their_stdout) = output_pipe()?;
                let (stderr, their_stderr) = output_pipe()?;
                self.handed = vec![their_stdout, their_stderr];
                (stdout, stderr)
            }
        };
        Ok([Source::new(stdout, run, Output::Stdout), Source::new(stderr, run, Output::Stderr)])
    }

    /// Tells the driver to run something.
    pub fn order(&mut self, run: &QueuedRun) -> io::Result<()> {
        if !self.handed.is_empty() {
            self.channel.send_with(&ToDriver::Outputs {}, std::mem::take(&mut self.handed));
        }
        match (self.language.driver, &self.directory) {
            (Driver::File(_), Some(directory)) => {
                directory.write(directory::CODE, &run.code)?;
                directory.write(directory::RUN, run.number.to_string().as_bytes())?;
                self.channel.send_byte(b'\n');
            }
            _ => self.channel.send(&ToDriver::Run {
                run: run.number,
                code: Binary(&run.code),
                name: &run.name,
                input: run.input,
                aside: run.aside,
            }),
        }
        Ok(())
    }

    /// Whether it can answer completions and checks.
    pub fn can_be_asked(&self) -> bool {
        matches!(self.language.driver, Driver::Channel(_))
    }

    /// Asks it to end by itself.
    pub fn close(&mut self) {
        match self.language.driver {
            Driver::Channel(_) => self.channel.send(&ToDriver::Close {}),
            // A signal could interrupt the driver itself, and the exit trap would then write into the
            // pipes that the driver has just redirected.
            Driver::File(_) => self.channel.shut_down_writing(),
        }
    }

    /// Removes the names of the FIFOs, once their run has begun.
    pub fn forget_outputs(&self) {
        if self.language.outputs == Outputs::Named
            && let Some(directory) = &self.directory
        {
            directory.forget(directory::STDOUT);
            directory.forget(directory::STDERR);
        }
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        self.signal_tree(Signal::SIGKILL);
        self.ground.retire_group(self.group.take());
    }
}

enum Refusal {
    Spawn(SpawnFailure),
    Io(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

async fn begin(
    ground: &Rc<Ground>,
    language: &'static Language,
    ask: &OpenContext,
    session: &str,
    program: &str,
) -> Result<StartedInterpreter, Refusal> {
    let (mut channel, theirs) = Channel::open()?;
    let directory = match language.outputs {
        Outputs::Passed => None,
        Outputs::Named => Some(make_directory(ask)?),
    };
    let mut argv: Vec<Text> = vec![program.into()];
    argv.extend(language.arguments.iter().map(|word| Text::from(*word)));
    let mut env = ground.environment.with(&ask.env);
    if let Driver::File(driver) = language.driver
        && let Some(directory) = &directory
    {
        directory.write(directory::DRIVER, driver)?;
        let path = directory.file(directory::DRIVER);
        argv.push(path.to_string_lossy().into_owned().into());
        env.push(("BURROW_REPL".into(), directory.path().into()));
        let token = hex(channel.token());
        env.push(("BURROW_TOKEN".into(), token.into()));
    }
    let mut warnings = Vec::new();
    let group = ground.take_group("the interpreter", ask.limits, &mut warnings);
    let command = Command {
        session,
        argv,
        env,
        cwd: ask.cwd.clone(),
        user: ask.user.clone(),
        stdio: StdioPlan::Pipes { stdin: false },
        control: Some(theirs),
        group: group.as_ref(),
    };
    let begun = match prepare(command) {
        Ok((prepared, stdio)) => {
            let Starting { exit, outcome, .. } = ground.reaper.spawn(prepared);
            outcome.known().await.map(|pid| (pid, stdio, exit))
        }
        Err(failure) => Err(failure),
    };
    let (pid, stdio, exit) = match begun {
        Ok(begun) => begun,
        Err(failure) => {
            ground.retire_group(group);
            return Err(Refusal::Spawn(failure));
        }
    };
    if let Driver::Channel(driver) = language.driver {
        channel.send_raw(driver, Vec::new());
        let token = *channel.token();
        channel.send(&ToDriver::Open {
            token: Binary(&token),
            context: ask.context.as_str(),
            directory: directory.as_ref().map(Directory::path),
        });
    }
    let interpreter = Interpreter {
        ground: ground.clone(),
        language,
        session: session.to_owned(),
        pid,
        channel,
        reaped: false,
        directory,
        handed: Vec::new(),
        group,
        is_limited: ground.memory_limit(ask.limits.memory_bytes).is_some(),
        oom_kills_before: 0,
        warnings,
        peak: open_in_proc(format!("{pid}/clear_refs").as_str(), OFlag::O_WRONLY)
            .ok()
            .map(File::from),
    };
    let Stdio::Pipes { stdout, stderr, .. } = stdio else { unreachable!("pipes were planned") };
    let sources =
        [Source::new(stdout, NO_RUN, Output::Stdout), Source::new(stderr, NO_RUN, Output::Stderr)];
    Ok(StartedInterpreter { interpreter, exit, sources })
}

fn make_directory(ask: &OpenContext) -> Result<Directory, Refusal> {
    // If the user does not exist, the spawn reports it.
    let owner = user::resolve(ask.user.as_deref()).ok().and_then(|user| user.identity);
    Ok(Directory::make(owner)?)
}

/// The fault for a missing interpreter, which names the programs and the search path.
fn missing(ground: &Ground, language: &Language, ask: &OpenContext, argv: &[String]) -> Fault {
    let env = ground.environment.with(&ask.env);
    let path = env.iter().rev().find(|(name, _)| name.as_bytes() == b"PATH");
    let path = path.map_or(crate::process::environment::DEFAULT_PATH.into(), |(_, path)| {
        path.to_string_lossy().into_owned()
    });
    let names = argv.join(" and ");
    let hint = "name an interpreter with `program`";
    let message = match &ask.program {
        Some(program) if program.as_bytes().contains(&b'/') => {
            format!("there is no {program} to run {} with; {hint}", language.name)
        }
        _ => format!("no {} here: looked for {names} in {path}; {hint}", language.name),
    };
    let failure =
        SpawnFailure { stage: SpawnStage::Exec, errno: Errno::ENOENT as i32, subject: names };
    Fault::spawn(message, failure)
}
