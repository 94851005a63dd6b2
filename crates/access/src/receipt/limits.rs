//! The bounds of receipts.

/// An Ed25519 public key.
pub const PUBLIC_KEY_BYTES: usize = 32;
/// A file of receipts is followed by the next at this size: some thousand of them.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// The newest files that are kept; the oldest goes when another begins.
pub const FILES_MAX: usize = 8;
/// Egress decisions that a receipt lists. More are counted as unlisted.
pub const DECISIONS_MAX: usize = 100;
/// Files that a receipt lists as put into the sandbox. More are counted as unlisted.
pub const FILES_LISTED_MAX: usize = 100;
/// Parts of a session's input that a receipt lists: one for each writer. More are counted as unlisted.
pub const INPUT_PARTS_MAX: usize = 100;
/// How much earlier than the start of a program, by the guest's clock, a writer may begin to send to it: input goes out
/// with the start, and clocks differ.
pub const INPUT_EARLY_MS: u64 = 1000;
/// Records of the audit log that are read for them.
pub const RECORDS_READ_MAX: usize = 10_000;
