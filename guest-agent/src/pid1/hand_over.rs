//! Leaving a machine to an init of its own, with the agent as a daemon beside it.
//!
//! `main` calls it between the boot and the agent's life, before there is a thread.

use std::ffi::CString;
use std::io;
use std::time::Duration;

use nix::unistd::{AccessFlags, Pid, access, execv, setsid};

use crate::sys::namespace::{Side, fork};
use crate::sys::signal;

/// Where the agent's control group lies, whose processes an init is not one of.
const TOP_GROUP: &str = "/sys/fs/cgroup/cgroup.procs";

/// What systemd powers the machine off at: the fifth of the signals that the usual C library leaves
/// free. An init that does not know it does not hear it.
const POWER_OFF: i32 = 34 + 4;

/// How long an init may take for that.
const POWER_OFF_MAX: Duration = Duration::from_secs(3);

/// Makes this process, PID 1, that program, and returns in a child. An error is returned in PID 1.
pub fn to(program: &str) -> io::Result<()> {
    // To know it before there is a child that serves is to be able to tell the host.
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

/// Asks that init to power the machine off, and gives it time.
pub fn ask_for_the_end() {
    signal::send(Pid::from_raw(1), POWER_OFF);
    // It ends us on its way, unless it does not know how.
    std::thread::sleep(POWER_OFF_MAX);
}
