//! The files of the log and their lines.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use super::entry::Record;
use host::hex;

const PREFIX: &str = "audit-";
const SUFFIX: &str = ".jsonl";

/// A file of the log, by the number of its first record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    pub first: u64,
    pub path: PathBuf,
}

impl Segment {
    pub fn new(directory: &Path, first: u64) -> Self {
        Self { first, path: directory.join(format!("{PREFIX}{first:012}{SUFFIX}")) }
    }

    /// All log files of a directory, oldest first. Other files are ignored.
    pub fn all(directory: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let first = name.to_str().and_then(|name| {
                name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse::<u64>().ok()
            });
            found.extend(first.map(|first| Self::new(directory, first)));
        }
        found.sort();
        Ok(found)
    }

    /// The whole content, which is limited by the size of a file.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(&self.path)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// The complete lines of a file, without an incomplete one at its end.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes[..whole].split_inclusive(|byte| *byte == b'\n').map(|line| &line[..line.len() - 1])
}

pub fn parse(line: &[u8]) -> Option<Record> {
    serde_json::from_slice(line).ok()
}

/// The digest of a line, which the next record stores.
pub fn digest_of(line: &[u8]) -> String {
    hex::digits(digest(&SHA256, line).as_ref())
}
