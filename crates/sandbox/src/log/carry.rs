//! Keeps the newest records of each quiet session when a segment is rotated away, so that one session's flood
//! does not remove another's output.
//!
//! ```text
//!  7: head │ records            ──▶ removed
//!              │ each session's share
//!              ▼
//!  8: head │ carried │ records      written again, and put in place of what it was
//! ```
//!
//! Only the segment after the removed one is rewritten, and only once: it is removed next, and its carried
//! records are then carried on with its own.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use protocol::SessionId;
use protocol::message::Channel;

use super::record::{
    CarriedFrom, CarriedPart, Head, PREFIX_BYTES, Record, RecordBody, Run, Tracked, encode_record,
};
use super::segment::{Segment, segment_numbers, segment_path};
use crate::limits::LOG_RECORD_BYTES_MAX;
use host::paths::PRIVATE_FILE;

/// A session, and which of those that had its name.
pub(super) type SessionRun = (SessionId, Run);

/// The file that is written before it takes a segment's place.
const NEW_EXTENSION: &str = "new";
/// What a record's place adds to it at most: three names of fields and four of numbers, in MessagePack.
const CARRIED_FROM_BYTES: u64 = 96;

/// The size limits of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub segment_bytes: u64,
    pub segments_max: usize,
    /// What a session keeps of its newest records when they are rotated away.
    pub share_bytes: u64,
    /// The limit for all sessions together.
    pub carried_bytes_max: u64,
    /// A thread of its own removes what is too much: it takes tens of milliseconds, which others would wait.
    pub apart: bool,
}

/// How much a session may keep.
#[derive(Clone)]
pub(super) struct Shares {
    /// The sessions that are recorded, with how far they were.
    pub now: Vec<Tracked>,
    pub bounds: Bounds,
}

impl Shares {
    /// Bytes of output that a session which is recorded has written since a segment's head.
    fn behind(&self, (session, run): &SessionRun, head: &Head) -> u64 {
        let is_same = |known: &&Tracked| known.is_of(session, *run);
        let then = head.sessions.iter().find(is_same);
        let (Some(then), Some(now)) = (then, self.now.iter().find(is_same)) else { return 0 };
        let then = |channel| then.next.iter().find(|(known, _)| *known == channel);
        let written = |(channel, next): &(Channel, u64)| {
            next.saturating_sub(then(*channel).map_or(0, |(_, then)| *then))
        };
        now.next.iter().map(written).fold(0, u64::saturating_add)
    }
}

/// Removes the oldest segments, as many as are too many.
pub(super) fn prune(directory: &Path, shares: &Shares) -> io::Result<()> {
    let numbers = segment_numbers(directory)?;
    let surplus = numbers.len().saturating_sub(shares.bounds.segments_max);
    for pair in numbers.windows(2).take(surplus) {
        // A full disk has no room for it, and needs the space.
        let _ = carry(directory, pair[0], pair[1], shares);
        fs::remove_file(segment_path(directory, pair[0]))?;
    }
    Ok(())
}

