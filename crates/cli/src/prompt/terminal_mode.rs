//! Guards the terminal mode while the prompt is open.
//!
//! The line editor enters and leaves raw mode for each line. It restores the mode after a return
//! and a panic, but not when the process is killed or ends during a line. So raw mode is entered
//! once with its guard and its guardian, and left again at once while both stay alive: they know
//! the original mode and restore it however the process ends.

use std::io::stdin;

use nix::sys::signal::{SigSet, Signal};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::terminal::{RawMode, TerminalError};

/// See the module's description.
pub(super) struct TerminalMode {
    guard: RawMode,
}

impl TerminalMode {
    pub(super) fn take() -> Result<Self, TerminalError> {
        let failed = |action| move |source| TerminalError::Mode { action, source };
        let mode = tcgetattr(stdin()).map_err(failed("read"))?;
        let guard = RawMode::enter()?;
        tcsetattr(stdin(), OptionalActions::Now, &mode).map_err(failed("set"))?;
        // The editor's thread takes it, and those that are started from here on leave it.
        let _ = window_signal().thread_block();
        Ok(Self { guard })
    }

    /// From now on the screen is also reset at the end.
    pub(super) fn tidy_at_end(&mut self) {
        self.guard.tidy_at_end();
    }
}

impl Drop for TerminalMode {
    fn drop(&mut self) {
        let _ = window_signal().thread_unblock();
    }
}

/// The signal for a resized window.
pub(super) fn window_signal() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGWINCH);
    signals
}
