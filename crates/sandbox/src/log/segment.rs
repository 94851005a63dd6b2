//! The files of a log: their names, and reading one from its beginning.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::record::{Head, Parsed, Record, RecordBody, parse_record};

/// How much of a file is read at once: several records, or the largest one.
const READ_BYTES: usize = crate::limits::LOG_RECORD_BYTES_MAX + super::record::PREFIX_BYTES;
const EXTENSION: &str = "seg";
/// Digits of a segment's number in its name, so that names sort as numbers do.
const DIGITS: usize = 10;

pub(super) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:0DIGITS$}.{EXTENSION}"))
}

/// The numbers of the segments in `directory`, ascending.
pub(super) fn segment_numbers(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if path.extension().is_some_and(|extension| extension == EXTENSION)
            && let Some(number) = stem.and_then(|stem| stem.parse().ok())
        {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A segment that is read from its beginning.
#[derive(Debug)]
pub(super) struct Segment {
    pub number: u64,
    pub head: Head,
    pub head_time_ms: u64,
    file: File,
    after_head: u64,
    /// Where the next record begins.
    position: u64,
    /// What has been read of the file at `position`.
    buffer: Vec<u8>,
    taken: usize,
}

impl Segment {
    /// Opens a segment; `None` when it is gone or has no head (yet).
    pub(super) fn open(directory: &Path, number: u64) -> io::Result<Option<Self>> {
        let file = match File::open(segment_path(directory, number)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut segment = Self {
            number,
            head: Head::default(),
            head_time_ms: 0,
            file,
            after_head: 0,
            position: 0,
            buffer: Vec::new(),
            taken: 0,
        };
        match segment.next()?.map(|record| *record) {
            Some(Record { time_ms, what: RecordBody::Head(head) }) => {
                segment.head = head;
                segment.head_time_ms = time_ms;
                segment.after_head = segment.position;
                Ok(Some(segment))
            }
            _ => Ok(None),
        }
    }

    /// Where the next record begins, or would.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Where the first record behind the head begins.
    pub(super) fn after_head(&self) -> u64 {
        self.after_head
    }

    /// Goes on at a record's beginning.
    pub(super) fn seek(&mut self, position: u64) {
        self.position = position;
        self.forget();
    }

    /// The next whole record. `None` when there is none (yet): at the end, before a record that
    /// is being written, and before one that was torn.
    pub(super) fn next(&mut self) -> io::Result<Option<Box<Record<'static>>>> {
        loop {
            match parse_record(&self.buffer[self.taken..]) {
                Parsed::Record(record, length) => {
                    self.taken += length;
                    self.position += length as u64;
                    return Ok(Some(record));
                }
                Parsed::Incomplete if self.fill()? => {}
                Parsed::Incomplete | Parsed::Damaged => {
                    // A torn tail may yet be replaced by something else.
                    self.forget();
                    return Ok(None);
                }
            }
        }
    }

    /// Reads on; false when the file has no more.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let have = self.buffer.len();
        if have >= READ_BYTES {
            return Ok(false);
        }
        self.buffer.resize(READ_BYTES, 0);
        let read = self.file.read_at(&mut self.buffer[have..], self.position + have as u64);
        self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }

    fn forget(&mut self) {
        self.buffer.clear();
        self.taken = 0;
    }
}
