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

use super::record::{CarriedFrom, CarriedPart, Head, Record, RecordBody, Run, encode_record};
use super::segment::{Segment, segment_path};
use host::paths::PRIVATE_FILE;

/// A session, and which of those that had its name.
pub(super) type SessionRun = (SessionId, Run);

/// The file that is written before it takes a segment's place.
const NEW_EXTENSION: &str = "new";

/// The size limits of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub segment_bytes: u64,
    pub segments_max: usize,
    /// What a session keeps of its newest records when they are rotated away.
    pub share_bytes: u64,
    /// The limit for all sessions together.
    pub carried_bytes_max: u64,
}

/// How much a session may keep.
pub(super) struct Shares<'a> {
    /// How much it has written since the head of a segment.
    pub behind: &'a dyn Fn(&SessionRun, &Head) -> u64,
    pub bounds: Bounds,
}

/// Puts the shares of the segment `from` before the records of the segment `into`, which follows it and no
/// longer grows.
pub(super) fn carry(directory: &Path, from: u64, into: u64, shares: &Shares<'_>) -> io::Result<()> {
    let Some(target) = Segment::open(directory, into)? else { return Ok(()) };
    // A crash came between this and the removal.
    if target.is_headless || target.head.carried.is_some() {
        return Ok(());
    }
    let Some(mut walk) = Walk::begin(directory, from)? else { return Ok(()) };
    let mut choice = Choice::default();
    let mut bytes = Vec::new();
    while let Some((session, record)) = walk.next()? {
        bytes.clear();
        // A record of almost the largest size has no room for the added fields.
        let is_fit = encode_record(&record, &mut bytes).is_ok();
        choice.offer(session, is_fit.then_some(bytes.len() as u64));
    }
    let is_kept = choice.decide(shares, &target.head);
    if !is_kept.contains(&true) {
        return Ok(());
    }
    let path = segment_path(directory, into);
    let new = path.with_extension(NEW_EXTENSION);
    let written = Walk::begin(directory, from)?
        .ok_or_else(|| io::ErrorKind::NotFound.into())
        .and_then(|walk| write(walk, &is_kept, &target, &path, &new))
        .and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn write(
    mut walk: Walk,
    is_kept: &[bool],
    target: &Segment,
    path: &Path,
    new: &Path,
) -> io::Result<()> {
    let mut carried = Vec::new();
    let mut part = CarriedPart { bytes: 0, output_bytes: 0, own_start: target.after_head() };
    for is_kept in is_kept {
        let Some((_, record)) = walk.next()? else { break };
        if *is_kept {
            part.output_bytes += output_bytes(&record.what);
            encode_record(&record, &mut carried).map_err(io::Error::other)?;
        }
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

impl Walk {
    fn begin(directory: &Path, number: u64) -> io::Result<Option<Self>> {
        let segment = Segment::open(directory, number)?.filter(|segment| !segment.is_headless);
        Ok(segment.map(|segment| {
            let known = &segment.head.sessions;
            let runs = known.iter().map(|known| (known.session.clone(), known.run)).collect();
            Self { segment, runs }
        }))
    }

    fn next(&mut self) -> io::Result<Option<(SessionRun, Record<'static>)>> {
        loop {
            let position = self.segment.mark_position();
            let Some(record) = self.segment.next()? else { return Ok(None) };
            let mut record = *record;
            let Some(session) = record.what.session().cloned() else { continue };
            if let Some(carried) = record.carried {
                return Ok(Some(((session, carried.run), record)));
            }
            if let RecordBody::Started(started) = &record.what {
                self.runs.insert(session.clone(), started.run);
            }
            let Some(&run) = self.runs.get(&session) else { continue };
            record.carried = Some(CarriedFrom { segment: self.segment.number, position, run });
            return Ok(Some(((session, run), record)));
        }
    }
}

/// Which records are kept: how long each is, and whose.
#[derive(Default)]
struct Choice {
    sessions: HashMap<SessionRun, usize>,
    records: Vec<(usize, Option<u64>)>,
}

impl Choice {
    fn offer(&mut self, session: SessionRun, length: Option<u64>) {
        let next = self.sessions.len();
        self.records.push((*self.sessions.entry(session).or_insert(next), length));
    }

    /// From the newest on, as long as the session and all of them have room. What is kept of a session
    /// has no holes.
    fn decide(self, shares: &Shares<'_>, head: &Head) -> Vec<bool> {
        let mut left = vec![0; self.sessions.len()];
        for (session, at) in &self.sessions {
            left[*at] = shares.bounds.share_bytes.saturating_sub((shares.behind)(session, head));
        }
        let mut all_left = shares.bounds.carried_bytes_max;
        let mut kept_records = vec![false; self.records.len()];
        for (kept_records, (session, length)) in kept_records.iter_mut().zip(&self.records).rev() {
            let left = &mut left[*session];
            match length.filter(|length| length <= left && *length <= all_left) {
                Some(length) => {
                    *kept_records = true;
                    *left -= length;
                    all_left -= length;
                }
                None => *left = 0,
            }
        }
        kept_records
    }
}
