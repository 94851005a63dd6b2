//! What a receipt says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::audit::Outcome;
use host::instant;
use sandbox::Record;
use sandbox::log::{self, RecordedSession, RunRecord};

/// See the module's description. Its fields are signed in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// From one, without gaps.
    pub seq: u64,
    /// RFC 3339 in UTC.
    pub issued_at: String,
    /// The SHA-256 of the receipt before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub previous: Option<String>,
    pub sandbox: Subject,
    /// Absent of a run of a context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub session: Option<String>,
    /// The argument vector of a session as one line, cut as the agent cuts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub command: Option<String>,
    /// By the guest's clock.
    pub started_at: String,
    pub ended_at: String,
    pub duration_us: u64,
    /// How it ended.
    pub cause: Value,
    /// Of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub exit_code: Option<i32>,
    pub outputs: Vec<Output>,
    pub limits: Limits,
    /// The egress rules of the sandbox.
    pub egress: Vec<String>,
    /// What the egress of the sandbox decided meanwhile, for all of its programs and not only for this session's; absent
    /// where no audit log is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Decisions")]
    pub decisions: Option<Decisions>,
    /// What was put into the sandbox before the end, by anybody; absent of earlier bridges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ReceivedFiles")]
    pub inputs: Option<ReceivedFiles>,
    /// What was sent to the input of the session; absent if nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ReceivedInput")]
    pub stdin: Option<ReceivedInput>,
    /// What it is, if it is a run of a context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ContextRun")]
    pub run: Option<ContextRun>,
}

/// A run of a context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextRun {
    pub context: String,
    pub run: u64,
    pub language: String,
    /// Which run of its interpreter it was; absent of one that never began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub count: Option<u64>,
    pub code: Digested,
    /// The first forms of what it displayed, in order.
    pub displays: Vec<DisplayedForm>,
    /// Whether there were more than are listed here.
    pub has_more_displays: bool,
    /// The kind of the exception that nothing caught.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub error: Option<String>,
    /// Whether the next run finds its variables.
    pub state_kept: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cpu_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_bytes_peak: Option<u64>,
}

/// Length and SHA-256 of something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Digested {
    pub bytes: u64,
    pub sha256: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DisplayedForm {
    pub mime: String,
    pub bytes: u64,
    pub sha256: String,
}

/// The sandbox, and what it was made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    pub namespace: String,
    pub name: String,
    /// Names are used again.
    pub id: String,
    pub machine: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub image_digest: Option<String>,
}

/// One output of the session or the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Output {
    pub output: String,
    /// How much the program has written to it.
    pub bytes: u64,
    /// How much of it no reader has had.
    pub dropped: u64,
    /// The SHA-256 of all of it: of a session the agent's, absent if the agent gave none; of a run the bridge's, of what it
    /// has received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub sha256: Option<String>,
}

/// The limits of the sandbox; absent where there was none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub cpu_millis: Option<u32>,
    pub scratch_bytes: u64,
}

/// Whose egress decisions a receipt has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecidedFor {
    /// For every program of the sandbox, of whatever session or context: who has opened a connection is not known
    /// where it is decided.
    Sandbox,
}

/// Egress decisions of the sandbox between the start and the end of the session or the run, from the audit log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decisions {
    /// For whom they were made; absent in receipts of earlier versions, of which `sandbox` is true as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DecidedFor")]
    pub decided_for: Option<DecidedFor>,
    pub allowed: u64,
    pub refused: u64,
    /// The first of them.
    pub listed: Vec<Decision>,
    /// Whether the log had more than is listed here.
    pub has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    pub time: String,
    /// `egress.name` or `egress.connection`.
    pub operation: String,
    pub outcome: Outcome,
    pub facts: Map<String, Value>,
}

/// Files that were put into the sandbox, through whichever interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceivedFiles {
    /// The first of them, in the order of their ends.
    pub listed: Vec<ReceivedFile>,
    /// Whether there were more than are listed here.
    pub has_more: bool,
    /// Whether a client at another node of the fleet has reached the agent before the end: what it did there is not recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_unrecorded: bool,
}

/// The body of one upload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceivedFile {
    pub time: String,
    /// `write_file`, or `unpack_files` of an archive.
    pub operation: String,
    /// The file, or the directory of the archive.
    pub path: String,
    /// Where in the file it was put: `whole`, `append`, or an offset. Absent of an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub place: Option<String>,
    /// The length of what was sent.
    pub bytes: u64,
    /// Of what was sent.
    pub sha256: String,
}

/// What was sent to the input of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceivedInput {
    /// The first of its parts, one for each writer, in the order of their ends.
    pub listed: Vec<InputPart>,
    /// Whether there were more than are listed here.
    pub has_more: bool,
    /// Whether a writer that has sent something had not ended when the receipt was issued, or was killed: what it has sent is
    /// not listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_open: bool,
}

/// What one writer has sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputPart {
    /// When the writer ended.
    pub time: String,
    /// Where the part begins in the input; absent if the agent has not said that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub offset: Option<u64>,
    pub bytes: u64,
    pub sha256: String,
    /// Whether the input was closed after it.
    pub closed: bool,
}

