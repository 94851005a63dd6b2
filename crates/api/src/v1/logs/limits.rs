//! Limits on what one call reads of a log, each with its reason.

/// Entries on a page unless the call names another number: some screens.
pub const ENTRIES_DEFAULT: u16 = 1000;
/// The most entries of one page.
pub const ENTRIES_MAX: u16 = 10_000;
/// A page that holds so many bytes of output gets no more entries: four large chunks a hundred
/// times over are more than a person reads.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entries that one turn of a stream finds; then they are sent, and the thread that waits for
/// the disk is another's.
pub const TURN_ENTRIES: usize = 256;
/// Bytes of output that such a turn finds: what a client that does not read costs, and some of these
/// turns a millisecond are read by one that does.
pub const TURN_BYTES: usize = 64 * 1024;
/// What an entry takes beside its text, here and in JSON.
pub const ENTRY_COST_BYTES: usize = 512;
/// The largest time that is taken: the largest number that every client's JSON can say exactly.
pub const TIME_MS_MAX: u64 = (1 << 53) - 1;
