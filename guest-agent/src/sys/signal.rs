//! Signals by their number: the types of nix know no real-time signals.
//!
//! The reaper calls it, which knows that the process is still ours, and `pid1::hand_over` for PID 1.

use nix::unistd::Pid;

/// Sends signal `number` to a process, or with a negative id to a process group. Does nothing if it
/// is gone.
pub fn send(pid: Pid, number: i32) {
    // SAFETY: takes numbers.
    unsafe { libc::kill(pid.as_raw(), number) };
}
