//! `__share`: runs virtiofsd for a directory of the host. The machine's shell runs the bridge's helper
//! with this hidden verb in a separate process, which can see only that directory.

use std::str::FromStr;

use clap::Args;

use super::exit::Exit;
use super::output;
use machine::qemu::share::Share;

/// The arguments of the hidden verb.
#[derive(Debug, Args)]
pub struct ShareArguments {
    #[arg(value_parser = Share::from_str)]
    share: Share,
}

impl ShareArguments {
    /// Runs the program. Must run in a process with one thread; returns only on failure.
    pub fn run(self) -> Exit {
        output::note_verbatim(&self.share.become_daemon().to_string());
        Exit::FAILED_ITSELF
    }
}
