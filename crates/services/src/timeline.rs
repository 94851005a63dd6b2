//! Everything that a sandbox did, on one clock: the output of its sessions with their sizes, gaps and ends, what
//! happened to the sandbox, runs of code and their results, egress decisions, artifacts, and what it used.
//!
//! ```text
//!  typed ───────────┐
//!  log of sessions ─┤
//!  events ──────────┤
//!  audit log ───────┼─▶ one head of each ─▶ the earliest ─▶ entries in the order of time
//!  store: runs,     │
//!    artifacts ─────┤
//!  samples ─────────┘
//! ```
//!
//! The API, `replay`, its exports and the console read this. It reads files alone, so it needs neither daemon nor
//! machine; it holds one entry and one page of each source, whatever their size. A source that cannot be read is an
//! entry that says so. What was typed is there if the sandbox records it. No change of a file is, apart from artifacts.

mod moment;
mod paused;
mod sources;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use protocol::SessionId;
use protocol::message::Channel;

use crate::events::{From, Reader};
use crate::store::moments::RowsOf;
use host::paths::Paths;
use sandbox::Record;
use sandbox::log::{Event, InputReader, LogError, Only, Playback, ReadBudget};
use sandbox::telemetry::Bucket;
use sources::{EventSource, Found, InputSource, Rows, Source, SourceError, decisions};

pub use moment::{Kind, Moment, UnknownKind, What};
pub use paused::PausedTimelines;

/// Where the parts of a sandbox's timeline are.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    pub paths: &'a Paths,
    pub record: &'a Record,
    /// The directory of its log.
    pub log: &'a Path,
}

/// What is wanted of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Entries that are of another session are left out; those of none stay.
    pub sessions: Only,
    /// Empty for all.
    pub kinds: Vec<Kind>,
    pub from_ms: u64,
    /// With this millisecond.
    pub to_ms: u64,
    /// Only what comes after this place.
    pub after: Option<Place>,
}

impl Default for Selection {
    fn default() -> Self {
        let (sessions, kinds) = (Only::All, Vec::new());
        Self { sessions, kinds, from_ms: 0, to_ms: u64::MAX, after: None }
    }
}

impl Selection {
    fn wants(&self, kind: Kind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    fn wants_any(&self, wanted: impl Fn(Kind) -> bool) -> bool {
        Kind::ALL.iter().any(|kind| wanted(*kind) && self.wants(*kind))
    }

    fn is_of_session(&self, moment: &Moment) -> bool {
        match (&self.sessions, moment.session()) {
            (Only::Named(wanted) | Only::Run(wanted, _), Some(session)) => {
                wanted.as_str() == session
            }
            _ => true,
        }
    }
}

/// The place after an entry: its time, and how many entries of that millisecond were before it, with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    at_ms: u64,
    count: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at_ms, self.count)
    }
}

/// Text that is no place of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a place of a timeline: use the `place` of an entry, or `next` of a page")]
pub struct InvalidPlace(String);

impl FromStr for Place {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let parse =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?;
        let parts = text.split_once('-');
        let place = parts.and_then(|(at, count)| Some((parse(at)?, parse(count)?)));
        let (at_ms, count) = place.ok_or_else(|| InvalidPlace(text.chars().take(64).collect()))?;
        Ok(Self { at_ms, count })
    }
}

/// The result of one step.
#[derive(Debug)]
pub enum Step {
    Moment(Box<Moment>),
    /// The budget is used up; there may be more to read.
    Paused,
    /// There is no more.
    AtEnd,
}

/// What is known of a source.
enum Head {
    Unread,
    Next(Box<Moment>),
    Over,
}

/// See the module's description.
pub struct Timeline {
    selection: Selection,
    sources: Vec<(Source, Head)>,
    place: Place,
    is_over: bool,
    /// Where the output of each session that can be typed into is: that of its terminal, or its stdout.
    reached: HashMap<SessionId, u64>,
    /// The one run that is wanted has ended. What is typed under its name is another's.
    is_run_over: bool,
}

impl Timeline {
    /// Opens the timeline of a sandbox, running or stopped. The samples are those of its history, oldest first.
    pub fn open(
        places: Places<'_>,
        selection: Selection,
        samples: Vec<Bucket>,
    ) -> Result<Self, LogError> {
        let Places { paths, record, log } = places;
        let (id, since_ms) = (record.id.as_str(), record.created_at_ms);
        let mut known = VecDeque::new();
        let mut sources = Vec::new();
        // Before the log: an echo is later, if only within a millisecond.
        if selection.wants(Kind::Input) {
            match InputReader::open(log) {
                Ok(reader) => {
                    sources.push(Source::Input(InputSource::new(reader, &selection.sessions)));
                }
                Err(error) => known.push_back(unknown(Kind::Input, since_ms, error)),
            }
        }
        if selection.wants_any(Kind::is_of_log) {
            sources.push(Source::Log(Playback::open(log, selection.sessions.clone())?));
        }
        if selection.wants(Kind::Lifecycle) || selection.wants(Kind::Run) {
            // The event of its creation may be a little older than its record.
            let from = From::Time(since_ms.saturating_sub(CREATION_MS_MAX));
            let reader = Reader::new(&paths.events(), &record.namespace, from);
            sources.push(Source::Events(EventSource::new(reader, id)));
        }
        if selection.wants(Kind::Egress) {
            if !paths.audit().exists() && !record.egress.is_empty() {
                known.push_back(unknown(Kind::Egress, since_ms, "there is no audit log"));
            }
            match decisions(&paths.audit(), id, since_ms) {
                Ok(source) => sources.push(source),
                Err(error) => known.push_back(unknown(Kind::Egress, since_ms, error)),
            }
        }
        let of = RowsOf {
            namespace: record.namespace.to_string(),
            sandbox: record.name.to_string(),
            since_ms,
        };
        if selection.wants(Kind::Run) {
            sources.push(Source::Runs(Rows::runs(paths, of.clone())));
        }
        if selection.wants(Kind::File) {
            sources.push(Source::Files(Rows::files(paths, of)));
        }
        if selection.wants(Kind::Metrics) {
            sources.push(Source::Samples(samples.into_iter()));
        }
        sources.push(Source::Known(known));
        Ok(Self::merge(selection, sources))
    }

