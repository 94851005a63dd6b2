//! Reads the log record by record, from the oldest on, with the memory of one line: for readers of much of it, who
//! go on where they were.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::entry::Record;
use super::limits::LINE_BYTES_MAX;
use super::reader::Filter;
use super::segment::{Segment, parse, segments};

/// See the module's description. It reads what is there when it is opened, and follows nothing.
#[derive(Debug)]
pub struct Scan {
    filter: Filter,
    /// Files to read, the newest first.
    ahead: Vec<PathBuf>,
    file: Option<BufReader<File>>,
    line: Vec<u8>,
}

impl Scan {
    /// Opens the log in a directory. Files that end before the time that is wanted are not read.
    pub fn open(directory: &Path, filter: Filter) -> io::Result<Self> {
        let all = segments(directory)?;
        let mut begin = 0;
        if let Some(since_ms) = filter.since_ms {
            let since = host::instant::format(since_ms);
            for (at, segment) in all.iter().enumerate().skip(1) {
                if first_time(segment)?.is_some_and(|time| time < since) {
                    begin = at;
                }
            }
        }
        let ahead = all.into_iter().skip(begin).rev().map(|segment| segment.path).collect();
        Ok(Self { filter, ahead, file: None, line: Vec::new() })
    }

    /// The next record that matches, among so many lines, which it takes from `lines`.
    pub fn next(&mut self, lines: &mut usize) -> io::Result<Option<Record>> {
        while *lines > 0 && !self.is_over() {
            let Some(file) = &mut self.file else {
                let Some(path) = self.ahead.pop() else { break };
                self.file = open(&path)?;
                continue;
            };
            if !read_line(file, &mut self.line)? {
                self.file = None;
                continue;
            }
            *lines -= 1;
            let found = parse(&self.line).filter(|record| self.filter.matches(record));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Whether all was read.
    pub fn is_over(&self) -> bool {
        self.file.is_none() && self.ahead.is_empty()
    }
}

/// The time of a file's first record; `None` if it has none.
fn first_time(segment: &Segment) -> io::Result<Option<String>> {
    let Some(mut file) = open(&segment.path)? else { return Ok(None) };
    let mut line = Vec::new();
    let record = read_line(&mut file, &mut line)?.then(|| parse(&line)).flatten();
    Ok(record.map(|record| record.time))
}

/// `None` if it was removed meanwhile.
fn open(path: &Path) -> io::Result<Option<BufReader<File>>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => Ok(Some(BufReader::new(file?))),
    }
}

/// The next line, without its end; false at the end, and before a line that is being written. Of a line that is too
/// long to be a record, its parts are lines that are none.
fn read_line(file: &mut BufReader<File>, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let bytes = file.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(true);
    }
    Ok(bytes == LINE_BYTES_MAX)
}
