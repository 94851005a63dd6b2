//! What the log knows about sessions: about one, or about all.
//!
//! The server's door asks here for those that an agent has forgotten or that are of a sandbox that is
//! over. Finding out can take reading the whole log, so it goes by steps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use protocol::message::Channel;
use protocol::{ExitRecord, SessionId};

use super::LogError;
use super::reader::numbers;
use super::record::{Record, RecordBody, Run, Tracked};
use super::recording::{next, open};
use super::room::ReadBudget;
use super::segment::Segment;

/// What the log knows about a session. If several had the same name, it is the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedSession {
    pub session: SessionId,
    pub run: Run,
    /// Empty when the record of its start has been rotated away.
    pub command: String,
    /// Missing when it still runs, or when its sandbox ended with it.
    pub exit: Option<ExitRecord>,
    /// Its recorded outputs.
    pub outputs: BTreeMap<Channel, Extent>,
    /// The agent was asked to forget it.
    pub is_released: bool,
}

/// What is recorded of one output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The oldest byte that is still in the log.
    pub oldest: u64,
    pub end: u64,
}

impl RecordedSession {
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
        extent.oldest = extent.oldest.min(from);
        extent.end = extent.end.max(to);
    }
}

/// A look for the sessions of a log by their names, each at most once, and at most `sessions_max` of
/// them: the ones that began last.
#[derive(Debug)]
pub struct AllSessions {
    directory: PathBuf,
    sessions_max: usize,
    /// Segments to read, the newest first.
    ahead: Vec<u64>,
    segment: Option<Segment>,
    known: BTreeMap<SessionId, RecordedSession>,
}

impl AllSessions {
    pub fn new(directory: &Path, sessions_max: usize) -> Result<Self, LogError> {
        let mut ahead = numbers(directory)?;
        ahead.reverse();
        let (directory, segment, known) = (directory.to_owned(), None, BTreeMap::new());
        Ok(Self { directory, sessions_max, ahead, segment, known })
    }

    /// Continues; `None` if the budget is used up and there is more to read.
    pub fn step(
        &mut self,
        room: &mut ReadBudget,
    ) -> Result<Option<Vec<RecordedSession>>, LogError> {
        loop {
            let Some(segment) = &mut self.segment else {
                let Some(number) = self.ahead.pop() else {
                    let known = std::mem::take(&mut self.known);
                    return Ok(Some(known.into_values().collect()));
                };
                self.segment = open(&self.directory, number)?;
                self.note_head();
                continue;
            };
            if room.is_over() {
                return Ok(None);
            }
            if let Some(record) = next(&self.directory, segment)? {
                room.take(&record);
                note(&mut self.known, *record);
            } else {
                self.segment = None;
                self.keep_newest();
            }
        }
    }

    fn note_head(&mut self) {
        let Some(segment) = &self.segment else { return };
        for tracked in &segment.head.sessions {
            let place = self.known.entry(tracked.session.clone());
            let recorded = place.or_insert_with(|| RecordedSession::tracked(tracked));
            if recorded.run != tracked.run {
                *recorded = RecordedSession::tracked(tracked);
            }
        }
    }

    fn keep_newest(&mut self) {
        while self.known.len() > self.sessions_max {
            let began = |recorded: &&RecordedSession| recorded.run.started_at_ms;
            let Some(oldest) = self.known.values().min_by_key(began) else { break };
            let oldest = oldest.session.clone();
            self.known.remove(&oldest);
        }
    }
}

/// A search for the last session with a name. The newest segments are read first, and only as many
/// as necessary.
#[derive(Debug)]
pub struct OneSession {
    directory: PathBuf,
    session: SessionId,
    /// Segments to read, the oldest first.
    ahead: Vec<u64>,
    here: Option<SegmentScan>,
    /// What the segments so far contain.
    found: Option<RecordedSession>,
}

/// The segment that is looked through.
#[derive(Debug)]
struct SegmentScan {
    segment: Segment,
    /// Of this session only.
    known: BTreeMap<SessionId, RecordedSession>,
    /// The run that was active when the segment began.
    from_before: Option<Run>,
}

