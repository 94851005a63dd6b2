//! Hands PID 1 of a machine over to an init, with the agent as a daemon beside it.
//!
//! `main` calls it between the boot and the agent's life, before there is a thread.

use std::ffi::CString;
use std::io;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{AccessFlags, Pid, access, execv, setsid};

use crate::sys::namespace::{Side, fork};
use crate::sys::signal;

/// The agent's control group, which must not contain an init.
const TOP_GROUP: &str = "/sys/fs/cgroup/cgroup.procs";

/// The signal that makes systemd power the machine off: the fifth of those that the usual C library
/// leaves free.
const POWER_OFF: i32 = 34 + 4;

/// How long an init may take to end everything after that signal. It has its own limits, which are minutes
/// for a service that does not stop.
const POWER_OFF_MAX: Duration = Duration::from_secs(300);

/// Makes this process, PID 1, that program, and returns in a child. An error is returned in PID 1.
pub fn to(program: &str) -> io::Result<()> {
    // Checked before the serving child exists, so that the error reaches the host.
    access(program, AccessFlags::X_OK)?;
    match fork(None)? {
        Side::Child { .. } => {
            setsid()?;
            Ok(())
        }
        Side::Parent { .. } => {
            std::fs::write(TOP_GROUP, "0").ok();
            let program = CString::new(program)?;
            let Err(errno) = execv(&program, &[&program]);
            Err(errno.into())
        }
    }
}

/// Asks that init to power the machine off, and gives it time. Returns at once if it does not handle the
/// signal, because then the agent must do it.
pub fn request_power_off() {
    let status = std::fs::read_to_string("/proc/1/status").unwrap_or_default();
    if !catches(&status, POWER_OFF) {
        return;
    }
    // It ends us on its way. There is nothing left to do in order, so that may be at once.
    SigSet::from(Signal::SIGTERM).thread_unblock().ok();
    signal::send(Pid::from_raw(1), POWER_OFF);
    std::thread::sleep(POWER_OFF_MAX);
}

/// Whether a process of this `status` has a handler for a signal, or blocks it to take it by itself.
fn catches(status: &str, number: i32) -> bool {
    let masks = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigBlk:").or_else(|| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask) >> (number - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_caught_or_blocked_is_noticed() {
        let status = |blocked: u64, caught: u64| {
            format!(
                "Name:\tinit\nSigBlk:\t{blocked:016x}\nSigIgn:\t0000002000000000\nSigCgt:\t{caught:016x}\n"
            )
        };
        let power_off = 1 << 37;
        assert!(catches(&status(power_off, 0), POWER_OFF));
        assert!(catches(&status(0, power_off), POWER_OFF));
        assert!(!catches(&status(!power_off, !power_off), POWER_OFF));
        assert!(!catches("", POWER_OFF));
    }
}
