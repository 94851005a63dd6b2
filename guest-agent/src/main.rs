//! The agent inside each sandbox: starts programs, streams what they say, and is PID 1 if need be.
//!
//! This file is the table of contents; ARCHITECTURE.md says what may call what.

mod agent;
mod boot;
mod cgroup;
mod config;
mod file;
mod flow;
mod host;
mod limits;
mod metrics;
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
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;

use protocol::hello::BootStep;

use crate::boot::Outcome;
use crate::boot::launch::{self, Role};
use crate::cgroup::CgroupSupport;
use crate::config::{Config, Invocation};
use crate::pid1::signals;
use crate::run::Doors;
use crate::sys::clock;
use crate::sys::descriptor::Standard;

/// The arguments make no sense.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let began_us = clock::monotonic_us();
    match config::parse_arguments(std::env::args_os().skip(1)) {
        Ok(Invocation::Launch) => launch_sandbox(began_us),
        Ok(Invocation::Serve { listen }) => serve(&listen, began_us),
        Ok(Invocation::Help) => say(io::stdout(), config::HELP, 0),
        Ok(Invocation::Version) => {
            say(io::stdout(), concat!("guest-agent ", env!("CARGO_PKG_VERSION"), "\n"), 0)
        }
        Err(error) => say(io::stderr(), &format!("guest-agent: {error}\n"), EXIT_USAGE),
    }
}

/// Becomes a sandbox on the host's word.
fn launch_sandbox(began_us: u64) -> ExitCode {
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
    let booted = match launch::enter(&config) {
        Ok(Role::Supervisor { exit_code }) => return ExitCode::from(exit_code),
        Ok(Role::Init(booted)) => booted,
        Err(error) => return refuse(&error.to_string()),
    };
    let listener = match config.door.then(|| host::take(Standard::Output)).transpose() {
        Ok(listener) => listener.map(UnixListener::from),
        Err(error) => return refuse(&format!("descriptor 1 cannot be used: {error}")),
    };
    let link = match host::take(Standard::Input) {
        Ok(link) => link,
        Err(error) => return refuse(&format!("descriptor 0 cannot be used: {error}")),
    };
    let steps = booted.report.into_iter().map(|step| BootStep {
        name: step.name.to_owned(),
        micros: step.micros,
        problem: match step.outcome {
            Outcome::Done => None,
            Outcome::Skipped(why) => Some(why.to_owned()),
            Outcome::Failed(why) => Some(why),
        },
    });
    let settings = Config {
        init: true,
        env: config.env,
        // `boot::root` has made the scratch file system, which is a tmpfs.
        scratch_in_memory: true,
        boot: steps.collect(),
        began_us,
        ends_with_link: listener.is_none(),
    };
    let groups = CgroupSupport::discover(booted.cgroup_root);
    live(settings, groups, Doors { link: Some(link), listener })
}

/// Serves on a Unix socket as an ordinary process.
fn serve(listen: &Path, began_us: u64) -> ExitCode {
    let listener = match UnixListener::bind(listen) {
        Ok(listener) => listener,
        Err(error) => return fail(&format!("cannot listen on {}: {error}", listen.display())),
    };
    let settings = Config {
        init: nix::unistd::getpid().as_raw() == 1,
        env: std::env::vars().collect(),
        scratch_in_memory: false,
        boot: Vec::new(),
        began_us,
        ends_with_link: false,
    };
    let doors = Doors { link: None, listener: Some(listener) };
    let exit = live(settings, CgroupSupport::discover(None), doors);
    // The socket is ours; leaving it would tell others that somebody still listens.
    std::fs::remove_file(listen).ok();
    exit
}

fn live(settings: Config, groups: CgroupSupport, doors: Doors) -> ExitCode {
    let blocked = match signals::block() {
        Ok(blocked) => blocked,
        Err(error) => return fail(&format!("cannot block signals: {error}")),
    };
    match run::run(settings, groups, doors, &blocked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("the event loop failed: {error}")),
    }
}

fn fail(message: &str) -> ExitCode {
    say(io::stderr(), &format!("guest-agent: {message}\n"), 1)
}

/// Says something before there is anybody else to say it to. A reader that is gone is no error.
fn say(mut to: impl Write, text: &str, code: u8) -> ExitCode {
    to.write_all(text.as_bytes()).ok();
    ExitCode::from(code)
}