    fn merge(selection: Selection, sources: Vec<Source>) -> Self {
        let sources = sources.into_iter().map(|source| (source, Head::Unread)).collect();
        let (place, reached) = (Place::default(), HashMap::new());
        Self { selection, sources, place, is_over: false, reached, is_run_over: false }
    }

    /// The next entry, if it is found within the budget.
    pub fn step(&mut self, room: &mut ReadBudget) -> Result<Step, LogError> {
        loop {
            if self.is_over {
                return Ok(Step::AtEnd);
            }
            if !self.read_heads(room)? {
                return Ok(Step::Paused);
            }
            let Some(mut moment) = self.take_earliest() else {
                self.is_over = true;
                continue;
            };
            // A clock that was set back does not turn the order around.
            moment.at_ms = moment.at_ms.max(self.place.at_ms);
            if moment.at_ms > self.selection.to_ms {
                self.is_over = true;
                continue;
            }
            self.follow(&mut moment);
            if self.admits(&moment) {
                return Ok(Step::Moment(moment));
            }
        }
    }

    /// The place after the last entry.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Whether what follows is what such a selection wants after this place.
    fn is_at(&self, place: Place, wanted: &Selection) -> bool {
        let own = &self.selection;
        let is_same = own.sessions == wanted.sessions
            && own.kinds == wanted.kinds
            && (own.from_ms, own.to_ms) == (wanted.from_ms, wanted.to_ms);
        is_same && self.place == place && !self.is_over
    }

    /// Whether no more of the log of sessions comes.
    pub fn is_log_over(&self) -> bool {
        let is_unread = |(source, head): &(Source, Head)| {
            matches!(source, Source::Log(_)) && !matches!(head, Head::Over)
        };
        !self.sources.iter().any(is_unread)
    }

    /// Reads the next entry of each source of which none is known; false if the budget was used up before.
    fn read_heads(&mut self, room: &mut ReadBudget) -> Result<bool, LogError> {
        for (source, head) in &mut self.sources {
            if !matches!(head, Head::Unread) {
                continue;
            }
            *head = match source.step(room) {
                Ok(Found::Moment(moment)) => Head::Next(moment),
                Ok(Found::Over) => Head::Over,
                Ok(Found::Paused) => return Ok(false),
                Err(SourceError::Log(error)) => return Err(error),
                Err(error) => {
                    let moment = unknown(source.kind(), self.place.at_ms, error);
                    *source = Source::Known(VecDeque::new());
                    Head::Next(Box::new(moment))
                }
            };
        }
        Ok(true)
    }

    /// Of equal times, that of the first source.
    fn take_earliest(&mut self) -> Option<Box<Moment>> {
        let next = self.sources.iter().enumerate().filter_map(|(at, (_, head))| match head {
            Head::Next(moment) => Some((moment.at_ms, at)),
            Head::Unread | Head::Over => None,
        });
        let (_, at) = next.min()?;
        match std::mem::replace(&mut self.sources[at].1, Head::Unread) {
            Head::Next(moment) => Some(moment),
            Head::Unread | Head::Over => None,
        }
    }

    /// Follows the outputs, and says of what was typed where they were.
    fn follow(&mut self, moment: &mut Moment) {
        match &mut moment.what {
            What::Log(Event::Started { session, .. }) => {
                self.reached.insert(session.clone(), 0);
            }
            What::Log(Event::Output { session, channel, offset, bytes })
                if *channel != Channel::Stderr =>
            {
                let end = offset.saturating_add(bytes.len() as u64);
                self.reached.insert(session.clone(), end);
            }
            What::Log(Event::Exited { session, .. }) => {
                self.reached.remove(session);
                self.is_run_over |= matches!(self.selection.sessions, Only::Run(..));
            }
            What::Input { typed, output_offset } => {
                *output_offset = self.reached.get(&typed.session).copied().unwrap_or(0);
            }
            _ => {}
        }
    }

    /// Whether an entry is wanted. Those that are have a place.
    fn admits(&mut self, moment: &Moment) -> bool {
        let selection = &self.selection;
        let kind = moment.kind();
        let is_wanted = (selection.wants(kind) || kind == Kind::Unknown)
            && selection.is_of_session(moment)
            && !(kind == Kind::Input && self.is_run_over)
            && moment.at_ms >= selection.from_ms;
        if !is_wanted {
            return false;
        }
        let count = if moment.at_ms == self.place.at_ms { self.place.count + 1 } else { 1 };
        self.place = Place { at_ms: moment.at_ms, count };
        selection.after.is_none_or(|after| self.place > after)
    }
}

/// How much older than its record the event of a sandbox's creation may be.
const CREATION_MS_MAX: u64 = 60_000;

fn unknown(of: Kind, at_ms: u64, why: impl fmt::Display) -> Moment {
    Moment { at_ms, what: What::Unknown { of, why: why.to_string() } }
}

#[cfg(test)]
mod tests;
