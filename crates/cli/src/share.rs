//! `__share`: becomes the program that shows a directory of the host to a sandbox's machine. The machine's
//! shell runs the bridge's helper with this hidden verb, because it must see nothing but that directory.

use std::str::FromStr;

use clap::Args;

use super::exit::Exit;
use super::output;
use machine::qemu::share::Share;

/// What is shown, as the bridge has put it.
#[derive(Debug, Args)]
pub struct Show {
    #[arg(value_parser = Share::from_str)]
    share: Share,
}

impl Show {
    /// Does it, in a process that has one thread; returns only when it cannot.
    pub fn run(self) -> Exit {
        output::note_verbatim(&self.share.become_daemon().to_string());
        Exit::FAILED_ITSELF
    }
}
