//! `__bind`: mounts a directory of the host into a sandbox. The bridge runs its helper with this hidden
//! verb in a separate process, because a process that enters a sandbox's namespaces cannot leave
//! them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::exit::Exit;
use super::output;
use machine::Bind;

/// The arguments of the hidden verb.
#[derive(Debug, Args)]
pub struct BindArguments {
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

impl BindArguments {
    /// Mounts the directory. Must run in a process with one thread.
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
