//! Contexts: interpreters that live on between runs of code. The requests of a host about them, and
//! the events of a run.
//!
//! A run's stream carries [records](record), each an [`Event`]. The agent's `repl` module writes them,
//! the bridge reads them from a hostile guest. Pure.

use serde::{Deserialize, Serialize, Serializer};

use crate::exit::Cause;
use crate::fault;
use crate::ids::{ContextName, StreamId};
use crate::limits::EVENT_BYTES_MAX;
use crate::message::Channel;
use crate::msgpack;
use crate::record::{self, TooLong};
use crate::requests::GroupLimits;
use crate::text::Text;
use crate::{decode_enum, decode_struct};

/// Creates a context and starts its interpreter, or finds the one with this name. An existing
/// context must have the same language; other given settings must be those that it was created
/// with, or it is a `conflict`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenContext {
    pub context: ContextName,
    /// `python`, `node`, `bash`, or another name that the agent knows for one of them.
    pub language: String,
    /// The interpreter, by path or by name, instead of those that are looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// Merged over the sandbox's environment.
    #[serde(default)]
    pub env: Vec<(Text, Text)>,
    /// `name`, `name:group`, `uid` or `uid:gid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Bounds of the interpreter's control group.
    #[serde(default)]
    pub limits: GroupLimits,
}

decode_struct!(OpenContext: context, language; program, cwd, env, user, limits);

/// Runs code in a context, which is created if it does not exist. Runs of one context are executed
/// in the order in which they were requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub context: OpenContext,
    /// Carries the run's events to the host, and the code to the agent when `code` is absent.
    pub stream: StreamId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Text>,
    /// The name of the code in tracebacks; the agent numbers it by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// From the run's start to the first rung of the ladder that ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    #[serde(default)]
    pub grace: Grace,
    /// Whether the host answers requests for input. If not, the code reads the end of a file.
    #[serde(default)]
    pub input: bool,
    /// Interrupt the run when its events have no reader any more.
    #[serde(default)]
    pub tied: bool,
    /// The host's own code: it runs beside the namespace of the context's code, is not counted among its
    /// interpreter's runs, and watches of the context do not see it.
    #[serde(default)]
    pub aside: bool,
}

decode_struct!(Run: context, stream; code, name, deadline_ms, grace, input, tied, aside);

/// How long each rung of the ladder that ends a run may take before the next is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grace {
    /// The time for a polite interrupt; [`crate::limits::INTERRUPT_GRACE`] if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polite_ms: Option<u64>,
    /// The time for a firm one before the interpreter is killed; the same default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firm_ms: Option<u64>,
}

decode_struct!(Grace: ; polite_ms, firm_ms);

/// Ends a run by the ladder, or takes it out of the queue if its turn has not come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupt {
    pub context: ContextName,
    /// The one that runs now when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    #[serde(default)]
    pub grace: Grace,
}

decode_struct!(Interrupt: context; run, grace);

/// Answers an [`Happening::InputRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerInput {
    pub context: ContextName,
    pub run: u64,
    pub request: u64,
    /// A line, with or without its newline; the end of the input if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Text>,
}

decode_struct!(AnswerInput: context, run, request; line);

/// Requests completions for a position in some code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complete {
    pub context: ContextName,
    pub code: String,
    /// A byte offset into the code, at a border of characters.
    pub cursor: u64,
}

decode_struct!(Complete: context, code, cursor);

/// The current state of one context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextInfo {
    pub context: ContextName,
    /// The language's own name.
    pub language: String,
    pub state: ContextState,
    /// The living interpreter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<Interpreter>,
    /// Interpreters that the context has had, including the current one.
    pub interpreters: u64,
    /// Runs that have begun.
    pub runs: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    pub queued: u32,
    pub opened_at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Text>,
    /// How the last interpreter ended, if no client has learned yet that its state is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// What of the request its interpreter could not have here, and why.
    #[serde(default)]
    pub warnings: Vec<String>,
}

