//! The signals that concern the terminal: the window was resized, the process was continued after a
//! stop, or it must end.

use futures_util::StreamExt as _;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook_tokio::Signals;

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
pub struct Notices(Signals);

impl Notices {
    /// Takes over the signals for the rest of the process's life; needs a runtime.
    pub fn watch() -> Result<Self, TerminalError> {
        let signals = Signals::new([SIGWINCH, SIGCONT, SIGTERM, SIGHUP, SIGINT, SIGQUIT]);
        signals.map(Self).map_err(TerminalError::Signals)
    }

    /// The next notice. Safe to cancel; equal notices that come close together may arrive as one.
    pub async fn next(&mut self) -> Notice {
        match self.0.next().await {
            Some(SIGWINCH) => Notice::Resized,
            Some(SIGCONT) => Notice::Continued,
            Some(signal) => Notice::End(signal),
            // Only a handle of it ends the stream, and there is none.
            None => std::future::pending().await,
        }
    }
}
