//! The meaning of this program's exit code, which is that of docker and of a shell:
//!
//! | code | meaning |
//! |---|---|
//! | the command's own | it ran and returned |
//! | 124 | it overran its `--timeout` |
//! | 125 | we failed, not the command |
//! | 126 | the command cannot be executed, or its working directory not be entered |
//! | 127 | the command was not found |
//! | 128 + n | signal n ended the command, or us |
//! | 141 | the reader of our output went away, as for any program in a pipeline |

use std::process::ExitCode;
use std::time::Duration;

use protocol::exit::{Cause, EXIT_FAILED_ITSELF, ExitRecord, SpawnFailure, SpawnStage};

use super::output::printable;
use super::values::{human_bytes, human_duration, signal_name};

/// The exit code of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(pub u8);

impl Exit {
    pub const SUCCESS: Self = Self(0);
    pub const FAILED_ITSELF: Self = Self(EXIT_FAILED_ITSELF as u8);
    /// Our output has no reader: 128 + SIGPIPE.
    pub const UNREAD: Self = Self(128 + 13);

    /// The code when a signal ends this program.
    pub fn signalled(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }

    /// The code for the end of a session.
    pub fn of(record: &ExitRecord) -> Self {
        // The kernel keeps eight bits of an exit code. A guest that says more is cut to them.
        Self(record.cause.shell_code() as u8)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.0.into()
    }
}

/// Why a command ended, if the code alone does not show it. `None` for a return, and for a signal,
/// which is 128 + n.
pub fn explain(cause: &Cause, command: &str) -> Option<String> {
    let command = printable(command);
    match cause {
        Cause::Exited { .. } | Cause::Signaled { .. } => None,
        Cause::Killed { signal, by } => {
            Some(format!("{command}: killed with {} by {}", signal_name(*signal), printable(by)))
        }
        Cause::TimedOut { limit_ms } => {
            let limit = human_duration(Duration::from_millis(*limit_ms));
            Some(format!(
                "{command}: killed with its child processes after its time limit of {limit}"
            ))
        }
        Cause::OutOfMemory { limit_bytes: Some(limit) } => {
            Some(format!("{command}: out of memory, with a limit of {}", human_bytes(*limit)))
        }
        Cause::OutOfMemory { limit_bytes: None } => {
            Some(format!("{command}: the sandbox is out of memory"))
        }
        Cause::AgentStopping => Some(format!("{command}: ended because the sandbox was stopped")),
        Cause::SpawnFailed { failure } => Some(explain_spawn(failure)),
    }
}

/// The message for a command that could not be started, with a hint.
pub fn explain_spawn(failure: &SpawnFailure) -> String {
    let subject = printable(&failure.subject);
    let errno = nix::errno::Errno::from_raw(failure.errno);
    let reason = explain_errno(errno);
    match failure.stage {
        SpawnStage::Exec if failure.is_not_found() => {
            format!(
                "{subject}: no such program in the sandbox; run a shell built-in with sh -c '...'"
            )
        }
        SpawnStage::Exec if errno == nix::errno::Errno::EACCES => {
            format!("{subject}: not executable ({reason}); make it executable with chmod +x")
        }
        SpawnStage::Exec if errno == nix::errno::Errno::ENOEXEC => {
            format!(
                "{subject}: not executable ({reason}); begin a script with a line like #!/bin/sh"
            )
        }
        SpawnStage::Exec => format!("{subject}: not executable ({reason})"),
        SpawnStage::WorkingDirectory => {
            format!("{subject}: cannot be the working directory ({reason}); choose one with --cwd")
        }
        SpawnStage::User if errno == nix::errno::Errno::ENOENT => {
            format!(
                "{subject}: no such user in the sandbox; /etc/passwd in the sandbox lists its users"
            )
        }
        SpawnStage::User | SpawnStage::Identity => {
            format!("{subject}: cannot run as this user ({reason})")
        }
        SpawnStage::Stdio | SpawnStage::Terminal => {
            format!(
                "the sandbox cannot connect the program's input and output ({reason}): {subject}"
            )
        }
        SpawnStage::Cgroup => {
            format!("the sandbox cannot make a control group ({reason}): {subject}")
        }
        SpawnStage::Fork => {
            format!(
                "the sandbox cannot start another process ({reason}); end some, or raise its limit"
            )
        }
    }
}

