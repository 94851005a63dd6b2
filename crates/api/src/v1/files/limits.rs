//! Bounds of the calls on files, each with its reason.

use std::time::Duration;

/// Entries of one page of a listing: what an agent gives at once.
pub const PAGE_ENTRIES_MAX: usize = protocol::limits::ENTRIES_PAGE_MAX;
/// How long after its last change a file may change again under the same tag. Times of files are
/// reported in milliseconds and move with the kernel's tick; the clock of a machine may also be behind
/// or ahead of ours by some.
pub const TAG_SETTLES: Duration = Duration::from_secs(2);
