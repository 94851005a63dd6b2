//! The agent inside each sandbox: it starts programs, streams their output, and can be PID 1.
//!
//! This file is the table of contents; ARCHITECTURE.md says what may use what.

mod adopt;
mod agent;
mod boot;
mod cgroup;
mod config;
mod doors;
mod file;
mod flow;
mod freeze;
mod ground;
mod host;
mod hotplug;
mod limits;
mod lookup;
mod metrics;
mod peer;
mod pid1;
mod port;
mod process;
mod repl;
mod router;
mod run;
mod serve;
mod session;
mod sys;
mod task;

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use protocol::hello::BootStep;

use crate::boot::Outcome;
use crate::boot::launch::{self, Booted, Role};
use crate::boot::layer;
use crate::boot::machine::{self, Machine};
use crate::cgroup::{CgroupSupport, OlderGroups};
use crate::config::line::Halt;
use crate::config::{Config, Invocation, Listen};
use crate::doors::Doors;
use crate::pid1::{hand_over, power, signals};
use crate::run::End;
use crate::sys::descriptor::Standard;
use crate::sys::{clock, mount, prctl};

/// The command line is not valid.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let began_us = clock::monotonic_us();
    match config::parse_arguments(std::env::args_os()) {
        Ok(Invocation::Launch) => launch_sandbox(began_us),
        Ok(Invocation::Init) => run_machine(began_us),
        Ok(Invocation::Serve { listen }) => serve(&listen, began_us),
        Ok(Invocation::MapOwners) => {
            ended(mount::map_owners(io::stdin().as_fd(), io::stdout().as_fd(), 0))
        }
        Ok(Invocation::MountLayer) => {
            ended(layer::mount_and_send(io::stdin().as_fd(), io::stdout().as_fd()))
        }
        Ok(Invocation::Help) => print(io::stdout(), config::HELP, 0),
        Ok(Invocation::Version) => {
            print(io::stdout(), concat!("guest-agent ", env!("CARGO_PKG_VERSION"), "\n"), 0)
        }
        // The kernel passes the words that it does not know to its init.
        Err(_) if is_started_by_kernel() => run_machine(began_us),
        Err(error) => print(io::stderr(), &format!("guest-agent: {error}\n"), EXIT_USAGE),
    }
}

/// Whether this is the first process of a machine, where process 2 is the kernel's own, and not of a
/// namespace.
fn is_started_by_kernel() -> bool {
    is_first() && kill(Pid::from_raw(2), None).is_ok()
}

fn is_first() -> bool {
    Pid::this() == Pid::from_raw(1)
}

/// Becomes the sandbox that the host's boot frame describes.
fn launch_sandbox(began_us: u64) -> ExitCode {
    prctl::set_name(c"guest-agent");
    let stdin = io::stdin();
    let host = stdin.as_fd();
    let config = match host::read_boot_frame(host) {
        Ok(config) => config,
        Err(error) => return fail(&error.to_string()),
    };
    let refuse = |message: &str| {
        host::say_boot_failed(host, message);
        fail(message)
    };
    let mut booted = match launch::enter(config) {
        Ok(Role::Supervisor { exit_code }) => return ExitCode::from(exit_code),
        Ok(Role::Init(booted)) => booted,
        Err(error) => return refuse(&error.to_string()),
    };
    let listener = match booted.config.door.then(|| host::take(Standard::Output)).transpose() {
        Ok(listener) => listener.map(UnixListener::from),
        Err(error) => return refuse(&format!("descriptor 1 cannot be used: {error}")),
    };
    let link = match host::take(Standard::Input) {
        Ok(link) => link,
        Err(error) => return refuse(&format!("descriptor 0 cannot be used: {error}")),
    };
    let scratch_in_memory = booted.config.scratch_mount.is_empty();
    let settings = settings(&mut booted, began_us, listener.is_none(), scratch_in_memory);
    let groups = CgroupSupport::discover(booted.cgroup_root, booted.older_groups);
    exit_of(live(settings, groups, Doors { link: Some(link), listener, ..Doors::default() }))
}

/// The configuration of an agent that has booted.
fn settings(
    booted: &mut Booted,
    began_us: u64,
    ends_with_link: bool,
    scratch_in_memory: bool,
) -> Config {
    let steps = std::mem::take(&mut booted.report).into_iter().map(|step| BootStep {
        name: step.name.to_owned(),
        micros: step.micros,
        problem: match step.outcome {
            Outcome::Done => None,
            Outcome::Skipped(why) => Some(why.to_owned()),
            Outcome::Failed(why) => Some(why),
        },
    });
    Config {
        init: true,
        machine: false,
        env: std::mem::take(&mut booted.config.env),
        scratch_in_memory,
        layer: booted.layer.take(),
        boot: steps.collect(),
        began_us,
        ends_with_link,
    }
}

