//! The bounds of artifacts, each with its reason. Those that a bridge may set otherwise are in
//! [`Limits`].

use std::time::Duration;

/// The quotas of artifacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One artifact.
    pub artifact_bytes_max: u64,
    /// All artifacts of one run.
    pub run_bytes_max: u64,
    /// How many artifacts one run may leave.
    pub run_artifacts_max: usize,
    /// All artifacts of one namespace, equal ones counted each.
    pub namespace_bytes_max: u64,
    pub namespace_artifacts_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            artifact_bytes_max: ARTIFACT_BYTES_MAX,
            run_bytes_max: RUN_BYTES_MAX,
            run_artifacts_max: RUN_ARTIFACTS_MAX,
            namespace_bytes_max: NAMESPACE_BYTES_MAX,
            namespace_artifacts_max: NAMESPACE_ARTIFACTS_MAX,
        }
    }
}

/// A film of some minutes, or a table of a million rows.
pub const ARTIFACT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Two of the largest.
pub const RUN_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// More files are a checkout, and no results that a person looks at.
pub const RUN_ARTIFACTS_MAX: usize = 100;
/// A namespace that nobody cleans up must not fill its host's disk.
pub const NAMESPACE_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;
/// As many as can be counted within a millisecond when one is added.
pub const NAMESPACE_ARTIFACTS_MAX: u64 = 10_000;

/// Entries that are listed before a run, and again after it: some hundredths of a second of the
/// agent's time.
pub const LISTING_ENTRIES_MAX: usize = 8192;
/// The memory for their paths.
pub const LISTING_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How deep below the two directories files are searched.
pub const LISTING_DEPTH_MAX: usize = 8;
/// How long a listing may take before it is truncated: a call waits for it.
pub const LISTING_TIME_MAX: Duration = Duration::from_secs(2);
/// How long all the copying after a run may take: the time for the largest results over the slowest link.
pub const CAPTURE_TIME_MAX: Duration = Duration::from_secs(120);
/// How far a guest's clock may be behind ours when its times are compared with our own.
pub const CLOCK_SLACK: Duration = Duration::from_secs(2);

/// A run's displays that are kept: pictures as large as people look at, in memory until the run has
/// ended.
pub const FIGURES_BYTES_MAX: usize = 32 * 1024 * 1024;
pub const FIGURES_MAX: usize = 50;
/// Files that one run may offer by name.
pub const OFFERED_FILES_MAX: usize = 100;

/// Skipped files that are listed; further ones are counted.
pub const LEFT_OUT_MAX: usize = 50;
/// The longest name on common file systems.
pub const NAME_BYTES_MAX: usize = 255;
/// A path that is shown: as long as the kernel takes.
pub const PATH_BYTES_MAX: usize = 4096;
/// How much of a guest's reason is shown.
pub const REASON_CHARS_MAX: usize = 300;
/// The beginning of a file, which identifies its type.
pub const HEAD_BYTES: usize = 512;
/// Pieces that wait between the link and the disk.
pub const PIECES_WAITING_MAX: usize = 4;
/// Files of the blob directory whose rows are sought at once when a bridge opens it.
pub const SWEEP_AT_ONCE_MAX: usize = 500;
/// Bytes that one read of an artifact gives at most.
pub const READ_BYTES_MAX: u64 = 16 * 1024 * 1024;

const _: () = assert!(ARTIFACT_BYTES_MAX <= RUN_BYTES_MAX, "one artifact fits a run");
const _: () = assert!(RUN_BYTES_MAX <= NAMESPACE_BYTES_MAX, "one run fits a namespace");
