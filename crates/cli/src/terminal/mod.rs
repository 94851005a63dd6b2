//! The person's terminal on the host: raw mode that is always undone, its size, the signals that
//! concern it, and the keys that mean something to us instead of to the program.
//!
//! Called by `cli` alone. Nothing here knows sandboxes, sessions or the protocol, and nothing here
//! reads the keyboard or prints, save the few escape codes that put a screen in order again.
//!
//! Four things end raw mode, each for a death that the others do not see:
//!
//! | death | who restores |
//! |---|---|
//! | a return, an error | `Drop` of [`raw::RawMode`] |
//! | a panic | the panic hook that `RawMode` installs |
//! | TERM, HUP, INT, QUIT | [`notice::Notices`], whose reader leaves in order |
//! | KILL, or anything unforeseen | the [`guardian`], a process of its own |

pub mod form;
pub mod guardian;
pub mod keys;
pub mod notice;
pub mod raw;
pub mod size;

pub use keys::{Command, KeyError, Keys};
pub use notice::{Notice, Notices};
pub use raw::{RawMode, TerminalError};
pub use size::Size;
