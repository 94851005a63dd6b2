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
use super::segment::{Segment, SegmentItem, segment_numbers};
use super::{Entry, Event, LogError};
use crate::limits::LOG_FOLLOW_PAUSE;

pub use mark::{InvalidMark, Mark};

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The oldest that there is.
    Start,
    /// This many of the last lines, of all outputs together.
    Lines(u64),
    /// What was recorded at this time or later, in milliseconds since 1970.
    Since { ms: u64 },
}

/// A place in a log.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub struct Reader {
    directory: PathBuf,
    from: From,
    only: Option<SessionId>,
    wanted: Option<fn(Channel) -> bool>,
    segment: Option<Segment>,
    /// Bytes of output before this place, those in segments that are gone included; `None` while
    /// nothing has been read and nothing can have been missed.
    passed: Option<u64>,
    /// Bytes of the next output before the first requested line.
    skip_bytes: usize,
    /// A newer segment exists, so the current one no longer grows.
    sealed: bool,
    closed: bool,
    begun: bool,
    /// Part of the current segment is damaged, which was reported.
    was_damaged: bool,
    /// What is missing before the current segment's own records is not counted yet.
    owes: bool,
    /// Records that were carried from before this segment and position have been read where they stood.
    since: (u64, u64),
    /// The search for the last lines, while it runs.
    finding: Option<Box<Finding>>,
}

