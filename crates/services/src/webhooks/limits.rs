//! The limits of webhooks, each with its reason.

use std::time::Duration;

/// The pause after the first attempt; each later one is twice as long.
pub const RETRY_PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest pause between attempts.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long one attempt may take, from the name of the host to the end of the answer.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(15);
/// How long connecting may take of that.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Events that a hook holds in memory.
pub const BATCH_MAX: usize = 16;
/// The pause before a place or a dead letter that could not be written or read is tried again.
pub const PLACE_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The size of a file of dead letters. The one before is kept, so a hook has at most twice as much.
pub const DEAD_BYTES_MAX: u64 = 1024 * 1024;
