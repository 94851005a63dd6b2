//! Switching a machine off, after everything is written to its disks.
//!
//! `main` calls it when the agent has ended, for any reason.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::sync;

use crate::config::line::Halt;
use crate::sys::mount;

/// Writes everything out and switches the machine off. Returns only where that is impossible.
pub fn switch_off(halt: Halt, written: Option<&OwnedFd>) {
    sync();
    if let Some(written) = written {
        // All writes are synced already; this saves the next mount a recovery.
        mount::stop_writes(written.as_fd()).ok();
    }
    let first = match halt {
        Halt::PowerOff => RebootMode::RB_POWER_OFF,
        Halt::Reboot => RebootMode::RB_AUTOBOOT,
    };
    // A machine that does not know the first may know another.
    for mode in [first, RebootMode::RB_AUTOBOOT, RebootMode::RB_HALT_SYSTEM] {
        reboot(mode).ok();
    }
}
