//! Where the entries of a timeline come from. Each source gives its own in the order in which they were recorded, a
//! part at a time, and knows nothing of the others.

use std::collections::VecDeque;
use std::path::Path;

use super::moment::{Kind, Moment, What};
use crate::events::{Entry, Filter, Reader};
use crate::store::moments::{FileMoment, RowsOf, RunMoment, artifacts_after, runs_after};
use crate::store::{self, StoreError};
use access::audit::{Record, Scan};
use host::instant;
use host::paths::Paths;
use sandbox::event::Kind as EventKind;
use sandbox::log::{InputReader, InputStep, LogError, Only, Playback, ReadBudget, Step};
use sandbox::telemetry::Bucket;

/// Events that one look at their log finds.
const EVENTS_AT_ONCE: usize = 256;
/// What such a look costs of a budget: it reads one file, which may have a thousand lines.
const EVENTS_COST: usize = 1000;

/// What one step has found.
pub(super) enum Found {
    Moment(Box<Moment>),
    /// The budget is used up.
    Paused,
    Over,
}

impl Found {
    fn new(at_ms: u64, what: What) -> Self {
        Self::Moment(Box::new(Moment { at_ms, what }))
    }
}

/// Why a source cannot be read. That of the log ends the timeline, and that of another becomes an entry.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Input(LogError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Files(#[from] std::io::Error),
}

pub(super) enum Source {
    Input(InputSource),
    Log(Playback),
    Events(EventSource),
    Egress(Box<Scan>),
    Runs(Rows<RunMoment>),
    Files(Rows<FileMoment>),
    Samples(std::vec::IntoIter<Bucket>),
    /// Something that is known from the beginning.
    Known(VecDeque<Moment>),
}

impl Source {
    /// What is not known if it cannot be read.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Input(_) => Kind::Input,
            Self::Log(_) => Kind::Output,
            Self::Events(_) => Kind::Lifecycle,
            Self::Egress(_) => Kind::Egress,
            Self::Runs(_) => Kind::Run,
            Self::Files(_) => Kind::File,
            Self::Samples(_) => Kind::Metrics,
            Self::Known(_) => Kind::Unknown,
        }
    }

    pub fn step(&mut self, room: &mut ReadBudget) -> Result<Found, SourceError> {
        let found = match self {
            Self::Log(playback) => {
                return Ok(match playback.step(room)? {
                    Step::Entry(entry) => Found::new(entry.time_ms, What::Log(entry.event)),
                    Step::Paused => Found::Paused,
                    Step::AtEnd => Found::Over,
                });
            }
            Self::Egress(scan) => {
                return Ok(match egress(scan, room)? {
                    Some((at_ms, what)) => Found::new(at_ms, what),
                    None if scan.is_over() => Found::Over,
                    None => Found::Paused,
                });
            }
            Self::Input(input) => return input.step(room),
            Self::Events(events) => return events.step(room),
            Self::Runs(rows) => {
                rows.next(room)?.map(|run| (run.ended_ms, What::Run(Box::new(run))))
            }
            Self::Files(rows) => {
                rows.next(room)?.map(|file| (file.created_ms, What::File(Box::new(file))))
            }
            Self::Samples(samples) => {
                samples.next().map(|bucket| (bucket.to_ms, What::Metrics(Box::new(bucket))))
            }
            Self::Known(known) => known.pop_front().map(|known| (known.at_ms, known.what)),
        };
        Ok(found.map_or(Found::Over, |(at_ms, what)| Found::new(at_ms, what)))
    }
}

/// How much earlier than the start of a session, by its agent's clock, something can have been typed into it, which goes
/// out together with the start.
const TYPED_EARLY_MS: u64 = 1000;

/// What was typed into the sessions that are wanted.
pub(super) struct InputSource {
    reader: InputReader,
    only: Only,
}

impl InputSource {
    pub fn new(reader: InputReader, only: &Only) -> Self {
        Self { reader, only: only.clone() }
    }

