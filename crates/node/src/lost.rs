//! The output of sandboxes whose node is gone, from the fleet's log.
//!
//! Before an answer says where it ends, the log is sealed: what a node that only seems to be gone still sends is
//! refused from then on. So an answer stays true.

use std::collections::{BTreeMap, BTreeSet};

use fleet::ids::Revision;
use fleet::log::seal;
use fleet::nats::{Link, Records, StoreError};
use fleet::records::Key;
use fleet::track::{Form, LogId, Part, Reading, Record, Track};
use protocol::message::Channel;
use protocol::{ExitRecord, SessionId};
use sandbox::SandboxRef;
use sandbox::durable::Line;
use sandbox::limits::BUSY_PAUSE;
use sandbox::log::{Entry, Event, Run};
use sandbox::refusal::{Code, Refusal};

use crate::durable::{life_of, run_text};
use crate::{Node, name_of};

/// The log of a sandbox that was lost with its node. Nothing is added to it any more.
#[derive(Clone)]
pub struct LostLog {
    link: Link,
    id: LogId,
    /// The node that is gone.
    pub node: String,
    /// When the sandbox was declared lost.
    pub at_ms: u64,
}

/// A session of one, by its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSession {
    pub session: SessionId,
    pub run: Run,
    pub command: String,
    pub is_terminal: bool,
    /// Absent if its end is not known.
    pub exit: Option<ExitRecord>,
}

/// What has happened in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostHistory {
    /// In the order in which they began.
    pub sessions: Vec<LostSession>,
    /// How it ended, if it had ended before its node was gone.
    pub closed: Option<String>,
}

/// What the log cannot say now.
#[derive(Debug, thiserror::Error)]
#[error("the fleet's log cannot be read now: {0}")]
pub struct LogAway(#[from] StoreError);

impl From<LogAway> for Refusal {
    fn from(error: LogAway) -> Self {
        Self::of(Code::Unavailable, &error).retry_after(BUSY_PAUSE)
    }
}

const CHANNELS: [Channel; 3] = [Channel::Stdout, Channel::Stderr, Channel::Terminal];

impl Node {
    /// The log of a sandbox that was lost with this life. `None`: nothing of it is durable.
    pub async fn lost_log(
        &self,
        which: &SandboxRef,
        (node, life): (&str, &str),
    ) -> Result<Option<LostLog>, LogAway> {
        let named = life_of(life).zip(name_of(which).ok()).zip(self.handle());
        let Some(((incarnation, name), handle)) = named else { return Ok(None) };
        let link = handle.link;
        let id = LogId { name: name.clone(), incarnation };
        if !seal(&link, &id, self.id()).await? {
            return Ok(None);
        }
        let at_ms = link.written_at_ms(&Key::Name(name)).await?.unwrap_or(0);
        Ok(Some(LostLog { link, id, node: node.to_owned(), at_ms }))
    }
}

/// What the fleet knows of a sandbox that was lost with its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// When it was declared lost.
    pub at_ms: Option<u64>,
    /// Where the durable output of each session ends of which no end is known. `None`: nothing of it is durable.
    pub last_durable_offset: Option<LastOffsets>,
}

/// By session and channel.
pub type LastOffsets = BTreeMap<String, BTreeMap<String, u64>>;

impl Node {
    /// What is left of a sandbox that was lost with this life.
    pub async fn remains(
        &self,
        which: &SandboxRef,
        (node, life): (&str, &str),
    ) -> Result<Remains, LogAway> {
        let Some(log) = self.lost_log(which, (node, life)).await? else {
            let named = name_of(which).ok().zip(self.handle());
            let Some((name, handle)) = named else { return Ok(Remains::default()) };
            let at_ms = handle.link.written_at_ms(&Key::Name(name)).await?;
            return Ok(Remains { at_ms, last_durable_offset: None });
        };
        let at_ms = Some(log.at_ms);
        Ok(Remains {
            at_ms,
            last_durable_offset: Some(log.open_ends(&log.history().await?).await?),
        })
    }
}

impl LostLog {
    /// Where the outputs of the sessions end of which no end is known.
    pub async fn open_ends(&self, history: &LostHistory) -> Result<LastOffsets, LogAway> {
        let mut all = LastOffsets::new();
        for session in history.sessions.iter().filter(|session| session.exit.is_none()) {
            let ends = self.ends(session).await?;
            let named = ends.into_iter().map(|(channel, end)| (channel.name().to_owned(), end));
            all.insert(session.session.to_string(), named.collect());
        }
        Ok(all)
    }

    /// What its lines say.
    pub async fn history(&self) -> Result<LostHistory, LogAway> {
        let mut closed = None;
        let mut sessions: Vec<LostSession> = Vec::new();
        let mut lines = self.link.read_log(&self.id, &Part::Lines, START).await?;
        while let Some(record) = lines.next().await? {
            let is_of = |known: &LostSession, session: &SessionId, run: Run| {
                known.session == *session && known.run == run
            };
            match line_of(&record) {
                Some(Line::Started { session, run, command, is_terminal })
                    if !sessions.iter().any(|known| is_of(known, &session, run)) =>
                {
                    sessions.push(LostSession { session, run, command, is_terminal, exit: None });
                }
                Some(Line::Exited { session, run, record }) => {
                    if let Some(known) =
                        sessions.iter_mut().find(|known| is_of(known, &session, run))
                    {
                        known.exit.get_or_insert(*record);
                    }
                }
                Some(Line::Closed { why }) => closed = Some(why),
                Some(Line::Started { .. }) | None => {}
            }
        }
        Ok(LostHistory { sessions, closed })
    }

