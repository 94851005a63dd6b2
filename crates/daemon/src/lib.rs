//! The bridge that serves: it takes the locks, takes over what an earlier bridge left, opens the control
//! socket and the doors for programs, and ends in order. [`Embedded`] is the same for one client in its
//! own process.
//!
//! `main` starts it for the verbs `serve` and `mcp`. It never writes to the terminal.

#![forbid(unsafe_code)]

mod audit;
mod door;
mod embedded;
mod remote;
mod serve;
mod server;
mod snapshots;
mod telemetry;

pub use door::DoorError;
pub use embedded::{Embedded, EmbeddedError};
pub use serve::{ServeError, ServeOptions, serve};
pub use server::{Ended, Life, Server};

use control::limits::CONTROL_REPLY_DEADLINE;
use machine::limits::VIRTUAL_BOOT_DEADLINE;

const _: () = assert!(
    VIRTUAL_BOOT_DEADLINE.as_secs() < CONTROL_REPLY_DEADLINE.as_secs(),
    "a client hears of a failed boot"
);

#[cfg(test)]
mod tests;
