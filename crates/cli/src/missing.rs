//! The failure of a run or a context in a sandbox that has no interpreter.

use agent_client::guest::GuestError;
use protocol::exit::SpawnFailure;

use super::failure::CliError;

/// Turns the fault for a missing interpreter into an error with a hint.
pub fn explain_missing(error: GuestError) -> anyhow::Error {
    match error {
        GuestError::Fault(fault)
            if fault.spawn.as_ref().is_some_and(SpawnFailure::is_not_found) =>
        {
            CliError::NoInterpreter(fault).into()
        }
        error => error.into(),
    }
}
