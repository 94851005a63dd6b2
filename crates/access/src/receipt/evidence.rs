//! What the audit log knows of a session: what its sandbox was given, and what that could reach.

use std::io;
use std::path::Path;

use super::limits::{DECISIONS_MAX, FILES_LISTED_MAX, RECORDS_READ_MAX};
use super::statement::{DecidedFor, Decision, Decisions, ReceivedFile, ReceivedFiles};
use crate::audit::{self, Filter, Outcome, read};
use sandbox::Record;
use sandbox::log::RecordedSession;

/// Nothing is known where no audit log is kept.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub decisions: Option<Decisions>,
    pub inputs: Option<ReceivedFiles>,
}

impl Evidence {
    /// Reads the audit log in this directory.
    pub fn read(directory: &Path, record: &Record, session: &RecordedSession) -> io::Result<Self> {
        Ok(Self {
            decisions: Some(decisions(directory, record, session)?),
            inputs: Some(inputs(directory, record, session)?),
        })
    }
}

/// The files that were put into a sandbox before the end of a session.
fn inputs(
    directory: &Path,
    record: &Record,
    session: &RecordedSession,
) -> io::Result<ReceivedFiles> {
    let Some(end) = &session.exit else { return Ok(ReceivedFiles::default()) };
    let mut found = ReceivedFiles::default();
    for operation in ["write_file", "unpack_files"] {
        let filter = Filter {
            until_ms: Some(end.ended_at_ms.saturating_add(1)),
            sandbox: Some(record.id.to_string()),
            operation: Some(operation.to_owned()),
            outcome: Some(Outcome::Ok),
            ..Filter::default()
        };
        let records = read(directory, &filter, FILES_LISTED_MAX + 1, false)?;
        // Records of earlier bridges without a digest are among these, and are left out below.
        found.has_more |= records.len() > FILES_LISTED_MAX;
        found.listed.extend(records.iter().filter_map(received));
    }
    found.listed.sort_by(|one, other| one.time.cmp(&other.time));
    found.has_more |= found.listed.len() > FILES_LISTED_MAX;
    found.listed.truncate(FILES_LISTED_MAX);
    Ok(found)
}

/// A record without a digest is of an earlier bridge.
fn received(record: &audit::Record) -> Option<ReceivedFile> {
    let text = |name: &str| record.entry.facts.get(name)?.as_str().map(str::to_owned);
    Some(ReceivedFile {
        path: text("path")?,
        place: text("place"),
        bytes: record.entry.facts.get("bytes")?.as_u64()?,
        sha256: text("sha256")?,
        operation: record.entry.operation.clone(),
        time: record.time.clone(),
    })
}

/// What the egress of a sandbox decided while a session ran, by the audit log.
fn decisions(
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
