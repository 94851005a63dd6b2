//! The limits of this door, each with its reason.

use std::time::Duration;

/// Kernels of one namespace, which takes no room from others. Those whose sandbox is gone make room.
pub const KERNELS_MAX: usize = 256;
/// Sockets of one kernel: each output is kept for each of them.
pub const CLIENTS_MAX: usize = 64;
/// Output that waits for one client, beside a single larger message.
pub const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Messages that wait for one client, half of them output: replies and states are never left out, so a client
/// with more is given up.
pub const WAITING_MAX: usize = 4096;
/// How long a run waits for a client that does not read, before that client misses output.
pub const STALL_MAX: Duration = Duration::from_secs(2);
/// Requests of a kernel that wait for their turn: a notebook of a thousand cells, run as a whole.
pub const REQUESTS_WAITING_MAX: usize = 2048;
/// The header of a client's message, which comes back in each answer to it.
pub const HEADER_BYTES_MAX: usize = 8 * 1024;
/// Inputs of a kernel that `history_request` finds, and their bytes: the oldest make room.
pub const HISTORY_MAX: usize = 1000;
pub const HISTORY_BYTES_MAX: usize = 64 * 1024;
/// How long the door's own sandbox lives after the last request of its kernel: over a night and a weekend
/// day, as notebooks are left open.
pub const IDLE: Duration = Duration::from_secs(24 * 3600);
/// The reason in a closing frame, by the standard of WebSockets.
pub const REASON_BYTES_MAX: usize = 123;
/// Characters of a variable's name in a refusal.
pub const VARIABLE_CHARS_SHOWN: usize = 64;
