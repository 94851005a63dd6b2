//! The system calls of a process in the time that a test looks at it, by `strace`.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use nix::unistd::Pid;
use tempfile::TempDir;

use crate::{eventually, skip};

/// Whose calls are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Those that it has, without its children.
    Own,
    /// Those of its children, too.
    All,
}

/// `strace` over a process.
pub struct Trace {
    strace: Child,
    lines: PathBuf,
    _directory: TempDir,
}

impl Trace {
    /// `None` where it may not be traced.
    ///
    /// # Panics
    /// When the process has ended, or there is no `strace`.
    pub fn of(pid: Pid, threads: Threads) -> Option<Self> {
        let directory = TempDir::new().expect("a directory");
        let lines = directory.path().join("calls");
        let mut command = Command::new("strace");
        if threads == Threads::All {
            command.arg("-f");
        }
        let tasks = || fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
        // Only some emulated machines have to ask the kernel for the time.
        command.args(["-e", "trace=!clock_gettime"]);
        command.args(["-q", "-o", lines.to_str().expect("UTF-8"), "-p", &pid.to_string()]);
        if threads == Threads::Own {
            for task in tasks().filter(|task| *task.file_name() != *pid.to_string()) {
                command.arg("-p").arg(task.file_name());
            }
        }
        let mut strace = command.spawn().expect("strace is there");
        let is_traced = |status: PathBuf| {
            let status = fs::read_to_string(status).unwrap_or_default();
            !status.contains("TracerPid:\t0\n")
        };
        let mut is_over = false;
        eventually("strace traces, or says why it can not", || {
            is_over = strace.try_wait().expect("it is ours").is_some();
            let all = || tasks().all(|task| is_traced(task.path().join("status")));
            is_over || all()
        });
        if is_over {
            skip("strace may not trace here");
            return None;
        }
        Some(Self { strace, lines, _directory: directory })
    }

    /// The calls that were made meanwhile; of all threads, each begins with the number of its own.
    ///
    /// # Panics
    /// When `strace` has written nothing.
    pub fn end(mut self) -> Vec<String> {
        self.stop();
        let lines = fs::read_to_string(&self.lines).expect("it has written");
        // A call during which another thread makes one has two lines.
        let is_call =
            |line: &&str| line.contains('(') && !line.contains("--- ") && !line.contains("<... ");
        lines.lines().filter(is_call).map(str::to_owned).collect()
    }

    /// Each call is written before its thread goes on, so nothing is missing. Asked to end, `strace` waits
    /// for each thread to stop, and one that waits for the child of its `vfork` never does, because the
    /// child is stopped. Those of a dead `strace` go on at once.
    fn stop(&mut self) {
        self.strace.kill().ok();
        self.strace.wait().ok();
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.stop();
    }
}
