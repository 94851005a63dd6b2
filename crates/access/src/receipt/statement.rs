//! What a receipt says.

use std::io;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::limits::{DECISIONS_MAX, RECORDS_READ_MAX};
use crate::audit::{Filter, Outcome, read};
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

impl Statement {
    /// What there is to say of a session that has ended; its place in the chain is the ledger's.
    pub(super) fn of(
        record: &Record,
        session: &RecordedSession,
        decisions: Option<Decisions>,
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

/// What the egress of a sandbox decided while a session ran, by the audit log.
pub fn decisions(
    directory: &Path,
    record: &Record,
    session: &RecordedSession,
) -> io::Result<Decisions> {
    let decided_for = Some(DecidedFor::Sandbox);
    let Some(end) = &session.exit else {
        return Ok(Decisions { decided_for, ..Decisions::default() });
    };
    let filter = Filter {
        since_ms: Some(end.started_at_ms),
        until_ms: Some(end.ended_at_ms.saturating_add(1)),
        sandbox: Some(record.id.to_string()),
        ..Filter::default()
    };
    let records = read(directory, &filter, RECORDS_READ_MAX, false)?;
    let has_more = records.len() == RECORDS_READ_MAX;
    let mut found = Decisions { decided_for, has_more, ..Decisions::default() };
    let is_decision = |operation: &str| matches!(operation, "egress.name" | "egress.connection");
    for record in records.into_iter().filter(|record| is_decision(&record.entry.operation)) {
        match record.entry.outcome {
            Outcome::Ok => found.allowed += 1,
            Outcome::Refused | Outcome::Failed => found.refused += 1,
        }
        if found.listed.len() == DECISIONS_MAX {
            found.has_more = true;
            continue;
        }
        found.listed.push(Decision {
            time: record.time,
            operation: record.entry.operation,
            outcome: record.entry.outcome,
            facts: record.entry.facts,
        });
    }
    Ok(found)
}