/// Boots a machine, serves, and switches it off, whatever happens.
fn run_machine(began_us: u64) -> ExitCode {
    if !is_first() {
        return print(
            io::stderr(),
            "guest-agent: only PID 1 can be the init of a machine\n",
            EXIT_USAGE,
        );
    }
    // Ctrl-Alt-Del then sends a signal, which asks for an orderly end.
    nix::sys::reboot::set_cad_enabled(false).ok();
    let mut off = PowerOff::default();
    // An uncaught panic has been printed on the console. The disks must still be consistent.
    let ended = catch_unwind(AssertUnwindSafe(|| boot_and_serve(began_us, &mut off)));
    if off.has_own_init {
        if matches!(ended, Ok(End::Dismissed)) {
            return ExitCode::SUCCESS;
        }
        hand_over::request_power_off();
    }
    power::switch_off(off.halt, off.written.as_ref());
    fail("the machine cannot be switched off")
}

/// How the machine is switched off, as far as that is known.
#[derive(Default)]
struct PowerOff {
    halt: Halt,
    written: Option<OwnedFd>,
    /// PID 1 is another program.
    has_own_init: bool,
}

/// Boots and serves, or reports why the machine cannot.
fn boot_and_serve(began_us: u64, off: &mut PowerOff) -> End {
    let (mut booted, line, link, serial) = match machine::enter() {
        Ok(Machine { booted, line, link, serial, written }) => {
            *off = PowerOff { halt: line.halt, written, has_own_init: false };
            (booted, line, link, serial)
        }
        Err(machine::Failure { error, line, link, written }) => {
            *off = PowerOff { halt: line.halt, written, has_own_init: false };
            return refuse_machine(&error.to_string(), link);
        }
    };
    if line.probe {
        return End::Stopped;
    }
    for word in &line.unknown {
        print(io::stderr(), &format!("guest-agent: unknown kernel parameter {word}\n"), 0);
    }
    let is_asked_for = link.is_some() || serial.is_some() && line.ask;
    let ends_with_link = is_asked_for && !booted.config.door;
    if let Some(program) = &line.hand_over {
        if let Err(error) = hand_over::to(program) {
            let message = format!("{program} cannot be executed: {error}");
            return refuse_machine(&message, link.or(serial.map(|port| port.file)));
        }
        off.has_own_init = true;
    }
    let settings = Config {
        init: line.hand_over.is_none(),
        machine: true,
        ..settings(&mut booted, began_us, ends_with_link, off.written.is_none())
    };
    let groups = CgroupSupport::discover(booted.cgroup_root.take(), OlderGroups::default());
    let doors = Doors {
        link,
        listener: None,
        vsock: (!ends_with_link && serial.is_none()).then_some(line.port),
        dial: (line.dial && serial.is_none()).then_some(line.port),
        serial,
    };
    live(settings, groups, doors).unwrap_or(End::Stopped)
}

/// Reports why the machine cannot serve.
fn refuse_machine(message: &str, link: Option<OwnedFd>) -> End {
    fail(message);
    if let Some(link) = link {
        host::say_boot_failed(link.as_fd(), message);
        host::await_end(link.as_fd());
    }
    End::Stopped
}

/// Serves as an ordinary process.
fn serve(listen: &Listen, began_us: u64) -> ExitCode {
    let doors = match listen {
        Listen::Vsock(port) => Doors { vsock: Some(*port), ..Doors::default() },
        Listen::Unix(path) => match UnixListener::bind(path) {
            Ok(listener) => Doors { listener: Some(listener), ..Doors::default() },
            Err(error) => return fail(&format!("cannot listen on {}: {error}", path.display())),
        },
    };
    let settings = Config {
        init: is_first(),
        machine: false,
        env: std::env::vars().collect(),
        scratch_in_memory: false,
        layer: None,
        boot: Vec::new(),
        began_us,
        ends_with_link: false,
    };
    let exit =
        exit_of(live(settings, CgroupSupport::discover(None, OlderGroups::default()), doors));
    if let Listen::Unix(path) = listen {
        // A remaining socket would suggest that somebody still listens.
        std::fs::remove_file(path).ok();
    }
    exit
}

fn live(settings: Config, groups: CgroupSupport, doors: Doors) -> Result<End, ExitCode> {
    let blocked =
        signals::block().map_err(|error| fail(&format!("cannot block signals: {error}")))?;
    run::run(settings, groups, doors, &blocked)
        .map_err(|error| fail(&format!("the event loop failed: {error}")))
}

fn exit_of(ended: Result<End, ExitCode>) -> ExitCode {
    ended.map_or_else(|code| code, |_| ExitCode::SUCCESS)
}

fn ended(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(message: &str) -> ExitCode {
    print(io::stderr(), &format!("guest-agent: {message}\n"), 1)
}

/// Prints a message. A reader that is gone is no error.
fn print(mut to: impl Write, text: &str, code: u8) -> ExitCode {
    to.write_all(text.as_bytes()).ok();
    ExitCode::from(code)
}
