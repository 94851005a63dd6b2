//! `__fleet-guardian`: ends the sandboxes of a node whose lease is over, whatever has become of its bridge.

use std::path::PathBuf;

use clap::Args;

use super::exit::Exit;
use super::output;
use host::paths::Paths;

/// The arguments of the hidden verb: the two directories of the bridge.
#[derive(Debug, Args)]
pub struct GuardianArguments {
    runtime: PathBuf,
    state: PathBuf,
}

impl GuardianArguments {
    /// Watches until there is nothing left to watch over.
    pub fn run(self) -> Exit {
        let paths = Paths { runtime: self.runtime, state: self.state };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let watched = runtime.and_then(|runtime| runtime.block_on(::node::guardian::watch(&paths)));
        match watched {
            Ok(()) => Exit::SUCCESS,
            Err(error) => {
                output::note(&format!("the guardian of the fleet cannot watch: {error}"));
                Exit::FAILED_ITSELF
            }
        }
    }
}
