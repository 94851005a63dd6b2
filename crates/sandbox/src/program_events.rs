//! What the stream of events has of a sandbox's programs and runs: those that were killed for want of memory, and,
//! where the operator asks for it, each that begins and ends.
//!
//! The agent's client tells of those that somebody waits for, and the recorder of those that it records.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use agent_client::guest::{BLOCK_BYTES, Guest, Observed, cause_name, run_end_name};
use protocol::exit::ExitRecord;
use protocol::repl::Finished;
use protocol::{Cause, ContextName, SessionId};

use crate::event::{Event, EventSink, Facts, Kind, Subject};
use crate::limits::ENDS_TOLD_MAX;

/// Clones are of the same sandbox, and each end is in the stream once.
#[derive(Clone)]
pub struct ProgramEvents(Arc<Inner>);

struct Inner {
    of: Arc<Subject>,
    events: EventSink,
    /// The memory limit of a sandbox whose agent knows none.
    limit_bytes: Option<u64>,
    /// Whether the stream has all of them.
    with_all: bool,
    ended: Ends,
}

impl ProgramEvents {
    pub fn new(
        of: Arc<Subject>,
        events: EventSink,
        limit_bytes: Option<u64>,
        with_all: bool,
    ) -> Self {
        Self(Arc::new(Inner { of, events, limit_bytes, with_all, ended: Ends::default() }))
    }

    /// Begins to add what this client of the agent hears of.
    pub fn observe(&self, guest: &Guest) {
        let own = self.clone();
        guest.observer().set(Box::new(move |observed| match observed {
            Observed::ProgramEnded { session, record } => own.ended(session, record),
            Observed::ProgramBegun { session } => {
                let session = Some(session.to_string());
                own.add(Kind::CommandBegun, Facts { session, ..Facts::none() });
            }
            Observed::RunQueued { context, run } => {
                let (context, run) = (Some(context.to_string()), Some(run));
                own.add(Kind::RunBegun, Facts { context, run, ..Facts::none() });
            }
            Observed::RunEnded { context, run, end } => {
                own.add(Kind::RunEnded, end_of_run(context, run, end));
            }
        }));
    }

    /// A program has ended. Called by each that learns of it.
    pub fn ended(&self, session: &SessionId, record: &ExitRecord) {
        let is_for_memory = matches!(record.cause, Cause::OutOfMemory { .. });
        if !(self.0.with_all || is_for_memory) || !self.0.ended.add(session, record) {
            return;
        }
        if let Cause::OutOfMemory { limit_bytes } = record.cause {
            let limit_bytes = limit_bytes.or(self.0.limit_bytes);
            let facts = Facts { session: Some(session.to_string()), limit_bytes, ..Facts::none() };
            self.happened(Kind::OutOfMemory, facts);
        }
        self.add(Kind::CommandEnded, end_of(session, record));
    }

    fn add(&self, kind: Kind, facts: Facts) {
        if self.0.with_all {
            self.happened(kind, facts);
        }
    }

    fn happened(&self, kind: Kind, facts: Facts) {
        let (of, facts) = (Arc::clone(&self.0.of), Box::new(facts));
        (self.0.events)(&Event::Happened { of, kind, facts });
    }
}

fn end_of(session: &SessionId, record: &ExitRecord) -> Facts {
    let code = match record.cause {
        Cause::Exited { code } => Some(code),
        _ => None,
    };
    let usage = record.usage;
    Facts {
        session: Some(session.to_string()),
        reason: Some(cause_name(&record.cause).to_owned()),
        code,
        duration_us: Some(record.duration_us),
        cpu_us: Some(usage.user_us.saturating_add(usage.system_us)),
        memory_bytes_peak: Some(usage.memory_bytes_peak.unwrap_or(usage.resident_bytes_max)),
        read_bytes: Some(usage.block_reads.saturating_mul(BLOCK_BYTES)),
        written_bytes: Some(usage.block_writes.saturating_mul(BLOCK_BYTES)),
        ..Facts::none()
    }
}

fn end_of_run(context: &ContextName, run: u64, end: &Finished) -> Facts {
    Facts {
        context: Some(context.to_string()),
        run: Some(run),
        reason: Some(run_end_name(&end.end).to_owned()),
        duration_us: Some(end.duration_us),
        cpu_us: end.cpu_us,
        memory_bytes_peak: end.memory_bytes_peak,
        ..Facts::none()
    }
}

/// The newest ends that the stream has.
#[derive(Default)]
struct Ends(Mutex<VecDeque<(SessionId, u64)>>);

impl Ends {
    /// Whether it is a new one.
    fn add(&self, session: &SessionId, record: &ExitRecord) -> bool {
        // Nothing in it is ever half-changed.
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let end = (session.clone(), record.started_at_ms);
        if ended.contains(&end) {
            return false;
        }
        if ended.len() >= ENDS_TOLD_MAX {
            ended.pop_front();
        }
        ended.push_back(end);
        true
    }
}
