//! A bridge that dies at a chosen step: just before the n-th thing that it does to a disk.
//!
//! It is the bridge that people have, watched from outside by its system calls. Its own threads are
//! watched and counted together; what it starts is not. A step is a call that makes, names, removes
//! or syncs something, or writes to a file below the place that the test has given.

#![allow(clippy::disallowed_methods, reason = "it waits for what it watches, and for nothing else")]

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::eventually;

/// `ptrace_syscall_info`: the call is about to be made.
const ENTRY: u8 = 1;

/// Calls with a path.
const PATH_CALLS: [i64; 16] = [
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    libc::SYS_syncfs,
    libc::SYS_fsync,
];

/// Calls with an open file, which count if it is below the test's directory.
const FILE_CALLS: [i64; 5] =
    [libc::SYS_write, libc::SYS_pwrite64, libc::SYS_writev, libc::SYS_ftruncate, libc::SYS_fchmod];

/// A process that is being watched.
pub struct Watched {
    pid: Pid,
    steps: Arc<AtomicU64>,
    watcher: JoinHandle<()>,
}

/// Whether processes can be watched here.
pub fn can_watch() -> bool {
    let child = Command::new("sleep").arg("60").spawn();
    child.is_ok_and(|mut child| {
        let pid = Pid::from_raw(child.id() as i32);
        let can = thread::spawn(move || ptrace::seize(pid, Options::empty()).is_ok()).join();
        let _ = (child.kill(), child.wait());
        can.unwrap_or(false)
    })
}

/// Runs a command until it ends, or until it dies before the given step, of which 1 is the first.
/// Says how many it has begun.
///
/// # Panics
/// When it cannot be watched.
pub fn run_until(command: &Command, place: &Path, step: u64) -> (Output, u64) {
    // It waits for a line, so that it has made no call before it is watched.
    let mut waiting = Command::new("sh");
    waiting.args(["-c", "read -r _ && exec \"$0\" \"$@\" </dev/null"]);
    waiting.arg(command.get_program()).args(command.get_args());
    waiting.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    waiting.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = waiting.spawn().expect("a shell");
    let watched = Watched::begin(&child, place, step);
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"\n").expect("it waits");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    (output, watched.end())
}

impl Watched {
    /// Watches a process from now on, and kills it before the step.
    ///
    /// # Panics
    /// When it cannot be watched.
    pub fn begin(child: &Child, place: &Path, step: u64) -> Self {
        Self::begin_pid(Pid::from_raw(child.id() as i32), place, step)
    }

    /// By its id. It must be a child of this process.
    ///
    /// # Panics
    /// When it cannot be watched.
    pub fn begin_pid(pid: Pid, place: &Path, step: u64) -> Self {
        let steps = Arc::new(AtomicU64::new(0));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let mut watcher = Watcher {
            pid,
            place: place.to_owned(),
            step,
            steps: Arc::clone(&steps),
            threads: HashSet::new(),
        };
        // Only the thread that has begun to trace may continue.
        let watcher = thread::spawn(move || {
            watcher.seize();
            ready.send(()).expect("somebody waits");
            watcher.watch();
        });
        is_ready.recv().expect("it can be watched");
        Self { pid, steps, watcher }
    }

    /// How many steps it has begun.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    /// Whether it lives.
    pub fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    /// Waits until it is gone, and says how many steps it has begun.
    ///
    /// # Panics
    /// When it does not go.
    pub fn end(self) -> u64 {
        eventually("what was watched is gone", || self.watcher.is_finished());
        self.watcher.join().expect("the watcher does not panic");
        self.steps.load(Ordering::SeqCst)
    }
}

struct Watcher {
    pid: Pid,
    place: PathBuf,
    step: u64,
    steps: Arc<AtomicU64>,
    threads: HashSet<Pid>,
}

impl Watcher {
    /// Takes all threads that there are; those that they start come by themselves.
    fn seize(&mut self) {
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
        loop {
            let before = self.threads.len();
            let listed = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("it is there");
            for entry in listed.flatten() {
                let name = entry.file_name();
                let tid = name.to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw);
                let Some(tid) = tid.filter(|tid| !self.threads.contains(tid)) else { continue };
                match ptrace::seize(tid, options) {
                    // It is one that was started by one we had, or has ended.
                    Err(Errno::ESRCH | Errno::EPERM) if self.threads.contains(&self.pid) => {}
                    seized => {
                        seized.expect("it can be watched");
                        ptrace::interrupt(tid).expect("it is ours");
                    }
                }
                self.threads.insert(tid);
            }
            if self.threads.len() == before {
                return;
            }
        }
    }

    /// Lets it run from call to call until it ends. Its parent reaps it.
    fn watch(&self) {
        let looks = WaitPidFlag::WEXITED
            | WaitPidFlag::WSTOPPED
            | WaitPidFlag::WNOWAIT
            | WaitPidFlag::__WALL
            | WaitPidFlag::__WNOTHREAD;
        loop {
            let Ok(status) = waitid(Id::All, looks) else { return };
            let (tid, signal) = match status {
                WaitStatus::PtraceSyscall(tid) => {
                    if self.is_step(tid)
                        && self.steps.fetch_add(1, Ordering::SeqCst) + 1 == self.step
                    {
                        kill(self.pid, Signal::SIGKILL).expect("it is there");
                        return;
                    }
                    (tid, None)
                }
                WaitStatus::PtraceEvent(tid, signal, 0) => (tid, Some(signal)),
                WaitStatus::PtraceEvent(tid, ..) => (tid, None),
                WaitStatus::Exited(tid, _) | WaitStatus::Signaled(tid, ..) => {
                    if tid == self.pid {
                        return;
                    }
                    let _ = waitpid(tid, Some(WaitPidFlag::__WALL));
                    continue;
                }
                _ => continue,
            };
            match ptrace::syscall(tid, signal) {
                // It was killed meanwhile.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => panic!("{tid} does not go on: {error}"),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn is_step(&self, tid: Pid) -> bool {
        if !ptrace::syscall_info(tid).is_ok_and(|info| info.op == ENTRY) {
            return false;
        }
        let Ok(registers) = ptrace::getregs(tid) else { return false };
        let call = registers.orig_rax as i64;
        if call == libc::SYS_openat {
            return registers.rdx as i32 & libc::O_CREAT != 0;
        }
        let is_ours = || {
            let file = format!("/proc/{}/fd/{}", self.pid, registers.rdi as i32);
            fs::read_link(file).is_ok_and(|path| path.starts_with(&self.place))
        };
        PATH_CALLS.contains(&call) || (FILE_CALLS.contains(&call) && is_ours())
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_step(&self, _: Pid) -> bool {
        false
    }
}
