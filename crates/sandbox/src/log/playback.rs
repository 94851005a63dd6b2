//! What the log has of sessions, on one clock, for a replay: each output once, with the time at which the bridge
//! wrote it, and a gap wherever something is missing.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use protocol::SessionId;
use protocol::message::Channel;

use super::carry::SessionRun;
use super::known::RecordedSession;
use super::reader::{Step, event_of};
use super::record::Run;
use super::room::ReadBudget;
use super::runs::{RunItem, Runs};
use super::{Entry, Event, LogError};

/// The sessions that are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Only {
    #[default]
    All,
    /// All that had this name.
    Named(SessionId),
    /// One run of one session.
    Run(SessionId, Run),
}

impl Only {
    pub fn of(recorded: &RecordedSession) -> Self {
        Self::Run(recorded.session.clone(), recorded.run)
    }

    fn matches(&self, (session, run): &SessionRun) -> bool {
        match self {
            Self::All => true,
            Self::Named(wanted) => wanted == session,
            Self::Run(wanted, only) => (wanted, only) == (session, run),
        }
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct Playback {
    runs: Runs,
    only: Only,
    /// The next offset of each output.
    next: HashMap<(SessionId, Run, Channel), u64>,
    ready: VecDeque<Entry>,
    /// The time of the newest record that was read: damage has none of its own.
    time_ms: u64,
}

impl Playback {
    /// Everything in the log that is about these sessions.
    pub fn open(directory: &Path, only: Only) -> Result<Self, LogError> {
        let (next, ready) = (HashMap::new(), VecDeque::new());
        Ok(Self { runs: Runs::begin(directory)?, only, next, ready, time_ms: 0 })
    }

    /// The next entry, if it is found within the budget. At the end, there is nothing more that was there when it
    /// was opened.
    pub fn step(&mut self, room: &mut ReadBudget) -> Result<Step, LogError> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Ok(Step::Entry(Box::new(entry)));
            }
            if room.is_over() {
                return Ok(Step::Paused);
            }
            match self.runs.next()? {
                None => return Ok(Step::AtEnd),
                // What is missing because of it also shows as a gap.
                Some(RunItem::Damage { bytes, is_last: false }) => {
                    let (time_ms, event) = (self.time_ms, Event::Damaged { bytes });
                    self.ready.push_back(Entry { time_ms, event });
                }
                Some(RunItem::Damage { .. }) => {}
                Some(RunItem::Record(of, record)) => {
                    room.take(&record);
                    self.time_ms = record.time_ms;
                    if !self.only.matches(&of) {
                        continue;
                    }
                    if let Some(event) = event_of(record.what) {
                        self.admit(of, self.time_ms, event);
                    }
                }
            }
        }
    }

    fn admit(&mut self, of: SessionRun, time_ms: u64, event: Event) {
        let mut ready = |event| self.ready.push_back(Entry { time_ms, event });
        let (session, run) = of;
        match event {
            Event::Output { channel, offset, mut bytes, .. } => {
                let next = self.next.entry((session.clone(), run, channel)).or_insert(0);
                let known = next.saturating_sub(offset).min(bytes.len() as u64);
                bytes.drain(..known as usize);
                let offset = offset.saturating_add(known);
                if bytes.is_empty() {
                    return;
                }
                if offset > *next {
                    ready(Event::Gap {
                        session: session.clone(),
                        channel,
                        from: *next,
                        to: offset,
                    });
                }
                *next = offset.saturating_add(bytes.len() as u64);
                ready(Event::Output { session, channel, offset, bytes });
            }
            Event::Gap { channel, to, .. } => {
                let next = self.next.entry((session.clone(), run, channel)).or_insert(0);
                if to > *next {
                    let from = std::mem::replace(next, to);
                    ready(Event::Gap { session, channel, from, to });
                }
            }
            other => ready(other),
        }
    }
}
