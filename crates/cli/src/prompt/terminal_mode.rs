//! Our hold on the terminal for as long as the conversation lasts.
//!
//! The line editor enters and leaves a raw mode of its own for each line. It restores after a
//! return and a panic, but not when we are killed, or leave while a line is being edited. So raw
//! mode is entered once with its guard and its guardian, and left again at once with both alive:
//! they know the mode that was there first, and restore it at any end.

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

    /// From now on the end also puts the screen in order.
    pub(super) fn tidy_at_end(&mut self) {
        self.guard.tidy_at_end();
    }
}

impl Drop for TerminalMode {
    fn drop(&mut self) {
        let _ = window_signal().thread_unblock();
    }
}

/// That the window has another size.
pub(super) fn window_signal() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGWINCH);
    signals
}
