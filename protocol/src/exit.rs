//! How a process ended. The cause is known, and never guessed from a number such as 137.

use serde::{Deserialize, Serialize};

use crate::message::Channel;
use crate::{decode_enum, decode_struct};

/// The holder that keeps output on the host's disk. The agent digests what it keeps.
pub const RECORDER: &str = "log";

/// The end of a session's leader, kept by the agent until every holder has released the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    pub cause: Cause,
    /// Wall clock of the guest, milliseconds since 1970.
    pub started_at_ms: u64,
    pub ended_at_ms: u64,
    /// By the monotonic clock, so that a changed wall clock does not falsify it.
    pub duration_us: u64,
    pub usage: Usage,
    /// How much had been written to each output when the leader ended; survivors may still add to
    /// it. [`ExitRecord::complete_at`] says how far to read for all output of the program.
    pub outputs: Vec<OutputTotal>,
    /// Processes of the session that live on, the first few by name.
    pub left_behind: Vec<Survivor>,
    pub left_behind_count: u32,
}

decode_struct! {
    ExitRecord:
    cause, started_at_ms, ended_at_ms, duration_us, usage, outputs, left_behind, left_behind_count
}

/// Why a session's leader has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It returned or called `exit`.
    Exited { code: i32 },
    /// A signal that no client sent.
    Signaled { signal: i32, core_dumped: bool },
    /// A signal that a client sent.
    Killed { signal: i32, by: String },
    /// It overran the deadline of its start.
    TimedOut { limit_ms: u64 },
    /// The kernel's out-of-memory killer ended it, or it was killed in a control group that ran out of
    /// memory.
    OutOfMemory { limit_bytes: Option<u64> },
    /// The agent was asked to stop, or its machine was.
    AgentStopping,
    /// It never ran.
    SpawnFailed { failure: SpawnFailure },
}

decode_enum! {
    Cause:
    Exited { code }, Signaled { signal, core_dumped }, Killed { signal, by }, TimedOut { limit_ms },
    OutOfMemory { ; limit_bytes }, AgentStopping, SpawnFailed { failure }
}

/// The step of a start that failed, and its error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnFailure {
    pub stage: SpawnStage,
    pub errno: i32,
    /// The object of the step: the program, the directory, the user.
    pub subject: String,
}

decode_struct!(SpawnFailure: stage, errno, subject);

/// The steps between a start and the first instruction of the program, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpawnStage {
    /// Looking up the user and its groups.
    User,
    /// Making pipes or the terminal.
    Stdio,
    /// Making the session's control group.
    Cgroup,
    Fork,
    /// Leaving the agent's session, taking the controlling terminal.
    Terminal,
    /// Becoming the user.
    Identity,
    /// Entering the working directory.
    WorkingDirectory,
    /// Executing the program: `ENOENT` is "not found", `EACCES` and `ENOEXEC` "not executable".
    Exec,
}

decode_enum!(SpawnStage: User, Stdio, Cgroup, Fork, Terminal, Identity, WorkingDirectory, Exec);

/// The kernel's accounting for the leader and the children it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub user_us: u64,
    pub system_us: u64,
    pub resident_bytes_max: u64,
    /// Peak of the whole session, where a control group accounts it.
    pub memory_bytes_peak: Option<u64>,
    pub block_reads: u64,
    pub block_writes: u64,
    pub switches_voluntary: u64,
    pub switches_forced: u64,
}

decode_struct! {
    Usage:
    user_us, system_us, resident_bytes_max, block_reads, block_writes, switches_voluntary,
    switches_forced; memory_bytes_peak
}

/// The sum of one output at the leader's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputTotal {
    pub channel: Channel,
    /// Bytes that were read from the program.
    pub written: u64,
    /// Bytes that the `drop_oldest` policy discarded before every holder had them.
    pub dropped: u64,
    /// How many bytes `sha256` is of, from the first on: `written`, or all of a terminal's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digested: Option<u64>,
    /// SHA-256 of them, in hexadecimal digits. Only of a session that [`RECORDER`] holds, and only
    /// once the agent has read that far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

decode_struct!(OutputTotal: channel, written, dropped; digested, sha256);

/// A process that outlived the leader of its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivor {
    pub pid: u32,
    /// Its command line, cut to `COMMAND_BYTES_MAX`.
    pub command: String,
}

decode_struct!(Survivor: pid, command);

impl ExitRecord {
    /// The offset at which a reader of `channel` has all output of the program itself. `None` means the
    /// end of the stream, which is sure to come. That is the case for a terminal with no process left:
    /// the bytes in its kernel buffer cannot be counted.
    pub fn complete_at(&self, channel: Channel) -> Option<u64> {
        if channel == Channel::Terminal && self.left_behind_count == 0 {
            return None;
        }
        let total = self.outputs.iter().find(|total| total.channel == channel);
        Some(total.map_or(0, |total| total.written))
    }
}

/// The exit code of a shell for a process that could not be executed.
pub const EXIT_NOT_EXECUTABLE: i32 = 126;
/// The exit code of a shell for a program that was not found.
pub const EXIT_NOT_FOUND: i32 = 127;
/// What shells add to the number of a deadly signal.
const EXIT_SIGNALED: i32 = 128;
/// The exit code of `timeout(1)`.
pub const EXIT_TIMED_OUT: i32 = 124;
/// The exit code of docker when it failed itself.
pub const EXIT_FAILED_ITSELF: i32 = 125;

impl Cause {
    /// The exit code that a shell or docker would report for it.
    pub fn shell_code(&self) -> i32 {
        match self {
            Self::Exited { code } => *code,
            Self::Signaled { signal, .. } | Self::Killed { signal, .. } => {
                signal.saturating_add(EXIT_SIGNALED)
            }
            Self::TimedOut { .. } => EXIT_TIMED_OUT,
            Self::OutOfMemory { .. } | Self::AgentStopping => EXIT_SIGNALED + 9,
            Self::SpawnFailed { failure } => failure.shell_code(),
        }
    }
}

/// `ENOENT` of Linux.
const ENOENT: i32 = 2;
/// `ENOTDIR` of Linux.
const ENOTDIR: i32 = 20;

impl SpawnFailure {
    /// Whether the program itself was not found (rather than its interpreter or directory).
    pub fn is_not_found(&self) -> bool {
        self.stage == SpawnStage::Exec && matches!(self.errno, ENOENT | ENOTDIR)
    }

    pub fn shell_code(&self) -> i32 {
        match self.stage {
            SpawnStage::Exec if self.is_not_found() => EXIT_NOT_FOUND,
            SpawnStage::Exec | SpawnStage::WorkingDirectory => EXIT_NOT_EXECUTABLE,
            _ => EXIT_FAILED_ITSELF,
        }
    }
}