/// The result of one step.
#[derive(Debug)]
pub enum Step {
    Entry(Box<Entry>),
    /// The budget is used up; there may be more to read.
    Paused,
    /// Nothing more at the moment.
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
            was_damaged: false,
            owes: false,
            since: (0, 0),
            finding: None,
        }
    }

    /// Skips all other sessions. Call it before reading the first entry.
    #[must_use]
    pub fn only(mut self, session: SessionId) -> Self {
        self.only = Some(session);
        self
    }

    /// Skips unwanted outputs. Call it before reading the first entry.
    #[must_use]
    pub fn outputs(mut self, wanted: fn(Channel) -> bool) -> Self {
        self.wanted = Some(wanted);
        self
    }

    /// Whether the end of the sandbox has been read: nothing will follow.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The next entry; `None` if there is nothing more at the moment.
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

    /// The next entry, if it is found within the budget.
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
                Some(ReadItem::Damaged { bytes, time_ms }) => {
                    let event = Event::Damaged { bytes };
                    return Ok(Step::Entry(Box::new(Entry { time_ms, event })));
                }
                None => return Ok(Step::AtEnd),
            }
        }
    }

    /// Waits for the next entry; `None` when the sandbox has ended or was removed and everything
    /// was read.
    pub async fn follow(&mut self) -> Result<Option<Entry>, LogError> {
        loop {
            if let Some(entry) = self.next()? {
                return Ok(Some(entry));
            }
            // A removed log does not continue either.
            if self.closed || !self.directory.exists() {
                return Ok(None);
            }
            tokio::time::sleep(LOG_FOLLOW_PAUSE).await;
        }
    }

    /// The next record of any session, or what is missing before it.
    fn next_record(&mut self) -> Result<Option<ReadItem>, LogError> {
        loop {
            let Some(segment) = &mut self.segment else {
                if self.enter_after(0)? {
                    continue;
                }
                return Ok(None);
            };
            let number = segment.number;
            let time_ms = segment.head_time_ms;
            if segment.is_own() && std::mem::take(&mut self.owes) {
                match self.count_missing() {
                    0 => continue,
                    bytes => return Ok(Some(ReadItem::Missing { bytes, time_ms })),
                }
            }
            let found = segment.find().map_err(|source| failed(&self.directory, source))?;
            if let Some(SegmentItem::Damage(bytes)) = found {
                self.was_damaged = true;
                return Ok(Some(ReadItem::Damaged { bytes, time_ms }));
            }
            if let Some(SegmentItem::Record(record)) = found {
                let place = record.carried.map(|carried| (carried.segment, carried.position));
                if place.is_some_and(|place| place < self.since) {
                    continue;
                }
                if let (RecordBody::Output { bytes, .. }, Some(passed)) =
                    (&record.what, &mut self.passed)
                {
                    *passed += bytes.0.len() as u64;
                }
                return Ok(Some(ReadItem::Record(record)));
            }
            // Records may have been written between the last read and the rotation, so it is read
            // once more.
            if !self.sealed {
                self.sealed = self.numbers()?.into_iter().any(|other| other > number);
                if self.sealed {
                    continue;
                }
                return Ok(None);
            }
            // It no longer grows, so this is no record that is being written.
            let rest = segment.rest_bytes().map_err(|source| failed(&self.directory, source))?;
            if rest > 0 {
                segment.seek(segment.position() + rest);
                self.was_damaged = true;
                return Ok(Some(ReadItem::Damaged { bytes: rest, time_ms }));
            }
            if !self.enter_after(number)? {
                return Ok(None);
            }
        }
    }

    /// Continues in the oldest segment after `number`; false if there is none.
    fn enter_after(&mut self, number: u64) -> Result<bool, LogError> {
        for next in self.numbers()?.into_iter().filter(|next| *next > number) {
            let opened = Segment::open(&self.directory, next);
            // A segment that was just rotated away is missing; a new one may lack its head.
            let opened = opened.map_err(|source| failed(&self.directory, source))?;
            let Some(segment) = opened else { continue };
            let carried = segment.head.carried.map_or(0, |part| part.output_bytes);
            self.passed.get_or_insert(segment.head.bytes_before.saturating_sub(carried));
            self.since = self.since.max((number, u64::MAX));
            (self.segment, self.sealed, self.owes) = (Some(segment), false, true);
            return Ok(true);
        }
        Ok(false)
    }

    /// Bytes of output that are missing and not reported yet, before the current segment's own.
    fn count_missing(&mut self) -> u64 {
        let was_damaged = std::mem::take(&mut self.was_damaged);
        let passed = self.passed.unwrap_or_default();
        let before = match &self.segment {
            Some(segment) if !segment.is_headless => segment.head.bytes_before,
            _ => passed,
        };
        self.passed = Some(before);
        if was_damaged { 0 } else { before.saturating_sub(passed) }
    }

    /// Goes on at a record. When its segment has been rotated away, the oldest that there is says how much
    /// is missing.
    fn go_to(&mut self, place: RecordPosition) -> Result<(), LogError> {
        self.passed = Some(place.passed);
        let opened = Segment::open(&self.directory, place.segment);
        match opened.map_err(|source| failed(&self.directory, source))? {
            Some(mut segment) => {
                segment.seek_mark(place.position);
                self.owes = segment.has_own_ahead();
                self.segment = Some(segment);
            }
            None => self.since = (place.segment, place.position),
        }
        Ok(())
    }

    /// What a record contributes to this reader.
    fn select(&mut self, record: Record<'static>) -> Option<Entry> {
        let event = event_of(record.what)?;
        self.closed |= matches!(event, Event::Closed { .. });
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

    /// Removes what precedes the first line from the first output.
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
            let before =
                scan.segment.as_ref().map(|segment| (segment.number, segment.mark_position()));
            match scan.next_record()? {
                None => break,
                Some(ReadItem::Missing { .. } | ReadItem::Damaged { .. }) => {}
                Some(ReadItem::Record(record)) => {
                    room.take(&record);
                    let Some(segment) = &scan.segment else { break };
                    // The first record of a segment follows its head, wherever we came from.
                    let number = segment.number;
                    let known = before.filter(|(earlier, _)| *earlier == number);
                    let position = known.map_or(segment.first_mark(), |(_, position)| position);
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
                (self.owes, self.since) = (scan.owes, scan.since);
            }
            Start::At { place, skip_bytes } => {
                self.go_to(place)?;
                if self.segment.is_some() {
                    self.skip_bytes = skip_bytes;
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

/// What readers see of a record; nothing of those that are only the writer's.
pub(super) fn event_of(record: RecordBody<'_>) -> Option<Event> {
    Some(match record {
        RecordBody::Head(_)
        | RecordBody::Released { .. }
        | RecordBody::Input { .. }
        | RecordBody::Provenance(_) => return None,
        RecordBody::Started(started) => Event::Started {
            session: started.session,
            command: started.command,
            started_at_ms: started.run.started_at_ms,
        },
        RecordBody::Output { session, channel, offset, bytes } => {
            Event::Output { session, channel, offset, bytes: bytes.0.into_owned() }
        }
        RecordBody::Gap { session, channel, from, to } => Event::Gap { session, channel, from, to },
        RecordBody::Resized { session, rows, columns } => Event::Resized { session, rows, columns },
        RecordBody::Exited { session, record } => Event::Exited { session, record },
        RecordBody::Closed { why } => Event::Closed { why },
    })
}

pub(super) fn failed(directory: &Path, source: io::Error) -> LogError {
    LogError::Files { action: "read", path: directory.to_owned(), source }
}

enum ReadItem {
    Record(Box<Record<'static>>),
    Missing { bytes: u64, time_ms: u64 },
    Damaged { bytes: u64, time_ms: u64 },
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

/// The position of a record.
#[derive(Clone, Copy, Debug)]
struct RecordPosition {
    segment: u64,
    /// As in a [`Mark`].
    position: u64,
    /// Bytes of output before it.
    passed: u64,
}

#[derive(Debug)]
struct Piece {
    place: RecordPosition,
    /// The end of each newline in it.
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

    /// Where the last `lines` lines begin: after the newline of the preceding line.
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
