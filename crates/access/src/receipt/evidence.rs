//! What is known of a session or a run besides its end: what its sandbox was given, by the log of the sandbox, and what
//! that could reach, by the audit log.

use std::io;
use std::path::{Path, PathBuf};

use super::ReceiptError;
use super::limits::{
    DECISIONS_MAX, FILES_LISTED_MAX, INPUT_EARLY_MS, INPUT_PARTS_MAX, RECORDS_READ_MAX,
};
use super::statement::{
    DecidedFor, Decision, Decisions, Evidence, InputPart, Ran, ReceivedFiles, ReceivedInput,
    Subject,
};
use crate::audit::{Audit, Filter, Outcome, read};
use host::instant;
use sandbox::log::{BegunInput, Provenance, ProvenanceLog, ReceivedFile, SentInput};

impl Ran<'_> {
    /// From its start to its end, if it has ended.
    fn period(self) -> Option<(u64, u64)> {
        match self {
            Self::Session(session) => {
                session.exit.as_ref().map(|end| (end.started_at_ms, end.ended_at_ms))
            }
            Self::Run(run) => Some((run.started_at_ms, run.ended_at_ms)),
        }
    }

    /// Whether what a writer begins to send may go to it.
    fn may_read(self, begun: &BegunInput, begun_at_ms: u64) -> bool {
        let (Self::Session(session), Some((from_ms, to_ms))) = (self, self.period()) else {
            return false;
        };
        let is_early = begun_at_ms.saturating_add(INPUT_EARLY_MS) < from_ms;
        begun.session == session.session && begun.opened_at_ms <= to_ms && !is_early
    }

    /// Whether what a writer has sent went to it. Names of sessions are used again.
    fn has_read(self, sent: &SentInput, ended_at_ms: u64) -> bool {
        let (Self::Session(session), Some((from_ms, to_ms))) = (self, self.period()) else {
            return false;
        };
        sent.session == session.session && sent.opened_at_ms <= to_ms && ended_at_ms >= from_ms
    }
}

impl Evidence {
    /// Reads the log of the sandbox in this directory, and the audit log.
    pub fn read(
        audit: &Audit,
        log: &Path,
        sandbox: &Subject,
        ran: Ran<'_>,
    ) -> Result<Self, ReceiptError> {
        let Some((from_ms, to_ms)) = ran.period() else { return Ok(Self::default()) };
        let (mut inputs, mut stdin) = (ReceivedFiles::default(), ReceivedInput::default());
        // When writers were opened that have not ended.
        let mut open = Vec::new();
        let extent = ProvenanceLog::read(log, |time_ms, what| match what {
            Provenance::File(file) if time_ms <= to_ms => inputs.add(time_ms, file),
            Provenance::InputBegun(begun) if ran.may_read(&begun, time_ms) => {
                open.push(begun.opened_at_ms);
            }
            Provenance::Input(sent) if ran.has_read(&sent, time_ms) => {
                if let Some(at) = open.iter().position(|at| *at == sent.opened_at_ms) {
                    open.swap_remove(at);
                }
                stdin.add(time_ms, sent);
            }
            Provenance::Unseen {} if time_ms <= to_ms => inputs.has_unrecorded = true,
            Provenance::File(_)
            | Provenance::InputBegun(_)
            | Provenance::Input(_)
            | Provenance::Run(_)
            | Provenance::Program(_)
            | Provenance::Unseen {} => {}
        })?;
        inputs.has_more |= !extent.is_whole;
        stdin.has_more |= !extent.is_whole && matches!(ran, Ran::Session(_));
        stdin.is_open = !open.is_empty();
        let decided = |directory: &PathBuf| decisions(directory, sandbox, from_ms, to_ms);
        Ok(Self {
            decisions: audit.directory().map(decided).transpose().map_err(ReceiptError::Audit)?,
            inputs: Some(inputs),
            stdin: Some(stdin).filter(|stdin| *stdin != ReceivedInput::default()),
        })
    }
}

impl ReceivedFiles {
    fn add(&mut self, time_ms: u64, file: ReceivedFile) {
        if self.listed.len() == FILES_LISTED_MAX {
            self.has_more = true;
            return;
        }
        self.listed.push(super::statement::ReceivedFile::of(time_ms, file));
    }
}

impl ReceivedInput {
    fn add(&mut self, time_ms: u64, sent: SentInput) {
        if self.listed.len() == INPUT_PARTS_MAX {
            self.has_more = true;
            return;
        }
        let SentInput { offset, content, closed, .. } = sent;
        let time = instant::format(time_ms);
        let (bytes, sha256) = (content.bytes, content.sha256);
        self.listed.push(InputPart { time, offset, bytes, sha256, closed });
    }
}

/// What the egress of a sandbox decided in this time, by the audit log.
fn decisions(
    directory: &Path,
    sandbox: &Subject,
    from_ms: u64,
    to_ms: u64,
) -> io::Result<Decisions> {
    let filter = Filter {
        since_ms: Some(from_ms),
        until_ms: Some(to_ms.saturating_add(1)),
        sandbox: Some(sandbox.id.clone()),
        ..Filter::default()
    };
    let records = read(directory, &filter, RECORDS_READ_MAX, false)?;
    let has_more = records.len() == RECORDS_READ_MAX;
    let decided_for = Some(DecidedFor::Sandbox);
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
