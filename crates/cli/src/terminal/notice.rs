//! The signals that concern the terminal: the window was resized, the process was continued after a
//! stop, or it must end.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::raw::TerminalError;

/// One thing that happened to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The window was resized.
    Resized,
    /// The process was stopped and continued: another program may have changed the mode and the screen.
    Continued,
    /// A signal that ends the process, by its number.
    End(i32),
}

/// All signals that concern a person's terminal, as one stream.
pub struct Notices {
    resized: Signal,
    continued: Signal,
    terminate: Signal,
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Notices {
    /// Takes over the signals for the rest of the process's life; needs a runtime.
    pub fn watch() -> Result<Self, TerminalError> {
        let watch = |kind| signal(kind).map_err(TerminalError::Signals);
        Ok(Self {
            resized: watch(SignalKind::window_change())?,
            continued: watch(SignalKind::from_raw(nix::libc::SIGCONT))?,
            terminate: watch(SignalKind::terminate())?,
            hangup: watch(SignalKind::hangup())?,
            interrupt: watch(SignalKind::interrupt())?,
            quit: watch(SignalKind::quit())?,
        })
    }

    /// The next notice. Safe to cancel; equal notices that come close together may arrive as one.
    pub async fn next(&mut self) -> Notice {
        tokio::select! {
            _ = self.terminate.recv() => Notice::End(nix::libc::SIGTERM),
            _ = self.hangup.recv() => Notice::End(nix::libc::SIGHUP),
            _ = self.interrupt.recv() => Notice::End(nix::libc::SIGINT),
            _ = self.quit.recv() => Notice::End(nix::libc::SIGQUIT),
            _ = self.continued.recv() => Notice::Continued,
            _ = self.resized.recv() => Notice::Resized,
        }
    }
}
