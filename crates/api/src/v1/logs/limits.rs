//! Bounds of what is read of a log at once, each with its reason.

/// Entries on a page unless the call names another number: some screens.
pub const ENTRIES_DEFAULT: u16 = 1000;
/// The most entries of one page.
pub const ENTRIES_MAX: u16 = 10_000;
/// A page that holds so many bytes of output gets no more entries: four large chunks a hundred
/// times over are no page that anybody reads.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entries that one turn of a stream finds; then the client is told, and the thread that waits for
/// the disk is another's.
pub const TURN_ENTRIES: usize = 256;
/// Bytes of output that such a turn finds.
pub const TURN_BYTES: usize = 1024 * 1024;
/// Records that any turn looks at, wanted or not: some milliseconds. Who wants little of a long log
/// is to wait for it in many turns, and the others only for one.
pub const LOOKED_RECORDS_MAX: usize = 4096;
/// Bytes of output that any turn looks at.
pub const LOOKED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Turns that are on at once, of all readers. They take processors and the disk from everybody else,
/// and hundreds of readers of long logs are to wait for each other rather than to be waited for.
pub const TURNS_MAX: usize = 2;
/// The largest time that is taken: the largest number that every client's JSON can say exactly.
pub const TIME_MS_MAX: u64 = (1 << 53) - 1;
