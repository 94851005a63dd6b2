//! Bounds of JSON-RPC, each with its reason.

use std::time::Duration;

/// The JSON of one answer's output: a million lines of `seq` fit, and what a client's parser makes of
/// it is still some hundred megabytes. A batch shares it.
pub const OUTPUT_BYTES_MAX: usize = 96 * 1024 * 1024;
/// Requests of one batch.
pub const BATCH_MAX: usize = 1000;
/// Requests of one batch that are under way at once: it is one client's call, and others call too.
pub const BATCH_AT_ONCE_MAX: usize = 16;
/// From here on a timeout is in nanoseconds, as the Go client sends it: so many seconds are eleven
/// days, and so many nanoseconds a millisecond.
pub const TIMEOUT_NANOS_MIN: f64 = 1e6;
/// How long one agent is waited for when figures are asked for; those of the others are shown.
pub const FIGURES_TIME_MAX: Duration = Duration::from_secs(2);
/// Agents that are asked for figures at once.
pub const FIGURES_AT_ONCE_MAX: usize = 64;
/// How often a start tries again because the name changed hands meanwhile.
pub const START_TRIES_MAX: usize = 16;
/// Enough of a wrong word to be recognized.
pub const WORD_CHARS_SHOWN: usize = 64;

const _: () = assert!(OUTPUT_BYTES_MAX / BATCH_MAX > 64 * 1024, "each of a batch says something");
