//! Bounds of workspaces, each with its reason.

use std::time::Duration;

/// A logical name: as long as other names of this bridge.
pub const NAME_CHARS_MAX: usize = 63;
/// Prefixes that may be written to: a list that people write.
pub const WRITE_PREFIXES_MAX: usize = 64;
/// The largest file by default: enough for a run's results, but not for disk images.
pub const FILE_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;
/// All files together by default: what the layer of a sandbox has room for besides its own files.
pub const TOTAL_BYTES_DEFAULT: u64 = 1024 * 1024 * 1024;
/// The largest that may be set, for one file and for all: 1 TiB, more than travels through an agent.
pub const BYTES_MAX: u64 = 1024 * 1024 * 1024 * 1024;
/// Files, directories and links by default: a project with its packages.
pub const ENTRIES_DEFAULT: u64 = 50_000;
/// The most that may be set: each is some hundred bytes of this process.
pub const ENTRIES_MAX: u64 = 1_000_000;
/// Bytes of paths and link targets per permitted entry: four times what projects with their packages have.
/// The limit applies to their sum, not to each.
pub const NAME_BYTES_PER_ENTRY: u64 = 256;
/// The minimum for a workspace with few entries: some of the longest paths that Linux allows.
pub const NAME_BYTES_FLOOR: u64 = 16 * 1024;
/// Directories within each other: deeper trees than that no project has, and a hostile one has no end.
pub const DEPTH_MAX: usize = 64;
/// A name of one file, as file systems bound it.
pub const NAME_BYTES_MAX: usize = 255;
/// The text of a link, as Linux bounds it.
pub const LINK_BYTES_MAX: usize = 4095;

/// The pause between the end of an activity and the exchange: activities in quick succession cause
/// no exchange in between.
pub const QUIET: Duration = Duration::from_millis(500);
/// One exchange of all changes: gigabytes through an agent that is slow.
pub const SYNC_DEADLINE: Duration = Duration::from_secs(600);
/// The exchange before a stop, which somebody waits for.
pub const LAST_SYNC_DEADLINE: Duration = Duration::from_secs(60);
/// Callers that may wait for an exchange at once.
pub const ASKS_WAITING_MAX: usize = 64;
/// Outcomes that are not recorded yet.
pub const SAID_WAITING_MAX: usize = 16;

/// A file that was changed this shortly before it was read may have been changed again in the same tick of
/// the clock, with the same size, so it is read again the next time.
pub const SETTLED_AFTER_MS: u64 = 2000;
/// A temporary file of this age belongs to nobody: its bridge is gone.
pub const LEFTOVER_AGE: Duration = Duration::from_secs(86_400);

/// How long the end of a sandbox waits for the file that an exchange has under way. A file that takes the
/// disk longer gets its name by then or never.
pub const EXCHANGE_END_MAX: Duration = Duration::from_secs(10);

/// Paths that an answer names of each kind; all are counted.
pub const PATHS_TOLD_MAX: usize = 1000;
/// Warnings of one sandbox about its workspace.
pub const WARNINGS_MAX: usize = 16;
/// Copies of one file beside it: nobody reads more of them.
pub const CONFLICTS_PER_FILE_MAX: u32 = 16;

/// A piece on its way between disk and link.
pub const PIECE_BYTES: usize = 256 * 1024;
/// Pieces that wait there.
pub const PIECES_WAITING_MAX: usize = 4;
/// The manifest, which is read whole: the most entries, with the longest permitted names.
pub const MANIFEST_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// The size of an entry there without its names: stamps, and a digest whose bytes take two each.
const MANIFEST_BYTES_PER_ENTRY: u64 = 256;

// A byte of a name takes one or two.
const _: () = assert!(
    ENTRIES_MAX * (MANIFEST_BYTES_PER_ENTRY + 2 * NAME_BYTES_PER_ENTRY) <= MANIFEST_BYTES_MAX
);
