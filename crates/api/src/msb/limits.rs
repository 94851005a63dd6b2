//! The limits of this door, each with its reason.

use std::time::Duration;

/// The clients count the lives of sandboxes in seconds.
pub const SECOND_MS: u64 = 1000;
/// Sandboxes on a page, by default and at most.
pub const PAGE_DEFAULT: usize = 20;
pub const PAGE_MAX: usize = 200;
/// How long an ephemeral sandbox is shown as stopped before it is removed: its client looks whether it is.
pub const EPHEMERAL_KEPT_MS: u64 = 10 * SECOND_MS;
/// How long programs of a sandbox that ends have for that.
pub const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long a stop waits for the programs that it has killed.
pub const STOP_WAIT_MAX: Duration = Duration::from_secs(10);
/// The largest frame, as the clients have it: a piece of a file of 3 MiB, and what is around it.
pub const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A frame that carries no bytes of a file or of an input: more than the kernel takes as arguments.
/// What is decoded of it takes up to 24 times as much for a moment.
pub const REQUEST_BYTES_MAX: usize = 512 * 1024;
/// A piece of a file on its way to the client.
pub const PIECE_BYTES_MAX: usize = 32 * 1024;
/// Frames that wait for a client that does not read: with the pieces of files, what a stream may keep.
pub const FRAMES_WAITING_MAX: usize = 3;
/// Programs and transfers at once over one connection. The clients open one for each call.
pub const EXCHANGES_MAX: usize = 64;
/// Frames of input that wait for one program, or for one file.
pub const INPUTS_WAITING_MAX: usize = 2;
/// Signals and sizes that wait for one program.
pub const CONTROLS_WAITING_MAX: usize = 16;
/// Files that are open at once over one connection.
pub const HANDLES_MAX: usize = 64;
/// What one turn of reading a log finds before it is sent.
pub const LOG_TURN_ENTRIES: usize = 256;
pub const LOG_TURN_BYTES: usize = 64 * 1024;
