//! The files of a log: their names, and reading one from its beginning.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::record::{Head, Parsed, Record, RecordBody, parse_record};

/// The most that is read before a record must be whole: the largest one.
const READ_BYTES_MAX: usize = crate::limits::LOG_RECORD_BYTES_MAX + super::record::PREFIX_BYTES;
/// How much of a file is read at once: several records, or the largest record of output. A waiting reader
/// keeps that much in memory.
const READ_BYTES: usize = protocol::limits::CHUNK_BYTES_MAX + 4096;
/// A record begins with its length.
const LENGTH_BYTES: usize = 4;
const EXTENSION: &str = "seg";
/// Added to the positions of carried records in marks: beyond the end of any segment.
pub(super) const MARK_CARRIED: u64 = 1 << 32;
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

/// The length of the record that begins with these bytes, its header included.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes(*bytes.first_chunk::<LENGTH_BYTES>()?);
    Some(super::record::PREFIX_BYTES + length as usize)
}

fn is_record_length(length: usize) -> bool {
    (super::record::PREFIX_BYTES + 1..=READ_BYTES_MAX).contains(&length)
}

/// A segment that is read from its beginning.
#[derive(Debug)]
pub(super) struct Segment {
    pub number: u64,
    pub head: Head,
    pub head_time_ms: u64,
    file: File,
    after_head: u64,
    /// Where its own records begin, after those that were carried into it.
    own_start: u64,
    /// Where the next record begins.
    position: u64,
    /// What has been read of the file at `position`.
    buffer: Vec<u8>,
    taken: usize,
    /// How long the record is that was read last.
    last_length: u64,
    /// Its head is damaged, so only its records are known.
    pub is_headless: bool,
    /// Bytes of a damaged head, until they are reported.
    head_damage: u64,
}