/// Puts the shares of the segment `from` before the records of the segment `into`, which follows it and no
/// longer grows.
fn carry(directory: &Path, from: u64, into: u64, shares: &Shares) -> io::Result<()> {
    let Some(target) = Segment::open(directory, into)? else { return Ok(()) };
    // A crash came between this and the removal.
    if target.is_headless || target.head.carried.is_some() {
        return Ok(());
    }
    let Some(mut walk) = Walk::begin(directory, from)? else { return Ok(()) };
    let mut choice = Choice::default();
    while let Some(found) = walk.next()? {
        choice.offer(found.session, found.place, found.length);
    }
    let kept = choice.decide(shares, &target.head);
    if kept.is_empty() {
        return Ok(());
    }
    let path = segment_path(directory, into);
    let new = path.with_extension(NEW_EXTENSION);
    let written =
        write(walk.segment, &kept, &target, &path, &new).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn write(
    mut from: Segment,
    kept: &[RecordPlace],
    target: &Segment,
    path: &Path,
    new: &Path,
) -> io::Result<()> {
    let mut carried = Vec::new();
    let mut part = CarriedPart { bytes: 0, output_bytes: 0, own_start: target.after_head() };
    from.seek(from.after_head());
    for place in kept {
        from.skip_to(place.position);
        let mut record = from.next()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        record.carried = record.carried.or(Some(place.origin));
        part.output_bytes += output_bytes(&record.what);
        encode_record(&record, &mut carried).map_err(io::Error::other)?;
    }
    part.bytes = carried.len() as u64;
    let head = Head { carried: Some(part), ..target.head.clone() };
    let mut bytes = Vec::new();
    let head = Record::new(target.head_time_ms, RecordBody::Head(head));
    encode_record(&head, &mut bytes).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(new)?;
    let mut file = BufWriter::new(file);
    file.write_all(&bytes)?;
    file.write_all(&carried)?;
    let mut own = File::open(path)?;
    own.seek(SeekFrom::Start(target.after_head()))?;
    io::copy(&mut own, &mut file)?;
    // It replaces an existing file, which a power cut must not destroy.
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
}

fn output_bytes(what: &RecordBody<'_>) -> u64 {
    match what {
        RecordBody::Output { bytes, .. } => bytes.0.len() as u64,
        _ => 0,
    }
}

/// The records of a segment that are about sessions, with where they stand.
struct Walk {
    segment: Segment,
    runs: HashMap<SessionId, Run>,
}

struct FoundRecord {
    session: SessionRun,
    place: RecordPlace,
    /// How long it is at most when it is carried; `None` if it has no room for what is added to it.
    length: Option<u64>,
}

/// Where a record stands in the segment that is about to go.
#[derive(Clone, Copy)]
struct RecordPlace {
    position: u64,
    /// Where it stood first.
    origin: CarriedFrom,
}

impl Walk {
    fn begin(directory: &Path, number: u64) -> io::Result<Option<Self>> {
        let segment = Segment::open(directory, number)?.filter(|segment| !segment.is_headless);
        Ok(segment.map(|segment| {
            let known = &segment.head.sessions;
            let runs = known.iter().map(|known| (known.session.clone(), known.run)).collect();
            Self { segment, runs }
        }))
    }

    fn next(&mut self) -> io::Result<Option<FoundRecord>> {
        loop {
            let mark = self.segment.mark_position();
            let Some(record) = self.segment.next()? else { return Ok(None) };
            let Some(session) = record.what.session().cloned() else { continue };
            if let (RecordBody::Started(started), None) = (&record.what, record.carried) {
                self.runs.insert(session.clone(), started.run);
            }
            let run = self.runs.get(&session).copied();
            let origin = record.carried.or(run.map(|run| CarriedFrom {
                segment: self.segment.number,
                position: mark,
                run,
            }));
            let Some(origin) = origin else { continue };
            let bytes = self.segment.last_length();
            let length = if record.carried.is_some() { bytes } else { bytes + CARRIED_FROM_BYTES };
            let place = RecordPlace { position: self.segment.position() - bytes, origin };
            return Ok(Some(FoundRecord {
                session: (session, origin.run),
                place,
                length: (length <= (LOG_RECORD_BYTES_MAX + PREFIX_BYTES) as u64).then_some(length),
            }));
        }
    }
}

/// Which records are kept: how long each is, and whose.
#[derive(Default)]
struct Choice {
    sessions: HashMap<SessionRun, usize>,
    records: Vec<(usize, RecordPlace, Option<u64>)>,
}

impl Choice {
    fn offer(&mut self, session: SessionRun, place: RecordPlace, length: Option<u64>) {
        let next = self.sessions.len();
        let session = *self.sessions.entry(session).or_insert(next);
        self.records.push((session, place, length));
    }

    /// From the newest on, as long as the session and all of them have room. What is kept of a session
    /// has no holes.
    fn decide(self, shares: &Shares, head: &Head) -> Vec<RecordPlace> {
        let mut left = vec![0; self.sessions.len()];
        for (session, at) in &self.sessions {
            left[*at] = shares.bounds.share_bytes.saturating_sub(shares.behind(session, head));
        }
        let mut all_left = shares.bounds.carried_bytes_max;
        let mut kept = Vec::new();
        for (session, place, length) in self.records.into_iter().rev() {
            let left = &mut left[session];
            match length.filter(|length| length <= left && *length <= all_left) {
                Some(length) => {
                    kept.push(place);
                    *left -= length;
                    all_left -= length;
                }
                None => *left = 0,
            }
        }
        kept.reverse();
        kept
    }
}