impl OneSession {
    pub fn new(directory: &Path, session: &SessionId) -> Result<Self, LogError> {
        let ahead = numbers(directory)?;
        let (directory, session) = (directory.to_owned(), session.clone());
        Ok(Self { directory, session, ahead, here: None, found: None })
    }

    /// Continues; `None` if the budget is used up and there is more to read, otherwise the session
    /// if the log has one.
    pub fn step(
        &mut self,
        room: &mut ReadBudget,
    ) -> Result<Option<Option<RecordedSession>>, LogError> {
        loop {
            let Some(here) = &mut self.here else {
                let Some(number) = self.ahead.pop() else { return Ok(Some(self.found.take())) };
                self.here = open(&self.directory, number)?
                    .map(|found| SegmentScan::new(found, &self.session));
                continue;
            };
            if room.is_over() {
                return Ok(None);
            }
            if let Some(record) = next(&self.directory, &mut here.segment)? {
                room.take(&record);
                if record.what.session() == Some(&self.session) {
                    note(&mut here.known, *record);
                }
                continue;
            }
            let (known, from_before) = (here.known.remove(&self.session), here.from_before);
            self.here = None;
            if self.is_all(known, from_before) {
                return Ok(Some(self.found.take()));
            }
        }
    }

    /// Adds the content of one more segment; returns whether older ones can add nothing.
    fn is_all(&mut self, known: Option<RecordedSession>, from_before: Option<Run>) -> bool {
        let Some(here) = known else {
            // Its start was in a removed segment, or its last run began there.
            return self.found.is_some();
        };
        let begins_here = from_before != Some(here.run);
        let (found, is_all) = match self.found.take() {
            Some(later) if later.run == here.run => (joined(here, later), begins_here),
            Some(later) => (later, true),
            None => (here, begins_here),
        };
        self.found = Some(found);
        is_all
    }
}

impl SegmentScan {
    fn new(segment: Segment, session: &SessionId) -> Self {
        let tracked = segment.head.sessions.iter().find(|tracked| tracked.session == *session);
        let known = tracked.map(|tracked| (session.clone(), RecordedSession::tracked(tracked)));
        let from_before = tracked.map(|tracked| tracked.run);
        Self { known: known.into_iter().collect(), from_before, segment }
    }
}

/// Joins what two segments contain about one run, the earlier first.
fn joined(mut earlier: RecordedSession, later: RecordedSession) -> RecordedSession {
    for (channel, extent) in later.outputs {
        earlier.reach(channel, extent.oldest, extent.end);
    }
    earlier.exit = later.exit.or(earlier.exit);
    earlier.is_released |= later.is_released;
    earlier
}

fn note(known: &mut BTreeMap<SessionId, RecordedSession>, record: Record<'static>) {
    if let (Some(carried), Some(session)) = (record.carried, record.what.session()) {
        let new = || RecordedSession::new(session.clone(), carried.run, String::new());
        let recorded = known.entry(session.clone()).or_insert_with(new);
        if recorded.run != carried.run {
            if recorded.run.started_at_ms > carried.run.started_at_ms {
                // The name is another's by now.
                return;
            }
            *recorded = new();
        }
        if let RecordBody::Started(started) = record.what {
            recorded.command = started.command;
            return;
        }
    }
    match record.what {
        RecordBody::Started(started) => {
            let recorded =
                RecordedSession::new(started.session.clone(), started.run, started.command);
            known.insert(started.session, recorded);
        }
        RecordBody::Output { session, channel, offset, bytes } => {
            if let Some(recorded) = known.get_mut(&session) {
                recorded.reach(channel, offset, offset.saturating_add(bytes.0.len() as u64));
            }
        }
        RecordBody::Gap { session, channel, from, to } => {
            if let Some(recorded) = known.get_mut(&session) {
                recorded.reach(channel, from, to);
            }
        }
        RecordBody::Exited { session, record } => {
            if let Some(recorded) = known.get_mut(&session) {
                recorded.exit = Some(record);
            }
        }
        RecordBody::Released { session } => {
            if let Some(recorded) = known.get_mut(&session) {
                recorded.is_released = true;
            }
        }
        RecordBody::Head(_)
        | RecordBody::Resized { .. }
        | RecordBody::Input { .. }
        | RecordBody::Provenance(_)
        | RecordBody::Closed { .. } => {}
    }
}
