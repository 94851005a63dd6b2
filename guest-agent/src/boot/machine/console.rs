//! The machine's console, as the descriptors that everybody begins with.

use std::fs::OpenOptions;
use std::os::fd::AsFd;

use crate::sys::descriptor::{Standard, replace_standard};

/// Programs must not read from the console, and a message of the agent's goes there: descriptor 2
/// stays, the others become the empty device once there is one.
pub(super) fn take() {
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        replace_standard(null.as_fd(), Standard::Input).ok();
        replace_standard(null.as_fd(), Standard::Output).ok();
    }
}
