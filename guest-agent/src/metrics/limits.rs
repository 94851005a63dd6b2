//! Bounds of measuring, each with its reason.

use std::time::Duration;

/// From one sample to the next.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// From the first sample to the second, so that there is a figure for the CPU before anybody who
/// has just made a sandbox asks for it.
pub const INTERVAL_FIRST: Duration = Duration::from_millis(500);

/// Processes that one sample, or one usage, looks into. One costs some twenty microseconds at most, so these keep a
/// CPU busy for one or two hundredths of the time; more are only counted.
pub const PROCESSES_READ_MAX: usize = 1024;

/// Processes that are looked into before one lets the event loop turn: well below a
/// millisecond, which nobody notices who waits for an answer meanwhile.
pub const PROCESSES_PER_TURN: usize = 32;

/// Entries of `/proc` that are counted; a fork bomb must not make the count endless.
pub const PROCESSES_COUNTED_MAX: usize = 65_536;

/// What is read of one file of a process. The longest `stat` has 52 numbers of at most 20 digits,
/// and a name.
pub const PROCESS_FILE_BYTES: usize = 1280;

/// What is read of `/proc` at once: some two hundred entries.
pub const DIRECTORY_BYTES: usize = 8 * 1024;
