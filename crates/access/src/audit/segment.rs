//! The files of the log and their lines.

use std::io;
use std::path::Path;

use ring::digest::{SHA256, digest};

use super::entry::Record;
use host::hex;
pub use host::journal::{Segment, lines};

const PREFIX: &str = "audit-";

/// A file of the log, by the number of its first record.
pub fn segment(directory: &Path, first: u64) -> Segment {
    Segment::new(directory, PREFIX, first)
}

/// All log files of a directory, oldest first. Other files are ignored.
pub fn segments(directory: &Path) -> io::Result<Vec<Segment>> {
    Segment::all(directory, PREFIX)
}

pub fn parse(line: &[u8]) -> Option<Record> {
    serde_json::from_slice(line).ok()
}

/// The digest of a line, which the next record stores.
pub fn digest_of(line: &[u8]) -> String {
    hex::digits(digest(&SHA256, line).as_ref())
}
