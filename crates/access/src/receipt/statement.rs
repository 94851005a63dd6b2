//! What a receipt says.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::audit::Outcome;
use host::instant;
use sandbox::Record;
use sandbox::log::RecordedSession;

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
    pub session: String,
    /// The argument vector as one line, cut as the agent cuts it.
    pub command: String,
    /// By the guest's clock.
    pub started_at: String,
    pub ended_at: String,
    pub duration_us: u64,
    /// How it ended.
    pub cause: Value,
    pub exit_code: i32,
    pub outputs: Vec<Output>,
    pub limits: Limits,
    /// The egress rules of the sandbox.
    pub egress: Vec<String>,
    /// What the egress of the sandbox decided meanwhile, for all of its programs and not only for this session's; absent
    /// where no audit log is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Decisions")]
    pub decisions: Option<Decisions>,
    /// What was put into the sandbox before the end, by anybody; absent where no audit log is kept, and of earlier
    /// bridges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ReceivedFiles")]
    pub inputs: Option<ReceivedFiles>,
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

/// One output of the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Output {
    pub output: String,
    /// How much the program has written to it.
    pub bytes: u64,
    /// How much of it no reader has had.
    pub dropped: u64,
    /// The agent's SHA-256 of all of it; absent if the agent gave none.
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

/// Egress decisions of the sandbox between the start and the end of the session, from the audit log.
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

/// Files that the API has put into the sandbox, from the audit log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceivedFiles {
    /// The first of them, in the order of their ends.
    pub listed: Vec<ReceivedFile>,
    /// Whether the log had more than is listed here.
    pub has_more: bool,
}

/// The body of one upload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceivedFile {
    pub time: String,
    /// `write_file`, or `unpack_files` of an archive.
    pub operation: String,
    /// The file, or the directory of the archive, cut as the audit log cuts it.
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

impl Statement {
    /// What there is to say of a session that has ended; its place in the chain is the ledger's.
    pub(super) fn of(
        record: &Record,
        session: &RecordedSession,
        decisions: Option<Decisions>,
        inputs: Option<ReceivedFiles>,
    ) -> Option<Self> {
        let end = session.exit.as_ref()?;
        let outputs = end.outputs.iter().map(|total| Output {
            output: total.channel.name().to_owned(),
            bytes: total.digested.unwrap_or(total.written),
            dropped: total.dropped,
            sha256: total.sha256.clone(),
        });
        Some(Self {
            seq: 0,
            issued_at: String::new(),
            previous: None,
            sandbox: Subject {
                namespace: record.namespace.to_string(),
                name: record.name.to_string(),
                id: record.id.to_string(),
                machine: record.machine.to_string(),
                image: record.image.clone(),
                image_digest: record.image_digest.map(|digest| digest.to_string()),
            },
            session: session.session.to_string(),
            command: session.command.clone(),
            started_at: instant::format(end.started_at_ms),
            ended_at: instant::format(end.ended_at_ms),
            duration_us: end.duration_us,
            cause: serde_json::to_value(&end.cause).unwrap_or_default(),
            exit_code: end.cause.shell_code(),
            outputs: outputs.collect(),
            limits: Limits {
                memory_mib: record.memory_mib,
                cpu_millis: record.cpu_millis,
                scratch_bytes: record.scratch_bytes,
            },
            egress: record.egress.clone(),
            decisions,
            inputs,
        })
    }

    /// Whether both are about one run of one session.
    pub(super) fn is_about_the_same(&self, other: &Self) -> bool {
        let about = |statement: &Self| {
            let Self { sandbox, session, started_at, .. } = statement;
            (sandbox.id.clone(), session.clone(), started_at.clone())
        };
        about(self) == about(other)
    }
}
