//! `__bind`: mounts a directory of the host in a sandbox. The bridge runs its helper with this hidden verb,
//! because a process that enters a sandbox's namespaces stays in them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::exit::Exit;
use super::output;
use machine::Bind;

/// What is mounted, and the sandbox that it is mounted in.
#[derive(Debug, Args)]
pub struct Carry {
    init: u32,
    supervisor: u32,
    mode: Mode,
    target: String,
    directory: PathBuf,
    write: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Ro,
    Rw,
}

impl Carry {
    /// Does it, in a process that has one thread.
    pub fn run(self) -> Exit {
        let Self { init, supervisor, mode, target, directory, write } = self;
        let bind = Bind { directory, target, read_only: mode == Mode::Ro, write };
        match bind.carry(init, supervisor) {
            Ok(()) => Exit::SUCCESS,
            Err(error) => {
                output::note_verbatim(&error.to_string());
                Exit::FAILED_ITSELF
            }
        }
    }
}
