//! Bounds of running programs for clients, each with its reason.

use std::time::Duration;

pub use crate::limits::{OUTPUT_BYTES_DEFAULT, TIMEOUT_MS_MAX};

/// The most that may be asked for: the answer is made in memory, and base64 takes a third more.
pub const OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How long a WebSocket may be open before its client says what to run.
pub const ORDER_WAIT_MAX: Duration = Duration::from_secs(30);
/// Input from a client that waits for a program which does not read it. More is not taken from the
/// client, and waits there.
pub const INPUT_WAITING_BYTES_MAX: usize = 1024 * 1024;
/// Notices that wait for a client that does not read; more are left out.
pub const NOTICES_WAITING_MAX: usize = 16;
/// How often it is looked whether a terminal's end-of-file key was pressed, and how often at most:
/// a second in all. A program that does not read has a full terminal, which takes no more keys.
pub const END_LOOK_PAUSE: Duration = Duration::from_millis(5);
pub const END_LOOKS_MAX: usize = 200;
