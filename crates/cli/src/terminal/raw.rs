//! Raw mode as a guard: while it lives, keys arrive as bytes and nothing is echoed.
//!
//! The previous mode is kept in one place of the process, because a panic hook has no access to the
//! guard. The first restore empties that place, so restoring twice is harmless.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::form::{SCREEN_IN_ORDER, raw_form};
use super::guardian::Guardian;

/// Why raw mode failed.
#[derive(Debug, thiserror::Error)]
pub enum TerminalError {
    #[error("stdin is not a terminal")]
    NotATerminal,
    #[error("the terminal's mode could not be {action}: {source}")]
    Mode { action: &'static str, source: rustix::io::Errno },
    #[error("cannot watch for signals: {0}")]
    Signals(#[source] std::io::Error),
}

/// The terminal and its original mode.
struct Saved {
    terminal: OwnedFd,
    mode: Termios,
}

static SAVED: Mutex<Option<Saved>> = Mutex::new(None);
static PANIC_HOOK: Once = Once::new();

/// The terminal of stdin in raw mode, until it is dropped.
pub struct RawMode {
    guardian: Option<Guardian>,
    /// Whether the screen is put in order too, not only the mode.
    tidy: bool,
}

impl RawMode {
    /// Starts the guardian, then enters raw mode. A guardian that does not start is no reason to
    /// refuse: every other way of restoring still works.
    pub fn enter() -> Result<Self, TerminalError> {
        if !stdin().is_terminal() {
            return Err(TerminalError::NotATerminal);
        }
        let mode =
            tcgetattr(stdin()).map_err(|source| TerminalError::Mode { action: "read", source })?;
        let terminal = stdin().as_fd().try_clone_to_owned().map_err(|_| TerminalError::Mode {
            action: "kept",
            source: rustix::io::Errno::MFILE,
        })?;
        let guardian = Guardian::start(terminal.as_fd()).ok();
        install_panic_hook();
        *SAVED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Saved { terminal, mode });
        let raw = Self { guardian, tidy: false };
        raw.enforce()?;
        Ok(raw)
    }

    /// Enters raw mode again, after a stop in which the shell has set its own.
    pub fn enforce(&self) -> Result<(), TerminalError> {
        let saved = SAVED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(saved) = saved.as_ref() else { return Ok(()) };
        tcsetattr(&saved.terminal, OptionalActions::Now, &raw_form(&saved.mode))
            .map_err(|source| TerminalError::Mode { action: "set", source })
    }

    /// From now on the end of raw mode also resets the screen: the program that drew on it lives
    /// on, or died without cleaning up.
    pub fn tidy_at_end(&mut self) {
        self.tidy = true;
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore(self.tidy);
        if let Some(guardian) = self.guardian.take() {
            guardian.dismiss();
        }
    }
}

/// Whether raw mode is on, so that writers of a line must return the cursor themselves.
pub fn is_on() -> bool {
    SAVED.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Undoes raw mode, if it is on. Errors cannot be reported: the terminal is gone then.
fn restore(tidy: bool) {
    let Some(saved) = SAVED.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    if tidy && stdout().is_terminal() {
        let mut stdout = stdout().lock();
        let _ = stdout.write_all(SCREEN_IN_ORDER).and_then(|()| stdout.flush());
    }
    let _ = tcsetattr(&saved.terminal, OptionalActions::Now, &saved.mode);
}

fn install_panic_hook() {
    PANIC_HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore(true);
            previous(info);
        }));
    });
}
