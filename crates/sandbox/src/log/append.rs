//! Files of records that several processes append to, bounded: the bridge for all its doors, and verbs in processes of
//! their own. One at a time does, under a lock of the directory.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use super::record::{Head, Record, RecordBody, encode_record};
use super::segment::{Segment, segment_numbers, segment_path};
use super::writer::create_segment;
use host::paths::{PRIVATE_DIRECTORY, PRIVATE_FILE};

/// Taken away from a file that is full.
const OWNER_WRITES: u32 = 0o200;
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
    /// Locked while a record is written; opened for the first one.
    lock: Option<File>,
    /// The newest file, when it was last looked at.
    file: Option<(u64, File)>,
}

impl Appender {
    /// Nothing is made before the first record.
    pub fn new(directory: PathBuf, bounds: Bounds, measure: Measure) -> Self {
        Self { directory, bounds, measure, lock: None, file: None }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn append(&mut self, what: &Record<'_>) -> io::Result<()> {
        let mut record = Vec::new();
        encode_record(what, &mut record).map_err(io::Error::other)?;
        let lock = self.take_lock()?;
        let written = self.write(&record);
        // What could not be written may be so because the directory is not what it was.
        if written.is_ok() && lock.unlock().is_ok() {
            self.lock = Some(lock);
        }
        written
    }

    fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let (mut number, mut file, mut length) = self.newest()?;
        if length + record.len() as u64 > self.bounds.segment_bytes {
            let next = self.rotate(number)?;
            // So that other processes that have it open look for the next one.
            file.set_permissions(Permissions::from_mode(PRIVATE_FILE & !OWNER_WRITES))?;
            (number, file, length) = next;
        }
        if let Err(error) = file.write_all_at(record, length) {
            let _ = file.set_len(length);
            return Err(error);
        }
        self.file = Some((number, file));
        Ok(())
    }

    /// Locks the directory for this process. It is made if need be, but not that of a log that is removed.
    fn take_lock(&mut self) -> io::Result<File> {
        let directory = match self.lock.take() {
            Some(directory) => directory,
            None => self.open_directory()?,
        };
        for _ in 0..LOCK_TRIES {
            match directory.try_lock() {
                Ok(()) => return Ok(directory),
                Err(TryLockError::WouldBlock) => sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn open_directory(&self) -> io::Result<File> {
        match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => File::open(&self.directory),
        }
    }

    /// The newest file, which another process may have begun meanwhile, and its length.
    fn newest(&mut self) -> io::Result<(u64, File, u64)> {
        if let Some((number, file)) = self.file.take() {
            let found = file.metadata()?;
            if found.nlink() > 0 && found.mode() & OWNER_WRITES != 0 {
                return Ok((number, file, found.len()));
            }
        }
        let mut all = segment_numbers(&self.directory)?;
        while let Some(number) = all.pop() {
            if let Some(found) = self.look(number)? {
                let path = segment_path(&self.directory, number);
                let file = OpenOptions::new().write(true).open(path)?;
                // What a crash has left of a record would hide those that follow it.
                file.set_len(found.end)?;
                return Ok((number, file, found.end));
            }
            fs::remove_file(segment_path(&self.directory, number))?;
        }
        let (file, length) = create_segment(&self.directory, 1, Head::default())?;
        Ok((1, file, length))
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