    fn step(&mut self, room: &mut ReadBudget) -> Result<Found, SourceError> {
        loop {
            let unknown = |why| What::Unknown { of: Kind::Input, why };
            return Ok(match self.reader.step(room).map_err(SourceError::Input)? {
                InputStep::Typed { time_ms, typed } => {
                    let is_wanted = match &self.only {
                        Only::All => true,
                        Only::Named(session) => typed.session == *session,
                        Only::Run(session, run) => {
                            let is_early = time_ms + TYPED_EARLY_MS < run.started_at_ms;
                            typed.session == *session && !is_early
                        }
                    };
                    if !is_wanted {
                        continue;
                    }
                    Found::new(time_ms, What::Input { typed, output_offset: 0 })
                }
                InputStep::Missing { time_ms, bytes } => Found::new(
                    time_ms,
                    unknown(format!("{bytes} bytes that were typed are not there any more")),
                ),
                InputStep::Damaged { time_ms, bytes } => {
                    Found::new(time_ms, unknown(format!("{bytes} bytes of its files are damaged")))
                }
                InputStep::Paused => Found::Paused,
                InputStep::AtEnd => Found::Over,
            });
        }
    }
}

/// The next decision of the audit log.
fn egress(scan: &mut Scan, room: &mut ReadBudget) -> std::io::Result<Option<(u64, What)>> {
    while let Some(Record { time, entry, .. }) = scan.next(&mut room.records)? {
        let at_ms = instant::parse(&time);
        if let Some(at_ms) = at_ms.filter(|_| entry.operation.starts_with("egress.")) {
            return Ok(Some((at_ms, What::Egress(Box::new(entry)))));
        }
    }
    Ok(None)
}

/// The events of one sandbox, without those of programs, which the log has.
pub(super) struct EventSource {
    reader: Reader,
    filter: Filter,
    ready: VecDeque<Entry>,
    is_over: bool,
}

impl EventSource {
    pub fn new(reader: Reader, id: &str) -> Self {
        let wanted =
            |kind: &&EventKind| !matches!(kind, EventKind::CommandBegun | EventKind::CommandEnded);
        let kinds = EventKind::ALL.iter().filter(wanted).copied().collect();
        let filter = Filter { sandboxes: vec![id.to_owned()], kinds };
        Self { reader, filter, ready: VecDeque::new(), is_over: false }
    }

    fn step(&mut self, room: &mut ReadBudget) -> Result<Found, SourceError> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Ok(Found::new(entry.at_ms, What::Event(Box::new(entry))));
            }
            if self.is_over {
                return Ok(Found::Over);
            }
            if room.records == 0 {
                return Ok(Found::Paused);
            }
            room.records = room.records.saturating_sub(EVENTS_COST);
            let batch = self.reader.read(&self.filter, EVENTS_AT_ONCE)?;
            self.is_over = batch.is_at_end;
            // Others of the namespace lost theirs, too; what is no longer kept is of others, mostly.
            let own = batch.entries.into_iter().filter(|entry| entry.kind != EventKind::Gap);
            self.ready.extend(own);
        }
    }
}

/// Reads a page of rows after this one.
type Page<T> = fn(&rusqlite::Connection, &RowsOf, Option<&T>) -> Result<Vec<T>, StoreError>;

/// Rows of the store, page by page.
pub(super) struct Rows<T> {
    paths: Paths,
    of: RowsOf,
    page: Page<T>,
    ready: VecDeque<T>,
    last: Option<T>,
    is_over: bool,
}

impl Rows<RunMoment> {
    pub fn runs(paths: &Paths, of: RowsOf) -> Self {
        Self::new(paths, of, runs_after)
    }
}

impl Rows<FileMoment> {
    pub fn files(paths: &Paths, of: RowsOf) -> Self {
        Self::new(paths, of, artifacts_after)
    }
}

impl<T: Clone> Rows<T> {
    fn new(paths: &Paths, of: RowsOf, page: Page<T>) -> Self {
        let (paths, ready) = (paths.clone(), VecDeque::new());
        Self { paths, of, page, ready, last: None, is_over: false }
    }

    fn next(&mut self, room: &mut ReadBudget) -> Result<Option<T>, SourceError> {
        if self.ready.is_empty() && !self.is_over {
            room.records = room.records.saturating_sub(1);
            let (of, last, page) = (&self.of, self.last.as_ref(), self.page);
            let found = store::read(&self.paths, |connection| page(connection, of, last))?;
            self.ready = found.unwrap_or_default().into();
            self.last = self.ready.back().cloned();
            self.is_over = self.ready.is_empty();
        }
        Ok(self.ready.pop_front())
    }
}

/// The egress decisions about one sandbox.
pub(super) fn decisions(directory: &Path, id: &str, since_ms: u64) -> std::io::Result<Source> {
    let filter = access::audit::Filter {
        sandbox: Some(id.to_owned()),
        since_ms: Some(since_ms),
        ..access::audit::Filter::default()
    };
    Ok(Source::Egress(Box::new(Scan::open(directory, filter)?)))
}
