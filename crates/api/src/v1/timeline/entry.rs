//! The entries of a timeline as clients read them. Pure.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::budget::json_bytes;
use crate::forms::problem::Problem;
use crate::v1::value::Content;
use agent_client::guest::cause_name;
use sandbox::event::Kind as EventKind;
use sandbox::log::Event;
use services::events;
use services::timeline::{Kind, Moment, Place, What};

/// What an entry takes beside its text, here and in JSON.
const ENTRY_COST_BYTES: usize = 1024;
/// What 100 % is in the numbers of agents.
const HUNDREDTHS: f64 = 100.0;

/// The names of kinds, for the document.
pub struct KindName;

impl JsonSchema for KindName {
    fn schema_name() -> Cow<'static, str> {
        "TimelineKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        let about = Kind::ALL.iter().map(|kind| format!("- `{kind}`: {}", kind.about()));
        let about = about.collect::<Vec<_>>().join("\n");
        json_schema!({ "type": "string", "enum": names, "description": about })
    }
}

/// An entry of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineEntry {
    #[serde(flatten)]
    pub what: TimelineFact,
    /// The host's time, in milliseconds since 1970; absent for `problem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub at_ms: Option<u64>,
    /// It went wrong: a session that ended without success, an end for want of memory, a refused connection, a run that
    /// raised, a sandbox that was lost, a damaged log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// One line for people. Output has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub summary: Option<String>,
    /// The position after this entry, for `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub place: Option<String>,
}

/// What an entry is about. Clients must ignore unknown kinds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TimelineFact {
    Started {
        session: String,
        command: String,
    },
    /// Output of a session: `text` if it is UTF-8, otherwise `base64`; so is long output that is mostly
    /// control characters.
    Output {
        session: String,
        /// `stdout`, `stderr` or `terminal`.
        stream: String,
        /// The offset of the first byte in the session's output.
        offset: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        base64: Option<String>,
    },
    /// What was typed into a session, or written to its stdin, in a sandbox whose `record` is `input`: `text` or
    /// `base64`, as for output. Whether the program has read it is not known.
    Input {
        session: String,
        /// Where the output of its terminal, or its stdout, was by then.
        output_offset: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        base64: Option<String>,
    },
    /// Output from one offset to another that is not in the log.
    Gap {
        session: String,
        stream: String,
        from: u64,
        to: u64,
    },
    Resized {
        session: String,
        rows: u16,
        columns: u16,
    },
    Exited {
        session: String,
        /// The exit code as a shell reports it.
        exit_code: i32,
        /// `exited`, `signaled`, `killed`, `timed_out`, `out_of_memory`, `agent_stopping` or `spawn_failed`.
        reason: String,
    },
    /// This many bytes of the log's files are damaged.
    Damaged {
        bytes: u64,
    },
    Lifecycle {
        /// A kind of the stream of events.
        event: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        session: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        reason: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        cause: Option<String>,
    },
    Run {
        /// The number of the run in its notebook or context.
        run: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        notebook: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        context: Option<String>,
        /// How it ended; absent of one that begins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        result: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        error: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "u64")]
        duration_us: Option<u64>,
    },
    Egress {
        /// `egress.name`, `egress.connection`, `egress.secret` or `egress.ended`.
        operation: String,
        /// `ok`, `refused` or `failed`.
        outcome: String,
        /// What the audit log has of it, such as `host`, `port`, `rule` and `why`.
        facts: Map<String, Value>,
    },
    File {
        artifact: String,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        path: Option<String>,
        size: u64,
    },
    Metrics {
        /// The mean of the step, where 100 is one CPU.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "f64")]
        cpu_percent: Option<f64>,
        /// The mean of the step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "u64")]
        memory_bytes: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "u64")]
        memory_bytes_max: Option<u64>,
    },
    /// Entries of a kind are not known.
    Unknown {
        of: String,
        why: String,
    },
    /// The entries end here, for this reason.
    Problem {
        problem: Problem,
    },
}

impl TimelineEntry {
    pub fn new(moment: Moment, place: Place) -> Self {
        let (kind, failed) = (moment.kind(), moment.is_failure());
        let summary = (kind != Kind::Output).then(|| moment.summary());
        let (at_ms, place) = (Some(moment.at_ms), Some(place.to_string()));
        Self { what: moment.what.into(), at_ms, failed, summary, place }
    }

