//! Why an app is not started, found or stopped.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use protocol::{Cause, ExitRecord};

use super::AppName;
use super::ready::NotReadyReason;
use crate::forwards::ForwardError;
use agent_client::guest::GuestError;
use agent_client::program::ran_out_of_memory;
use sandbox::{SandboxError, SandboxRef};

/// See the module's description.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Guest(#[from] GuestError),
    #[error(transparent)]
    Forward(#[from] ForwardError),
    #[error("{which} has no app {name}")]
    NotFound { which: SandboxRef, name: AppName },
    #[error("{which} already has an app {name}")]
    NameTaken { which: SandboxRef, name: AppName },
    #[error("{which} has {limit} apps, which is the limit")]
    TooManyOfSandbox { which: SandboxRef, limit: usize },
    #[error("there are {limit} apps here, which is the limit")]
    TooMany { limit: usize },
    #[error("the code is {bytes} bytes long, and the limit is {limit}")]
    CodeTooLong { bytes: usize, limit: usize },
    #[error("`ready_path` must be a plain path that begins with '/', of at most {limit} bytes")]
    ReadyPath { limit: usize },
    #[error("the time to wait for an app must be from 1 ms to {limit:?}, not {requested:?}")]
    ReadyTimeout { requested: Duration, limit: Duration },
    #[error("port {port} in {which} is taken")]
    PortTaken { which: SandboxRef, port: u16 },
    #[error("no port from {first} to {last} is free in {which}")]
    NoPort { which: SandboxRef, first: u16, last: u16 },
    #[error("{python} in {which} has no module {}", modules.join(", "))]
    Missing { which: SandboxRef, python: String, modules: Vec<String> },
    #[error("{which} has no {python}")]
    NoInterpreter { which: SandboxRef, python: String },
    #[error("{python} in {which} cannot list its modules: {message}")]
    Interpreter { which: SandboxRef, python: String, message: String },
    /// It ended before it answered.
    #[error("the app ended before it answered: {}", end_of(&record.cause))]
    Failed { record: Box<ExitRecord>, log: String },
    #[error("the app did not answer within {waited:?}: {}", not_ready(*silence, *port, elsewhere))]
    NotReady {
        waited: Duration,
        port: u16,
        silence: NotReadyReason,
        elsewhere: Vec<u16>,
        log: String,
    },
    #[error("the app was stopped before it answered")]
    Stopped,
    /// Nobody waits for it any more.
    #[error("the client that asked for the app has disconnected")]
    Abandoned,
    #[error("the sandbox has ended, and the app with it")]
    SandboxGone,
    #[error("the bridge is stopping")]
    Ending,
    #[error("cannot make a random name: {0}")]
    Draw(io::Error),
    #[error("could not write {path:?}: {source}")]
    Note { path: PathBuf, source: io::Error },
}

/// A sentence about how a program ended.
pub fn end_of(cause: &Cause) -> String {
    match cause {
        Cause::Exited { code } => format!("it exited with code {code}"),
        Cause::Signaled { signal, .. } => format!("signal {signal} ended it"),
        Cause::Killed { signal, by } => format!("it was ended with signal {signal} by {by}"),
        Cause::TimedOut { limit_ms } => format!("it ran longer than its deadline of {limit_ms} ms"),
        Cause::OutOfMemory { limit_bytes } => format!("it {}", ran_out_of_memory(*limit_bytes)),
        Cause::AgentStopping => "the sandbox was stopped".to_owned(),
        Cause::SpawnFailed { failure } => {
            format!("it was not started: errno {} of {:?}", failure.errno, failure.subject)
        }
    }
}

fn not_ready(silence: NotReadyReason, port: u16, elsewhere: &[u16]) -> String {
    let here = match silence {
        NotReadyReason::Refused => format!("it does not listen on port {port} at 127.0.0.1"),
        NotReadyReason::Aside => format!("it listens on port {port}, but not at 127.0.0.1"),
        NotReadyReason::Mute => format!("it listens on port {port}, but sends nothing"),
        NotReadyReason::Babble => format!("it listens on port {port}, but does not speak HTTP"),
    };
    let ports: Vec<String> = elsewhere.iter().map(u16::to_string).collect();
    match (silence, ports.as_slice()) {
        (NotReadyReason::Refused, [_, ..]) => {
            format!("it listens on {}, not on {port}", ports.join(", "))
        }
        _ => here,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_elsewhere_is_named() {
        assert_eq!(
            not_ready(NotReadyReason::Refused, 5000, &[8000]),
            "it listens on 8000, not on 5000"
        );
        let nowhere = not_ready(NotReadyReason::Refused, 5000, &[]);
        assert_eq!(nowhere, "it does not listen on port 5000 at 127.0.0.1");
        assert!(not_ready(NotReadyReason::Mute, 5000, &[8000]).contains("sends nothing"));
    }
}
