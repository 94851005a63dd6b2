//! What the log has of sessions, on one clock, for a replay: each output once, with the time at which the bridge
//! wrote it, and a gap wherever something is missing.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use protocol::SessionId;
use protocol::message::Channel;

use super::carry::SessionRun;
use super::known::RecordedSession;
use super::reader::event_of;
use super::record::Run;
use super::runs::{RunItem, Runs};
use super::{Entry, Event, LogError};

/// See the module's description.
#[derive(Debug)]
pub struct Playback {
    runs: Runs,
    only: Option<SessionRun>,
    /// The next offset of each output.
    next: HashMap<(SessionId, Run, Channel), u64>,
    ready: VecDeque<Entry>,
}

impl Playback {
    /// Everything in the log that is about sessions, or about one run of one.
    pub fn open(directory: &Path, only: Option<&RecordedSession>) -> Result<Self, LogError> {
        let only = only.map(|recorded| (recorded.session.clone(), recorded.run));
        let (next, ready) = (HashMap::new(), VecDeque::new());
        Ok(Self { runs: Runs::begin(directory)?, only, next, ready })
    }

    /// The next entry; `None` after the last that is there now.
    #[expect(
        clippy::should_implement_trait,
        reason = "it reads files, and most callers want the error of one step"
    )]
    pub fn next(&mut self) -> Result<Option<Entry>, LogError> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Ok(Some(entry));
            }
            match self.runs.next()? {
                None => return Ok(None),
                // What is missing because of it shows as a gap.
                Some(RunItem::Damage) => {}
                Some(RunItem::Record(of, record)) => {
                    if self.only.as_ref().is_some_and(|only| *only != of) {
                        continue;
                    }
                    let time_ms = record.time_ms;
                    if let Some(event) = event_of(record.what) {
                        self.admit(of, time_ms, event);
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