decode_struct! {
    ContextInfo:
    context, language, state, interpreters, runs, queued, opened_at_ms; interpreter, running, cwd,
    lost, warnings
}

/// The state of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextState {
    /// It has no interpreter; the next run starts one.
    Cold,
    Starting,
    Idle,
    Running,
    /// A run is being ended.
    Interrupting,
}

decode_enum!(ContextState: Cold, Starting, Idle, Running, Interrupting);

/// A living interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreter {
    pub pid: u32,
    pub program: String,
    /// Its own version, as in `3.11.7`.
    pub version: String,
}

decode_struct!(Interpreter: pid, program, version);

/// The completions, and where they go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completions {
    /// The bytes of the code that a match replaces.
    pub start: u64,
    pub end: u64,
    pub matches: Vec<String>,
}

decode_struct!(Completions: start, end, matches);

/// Whether some code is all there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completeness {
    pub state: CodeState,
    /// The beginning of the next line.
    #[serde(default)]
    pub indent: String,
}

decode_struct!(Completeness: state; indent);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeState {
    Complete,
    /// More lines are wanted.
    Incomplete,
    /// No line could mend it.
    Invalid,
}

decode_enum!(CodeState: Complete, Incomplete, Invalid);

/// One record of a run's stream, or of a watch of a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The run that it belongs to; 0 when it belongs to none.
    pub run: u64,
    /// Wall clock of the guest, microseconds since 1970.
    pub at_us: u64,
    pub what: Happening,
}

decode_struct!(Event: run, at_us, what);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happening {
    /// The run's turn has come. The first event of every run but a cancelled one.
    Started(Started),
    Stdout {
        bytes: Text,
    },
    Stderr {
        bytes: Text,
    },
    /// Output of an earlier run's threads or children after its end.
    Late(Late),
    Display(Display),
    Artifact(Artifact),
    /// An exception that nothing caught. The run's traceback is here alone, not on stderr.
    Error(ErrorReport),
    InputRequest {
        request: u64,
        prompt: String,
        /// Do not echo what is typed.
        secret: bool,
    },
    /// The context lost its interpreter outside of any run, or got another by a restart.
    Lost {
        reason: String,
    },
    /// A watch was too slow for these. A run's own stream never has one.
    Gap {
        events: u64,
        bytes: u64,
    },
    /// The run's last event.
    Finished(Finished),
}

decode_enum! {
    Happening:
    Started(), Stdout { bytes }, Stderr { bytes }, Late(), Display(), Artifact(), Error(),
    InputRequest { request, prompt, secret }, Lost { reason }, Gap { events, bytes }, Finished()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Which run of its interpreter this is, from 1 on.
    pub count: u64,
    /// The interpreter was replaced since the last run: what is lost, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

decode_struct!(Started: count; lost);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// The run that began the source of this output, if that is known; 0 otherwise.
    pub of: u64,
    pub channel: Channel,
    pub bytes: Text,
    /// Earlier bytes that were too many to keep.
    #[serde(default)]
    pub dropped: u64,
}

decode_struct!(Late: of, channel, bytes; dropped);

/// Something to look at, in as many forms as it offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Display {
    pub role: DisplayRole,
    /// The id by which a later update refers to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub data: Vec<Datum>,
    /// A JSON object, as its maker wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
}

decode_struct!(Display: role, data; id, metadata);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisplayRole {
    /// The value of the run's last expression.
    Value,
    /// The code has shown it.
    Shown,
    /// It replaces the display with the same id.
    Update,
}

decode_enum!(DisplayRole: Value, Shown, Update);

/// One form of a display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datum {
    pub mime: String,
    pub data: Text,
}

decode_struct!(Datum: mime, data);

/// A file that the code offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    pub path: Text,
    pub name: String,
    pub mime: String,
    pub bytes: u64,
}

