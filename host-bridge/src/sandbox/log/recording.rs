//! One session in the log: what is known of it, and its outputs read from an offset on.
//!
//! The server's door asks here for what an agent does not have any more: output that its spool has
//! given up, sessions that it has forgotten, and all of a sandbox that is over. Names of sessions
//! come again, so everything here is of one [`Run`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use protocol::message::Channel;
use protocol::{ExitRecord, SessionId};

use super::LogError;
use super::reader::{failed, numbers};
use super::record::{Record, Run, Tracked, What};
use super::segment::Segment;

/// What the log says of a session. Of several that had the same name it is the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub session: SessionId,
    pub run: Run,
    /// Empty when the record of its start has been rotated away.
    pub command: String,
    /// Missing when it still runs, or when its sandbox ended with it.
    pub exit: Option<ExitRecord>,
    /// Its outputs, as far as they were recorded.
    pub outputs: BTreeMap<Channel, Extent>,
    /// The agent has been told to forget it.
    pub is_released: bool,
}

/// What there is of one output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The oldest byte that is still in the log.
    pub oldest: u64,
    pub end: u64,
}

impl Recorded {
    fn new(session: SessionId, run: Run, command: String) -> Self {
        let (exit, outputs, is_released) = (None, BTreeMap::new(), false);
        Self { session, run, command, exit, outputs, is_released }
    }

    fn tracked(tracked: &Tracked) -> Self {
        let mut recorded = Self::new(tracked.session.clone(), tracked.run, String::new());
        let place = |&(channel, next)| (channel, Extent { oldest: next, end: next });
        recorded.outputs = tracked.next.iter().map(place).collect();
        recorded
    }

    fn reach(&mut self, channel: Channel, from: u64, to: u64) {
        let extent = self.outputs.entry(channel).or_insert(Extent { oldest: from, end: from });
        extent.end = extent.end.max(to);
    }
}

/// The sessions of a log by their names, each at most once, and at most `sessions_max` of them: the
/// ones that began last.
pub fn recorded_sessions(directory: &Path, sessions_max: usize) -> Result<Vec<Recorded>, LogError> {
    let mut known: BTreeMap<SessionId, Recorded> = BTreeMap::new();
    for number in numbers(directory)? {
        let Some(mut segment) = open(directory, number)? else { continue };
        for tracked in &segment.head.sessions {
            let place = known.entry(tracked.session.clone());
            let recorded = place.or_insert_with(|| Recorded::tracked(tracked));
            if recorded.run != tracked.run {
                *recorded = Recorded::tracked(tracked);
            }
        }
        while let Some(record) = next(directory, &mut segment)? {
            note(&mut known, *record);
        }
        while known.len() > sessions_max {
            let began = |recorded: &&Recorded| recorded.run.started_at_ms;
            let Some(oldest) = known.values().min_by_key(began) else { break };
            let oldest = oldest.session.clone();
            known.remove(&oldest);
        }
    }
    Ok(known.into_values().collect())
}

/// The last session of this name, if the log has any. The newest segments are looked through first,
/// and no more of them than it takes.
pub fn recorded_session(
    directory: &Path,
    session: &SessionId,
) -> Result<Option<Recorded>, LogError> {
    let mut found: Option<Recorded> = None;
    for number in numbers(directory)?.into_iter().rev() {
        let Some(mut segment) = open(directory, number)? else { continue };
        let mut known = BTreeMap::new();
        let tracked = segment.head.sessions.iter().find(|tracked| tracked.session == *session);
        if let Some(tracked) = tracked {
            known.insert(session.clone(), Recorded::tracked(tracked));
        }
        let from_before = tracked.map(|tracked| tracked.run);
        while let Some(record) = next(directory, &mut segment)? {
            if subject(&record.what) == Some(session) {
                note(&mut known, *record);
            }
        }
        let Some(here) = known.remove(session) else {
            match found {
                // Its start was in a segment that is gone, or what came last began there.
                Some(_) => break,
                None => continue,
            }
        };
        let begins_here = from_before != Some(here.run);
        found = Some(match found {
            Some(later) if later.run == here.run => joined(here, later),
            Some(later) => return Ok(Some(later)),
            None => here,
        });
        if begins_here {
            break;
        }
    }
    Ok(found)
}

/// What two segments say of one run, the earlier first.
fn joined(mut earlier: Recorded, later: Recorded) -> Recorded {
    for (channel, extent) in later.outputs {
        earlier.reach(channel, extent.oldest, extent.end);
    }
    earlier.exit = later.exit.or(earlier.exit);
    earlier.is_released |= later.is_released;
    earlier
}

/// The session that a record is about.
fn subject<'a>(what: &'a What<'_>) -> Option<&'a SessionId> {
    match what {
        What::Started(started) => Some(&started.session),
        What::Output { session, .. }
        | What::Gap { session, .. }
        | What::Exited { session, .. }
        | What::Released { session } => Some(session),
        What::Head(_) | What::Closed { .. } => None,
    }
}