    /// Everything, after a place.
    pub async fn entries(&self, after: u64) -> Result<LostEntries, LogAway> {
        let records =
            self.link.read_log(&self.id, &Part::All, Reading::After(Revision(after))).await?;
        Ok(LostEntries::new(records, after == 0))
    }

    /// The outputs of a session.
    pub async fn outputs(&self, of: &LostSession) -> Result<LostEntries, LogAway> {
        let part =
            Part::Outputs { session: of.session.as_str().into(), run: run_text(of.run).into() };
        let records = self.link.read_log(&self.id, &part, START).await?;
        Ok(LostEntries::new(records, true))
    }

    /// Where the outputs of a session end.
    pub async fn ends(&self, of: &LostSession) -> Result<BTreeMap<Channel, u64>, LogAway> {
        let part =
            Part::Outputs { session: of.session.as_str().into(), run: run_text(of.run).into() };
        let mut ends = BTreeMap::new();
        let mut records = self.link.read_log(&self.id, &part, Reading::LastOfEach).await?;
        while let Some(record) = records.next().await? {
            if let Some((_, channel)) = output_of(&record.track) {
                ends.insert(channel, record.draft.end);
            }
        }
        Ok(ends)
    }
}

const START: Reading = Reading::After(Revision(0));

/// Entries of a log, as the log on a host's disk has them, with their places.
pub struct LostEntries {
    records: Records,
    /// Sessions whose start has been read: a bridge that was started again has noted it again.
    started: BTreeSet<(SessionId, String)>,
    exited: BTreeSet<(SessionId, String)>,
    /// Where the next record of each output must begin; unknown for a reader that began later.
    next: BTreeMap<Track, u64>,
    is_whole: bool,
    /// A record that follows a gap.
    held: Option<Record>,
    /// The place after what was read last.
    pub place: u64,
    /// The log says how the sandbox ended.
    pub is_closed: bool,
}

impl LostEntries {
    fn new(records: Records, is_whole: bool) -> Self {
        Self {
            records,
            started: BTreeSet::new(),
            exited: BTreeSet::new(),
            next: BTreeMap::new(),
            is_whole,
            held: None,
            place: 0,
            is_closed: false,
        }
    }

    /// The next entry; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Entry>, LogAway> {
        loop {
            let record = match self.held.take() {
                Some(held) => held,
                None => match self.records.next().await? {
                    Some(record) => record,
                    None => return Ok(None),
                },
            };
            let time_ms = record.at_ms;
            if let Some(event) = self.event(record) {
                return Ok(Some(Entry { time_ms, event }));
            }
        }
    }

    fn event(&mut self, record: Record) -> Option<Event> {
        if let Some((session, channel)) = output_of(&record.track) {
            return self.output(record, session, channel);
        }
        self.place = record.revision.0;
        self.line(line_of(&record)?)
    }

    fn output(&mut self, record: Record, session: SessionId, channel: Channel) -> Option<Event> {
        let offset = record.draft.offset;
        let known = self.next.get(&record.track).copied();
        let from = known.or(self.is_whole.then_some(0)).unwrap_or(offset);
        // Of a log that is at its bounds the oldest records are gone.
        if offset > from {
            self.next.insert(record.track.clone(), offset);
            self.held = Some(record);
            return Some(Event::Gap { session, channel, from, to: offset });
        }
        self.place = record.revision.0;
        let to = record.draft.end;
        self.next.insert(record.track.clone(), to);
        match record.draft.form {
            Form::Seal => None,
            Form::Gap => Some(Event::Gap { session, channel, from: offset, to }),
            Form::Data => {
                let bytes = record.draft.payload.into();
                Some(Event::Output { session, channel, offset, bytes })
            }
        }
    }

    fn line(&mut self, line: Line) -> Option<Event> {
        match line {
            Line::Started { session, run, command, .. } => {
                let is_new = self.started.insert((session.clone(), run_text(run)));
                let started_at_ms = run.started_at_ms;
                is_new.then_some(Event::Started { session, command, started_at_ms })
            }
            Line::Exited { session, run, record } => {
                let is_new = self.exited.insert((session.clone(), run_text(run)));
                is_new.then_some(Event::Exited { session, record: *record })
            }
            Line::Closed { why } => {
                self.is_closed = true;
                Some(Event::Closed { why })
            }
        }
    }
}

fn line_of(record: &Record) -> Option<Line> {
    let is_line = record.track == Track::Lines && record.draft.form == Form::Data;
    // A line of a later release says what this one does not know.
    if is_line { serde_json::from_slice(&record.draft.payload).ok() } else { None }
}

fn output_of(track: &Track) -> Option<(SessionId, Channel)> {
    let Track::Output { session, channel, .. } = track else { return None };
    let channel = CHANNELS.into_iter().find(|known| known.name() == &**channel)?;
    Some((session.parse().ok()?, channel))
}
