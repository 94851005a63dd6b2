//! `__fleet-child`: becomes a program that ends with the process that has started it, however that ends.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::exit::Exit;
use crate::output;

/// The hidden verb.
pub const VERB: &str = "__fleet-child";

/// Its arguments.
#[derive(Debug, Args)]
pub struct Child {
    /// The process with which it ends.
    parent: i32,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

impl Child {
    /// Becomes the program. Must run in a process with one thread; returns only on failure.
    pub fn run(self) -> Exit {
        let asked = set_parent_process_death_signal(Some(Signal::TERM));
        // It may have ended before it was asked for.
        let is_there = getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == self.parent);
        let [program, arguments @ ..] = self.command.as_slice() else { return Exit::FAILED_ITSELF };
        if asked.is_ok() && is_there {
            let error = Command::new(program).args(arguments).exec();
            output::note(&format!("cannot run {}: {error}", program.to_string_lossy()));
        }
        Exit::FAILED_ITSELF
    }
}