fn note(known: &mut BTreeMap<SessionId, Recorded>, record: Record<'static>) {
    match record.what {
        What::Started(started) => {
            let recorded = Recorded::new(started.session.clone(), started.run, started.command);
            known.insert(started.session, recorded);
        }
        What::Output { session, channel, offset, bytes } => {
            if let Some(recorded) = known.get_mut(&session) {
                recorded.reach(channel, offset, offset.saturating_add(bytes.0.len() as u64));
            }
        }
        What::Gap { session, channel, from, to } => {
            if let Some(recorded) = known.get_mut(&session) {
                recorded.reach(channel, from, to);
            }
        }
        What::Exited { session, record } => {
            if let Some(recorded) = known.get_mut(&session) {
                recorded.exit = Some(record);
            }
        }
        What::Released { session } => {
            if let Some(recorded) = known.get_mut(&session) {
                recorded.is_released = true;
            }
        }
        What::Head(_) | What::Closed { .. } => {}
    }
}

/// A place in one output of one run. It only ever goes on, so that reading all of an output in many
/// steps costs one pass over the log.
#[derive(Debug)]
pub struct Recording {
    directory: PathBuf,
    session: SessionId,
    run: Run,
    channel: Channel,
    segment: Option<Segment>,
    /// Whether the records at this place are of our run.
    ours: bool,
    /// A newer segment has been seen, so the present one will not grow any more.
    sealed: bool,
    /// What was read and not asked for yet.
    ahead: Option<(u64, Vec<u8>)>,
}

impl Recording {
    pub fn new(directory: PathBuf, session: SessionId, run: Run, channel: Channel) -> Self {
        let (segment, ours, sealed, ahead) = (None, false, false, None);
        Self { directory, session, run, channel, segment, ours, sealed, ahead }
    }

    /// The next bytes at or behind `from` and before `to`, with their offset; `None` when the log
    /// has none. Asked for ascending places.
    pub fn read(&mut self, from: u64, to: u64) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        loop {
            let next = match self.ahead.take() {
                Some(ahead) => Some(ahead),
                None => self.next_output(from)?,
            };
            let Some((offset, mut bytes)) = next else { return Ok(None) };
            let end = offset.saturating_add(bytes.len() as u64);
            if end <= from {
                continue;
            }
            if offset >= to {
                self.ahead = Some((offset, bytes));
                return Ok(None);
            }
            if end > to {
                let rest = bytes.split_off((to - offset) as usize);
                self.ahead = Some((to, rest));
            }
            let early = from.saturating_sub(offset);
            bytes.drain(..early as usize);
            return Ok(Some((offset + early, bytes)));
        }
    }

    /// The next output of ours, whatever its place.
    fn next_output(&mut self, from: u64) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        loop {
            let Some(segment) = &mut self.segment else {
                if self.enter_first(from)? {
                    continue;
                }
                return Ok(None);
            };
            let number = segment.number;
            if let Some(record) = next(&self.directory, segment)? {
                if let Some(output) = self.select(*record) {
                    return Ok(Some(output));
                }
                continue;
            }
            // Records may have been written between the last look and the rotation that sealed
            // the segment, so it is looked at once more.
            if !self.sealed {
                self.sealed = numbers(&self.directory)?.into_iter().any(|other| other > number);
                if self.sealed {
                    continue;
                }
                return Ok(None);
            }
            let newer = numbers(&self.directory)?.into_iter().filter(|other| *other > number);
            if !self.enter_one_of(newer)? {
                return Ok(None);
            }
        }
    }

    /// Goes into the last segment before which there is nothing that is wanted.
    fn enter_first(&mut self, from: u64) -> Result<bool, LogError> {
        let all = numbers(&self.directory)?;
        let mut first = 0;
        for (index, number) in all.iter().enumerate().skip(1) {
            let Some(segment) = open(&self.directory, *number)? else { continue };
            let tracked = segment.head.sessions.iter().find(|tracked| self.is_ours(tracked));
            let next = tracked.and_then(|tracked| {
                tracked.next.iter().find(|(channel, _)| *channel == self.channel)
            });
            if next.is_some_and(|(_, next)| *next <= from) {
                first = index;
            }
        }
        self.enter_one_of(all.into_iter().skip(first))
    }

    /// Goes into the first of these segments that is there.
    fn enter_one_of(&mut self, numbers: impl Iterator<Item = u64>) -> Result<bool, LogError> {
        for number in numbers {
            let Some(segment) = open(&self.directory, number)? else { continue };
            self.ours = segment.head.sessions.iter().any(|tracked| self.is_ours(tracked));
            self.segment = Some(segment);
            self.sealed = false;
            return Ok(true);
        }
        Ok(false)
    }

    fn is_ours(&self, tracked: &Tracked) -> bool {
        tracked.session == self.session && tracked.run == self.run
    }

    fn select(&mut self, record: Record<'static>) -> Option<(u64, Vec<u8>)> {
        match record.what {
            What::Started(started) if started.session == self.session => {
                self.ours = started.run == self.run;
                None
            }
            What::Output { session, channel, offset, bytes } => {
                let wanted = self.ours && channel == self.channel && session == self.session;
                wanted.then(|| (offset, bytes.0.into_owned()))
            }
            _ => None,
        }
    }
}

fn open(directory: &Path, number: u64) -> Result<Option<Segment>, LogError> {
    Segment::open(directory, number).map_err(|source| failed(directory, source))
}

fn next(directory: &Path, segment: &mut Segment) -> Result<Option<Box<Record<'static>>>, LogError> {
    segment.next().map_err(|source| failed(directory, source))
}
