//! Logs that only grow, as files of lines: numbered lines in segments, and the queue to the one thread
//! that writes them. The audit log and the stream of events are such logs; what a line is, and what is
//! promised of it, is theirs.

mod queue;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use queue::{Queue, QueueLimits};

const SUFFIX: &str = ".jsonl";

/// A file of a log, by the number of its first line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    pub first: u64,
    pub path: PathBuf,
}

impl Segment {
    pub fn new(directory: &Path, prefix: &str, first: u64) -> Self {
        Self { first, path: directory.join(format!("{prefix}{first:012}{SUFFIX}")) }
    }

    /// All files of a log with this prefix in a directory, oldest first. Other files are ignored.
    pub fn all(directory: &Path, prefix: &str) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let first = name.to_str().and_then(|name| {
                name.strip_prefix(prefix)?.strip_suffix(SUFFIX)?.parse::<u64>().ok()
            });
            found.extend(first.map(|first| Self::new(directory, prefix, first)));
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