impl Subject {
    pub(super) fn of(record: &Record) -> Self {
        Self {
            namespace: record.namespace.to_string(),
            name: record.name.to_string(),
            id: record.id.to_string(),
            machine: record.machine.to_string(),
            image: record.image.clone(),
            image_digest: record.image_digest.map(|digest| digest.to_string()),
        }
    }
}

impl ReceivedFile {
    pub(super) fn of(time_ms: u64, file: log::ReceivedFile) -> Self {
        let (place, content) = (file.place.name(), file.content);
        let operation = if place.is_some() { "write_file" } else { "unpack_files" };
        Self {
            time: instant::format(time_ms),
            operation: operation.to_owned(),
            path: file.path,
            place,
            bytes: content.bytes,
            sha256: content.sha256,
        }
    }
}

impl ContextRun {
    fn of(run: &RunRecord) -> Self {
        let form = |form: &log::DisplayedForm| DisplayedForm {
            mime: form.mime.clone(),
            bytes: form.content.bytes,
            sha256: form.content.sha256.clone(),
        };
        let code = Digested { bytes: run.code.bytes, sha256: run.code.sha256.clone() };
        Self {
            context: run.context.to_string(),
            run: run.run,
            language: run.language.clone(),
            count: run.count,
            code,
            displays: run.displays.iter().map(form).collect(),
            has_more_displays: run.has_more_displays,
            error: run.error.clone(),
            state_kept: run.finished.state_kept,
            cpu_us: run.finished.cpu_us,
            memory_bytes_peak: run.finished.memory_bytes_peak,
        }
    }
}

/// What a receipt is about.
#[derive(Clone, Copy, Debug)]
pub enum Ran<'a> {
    Session(&'a RecordedSession),
    Run(&'a RunRecord),
}

/// What is known of it besides its end.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Nothing is known where no audit log is kept.
    pub decisions: Option<Decisions>,
    pub inputs: Option<ReceivedFiles>,
    pub stdin: Option<ReceivedInput>,
}

/// How something ended that has ended.
struct End {
    session: Option<(String, String, i32)>,
    started_at_ms: u64,
    ended_at_ms: u64,
    duration_us: u64,
    cause: Value,
    outputs: Vec<Output>,
    run: Option<ContextRun>,
}

impl End {
    fn of_session(session: &RecordedSession) -> Option<Self> {
        let end = session.exit.as_ref()?;
        let outputs = end.outputs.iter().map(|total| Output {
            output: total.channel.name().to_owned(),
            bytes: total.digested.unwrap_or(total.written),
            dropped: total.dropped,
            sha256: total.sha256.clone(),
        });
        let name = session.session.to_string();
        Some(Self {
            session: Some((name, session.command.clone(), end.cause.shell_code())),
            started_at_ms: end.started_at_ms,
            ended_at_ms: end.ended_at_ms,
            duration_us: end.duration_us,
            cause: serde_json::to_value(&end.cause).unwrap_or_default(),
            outputs: outputs.collect(),
            run: None,
        })
    }

    fn of_run(run: &RunRecord) -> Self {
        let outputs = [("stdout", &run.stdout), ("stderr", &run.stderr)];
        let outputs = outputs.map(|(name, content)| Output {
            output: name.to_owned(),
            bytes: content.bytes,
            dropped: 0,
            sha256: Some(content.sha256.clone()),
        });
        Self {
            session: None,
            started_at_ms: run.started_at_ms,
            ended_at_ms: run.ended_at_ms,
            duration_us: run.finished.duration_us,
            cause: serde_json::to_value(&run.finished.end).unwrap_or_default(),
            outputs: outputs.into(),
            run: Some(ContextRun::of(run)),
        }
    }
}

impl Statement {
    /// What there is to say of what has ended; its place in the chain is the ledger's.
    pub(super) fn of(record: &Record, ran: Ran<'_>, evidence: Evidence) -> Option<Self> {
        let end = match ran {
            Ran::Session(session) => End::of_session(session)?,
            Ran::Run(run) => End::of_run(run),
        };
        let Evidence { decisions, inputs, stdin } = evidence;
        let (session, command, exit_code) = match end.session {
            Some((name, command, code)) => (Some(name), Some(command), Some(code)),
            None => (None, None, None),
        };
        Some(Self {
            seq: 0,
            issued_at: String::new(),
            previous: None,
            sandbox: Subject::of(record),
            session,
            command,
            started_at: instant::format(end.started_at_ms),
            ended_at: instant::format(end.ended_at_ms),
            duration_us: end.duration_us,
            cause: end.cause,
            exit_code,
            outputs: end.outputs,
            limits: Limits {
                memory_mib: record.memory_mib,
                cpu_millis: record.cpu_millis,
                scratch_bytes: record.scratch_bytes,
            },
            egress: record.egress.clone(),
            decisions,
            inputs,
            stdin,
            run: end.run,
        })
    }

    /// Whether both are about one run of one session, or about one run of one context.
    pub(super) fn is_about_the_same(&self, other: &Self) -> bool {
        let about = |statement: &Self| {
            let Self { sandbox, session, started_at, run, .. } = statement;
            let run = run.as_ref().map(|run| (run.context.clone(), run.run));
            (sandbox.id.clone(), session.clone(), run, started_at.clone())
        };
        about(self) == about(other)
    }
}
