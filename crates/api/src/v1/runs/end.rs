//! How runs end, as clients read it. Pure.

use protocol::repl::{self, RunEnd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forms::exit::Cause;
use agent_client::program::ran_out_of_memory;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    pub status: RunStatus,
    /// More about the status, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub reason: Option<String>,
    /// The code that the code asked to exit with, or the interpreter's exit code as a shell reports
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub exit_code: Option<i32>,
    /// Why the interpreter died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cause")]
    pub cause: Option<Cause>,
    /// The deadline that was exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub timeout_ms: Option<u64>,
    /// The last step that an interrupt or a deadline needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RungName")]
    pub rung: Option<RungName>,
    /// Whether the next run finds the variables of this one.
    pub state_kept: bool,
    pub duration_us: u64,
    /// CPU time of the interpreter with all its threads and, if it reports them, the children that
    /// it waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cpu_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_bytes_peak: Option<u64>,
    /// Bytes that the run wrote in total.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Whether compiled code was reused, if the language reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub cached: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Ok,
    /// An uncaught exception.
    Error,
    /// The code asked to exit, as in `sys.exit(code)`; its interpreter lives on.
    Exited,
    /// A client interrupted it.
    Interrupted,
    /// It exceeded its deadline.
    Timeout,
    /// The interpreter died.
    Died,
    /// It never started.
    Cancelled,
}

/// The steps of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RungName {
    /// An interrupt, like ctrl-c.
    Polite,
    /// An interrupt that code cannot catch.
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
        protocol::Cause::OutOfMemory { limit_bytes } => ran_out_of_memory(*limit_bytes),
        protocol::Cause::AgentStopping => "ended because the sandbox stops".to_owned(),
        protocol::Cause::SpawnFailed { .. } => "could not be started".to_owned(),
    }
}
