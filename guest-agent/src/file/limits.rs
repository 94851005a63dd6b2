//! Every bound of the work on files, each with its reason.

use std::time::Duration;

use protocol::limits::{CHUNK_BYTES_MAX, FRAME_BYTES_MAX, PATH_BYTES_MAX};

/// How much is read from a file at once. Two chunks of the link: enough to hide the hop between
/// threads, and little enough for two of them per client stream.
pub const PIECE_BYTES: usize = 2 * CHUNK_BYTES_MAX;

/// Directories within directories that a walk goes into. Each level holds a descriptor.
pub const TREE_DEPTH_MAX: usize = 256;

/// How much one call reads of a directory. A name takes at most 280 bytes.
pub const NAMES_BYTES: usize = 8 * 1024;

/// Passes over a directory that is filled while it is emptied. After this many, the other side does
/// it on purpose.
pub const REMOVE_PASSES_MAX: usize = 16;

/// Symlinks that are followed in a row, as many as the kernel follows.
pub const SYMLINKS_MAX: usize = 40;

/// The size of one page of a listing, besides the number of its entries: targets of symlinks can be
/// as long as paths, and the answer must fit one frame.
pub const PAGE_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

/// The most that one entry adds to a page, name and target aside: field names, numbers, marks.
pub const ENTRY_BYTES: usize = 160;

/// The size of the paths of hard links that are kept while a tree is archived. Names that no longer
/// fit become separate files.
pub const HARD_LINKS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The size of the paths of directories whose modes and times wait for the end of an archive.
/// Beyond it, directories that seem complete get theirs early.
pub const DEFERRED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Directories that one watch covers. Each costs the kernel about 1 KiB that cannot be swapped.
pub const WATCHES_MAX: usize = 8192;

/// Records of one turn of a watch, as many as the kernel itself keeps; beyond that the client must
/// list everything again.
pub const WATCH_RECORDS_MAX: usize = 16 * 1024;

/// Reads from the kernel's queue in one turn of a watch.
pub const WATCH_READS_PER_TURN: usize = 64;

/// How long the first half of a move waits for the second. The kernel queues them in succession,
/// but not as one.
pub const MOVE_PAIR_WAIT: Duration = Duration::from_millis(10);

/// How often an idle watch checks whether it still has a reader.
pub const WATCH_IDLE_CHECK: Duration = Duration::from_secs(5);

/// A permission mask has no other bits.
pub const PERMISSIONS_MAX: u32 = 0o7777;

const _: () = assert!(ENTRY_BYTES + PATH_BYTES_MAX + 256 < PAGE_BYTES_MAX, "an entry fits a page");
const _: () = assert!(NAMES_BYTES >= 512, "the kernel refuses buffers that hold no entry");
