//! Bounds of measuring, each with its reason.

use std::time::Duration;

/// The longest time between samples, while anything runs or somebody follows the samples. It is 1.024 seconds from one to
/// the next, where a timer wakes the agent once.
pub const INTERVAL: Duration = Duration::from_millis(1050);

/// The longest time between samples otherwise: hundreds of idle sandboxes must not keep a machine busy with
/// measuring themselves. Nothing is lost, since a sample counts from the previous one. It is 12.3 seconds from one
/// such sample to the next, where a timer wakes the agent once.
pub const INTERVAL_IDLE: Duration = Duration::from_millis(12_500);

/// How long samples keep coming every [`INTERVAL`] after somebody has waited for one.
pub const FOLLOWED: Duration = Duration::from_secs(10);

/// The delay of the next sample when something begins in an idle sandbox: its client must not wait for the
/// sample.
pub const STIRRED_PAUSE: Duration = Duration::from_millis(20);

/// A sandbox in which no client runs anything but that uses more CPU than this is not idle: processes that
/// ended commands and runs have left behind are active. One percent.
pub const IDLE_CPU_HUNDREDTHS_MAX: u32 = 100;

/// From the first sample to the second, so that there is a CPU figure before the creator of a
/// sandbox asks for it.
pub const INTERVAL_FIRST: Duration = Duration::from_millis(500);

/// Processes that one sample, or one usage, reads. One costs about twenty microseconds at most, so these keep
/// a CPU busy for one or two hundredths of the time; more are only counted.
pub const PROCESSES_READ_MAX: usize = 1024;

/// Processes that are read before the event loop gets its turn: well below a millisecond, which no
/// waiting client notices.
pub const PROCESSES_PER_TURN: usize = 32;

/// Entries of `/proc` that are counted; a fork bomb must not make the count endless.
pub const PROCESSES_COUNTED_MAX: usize = 65_536;

/// How much is read of one file of a process. The longest `stat` has 52 numbers of at most 20
/// digits, and a name.
pub const PROCESS_FILE_BYTES: usize = 1280;

/// How much is read of `/proc` at once: about two hundred entries.
pub const DIRECTORY_BYTES: usize = 8 * 1024;
