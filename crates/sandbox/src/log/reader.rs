//! Reading a log, while it is written or long after.
//!
//! A reader holds nothing but a place in a segment. When the segment under it is rotated away it
//! still reads it to its end, and then says how much it missed.

mod mark;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use protocol::SessionId;
use protocol::message::Channel;

use super::record::{Record, RecordBody};
use super::room::ReadBudget;
use super::segment::{Segment, segment_numbers};
use super::{Entry, Event, LogError};
use crate::limits::LOG_FOLLOW_PAUSE;

pub use mark::{InvalidMark, Mark};

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The oldest that there is.
    Start,
    /// So many of the last lines, of all outputs together.
    Lines(u64),
    /// What was recorded at this time or later, milliseconds since 1970.
    Since { ms: u64 },
}

/// A place in a log.
#[derive(Debug)]
pub struct Reader {
    directory: PathBuf,
    from: From,
    only: Option<SessionId>,
    wanted: Option<fn(Channel) -> bool>,
    segment: Option<Segment>,
    /// Bytes of output before this place, those in segments that are gone included; `None` while
    /// nothing has been read and nothing can have been missed.
    passed: Option<u64>,
    /// Of the next output, what lies before the first line that was asked for.
    skip_bytes: usize,
    /// A newer segment has been seen, so the present one will not grow any more.
    sealed: bool,
    closed: bool,
    begun: bool,
    /// Where the last lines begin, as far as that is known.
    finding: Option<Box<Finding>>,
}

/// What a step of reading came to.
#[derive(Debug)]
pub enum Step {
    Entry(Box<Entry>),
    /// There was no more room; there may be more to read.
    Paused,
    /// There is no more at the moment.
    AtEnd,
}

impl Reader {
    /// Opens the log in `directory`; one that has nothing yet is fine.
    pub fn open(directory: &Path, from: From) -> Result<Self, LogError> {
        let reader = Self::at_start(directory, from);
        reader.numbers()?;
        Ok(reader)
    }

    fn at_start(directory: &Path, from: From) -> Self {
        Self {
            directory: directory.to_owned(),
            from,
            only: None,
            wanted: None,
            segment: None,
            passed: None,
            skip_bytes: 0,
            sealed: false,
            closed: false,
            begun: false,
            finding: None,
        }
    }

    /// Leaves out all other sessions. To be said before the first entry is read.
    #[must_use]
    pub fn only(mut self, session: SessionId) -> Self {
        self.only = Some(session);
        self
    }

    /// Leaves out the outputs that are not wanted. To be said before the first entry is read.
    #[must_use]
    pub fn outputs(mut self, wanted: fn(Channel) -> bool) -> Self {
        self.wanted = Some(wanted);
        self
    }

