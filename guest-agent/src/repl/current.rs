//! The current run: its stream, its ladder, and its usage.
//!
//! [`actor`](super::actor) owns it. Nothing here waits: events that the reader has no room for go to a
//! backlog, and while there is one, the actor reads no more output of this run.

use std::time::Duration;

use protocol::limits::INTERRUPT_GRACE;
use protocol::repl::{Grace, RunEnd, Rung};
use protocol::{Fault, FaultCode};
use tokio::time::Instant;

use super::context::{Announcement, QueuedRun};
use super::limits::{INTERRUPTED_BYTES_MAX, QUIET, TAILS_MAX, WAIT_MS_MAX};
use crate::flow::Outlet;
use crate::ground::Activity;
use crate::sys::clock;
use crate::task;

/// See the module's description.
pub struct Current {
    pub number: u64,
    pub outlet: Outlet,
    /// Answers the request with the first event, if it is not answered yet.
    announce: Option<Announcement>,
    pub tied: bool,
    /// It is the host's own run, which watches do not see.
    pub aside: bool,
    pub input: bool,
    pub grace: Grace,
    pub started_us: u64,
    pub cpu_began_us: Option<u64>,
    pub deadline: Option<(Instant, u64)>,
    pub ladder: Option<Ladder>,
    /// How it ends if the agent has killed its interpreter.
    pub end_if_killed: Option<RunEnd>,
    /// Requests for input that have no answer yet.
    pub inputs: Vec<u64>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Bytes of late output that this run's stream has carried.
    pub late_bytes_delivered: usize,
    /// Nothing is read or sent before then, unless the run ends first.
    quiet_until: Option<Instant>,
    backlog: Vec<u8>,
    _activity: Activity,
}

/// The state of an interrupt.
pub struct Ladder {
    pub rung: Rung,
    /// How the run ends, once it does.
    pub end: RunEnd,
    /// When the next rung is due.
    pub next_rung: Instant,
    /// When this rung is repeated.
    pub again: Option<Instant>,
    pub firm: Duration,
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms.min(WAIT_MS_MAX))
}

impl Current {
    pub fn new(run: QueuedRun, cpu_began_us: Option<u64>, activity: Activity) -> Self {
        let deadline = run.deadline_ms.map(|ms| (Instant::now() + millis(ms), ms));
        Self {
            number: run.number,
            outlet: run.outlet,
            announce: run.announce,
            tied: run.tied,
            aside: run.aside,
            input: run.input,
            grace: run.grace,
            started_us: clock::monotonic_us(),
            cpu_began_us,
            deadline,
            ladder: None,
            end_if_killed: None,
            inputs: Vec::new(),
            stdout_bytes: 0,
            stderr_bytes: 0,
            late_bytes_delivered: 0,
            quiet_until: Some(Instant::now() + QUIET),
            backlog: Vec::new(),
            _activity: activity,
        }
    }

    /// Sends a record, or adds it to the backlog.
    pub fn deliver(&mut self, record: &[u8]) {
        let at_once = self.backlog.is_empty() && self.quiet_until.is_none();
        let sent = if at_once { self.outlet.push(record) } else { 0 };
        self.backlog.extend_from_slice(&record[sent..]);
    }

    /// Reads no more output for a moment. A program that prints line by line is then read some hundred
    /// lines at a time; what it says after a silence is still sent at once.
    pub fn rest(&mut self) {
        if self.backlog.is_empty() {
            self.quiet_until = Some(Instant::now() + QUIET);
        }
    }

    /// Sends the backlog, as far as there is room.
    pub fn flush(&mut self, now: Instant) {
        if self.quiet_until.is_some_and(|until| until > now) {
            return;
        }
        self.quiet_until = None;
        if let Some(announce) = self.announce.take() {
            announce(Ok(()));
        }
        let sent = self.outlet.push(&self.backlog);
        self.backlog.drain(..sent);
    }

    /// Whether there is a backlog.
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty() && !self.is_quiet()
    }

    /// Whether the run has only just begun, or has only just written something.
    pub fn is_quiet(&self) -> bool {
        self.quiet_until.is_some()
    }

    /// Whether more output of the run may be read now. A run that is being ended must reach its end even
    /// if its reader reads nothing.
    pub fn may_read(&self) -> bool {
        self.backlog.is_empty()
            || self.is_quiet()
            || (self.ladder.is_some() && self.backlog.len() < INTERRUPTED_BYTES_MAX)
    }

    /// The next deadline.
    pub fn due(&self) -> Option<Instant> {
        let quiet = self.quiet_until;
        let end = match &self.ladder {
            Some(ladder) if ladder.rung == Rung::Killed => None,
            Some(ladder) => {
                Some(ladder.again.map_or(ladder.next_rung, |again| again.min(ladder.next_rung)))
            }
            None => self.deadline.map(|(deadline, _)| deadline),
        };
        quiet.into_iter().chain(end).min()
    }

    /// The graces of the two rungs: the request's, the run's, or the default.
    pub fn graces(&self, requested: Grace) -> (Duration, Duration) {
        let usual = |first: Option<u64>, second: Option<u64>| {
            first.or(second).map_or(INTERRUPT_GRACE, millis)
        };
        (
            usual(requested.polite_ms, self.grace.polite_ms),
            usual(requested.firm_ms, self.grace.firm_ms),
        )
    }

    /// Ends the run. A separate task delivers the backlog.
    pub fn end(self, tails: &mut Tails) {
        let Self { outlet, announce, mut backlog, .. } = self;
        if let Some(announce) = announce {
            announce(Ok(()));
        }
        let sent = outlet.push(&backlog);
        backlog.drain(..sent);
        if backlog.is_empty() {
            outlet.close();
            return;
        }
        tails.add(&outlet);
        task::spawn(async move {
            // A reader that has reset the stream wants nothing more.
            outlet.write(&backlog).await.ok();
            outlet.close();
        });
    }
}

/// Ended runs whose readers have not read everything.
#[derive(Default)]
pub struct Tails(Vec<Outlet>);

impl Tails {
    /// The agent must not grow without limit for readers that never read: the oldest are dropped.
    fn add(&mut self, outlet: &Outlet) {
        self.0.retain(|outlet| !outlet.is_closed());
        if self.0.len() >= TAILS_MAX {
            let message =
                format!("the run ended, and its reader and {TAILS_MAX} others read nothing");
            self.0.remove(0).fail(&Fault::new(FaultCode::Limit, message));
        }
        self.0.push(outlet.clone());
    }
}
