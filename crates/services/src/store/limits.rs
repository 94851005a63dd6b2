//! The bounds of the store, each with its reason.

use std::time::Duration;

/// Jobs that wait for the store's thread: each takes less than a millisecond, so more of them mean that the
/// disk hangs.
pub const JOBS_WAITING_MAX: usize = 1024;
/// How long another process may lock the file.
pub const BUSY_DEADLINE: Duration = Duration::from_secs(10);
/// The newest runs of a notebook that its history keeps.
pub const HISTORY_RUNS_MAX: u64 = 10_000;
/// How much of a run's code is kept.
pub const HISTORY_CODE_BYTES_MAX: usize = 64 * 1024;
/// How much is kept of the beginning of each output, and of its exception's text.
pub const HISTORY_OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// Runs that one question is answered with.
pub const HISTORY_PAGE_MAX: u64 = 1000;
/// Notebooks of one namespace.
pub const NOTEBOOKS_MAX: u64 = 1000;
/// Artifacts that one question is answered with.
pub const ARTIFACTS_PAGE_MAX: u64 = 1000;
/// Rows of artifacts that one transaction removes: milliseconds, so that others have their turns.
pub const ARTIFACTS_REMOVED_AT_ONCE_MAX: u64 = 500;