    /// Whether the end of the sandbox has been read: nothing will follow.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The next entry; `None` when there is no more at the moment.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator that yields again after it has ended would mislead"
    )]
    pub fn next(&mut self) -> Result<Option<Entry>, LogError> {
        let mut room = ReadBudget::ENDLESS;
        Ok(match self.step(&mut room)? {
            Step::Entry(entry) => Some(*entry),
            Step::Paused | Step::AtEnd => None,
        })
    }

    /// The next entry, if it is found with no more looked at than there is room for.
    pub fn step(&mut self, room: &mut ReadBudget) -> Result<Step, LogError> {
        if !self.begun {
            match self.from {
                From::Start => self.passed = Some(0),
                From::Lines(lines) => {
                    if !self.find_lines(lines, room)? {
                        return Ok(Step::Paused);
                    }
                }
                From::Since { .. } => {}
            }
            self.begun = true;
        }
        loop {
            if room.is_over() {
                return Ok(Step::Paused);
            }
            match self.next_record()? {
                Some(ReadItem::Record(record)) => {
                    room.take(&record);
                    if let Some(entry) = self.select(*record) {
                        return Ok(Step::Entry(Box::new(entry)));
                    }
                }
                Some(ReadItem::Missing { bytes, time_ms }) => {
                    let event = Event::Missing { bytes };
                    return Ok(Step::Entry(Box::new(Entry { time_ms, event })));
                }
                None => return Ok(Step::AtEnd),
            }
        }
    }

    /// The next entry, waiting for it; `None` when the sandbox is over, or removed, and all
    /// has been read.
    pub async fn follow(&mut self) -> Result<Option<Entry>, LogError> {
        loop {
            if let Some(entry) = self.next()? {
                return Ok(Some(entry));
            }
            // A log that was removed will not go on either.
            if self.closed || !self.directory.exists() {
                return Ok(None);
            }
            tokio::time::sleep(LOG_FOLLOW_PAUSE).await;
        }
    }

    /// The next record whatever it is about, or what is missing before it.
    fn next_record(&mut self) -> Result<Option<ReadItem>, LogError> {
        loop {
            let Some(segment) = &mut self.segment else {
                match self.enter_after(0)? {
                    SegmentStart::Nothing => return Ok(None),
                    SegmentStart::Whole => continue,
                    SegmentStart::Missing(found) => return Ok(Some(found)),
                }
            };
            let number = segment.number;
            let record = segment.next().map_err(|source| failed(&self.directory, source))?;
            if let Some(record) = record {
                if let (RecordBody::Output { bytes, .. }, Some(passed)) =
                    (&record.what, &mut self.passed)
                {
                    *passed += bytes.0.len() as u64;
                }
                return Ok(Some(ReadItem::Record(record)));
            }
            // Records may have been written between the last look and the rotation that sealed
            // the segment, so it is looked at once more.
            if !self.sealed {
                self.sealed = self.numbers()?.into_iter().any(|other| other > number);
                if self.sealed {
                    continue;
                }
                return Ok(None);
            }
            match self.enter_after(number)? {
                SegmentStart::Nothing => return Ok(None),
                SegmentStart::Whole => {}
                SegmentStart::Missing(found) => return Ok(Some(found)),
            }
        }
    }

    /// Goes on in the oldest segment behind `number`.
    fn enter_after(&mut self, number: u64) -> Result<SegmentStart, LogError> {
        for next in self.numbers()?.into_iter().filter(|next| *next > number) {
            let opened = Segment::open(&self.directory, next);
            // One that was rotated away just now is not there; one without a head is not yet.
            let opened = opened.map_err(|source| failed(&self.directory, source))?;
            let Some(segment) = opened else { continue };
            let (before, time_ms) = (segment.head.bytes_before, segment.head_time_ms);
            self.segment = Some(segment);
            self.sealed = false;
            let bytes = before.saturating_sub(self.passed.unwrap_or(before));
            self.passed = Some(before);
            return Ok(match bytes {
                0 => SegmentStart::Whole,
                bytes => SegmentStart::Missing(ReadItem::Missing { bytes, time_ms }),
            });
        }
        Ok(SegmentStart::Nothing)
    }

    /// What a record says to this reader.
    fn select(&mut self, record: Record<'static>) -> Option<Entry> {
        let event = match record.what {
            RecordBody::Head(_) | RecordBody::Released { .. } => return None,
            RecordBody::Started(started) => Event::Started {
                session: started.session,
                command: started.command,
                started_at_ms: started.run.started_at_ms,
            },
            RecordBody::Output { session, channel, offset, bytes } => {
                Event::Output { session, channel, offset, bytes: bytes.0.into_owned() }
            }
            RecordBody::Gap { session, channel, from, to } => {
                Event::Gap { session, channel, from, to }
            }
            RecordBody::Exited { session, record } => Event::Exited { session, record },
            RecordBody::Closed { why } => {
                self.closed = true;
                Event::Closed { why }
            }
        };
        let too_early = matches!(self.from, From::Since { ms } if record.time_ms < ms);
        let other = self
            .only
            .as_ref()
            .is_some_and(|only| event.session().is_some_and(|session| session != only));
        let unwanted = match (&event, self.wanted) {
            (Event::Output { channel, .. } | Event::Gap { channel, .. }, Some(wanted)) => {
                !wanted(*channel)
            }
            _ => false,
        };
        if too_early || other || unwanted {
            return None;
        }
        self.cut_first(event).map(|event| Entry { time_ms: record.time_ms, event })
    }

    /// Takes what lies before the first line off the first output.
    fn cut_first(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Output { session, channel, offset, mut bytes } if self.skip_bytes > 0 => {
                let skipped = self.skip_bytes.min(bytes.len());
                self.skip_bytes = 0;
                bytes.drain(..skipped);
                let offset = offset.saturating_add(skipped as u64);
                (!bytes.is_empty()).then_some(Event::Output { session, channel, offset, bytes })
            }
            other => Some(other),
        }
    }

    /// Goes to the place from which on there are `lines` lines; false while that is not found.
    fn find_lines(&mut self, lines: u64, room: &mut ReadBudget) -> Result<bool, LogError> {
        let finding = self.finding.take().map_or_else(|| Finding::new(self), |finding| *finding);
        let Finding { mut scan, mut tail } = finding;
        loop {
            if room.is_over() {
                self.finding = Some(Box::new(Finding { scan, tail }));
                return Ok(false);
            }
            let before = scan.segment.as_ref().map(|segment| (segment.number, segment.position()));
            match scan.next_record()? {
                None => break,
                Some(ReadItem::Missing { .. }) => {}
                Some(ReadItem::Record(record)) => {
                    room.take(&record);
                    let Some(segment) = &scan.segment else { break };
                    // The first record of a segment follows its head, wherever we came from.
                    let number = segment.number;
                    let known = before.filter(|(earlier, _)| *earlier == number);
                    let position = known.map_or(segment.after_head(), |(_, position)| position);
                    let passed = scan.passed.unwrap_or(0);
                    if let Some(Entry { event: Event::Output { bytes, .. }, .. }) =
                        scan.select(*record)
                    {
                        let passed = passed - bytes.len() as u64;
                        tail.push(
                            RecordPosition { segment: number, position, passed },
                            &bytes,
                            lines,
                        );
                    }
                }
            }
        }
        match tail.start(lines) {
            Start::End => {
                self.closed = scan.closed;
                (self.segment, self.passed, self.sealed) = (scan.segment, scan.passed, scan.sealed);
            }
            Start::At { place, skip_bytes } => {
                let opened = Segment::open(&self.directory, place.segment);
                let opened = opened.map_err(|source| failed(&self.directory, source))?;
                self.passed = Some(place.passed);
                // When it has been rotated away since, what is missing is said.
                if let Some(mut segment) = opened {
                    segment.seek(place.position);
                    self.skip_bytes = skip_bytes;
                    self.segment = Some(segment);
                }
            }
            Start::Oldest => {}
        }
        Ok(true)
    }

    fn numbers(&self) -> Result<Vec<u64>, LogError> {
        numbers(&self.directory)
    }
}

