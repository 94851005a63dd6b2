//! How runs end, as clients read it. Pure.

use protocol::repl::{self, RunEnd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::exit::Cause;

/// How a run has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    pub status: RunStatus,
    /// In words, where the status alone does not tell it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub reason: Option<String>,
    /// What the code asked to exit with, or the interpreter's own as a shell would tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub exit_code: Option<i32>,
    /// Of what the interpreter died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cause")]
    pub cause: Option<Cause>,
    /// The deadline that was overrun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub timeout_ms: Option<u64>,
    /// How far an interrupt or a deadline had to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RungName")]
    pub rung: Option<RungName>,
    /// Whether the next run finds the variables of this one.
    pub state_kept: bool,
    pub duration_us: u64,
    /// Of the interpreter, all its threads, and the children that it waited for if it told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cpu_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_bytes_peak: Option<u64>,
    /// All bytes that the run wrote.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Whether the code had been compiled before and that was used again, where the language says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub cached: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Ok,
    /// An exception that nothing caught.
    Error,
    /// The code asked to exit, as in `sys.exit(code)`; its interpreter lives on.
    Exited,
    /// A client asked for its end.
    Interrupted,
    /// It overran its deadline.
    Timeout,
    /// The interpreter is no more.
    Died,
    /// It never began.
    Cancelled,
}

/// The steps by which a run is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RungName {
    /// What ctrl-c does.
    Polite,
    /// What code that swallows ctrl-c cannot swallow.
    Firm,
    /// The interpreter was killed with all that it had started.
    Killed,
}

impl From<repl::Finished> for End {
    fn from(finished: repl::Finished) -> Self {
        let mut end = Self {
            status: RunStatus::Ok,
            reason: None,
            exit_code: None,
            cause: None,
            timeout_ms: None,
            rung: finished.rung.map(|rung| match rung {
                repl::Rung::Polite => RungName::Polite,
                repl::Rung::Firm => RungName::Firm,
                repl::Rung::Killed => RungName::Killed,
            }),
            state_kept: finished.state_kept,
            duration_us: finished.duration_us,
            cpu_us: finished.cpu_us,
            memory_bytes_peak: finished.memory_bytes_peak,
            stdout_bytes: finished.stdout_bytes,
            stderr_bytes: finished.stderr_bytes,
            cached: finished.cached,
        };
        end.status = match finished.end {
            RunEnd::Ok {} => RunStatus::Ok,
            RunEnd::Error {} => RunStatus::Error,
            RunEnd::Exited { code } => {
                end.exit_code = Some(code);
                RunStatus::Exited
            }
            RunEnd::Interrupted { by } => {
                end.reason = Some(format!("interrupted by {by}"));
                RunStatus::Interrupted
            }
            RunEnd::TimedOut { limit_ms } => {
                end.reason = Some(format!("it ran longer than its deadline of {limit_ms} ms"));
                end.timeout_ms = Some(limit_ms);
                RunStatus::Timeout
            }
            RunEnd::Died { cause } => {
                end.reason = Some(format!("the interpreter {}", death(&cause)));
                end.exit_code = Some(cause.shell_code());
                end.cause = Some(cause.into());
                RunStatus::Died
            }
            RunEnd::Cancelled { reason } => {
                end.reason = Some(reason);
                RunStatus::Cancelled
            }
        };
        end
    }
}

/// The end of a sentence that begins with who died.
fn death(cause: &protocol::Cause) -> String {
    match cause {
        protocol::Cause::Exited { code } => format!("exited with {code}"),
        protocol::Cause::Signaled { signal, .. } => format!("was ended by signal {signal}"),
        protocol::Cause::Killed { signal, by } => format!("was sent signal {signal} by {by}"),
        protocol::Cause::TimedOut { limit_ms } => format!("ran longer than {limit_ms} ms"),
        protocol::Cause::OutOfMemory { .. } => "ran out of memory".to_owned(),
        protocol::Cause::AgentStopping => "ended because the sandbox stops".to_owned(),
        protocol::Cause::SpawnFailed { .. } => "could not be started".to_owned(),
    }
}