    pub fn problem(problem: Problem) -> Self {
        let what = TimelineFact::Problem { problem };
        Self { what, at_ms: None, failed: false, summary: None, place: None }
    }

    /// What it takes here and in JSON.
    pub fn cost(&self) -> usize {
        let written = match &self.what {
            TimelineFact::Output { text, base64, .. }
            | TimelineFact::Input { text, base64, .. } => text.as_ref().or(base64.as_ref()),
            TimelineFact::Started { command, .. } => Some(command),
            TimelineFact::Run { error, .. } => error.as_ref(),
            _ => None,
        };
        let written = written.map_or(&[][..], |text| text.as_bytes());
        let summary = self.summary.as_ref().map_or(0, String::len);
        ENTRY_COST_BYTES + written.len() + json_bytes(written) + 2 * summary
    }
}

impl From<What> for TimelineFact {
    fn from(what: What) -> Self {
        match what {
            What::Log(event) => of_log(event),
            What::Input { typed, output_offset } => {
                let (text, base64) = Content::of(typed.bytes).parts();
                Self::Input { session: typed.session.to_string(), output_offset, text, base64 }
            }
            What::Event(entry) => of_event(*entry),
            What::Run(run) => {
                let error = match (run.error_type, run.error_message) {
                    (Some(kind), Some(message)) => Some(format!("{kind}: {message}")),
                    (kind, message) => kind.or(message),
                };
                Self::Run {
                    run: run.number,
                    notebook: Some(run.notebook),
                    context: None,
                    result: Some(run.status),
                    error,
                    duration_us: Some(run.duration_us),
                }
            }
            What::Egress(entry) => Self::Egress {
                outcome: entry.outcome.name().to_owned(),
                operation: entry.operation,
                facts: entry.facts,
            },
            What::File(file) => {
                Self::File { artifact: file.id, name: file.name, path: file.path, size: file.size }
            }
            What::Metrics(bucket) => Self::Metrics {
                cpu_percent: bucket.cpu.map(|cpu| f64::from(cpu.mean) / HUNDREDTHS),
                memory_bytes: bucket.memory_kib.map(|memory| u64::from(memory.mean) * 1024),
                memory_bytes_max: bucket.memory_kib_max.map(|kib| u64::from(kib) * 1024),
            },
            What::Unknown { of, why } => Self::Unknown { of: of.name().to_owned(), why },
        }
    }
}

fn of_log(event: Event) -> TimelineFact {
    match event {
        Event::Started { session, command, .. } => {
            TimelineFact::Started { session: session.to_string(), command }
        }
        Event::Output { session, channel, offset, bytes } => {
            let (text, base64) = Content::of(bytes).parts();
            let (session, stream) = (session.to_string(), channel.name().to_owned());
            TimelineFact::Output { session, stream, offset, text, base64 }
        }
        Event::Gap { session, channel, from, to } => {
            let (session, stream) = (session.to_string(), channel.name().to_owned());
            TimelineFact::Gap { session, stream, from, to }
        }
        Event::Resized { session, rows, columns } => {
            TimelineFact::Resized { session: session.to_string(), rows, columns }
        }
        Event::Exited { session, record } => TimelineFact::Exited {
            session: session.to_string(),
            exit_code: record.cause.shell_code(),
            reason: cause_name(&record.cause).to_owned(),
        },
        Event::Damaged { bytes } | Event::Missing { bytes } => TimelineFact::Damaged { bytes },
        Event::Closed { why } => TimelineFact::Lifecycle {
            event: EventKind::Exited.name().to_owned(),
            session: None,
            reason: None,
            cause: Some(why),
        },
    }
}

fn of_event(entry: events::Entry) -> TimelineFact {
    let facts = entry.facts;
    match (entry.kind, facts.run) {
        (EventKind::RunBegun | EventKind::RunEnded, Some(run)) => TimelineFact::Run {
            run,
            notebook: None,
            context: facts.context,
            result: facts.reason,
            error: None,
            duration_us: None,
        },
        (kind, _) => TimelineFact::Lifecycle {
            event: kind.name().to_owned(),
            session: facts.session,
            reason: facts.reason,
            cause: facts.cause,
        },
    }
}
