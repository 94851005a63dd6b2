//! Files of records that several processes append to, bounded: the bridge for all its doors, and verbs in processes of
//! their own. One at a time does, under a lock of the directory.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use super::record::{Head, Record, RecordBody, encode_record};
use super::segment::{Segment, segment_numbers, segment_path};
use super::writer::create_segment;
use host::paths::PRIVATE_DIRECTORY;

/// Another process has the lock for microseconds; one that was stopped meanwhile is not waited for.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// How much of a record's subject it has, for the heads of later files.
pub type Measure = fn(&RecordBody<'_>) -> u64;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub segment_bytes: u64,
    pub segments_max: usize,
}

/// What this process appends to.
#[derive(Debug)]
pub struct Appender {
    directory: PathBuf,
    bounds: Bounds,
    measure: Measure,
    /// The newest file, when it was last looked at.
    file: Option<(u64, File)>,
}

impl Appender {
    /// Nothing is made before the first record.
    pub fn new(directory: PathBuf, bounds: Bounds, measure: Measure) -> Self {
        Self { directory, bounds, measure, file: None }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn append(&mut self, what: &Record<'_>) -> io::Result<()> {
        let mut record = Vec::new();
        encode_record(what, &mut record).map_err(io::Error::other)?;
        let _lock = self.lock()?;
        let (mut number, mut file) = self.newest()?;
        let mut length = file.metadata()?.len();
        if length + record.len() as u64 > self.bounds.segment_bytes {
            (number, file, length) = self.rotate(number)?;
        }
        if let Err(error) = file.write_all_at(&record, length) {
            let _ = file.set_len(length);
            return Err(error);
        }
        self.file = Some((number, file));
        Ok(())
    }

    /// Makes the directory, but not that of a log that is removed, and has it for this process until the result is
    /// dropped.
    fn lock(&self) -> io::Result<File> {
        match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let directory = File::open(&self.directory)?;
        for _ in 0..LOCK_TRIES {
            match directory.try_lock() {
                Ok(()) => return Ok(directory),
                Err(TryLockError::WouldBlock) => sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// The newest file, which another process may have begun meanwhile.
    fn newest(&mut self) -> io::Result<(u64, File)> {
        if let Some((number, file)) = self.file.take()
            && segment_path(&self.directory, number).exists()
            && !segment_path(&self.directory, number + 1).exists()
        {
            return Ok((number, file));
        }
        let mut all = segment_numbers(&self.directory)?;
        while let Some(number) = all.pop() {
            if let Some(found) = self.look(number)? {
                let path = segment_path(&self.directory, number);
                let file = OpenOptions::new().write(true).open(path)?;
                // What a crash has left of a record would hide those that follow it.
                file.set_len(found.end)?;
                return Ok((number, file));
            }
            fs::remove_file(segment_path(&self.directory, number))?;
        }
        let (file, _) = create_segment(&self.directory, 1, Head::default())?;
        Ok((1, file))
    }

    /// Begins the file after this one, and removes the oldest.
    fn rotate(&self, number: u64) -> io::Result<(u64, File, u64)> {
        let found = self.look(number)?;
        let head = Head { bytes_before: found.map_or(0, |found| found.bytes), ..Head::default() };
        let (file, length) = create_segment(&self.directory, number + 1, head)?;
        let all = segment_numbers(&self.directory)?;
        for old in &all[..all.len().saturating_sub(self.bounds.segments_max)] {
            fs::remove_file(segment_path(&self.directory, *old))?;
        }
        Ok((number + 1, file, length))
    }

    /// Reads a file; `None` if it has no head.
    fn look(&self, number: u64) -> io::Result<Option<Found>> {
        let Some(mut segment) = Segment::open(&self.directory, number)? else { return Ok(None) };
        let mut bytes = segment.head.bytes_before;
        while let Some(record) = segment.next()? {
            bytes += (self.measure)(&record.what);
        }
        Ok(Some(Found { bytes, end: segment.position() }))
    }
}

/// What a file has.
struct Found {
    /// The measure of all records up to its end, those of earlier files included.
    bytes: u64,
    /// Where its last whole record ends.
    end: u64,
}
