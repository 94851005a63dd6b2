//! How programs end, as clients see it: the cause is the truth, the exit code is derived from it.

use std::time::Duration;

use protocol::exit::{self, Cause as Known, SpawnStage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use agent_client::program::ran_out_of_memory;

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "`exit_code` is what everybody calls it")]
pub struct Exit {
    /// The exit code as a shell reports it: 128 plus the signal that ended the program, or 124 for
    /// a timeout.
    pub exit_code: i32,
    /// Whether it ended by itself with code 0.
    pub success: bool,
    pub cause: Cause,
    /// By the guest's clock, milliseconds since 1970.
    pub started_at_ms: u64,
    pub ended_at_ms: u64,
    /// Its duration by the guest's monotonic clock.
    pub duration_us: u64,
    pub usage: Usage,
    /// Its processes that still run; only the first few are named.
    pub left_behind: Vec<Survivor>,
    pub left_behind_count: u32,
}

/// Why a program ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Cause {
    /// It ended by itself.
    Exited { code: i32 },
    /// A signal that no client sent ended it.
    Signaled { signal: i32, core_dumped: bool },
    /// A client's signal ended it, or it was killed because its client disconnected.
    Killed { signal: i32, by: String },
    /// It exceeded its deadline and was killed with all that it had started.
    Timeout { limit_ms: u64 },
    OutOfMemory {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "u64")]
        limit_bytes: Option<u64>,
    },
    /// The sandbox was stopped.
    SandboxStopping,
    /// It could not be started.
    SpawnFailed {
        stage: Stage,
        /// The Linux error number.
        errno: i32,
        /// What the step was about: the program, the directory or the user.
        subject: String,
    },
}

/// The step of a start that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    User,
    Stdio,
    Cgroup,
    Fork,
    Terminal,
    Identity,
    WorkingDirectory,
    Exec,
}

/// Resource use of a program and the children that it waited for, as counted by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    pub user_us: u64,
    pub system_us: u64,
    pub resident_bytes_max: u64,
    /// Peak memory of everything that it started, if the host counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_bytes_peak: Option<u64>,
    pub block_reads: u64,
    pub block_writes: u64,
}

/// A process that outlived the program that started it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Survivor {
    pub pid: u32,
    pub command: String,
}

impl From<exit::ExitRecord> for Exit {
    fn from(record: exit::ExitRecord) -> Self {
        let usage = record.usage;
        let survivors = record.left_behind.into_iter();
        Self {
            exit_code: record.cause.shell_code(),
            success: record.cause == Known::Exited { code: 0 },
            cause: record.cause.into(),
            started_at_ms: record.started_at_ms,
            ended_at_ms: record.ended_at_ms,
            duration_us: record.duration_us,
            usage: Usage {
                user_us: usage.user_us,
                system_us: usage.system_us,
                resident_bytes_max: usage.resident_bytes_max,
                memory_bytes_peak: usage.memory_bytes_peak,
                block_reads: usage.block_reads,
                block_writes: usage.block_writes,
            },
            left_behind: survivors.map(Survivor::from).collect(),
            left_behind_count: record.left_behind_count,
        }
    }
}

impl From<Known> for Cause {
    fn from(cause: Known) -> Self {
        match cause {
            Known::Exited { code } => Self::Exited { code },
            Known::Signaled { signal, core_dumped } => Self::Signaled { signal, core_dumped },
            Known::Killed { signal, by } => Self::Killed { signal, by },
            Known::TimedOut { limit_ms } => Self::Timeout { limit_ms },
            Known::OutOfMemory { limit_bytes } => Self::OutOfMemory { limit_bytes },
            Known::AgentStopping => Self::SandboxStopping,
            Known::SpawnFailed { failure } => Self::SpawnFailed {
                stage: failure.stage.into(),
                errno: failure.errno,
                subject: failure.subject,
            },
        }
    }
}

impl From<SpawnStage> for Stage {
    fn from(stage: SpawnStage) -> Self {
        match stage {
            SpawnStage::User => Self::User,
            SpawnStage::Stdio => Self::Stdio,
            SpawnStage::Cgroup => Self::Cgroup,
            SpawnStage::Fork => Self::Fork,
            SpawnStage::Terminal => Self::Terminal,
            SpawnStage::Identity => Self::Identity,
            SpawnStage::WorkingDirectory => Self::WorkingDirectory,
            SpawnStage::Exec => Self::Exec,
        }
    }
}

impl From<exit::Survivor> for Survivor {
    fn from(survivor: exit::Survivor) -> Self {
        Self { pid: survivor.pid, command: survivor.command }
    }
}

/// How a process ended, as the end of a sentence.
pub fn ended(cause: &Known) -> String {
    match cause {
        Known::Exited { code } => format!("exited with {code}"),
        Known::Signaled { signal, .. } => format!("died of signal {signal}"),
        Known::Killed { signal, by } => format!("was killed with signal {signal} by {by}"),
        Known::TimedOut { limit_ms } => {
            format!("was killed at its deadline of {}", seconds(Duration::from_millis(*limit_ms)))
        }
        Known::OutOfMemory { limit_bytes } => ran_out_of_memory(*limit_bytes),
        Known::AgentStopping => "was ended because the sandbox was stopped".to_owned(),
        Known::SpawnFailed { failure } => format!("could not be started: {}", failure.subject),
    }
}

/// A sentence about the limit that has ended a program, for clients whose answers have no place for a cause: it
/// stands in brackets behind what the program has written. `None` if no limit has.
pub fn met_limit(cause: &Known) -> Option<String> {
    let is_limit = matches!(cause, Known::OutOfMemory { .. } | Known::TimedOut { .. });
    is_limit.then(|| format!("the program {}", ended(cause)))
}

/// The same as the last line of a text.
pub fn add_met_limit(text: &mut String, cause: &Known) {
    let Some(words) = met_limit(cause) else { return };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.extend(["[", words.as_str(), "]\n"]);
}

/// A time limit as people say it.
pub fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}