/// What is at a position of a segment.
pub(super) enum SegmentItem {
    Record(Box<Record<'static>>),
    /// This many damaged bytes, with a record after them.
    Damage(u64),
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
            own_start: 0,
            position: 0,
            buffer: Vec::new(),
            taken: 0,
            last_length: 0,
            is_headless: false,
            head_damage: 0,
        };
        match segment.find()? {
            Some(SegmentItem::Record(record)) => {
                let Record { time_ms, what: RecordBody::Head(head), .. } = *record else {
                    return Ok(None);
                };
                segment.head = head;
                segment.head_time_ms = time_ms;
            }
            Some(SegmentItem::Damage(bytes)) => {
                (segment.is_headless, segment.head_damage) = (true, bytes);
            }
            None => return Ok(None),
        }
        segment.after_head = segment.position;
        let carried_bytes = segment.head.carried.map_or(0, |part| part.bytes);
        segment.own_start = segment.after_head.saturating_add(carried_bytes);
        Ok(Some(segment))
    }

    /// Bytes of the file after the last complete record: torn, or damaged if more segments follow.
    pub(super) fn rest_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(self.position))
    }

    /// Where the next record begins, or would.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// How long the record is that was read last, on disk.
    pub(super) fn last_length(&self) -> u64 {
        self.last_length
    }

    /// Where the first record after the head begins.
    pub(super) fn after_head(&self) -> u64 {
        self.after_head
    }

    /// Whether the next record is the segment's own, not one that was carried into it.
    pub(super) fn is_own(&self) -> bool {
        self.position >= self.own_start
    }

    /// Whether all of its own records are still unread.
    pub(super) fn has_own_ahead(&self) -> bool {
        self.position <= self.own_start
    }

    /// The position of the next record, which stays valid when other records are carried into the segment.
    pub(super) fn mark_position(&self) -> u64 {
        match self.position.checked_sub(self.own_start) {
            Some(own) => own + self.first_own_start(),
            None => MARK_CARRIED + self.position,
        }
    }

    /// The mark of the first record after the head.
    pub(super) fn first_mark(&self) -> u64 {
        match self.head.carried {
            Some(_) => MARK_CARRIED + self.after_head,
            None => self.after_head,
        }
    }

    /// Continues at a position from [`Segment::mark_position`].
    pub(super) fn seek_mark(&mut self, position: u64) {
        let place = match position.checked_sub(MARK_CARRIED) {
            Some(carried) => carried.clamp(self.after_head, self.own_start),
            None => self.own_start + position.saturating_sub(self.first_own_start()),
        };
        self.seek(place);
    }

    /// Where its own records began originally.
    fn first_own_start(&self) -> u64 {
        self.head.carried.map_or(self.own_start, |part| part.own_start)
    }

    /// Continues at a record's beginning.
    pub(super) fn seek(&mut self, position: u64) {
        self.position = position;
        self.forget();
    }

    /// Continues at a later record's beginning, with what has been read of it.
    pub(super) fn skip_to(&mut self, position: u64) {
        let ahead = position.saturating_sub(self.position) as usize;
        if position >= self.position && ahead <= self.buffer.len() - self.taken {
            (self.position, self.taken) = (position, self.taken + ahead);
        } else {
            self.seek(position);
        }
    }

    /// The next whole record. `None` when there is none (yet): at the end, before a record that
    /// is being written, and before one that was torn. Damaged ones are passed over.
    pub(super) fn next(&mut self) -> io::Result<Option<Box<Record<'static>>>> {
        loop {
            match self.find()? {
                Some(SegmentItem::Record(record)) => return Ok(Some(record)),
                Some(SegmentItem::Damage(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Reads what comes next, skipping damage.
    pub(super) fn find(&mut self) -> io::Result<Option<SegmentItem>> {
        if self.head_damage > 0 {
            return Ok(Some(SegmentItem::Damage(std::mem::take(&mut self.head_damage))));
        }
        loop {
            match parse_record(&self.buffer[self.taken..]) {
                Parsed::Record(record, length) => {
                    self.taken += length;
                    self.position += length as u64;
                    self.last_length = length as u64;
                    return Ok(Some(SegmentItem::Record(record)));
                }
                Parsed::Incomplete if self.fill()? => {}
                Parsed::Incomplete | Parsed::Damaged => {
                    let is_at_end = self.buffer.len() == self.taken;
                    // A torn tail may yet be replaced by something else.
                    self.forget();
                    return if is_at_end { Ok(None) } else { self.pass_damage() };
                }
            }
        }
    }

    /// Distinguishes a damaged record from a torn tail: a record follows it, where its length says or, if the
    /// length was changed, where its checksum says. Nothing else is searched, because the output of guests
    /// may contain what looks like records.
    fn pass_damage(&mut self) -> io::Result<Option<SegmentItem>> {
        let start = self.position;
        let mut bytes = self.read_record_at(start)?;
        // What was read before of a record that was cut off may have been joined with another.
        if let Parsed::Record(record, length) = parse_record(&bytes) {
            return Ok(Some(self.passed(record, length)));
        }
        let Some(length) = length_of(&bytes) else { return Ok(None) };
        let end = start + length as u64;
        if matches!(parse_record(&self.read_record_at(end)?), Parsed::Record(..)) {
            self.seek(end);
            return Ok(Some(SegmentItem::Damage(length as u64)));
        }
        let file_bytes = self.file.metadata()?.len();
        for at in 0..LENGTH_BYTES {
            let right = bytes[at];
            for byte in (0..=u8::MAX).filter(|byte| *byte != right) {
                bytes[at] = byte;
                // Most candidates are ruled out by what would follow them, without a checksum.
                let end = length_of(&bytes).filter(|length| {
                    let behind = bytes.get(*length..).and_then(length_of);
                    start + *length as u64 == file_bytes || behind.is_some_and(is_record_length)
                });
                if let (Some(_), Parsed::Record(record, length)) = (end, parse_record(&bytes)) {
                    return Ok(Some(self.passed(record, length)));
                }
            }
            bytes[at] = right;
        }
        Ok(None)
    }

    /// A record that was read at the present position, and not by way of the buffer.
    fn passed(&mut self, record: Box<Record<'static>>, length: usize) -> SegmentItem {
        self.last_length = length as u64;
        self.seek(self.position + self.last_length);
        SegmentItem::Record(record)
    }

    /// As many bytes as the largest record has, or as exist.
    fn read_record_at(&self, position: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; READ_BYTES_MAX + super::record::PREFIX_BYTES];
        let read = self.file.read_at(&mut bytes, position)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Reads more; false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let have = self.buffer.len();
        if have >= READ_BYTES_MAX {
            return Ok(false);
        }
        self.buffer.resize((have + READ_BYTES).min(READ_BYTES_MAX), 0);
        let read = self.file.read_at(&mut self.buffer[have..], self.position + have as u64);
        self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }

    /// Drops what was read ahead; it is read again later.
    pub(super) fn rest(&mut self) {
        self.forget();
        self.buffer = Vec::new();
    }

    fn forget(&mut self) {
        self.buffer.clear();
        self.taken = 0;
    }
}
