//! Bounds of the typed client that are not the link's, each with its reason.

use protocol::limits::ENTRIES_PAGE_MAX;

/// Entries of one directory that are joined from its pages. Larger directories exist, and whoever
/// has one wants to walk it inside the sandbox; a hostile guest's has no end.
pub const LIST_ENTRIES_MAX: usize = 256 * 1024;

const _: () = assert!(LIST_ENTRIES_MAX >= ENTRIES_PAGE_MAX, "a page fits a list");
