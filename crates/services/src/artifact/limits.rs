//! The bounds of artifacts, each with its reason. Those that a bridge may set otherwise are in
//! [`Limits`].

use std::time::Duration;

/// What may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One artifact.
    pub artifact_bytes_max: u64,
    /// All artifacts of one run.
    pub run_bytes_max: u64,
    /// How many one run may leave.
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
/// More files than these are somebody's checkout, and no results that a person looks at.
pub const RUN_ARTIFACTS_MAX: usize = 100;
/// A namespace that nobody cleans up does not fill the disk of its host.
pub const NAMESPACE_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;
/// As many as are counted within a millisecond when one more is added.
pub const NAMESPACE_ARTIFACTS_MAX: u64 = 10_000;

/// Entries that are looked at before a run, and again behind it: some hundredths of a second of the
/// agent's time.
pub const LISTING_ENTRIES_MAX: usize = 8192;
/// What the paths of these may come to in memory.
pub const LISTING_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How deep below the two directories it is looked.
pub const LISTING_DEPTH_MAX: usize = 8;
/// How long a listing may take before it is cut: a call waits for it.
pub const LISTING_TIME_MAX: Duration = Duration::from_secs(2);
/// How long all the copying behind a run may take: at the slowest that links are, the bytes that a run
/// may leave.
pub const CAPTURE_TIME_MAX: Duration = Duration::from_secs(120);
/// How far a guest's clock may be behind ours where its times are held against our own.
pub const CLOCK_SLACK: Duration = Duration::from_secs(2);

/// What is shown by one run and kept: pictures as large as people look at, held in memory until the
/// run is over.
pub const FIGURES_BYTES_MAX: usize = 32 * 1024 * 1024;
pub const FIGURES_MAX: usize = 50;
/// Files that one run may offer by name.
pub const OFFERED_FILES_MAX: usize = 100;

/// What is said of what was left out, one by one; further ones are counted.
pub const LEFT_OUT_MAX: usize = 50;
/// A name is at most what file systems have.
pub const NAME_BYTES_MAX: usize = 255;
/// A path that is shown: as long as the kernel takes.
pub const PATH_BYTES_MAX: usize = 4096;
/// What a guest says of why it refuses something, shown.
pub const REASON_CHARS_MAX: usize = 300;
/// The beginning of a file that tells what it is.
pub const HEAD_BYTES: usize = 512;
/// Pieces that wait between the link and the disk.
pub const PIECES_WAITING_MAX: usize = 4;
/// Files of the blob directory whose rows are sought at once when a bridge opens it.
pub const SWEEP_AT_ONCE_MAX: usize = 500;
/// Bytes that one read of an artifact gives at most.
pub const READ_BYTES_MAX: u64 = 16 * 1024 * 1024;

const _: () = assert!(ARTIFACT_BYTES_MAX <= RUN_BYTES_MAX, "one artifact fits a run");
const _: () = assert!(RUN_BYTES_MAX <= NAMESPACE_BYTES_MAX, "one run fits a namespace");