/// The reason behind an error, where the agent's rule for paths gives it another meaning than the kernel's
/// own words.
fn explain_errno(errno: nix::errno::Errno) -> &'static str {
    match errno {
        nix::errno::Errno::EXDEV => "it is on a kernel file system, such as /proc or /sys",
        nix::errno::Errno::ELOOP => {
            "it leads through too many symlinks, or through a link of /proc to what a process has open"
        }
        other => other.desc(),
    }
}

/// The message for processes that a session left running.
pub fn explain_left_behind(record: &ExitRecord) -> Option<String> {
    if record.left_behind_count == 0 && record.left_behind.is_empty() {
        return None;
    }
    let named: Vec<String> = record
        .left_behind
        .iter()
        .take(LEFT_BEHIND_NAMED_MAX)
        .map(|survivor| format!("{} ({})", survivor.pid, shorten(&survivor.command)))
        .collect();
    let count =
        record.left_behind_count.max(u32::try_from(record.left_behind.len()).unwrap_or(u32::MAX));
    let noun = if count == 1 { "process" } else { "processes" };
    let more = if count as usize > named.len() { ", ..." } else { "" };
    Some(format!("left {count} running {noun} behind: {}{more}", named.join(", ")))
}

/// The maximum number of processes that are named.
const LEFT_BEHIND_NAMED_MAX: usize = 3;
/// Characters of a survivor's command that a line shows.
const COMMAND_CHARS_SHOWN: usize = 40;

fn shorten(command: &str) -> String {
    let mut short: String = printable(command).chars().take(COMMAND_CHARS_SHOWN).collect();
    if command.chars().nth(COMMAND_CHARS_SHOWN).is_some() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use protocol::exit::{Survivor, Usage};

    use super::*;

    fn record(cause: Cause) -> ExitRecord {
        ExitRecord {
            cause,
            started_at_ms: 0,
            ended_at_ms: 0,
            duration_us: 0,
            usage: Usage::default(),
            outputs: vec![],
            left_behind: vec![],
            left_behind_count: 0,
        }
    }

    fn spawn_failed(stage: SpawnStage, errno: i32) -> Cause {
        let subject = "thing".to_owned();
        Cause::SpawnFailed { failure: SpawnFailure { stage, errno, subject } }
    }

    #[test]
    fn codes_are_those_of_a_shell() {
        for code in 0..=255 {
            assert_eq!(Exit::of(&record(Cause::Exited { code })), Exit(code as u8));
        }
        for signal in 1..=64 {
            let died = record(Cause::Signaled { signal, core_dumped: false });
            assert_eq!(Exit::of(&died), Exit(128 + signal as u8));
        }
        let cases = [
            (Cause::TimedOut { limit_ms: 1 }, 124),
            (Cause::OutOfMemory { limit_bytes: None }, 137),
            (spawn_failed(SpawnStage::Exec, 2), 127),
            (spawn_failed(SpawnStage::Exec, 13), 126),
            (spawn_failed(SpawnStage::WorkingDirectory, 2), 126),
            (spawn_failed(SpawnStage::User, 2), 125),
        ];
        for (cause, code) in cases {
            assert_eq!(Exit::of(&record(cause.clone())), Exit(code), "{cause:?}");
        }
    }

    #[test]
    fn a_code_that_no_kernel_gives_is_cut_and_never_panics() {
        for code in [i32::MIN, -1, 256, i32::MAX] {
            assert_eq!(Exit::of(&record(Cause::Exited { code })), Exit(code as u8));
        }
        assert_eq!(Exit::signalled(2), Exit(130));
    }

    #[test]
    fn only_what_the_code_does_not_tell_is_explained() {
        assert_eq!(explain(&Cause::Exited { code: 3 }, "x"), None);
        let timeout = explain(&Cause::TimedOut { limit_ms: 2_000 }, "sl\x1beep").expect("a reason");
        assert!(
            timeout.starts_with("sl\\u{1b}eep: killed") && timeout.ends_with("2s"),
            "{timeout}"
        );
        let missing = explain(&spawn_failed(SpawnStage::Exec, 2), "x").expect("a reason");
        assert!(missing.contains("no such program"), "{missing}");
    }

    #[test]
    fn survivors_are_named_up_to_a_few() {
        let mut ended = record(Cause::Exited { code: 0 });
        assert_eq!(explain_left_behind(&ended), None);
        ended.left_behind = vec![Survivor { pid: 7, command: "sleep 1000".to_owned() }];
        ended.left_behind_count = 1;
        let line = explain_left_behind(&ended).expect("a line");
        assert_eq!(line, "left 1 running process behind: 7 (sleep 1000)");
        ended.left_behind_count = 90;
        assert!(explain_left_behind(&ended).expect("a line").ends_with(", ..."));
    }
}
