//! The entries of a timeline: what can be in one, whether it is a failure, and how a person reads it. Pure.

use std::fmt;
use std::str::FromStr;

use protocol::SessionId;
use protocol::exit::Cause;
use serde::{Deserialize, Serialize};

use crate::events;
use crate::store::moments::{FileMoment, RunMoment};
use access::audit::{self, Outcome};
use agent_client::program::ran_out_of_memory;
use sandbox::event::Kind as EventKind;
use sandbox::log::{Event, Typed};
use sandbox::telemetry::Bucket;

/// Characters of a summary: a line or two of a terminal.
const SUMMARY_CHARS_MAX: usize = 240;

/// Defines [`Kind`] from its rows: the variant, its word, and what an entry of it is.
macro_rules! kinds {
    ($($variant:ident, $name:literal, $about:literal;)*) => {
        /// A kind of entry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Kind {
            $(#[doc = $about] $variant,)*
        }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word in entries and queries.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What an entry of it is.
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

kinds! {
    Started, "started", "A session began.";
    Output, "output", "Output of a session.";
    Input, "input", "Something was typed into a session, or written to its stdin, in a sandbox that records it.";
    Gap, "gap", "Output of a session that is not in the log.";
    Resized, "resized", "The terminal of a session has another size.";
    Exited, "exited", "A session ended.";
    Damaged, "damaged", "Bytes of the log's files are damaged here.";
    Lifecycle, "lifecycle", "Something happened to the sandbox: a row of the table of events.";
    Run, "run", "Code began or ended: runs of notebooks, and of all contexts with `programs` in `[events]`.";
    Egress, "egress", "A decision about what the sandbox may reach, from the audit log.";
    File, "file", "An artifact was kept.";
    Metrics, "metrics", "What the sandbox used in a step of time.";
    Unknown, "unknown", "Entries of a kind are not known, and why.";
}

impl Kind {
    /// Whether the log of sessions has such entries.
    pub fn is_of_log(self) -> bool {
        use Kind::{Damaged, Exited, Gap, Input, Output, Resized, Started};
        matches!(self, Started | Output | Input | Gap | Resized | Exited | Damaged)
    }
}

impl Kind {
    /// What a replay plays: figures are for charts.
    pub fn played(has_events: bool, has_input: bool) -> Vec<Self> {
        let is_played = |kind: &Self| match kind {
            Self::Input => has_input,
            Self::Metrics => false,
            kind => kind.is_of_log() || has_events,
        };
        Self::ALL.iter().copied().filter(is_played).collect()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Text that is no kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a kind of entry; the kinds are {names}", names = names().join(", "))]
pub struct UnknownKind(String);

fn names() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.name()).collect()
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let found = Self::ALL.iter().find(|kind| kind.name() == text).copied();
        found.ok_or_else(|| UnknownKind(text.chars().take(32).collect()))
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// By the host's wall clock, in milliseconds since 1970. It never goes back from one entry to the next.
    pub at_ms: u64,
    pub what: What,
}

/// What an entry is about. All texts may come from the sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Log(Event),
    /// The output of the session, that of its terminal or stdout, was at this offset.
    Input {
        typed: Typed,
        output_offset: u64,
    },
    Event(Box<events::Entry>),
    Run(Box<RunMoment>),
    Egress(Box<audit::Entry>),
    File(Box<FileMoment>),
    /// Figures are for charts, which no other node's bridge draws.
    #[serde(skip)]
    Metrics(Box<Bucket>),
    Unknown {
        of: Kind,
        why: String,
    },
}

impl Moment {
    pub fn kind(&self) -> Kind {
        match &self.what {
            What::Log(event) => match event {
                Event::Started { .. } => Kind::Started,
                Event::Output { .. } => Kind::Output,
                Event::Gap { .. } | Event::Missing { .. } => Kind::Gap,
                Event::Resized { .. } => Kind::Resized,
                Event::Exited { .. } => Kind::Exited,
                Event::Damaged { .. } => Kind::Damaged,
                Event::Closed { .. } => Kind::Lifecycle,
            },
            What::Input { .. } => Kind::Input,
            What::Event(entry) => match entry.kind {
                EventKind::RunBegun | EventKind::RunEnded => Kind::Run,
                _ => Kind::Lifecycle,
            },
            What::Run(_) => Kind::Run,
            What::Egress(_) => Kind::Egress,
            What::File(_) => Kind::File,
            What::Metrics(_) => Kind::Metrics,
            What::Unknown { .. } => Kind::Unknown,
        }
    }

    /// The session that it is about, if it is about one.
    pub fn session(&self) -> Option<&str> {
        match &self.what {
            What::Log(event) => event.session().map(SessionId::as_str),
            What::Input { typed, .. } => Some(typed.session.as_str()),
            What::Event(entry) => entry.facts.session.as_deref(),
            _ => None,
        }
    }

    /// Whether something went wrong: an end that is no success, an end for want of memory, a refused connection, a run
    /// that raised, a sandbox that was lost.
    pub fn is_failure(&self) -> bool {
        let is_failed_run = |status: &str| matches!(status, "error" | "timed_out" | "died");
        match &self.what {
            What::Log(Event::Exited { record, .. }) => record.cause.shell_code() != 0,
            What::Log(Event::Damaged { .. }) => true,
            What::Log(_)
            | What::Input { .. }
            | What::File(_)
            | What::Metrics(_)
            | What::Unknown { .. } => false,
            What::Event(entry) => match entry.kind {
                EventKind::OutOfMemory
                | EventKind::Failed
                | EventKind::Lost
                | EventKind::Damaged => true,
                EventKind::RunEnded => entry.facts.reason.as_deref().is_some_and(is_failed_run),
                _ => false,
            },
            What::Run(run) => is_failed_run(&run.status),
            What::Egress(entry) => entry.outcome != Outcome::Ok,
        }
    }

    /// One line for people, without control characters.
    pub fn summary(&self) -> String {
        let text = match &self.what {
            What::Log(event) => of_log(event),
            What::Input { typed, .. } => of_input(typed),
            What::Event(entry) => of_event(entry),
            What::Run(run) => of_run(run),
            What::Egress(entry) => of_egress(entry),
            What::File(file) => {
                let path = file.path.as_deref().unwrap_or(&file.name);
                format!("artifact {path}, {}", size(file.size))
            }
            What::Metrics(bucket) => of_metrics(bucket),
            What::Unknown { of, why } => format!("entries of the kind {of} are not known: {why}"),
        };
        line(&text)
    }
}

/// Text on one line: what could command a terminal is replaced, and the end of a long text is cut.
fn line(text: &str) -> String {
    let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut line: String = text.chars().take(SUMMARY_CHARS_MAX).map(visible).collect();
    if text.chars().nth(SUMMARY_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}

fn of_input(typed: &Typed) -> String {
    // No character takes less than a byte.
    let shown = &typed.bytes[..typed.bytes.len().min(SUMMARY_CHARS_MAX)];
    format!("typed into session {}: {:?}", typed.session, String::from_utf8_lossy(shown))
}

fn of_log(event: &Event) -> String {
    match event {
        Event::Started { session, command, .. } => format!("session {session} started: {command}"),
        Event::Output { session, channel, bytes, .. } => {
            format!("{} bytes of {} of session {session}", bytes.len(), channel.name())
        }
        Event::Gap { session, channel, from, to } => {
            let (bytes, output) = (to.saturating_sub(*from), channel.name());
            format!("{bytes} bytes of {output} of session {session} are not in the log")
        }
        Event::Resized { session, rows, columns } => {
            format!("the terminal of session {session} has {columns} columns and {rows} rows")
        }
        Event::Exited { session, record } => {
            let code = record.cause.shell_code();
            let why = match &record.cause {
                Cause::Exited { .. } => String::new(),
                Cause::Signaled { signal, .. } => format!(": signal {signal}"),
                Cause::Killed { signal, .. } => format!(": killed with signal {signal}"),
                Cause::TimedOut { limit_ms } => format!(": its time of {limit_ms} ms was over"),
                Cause::OutOfMemory { limit_bytes } => {
                    format!(": it {}", ran_out_of_memory(*limit_bytes))
                }
                Cause::AgentStopping => ": the sandbox stopped".to_owned(),
                Cause::SpawnFailed { failure } => format!(": {} did not start", failure.subject),
            };
            format!("session {session} ended with code {code}{why}")
        }
        Event::Missing { bytes } => format!("{bytes} bytes of output are no longer in the log"),
        Event::Damaged { bytes } => format!("{bytes} bytes of the log are damaged"),
        Event::Closed { why } => format!("the sandbox ended: {why}"),
    }
}

fn of_event(entry: &events::Entry) -> String {
    let facts = &entry.facts;
    let kind = entry.kind.name().replace('_', " ");
    let mut parts = Vec::new();
    if let (Some(context), Some(run)) = (&facts.context, facts.run) {
        let end = facts.reason.as_deref().map_or("begun", |reason| reason);
        return format!("run {run} of context {context}: {end}");
    }
    parts.extend(facts.session.as_ref().map(|session| format!("session {session}")));
    parts.extend(facts.limit_bytes.map(|bytes| format!("limit {}", size(bytes))));
    parts.extend(facts.cause.clone().or_else(|| facts.reason.clone()));
    parts.extend(facts.snapshot.as_ref().map(|snapshot| format!("snapshot {snapshot}")));
    parts.extend(facts.count.map(|count| format!("{count} times")));
    if parts.is_empty() {
        return format!("sandbox {kind}");
    }
    format!("sandbox {kind}: {}", parts.join(", "))
}

fn of_run(run: &RunMoment) -> String {
    let RunMoment { notebook, number, status, .. } = run;
    let error: Vec<_> = [&run.error_type, &run.error_message].into_iter().flatten().collect();
    let error = error.iter().map(|text| text.as_str()).collect::<Vec<_>>().join(": ");
    let error = if error.is_empty() { error } else { format!(", {error}") };
    format!("run {number} of notebook {notebook}: {status}{error}")
}

fn of_egress(entry: &audit::Entry) -> String {
    let fact = |name: &str| {
        entry
            .facts
            .get(name)
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let host = fact("host").unwrap_or_default();
    let to = fact("port").map_or(host.clone(), |port| format!("{host}:{port}"));
    let why = fact("why").map_or(String::new(), |why| format!(": {why}"));
    match (entry.operation.as_str(), entry.outcome) {
        ("egress.name", Outcome::Ok) => format!("the name {host} is allowed"),
        ("egress.name", _) => format!("the name {host} is refused{why}"),
        ("egress.ended", _) => {
            let bytes = |name: &str| fact(name).and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
            let (sent, received) = (size(bytes("sent_bytes")), size(bytes("received_bytes")));
            format!("the connection to {to} ended, {sent} sent, {received} received{why}")
        }
        ("egress.secret", _) => {
            format!("a request to {to} was given the secrets {}", entry.secrets.join(", "))
        }
        (_, Outcome::Ok) => format!("a connection to {to} is allowed"),
        _ => format!("a connection to {to} is refused{why}"),
    }
}

fn of_metrics(bucket: &Bucket) -> String {
    let cpu = bucket.cpu.map(|cpu| format!("{} % CPU", cpu.mean / 100));
    let memory =
        bucket.memory_kib.map(|kib| format!("{} memory", size(u64::from(kib.mean) * 1024)));
    cpu.into_iter().chain(memory).collect::<Vec<_>>().join(", ")
}

fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=9_999_999 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1024 / 1024),
    }
}
