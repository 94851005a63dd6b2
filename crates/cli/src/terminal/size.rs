//! The size of the person's window.

use std::io::{stderr, stdin, stdout};

/// The size of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

impl Size {
    /// The default size without a terminal: the VT100's screen.
    pub const DEFAULT: Self = Self { rows: 24, columns: 80 };

    /// The window size of stdout, stdin or stderr, in this order of preference: drawing goes to
    /// stdout. `None` if none of them is a terminal that knows its size.
    pub fn read() -> Option<Self> {
        let window = rustix::termios::tcgetwinsize(stdout())
            .or_else(|_| rustix::termios::tcgetwinsize(stdin()))
            .or_else(|_| rustix::termios::tcgetwinsize(stderr()))
            .ok()?;
        // A serial line answers with zeros: it has no size that it knows.
        (window.ws_row > 0 && window.ws_col > 0)
            .then_some(Self { rows: window.ws_row, columns: window.ws_col })
    }
}
