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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::segment::segment;
    use super::*;
    use crate::audit::Entry;

    fn line(seq: u64) -> String {
        let time = host::instant::format(seq * 1000);
        let mut entry = Entry::of_bridge("egress.connection");
        entry.id = Some(if seq.is_multiple_of(2) { "even" } else { "odd" }.to_owned());
        serde_json::to_string(&Record { seq, time, entry, prev: None }).unwrap() + "\n"
    }

    fn numbers(directory: &Path, filter: Filter, step: usize) -> Vec<u64> {
        let mut scan = Scan::open(directory, filter).unwrap();
        let mut found = Vec::new();
        while !scan.is_over() {
            let mut lines = step;
            found.extend(scan.next(&mut lines).unwrap().map(|record| record.seq));
        }
        found
    }

    #[test]
    fn each_record_is_found_once_however_little_is_read_at_once() {
        let directory = std::env::temp_dir().join(format!("burrow-scan-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let long = "x".repeat(3 * LINE_BYTES_MAX);
        let texts = [
            (1, [line(1), line(2), line(3)].concat()),
            (4, [line(4), long + "\n", line(5)].concat()),
            // The last line is being written.
            (6, [line(6), line(7), line(8)[..20].to_owned()].concat()),
        ];
        for (first, text) in texts {
            fs::write(segment(&directory, first).path, text).unwrap();
        }
        for step in [1, 2, usize::MAX] {
            let all = Filter::default();
            assert_eq!(numbers(&directory, all, step), [1, 2, 3, 4, 5, 6, 7], "{step} at once");
            let even = Filter { sandbox: Some("even".to_owned()), ..Filter::default() };
            assert_eq!(numbers(&directory, even, step), [2, 4, 6]);
            let late = Filter { since_ms: Some(5000), ..Filter::default() };
            assert_eq!(numbers(&directory, late, step), [5, 6, 7]);
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