/// The numbers of a log's segments, ascending; a log that has nothing yet has none.
pub(super) fn numbers(directory: &Path) -> Result<Vec<u64>, LogError> {
    match segment_numbers(directory) {
        Ok(numbers) => Ok(numbers),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(failed(directory, source)),
    }
}

pub(super) fn failed(directory: &Path, source: io::Error) -> LogError {
    LogError::Files { action: "read", path: directory.to_owned(), source }
}

enum ReadItem {
    Record(Box<Record<'static>>),
    Missing { bytes: u64, time_ms: u64 },
}

enum SegmentStart {
    /// There is no such segment.
    Nothing,
    /// It follows on what was read before.
    Whole,
    Missing(ReadItem),
}

/// A look for the last lines, from the oldest output to the newest.
#[derive(Debug)]
struct Finding {
    scan: Reader,
    tail: Tail,
}

impl Finding {
    fn new(reader: &Reader) -> Self {
        let mut scan = Reader::at_start(&reader.directory, From::Since { ms: 0 });
        scan.only.clone_from(&reader.only);
        scan.wanted = reader.wanted;
        scan.begun = true;
        Self { scan, tail: Tail::default() }
    }
}

/// The outputs that may hold the last lines, found in one pass. Its size is bounded by the log's.
#[derive(Debug, Default)]
struct Tail {
    outputs: VecDeque<Piece>,
    newlines: u64,
    ends_in_newline: bool,
}

/// Where a record begins.
#[derive(Clone, Copy, Debug)]
struct RecordPosition {
    segment: u64,
    position: u64,
    /// Bytes of output before it.
    passed: u64,
}

#[derive(Debug)]
struct Piece {
    place: RecordPosition,
    /// Where each newline in it ends.
    line_ends: Vec<u32>,
}

enum Start {
    Oldest,
    At { place: RecordPosition, skip_bytes: usize },
    End,
}

impl Tail {
    fn push(&mut self, place: RecordPosition, bytes: &[u8], lines: u64) {
        let line_ends: Vec<u32> =
            (1..).zip(bytes).filter(|(_, byte)| **byte == b'\n').map(|(end, _)| end).collect();
        self.newlines += line_ends.len() as u64;
        self.ends_in_newline = bytes.last() == Some(&b'\n');
        self.outputs.push_back(Piece { place, line_ends });
        // One newline more than lines: the one before the first of them.
        while let Some(first) = self.outputs.front()
            && self.newlines - first.line_ends.len() as u64 > lines
        {
            self.newlines -= first.line_ends.len() as u64;
            self.outputs.pop_front();
        }
    }

    /// Where the last `lines` lines begin: behind the newline that ends the line before them.
    fn start(&self, lines: u64) -> Start {
        if lines == 0 {
            return Start::End;
        }
        let mut wanted = lines + u64::from(self.ends_in_newline);
        for piece in self.outputs.iter().rev() {
            let have = piece.line_ends.len() as u64;
            if have >= wanted {
                let skip_bytes = piece.line_ends[(have - wanted) as usize] as usize;
                return Start::At { place: piece.place, skip_bytes };
            }
            wanted -= have;
        }
        Start::Oldest
    }
}