decode_struct!(Artifact: path, name, mime, bytes);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// `ZeroDivisionError`, `TypeError` …
    pub kind: String,
    pub message: String,
    /// As the language's own interpreter would print it, without escape codes.
    pub traceback: String,
    /// The outermost first.
    #[serde(default)]
    pub frames: Vec<TraceFrame>,
}

decode_struct!(ErrorReport: kind, message, traceback; frames);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFrame {
    pub file: String,
    pub line: u32,
    #[serde(default)]
    pub function: String,
    /// The text of the line.
    #[serde(default)]
    pub source: String,
}

decode_struct!(TraceFrame: file, line; function, source);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    pub end: RunEnd,
    pub duration_us: u64,
    /// CPU time of the interpreter, all its threads, and the children that it waited for, if it
    /// reports that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_peak: Option<u64>,
    /// Whether the next run finds the variables of this one.
    pub state_kept: bool,
    /// How far up the ladder an interrupt or a deadline had to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<Rung>,
    /// All bytes that the run wrote, each delivered before this event.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Whether a cached compiled form of the code was used, if the language reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<bool>,
}

decode_struct! {
    Finished:
    end, duration_us, state_kept, stdout_bytes, stderr_bytes; cpu_us, memory_bytes_peak, rung, cached
}

/// Why a run is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    Ok {},
    /// An `error` event has the details.
    Error {},
    /// The code asked to exit, as in `sys.exit(code)`.
    Exited {
        code: i32,
    },
    /// A client asked for its end.
    Interrupted {
        by: String,
    },
    TimedOut {
        limit_ms: u64,
    },
    /// The interpreter has ended.
    Died {
        cause: Cause,
    },
    /// It never began.
    Cancelled {
        reason: String,
    },
}

decode_enum! {
    RunEnd:
    Ok {}, Error {}, Exited { code }, Interrupted { by }, TimedOut { limit_ms }, Died { cause },
    Cancelled { reason }
}

/// The steps by which a run is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// The effect of ctrl-c.
    Polite,
    /// An interrupt that code that swallows ctrl-c cannot swallow.
    Firm,
    /// The interpreter was killed with all that it had started.
    Killed,
}

decode_enum!(Rung: Polite, Firm, Killed);

/// A run's output in transit, without a copy of it. Reads back as the [`Event`] that it is.
pub struct OutputRecord<'a> {
    pub run: u64,
    pub at_us: u64,
    pub channel: Channel,
    pub bytes: &'a [u8],
}

#[derive(Serialize)]
struct RawEvent<'a> {
    run: u64,
    at_us: u64,
    what: RawHappening<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum RawHappening<'a> {
    Stdout { bytes: Raw<'a> },
    Stderr { bytes: Raw<'a> },
}

struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Why a stream of events cannot be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("an event of {bytes} bytes exceeds the limit of {EVENT_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("an event is not valid: {reason}")]
    Malformed { reason: String },
}

/// Appends one record.
pub fn encode_record(event: &Event, out: &mut Vec<u8>) {
    record::encode(event, out);
}

/// Appends the record of some output.
pub fn encode_output(record: &OutputRecord<'_>, out: &mut Vec<u8>) {
    let bytes = Raw(record.bytes);
    let what = match record.channel {
        Channel::Stderr => RawHappening::Stderr { bytes },
        Channel::Stdout | Channel::Terminal => RawHappening::Stdout { bytes },
    };
    record::encode(&RawEvent { run: record.run, at_us: record.at_us, what }, out);
}

/// The first record of `input` and how many bytes it took; `None` while it is not all there.
pub fn parse_record(input: &[u8]) -> Result<Option<(Event, usize)>, RecordError> {
    let parsed = record::parse(input, EVENT_BYTES_MAX)
        .map_err(|TooLong { bytes }| RecordError::TooLong { bytes })?;
    let Some((body, length)) = parsed else { return Ok(None) };
    let event = msgpack::decode(body)
        .map_err(|error| RecordError::Malformed { reason: fault::clip(error.to_string()) })?;
    Ok(Some((event, length)))
}

#[cfg(test)]
mod tests;
