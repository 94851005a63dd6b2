//! Compares what the log has of sessions with the digests that the agent has given at their ends.
//!
//! The log's own checksums find what an accident has changed, and the record is then passed over: its bytes are
//! missing, and said to be damaged. The digests find the rest, such as a change by somebody who has made the
//! checksum again.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use protocol::exit::OutputTotal;
use protocol::message::Channel;
use protocol::{ExitRecord, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LogError;
use super::known::{AllSessions, RecordedSession};
use super::record::{RecordBody, Run};
use super::room::ReadBudget;
use super::runs::{RunItem, Runs};
use crate::limits::VERIFY_HOLES_MAX;
use image::digest::Digester;

/// One session of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    pub session: String,
    /// The argument vector as one shortened line.
    pub command: String,
    pub started_at_ms: u64,
    /// Whether the log has its end, which has the digests.
    pub ended: bool,
    pub outputs: Vec<OutputComparison>,
}

/// One output of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputComparison {
    /// `stdout`, `stderr` or `terminal`.
    pub output: String,
    pub finding: Finding,
    /// How many bytes the agent has digested: all that the program has written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub bytes: Option<u64>,
    /// The agent's SHA-256 of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub sha256: Option<String>,
    /// How many of them the log has.
    pub kept_bytes: u64,
    /// SHA-256 of what the log has, if it has all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub kept_sha256: Option<String>,
    /// What the log has not, the first 32 parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// All of it was kept, and is what the program has written.
    Equal,
    /// A part was kept, and nothing of it is known to be wrong.
    Partial,
    /// Files of the log were changed or cut, and bytes are lost.
    Damaged,
    /// All of it was kept, and it is not what the program has written.
    Differs,
    /// There is no digest: it has not ended, its sandbox ended with it, or its agent is of an earlier version.
    Unknown,
}

/// Bytes of an output that the log has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    pub from: u64,
    pub to: u64,
    pub because: MissingBecause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingBecause {
    /// It was removed to keep the log within its limit.
    Rotated,
    /// It never came here: its policy dropped it, or the disk was full.
    NotRecorded,
    Damaged,
}

/// Compares the sessions of a log, or one of them. If several had one name, the last counts. It reads the whole
/// log, which is bounded.
pub fn verify(directory: &Path, only: Option<&SessionId>) -> Result<Vec<Comparison>, LogError> {
    let mut room = ReadBudget::ENDLESS;
    let known = AllSessions::new(directory, usize::MAX)?.step(&mut room)?.unwrap_or_default();
    let mut wanted: HashMap<SessionId, Kept> = known
        .into_iter()
        .filter(|recorded| only.is_none_or(|only| *only == recorded.session))
        .map(|recorded| (recorded.session.clone(), Kept::new(recorded)))
        .collect();
    let mut runs = Runs::begin(directory)?;
    let mut damages = 0;
    while let Some(item) = runs.next()? {
        match item {
            RunItem::Damage { .. } => damages += 1,
            RunItem::Record((session, run), record) => {
                if let Some(kept) = wanted.get_mut(&session).filter(|kept| kept.run() == run) {
                    kept.take(record.what, damages);
                }
            }
        }
    }
    let mut compared: Vec<_> = wanted.into_values().map(|kept| kept.compare(damages)).collect();
    compared.sort_by(|one, other| {
        (one.started_at_ms, &one.session).cmp(&(other.started_at_ms, &other.session))
    });
    Ok(compared)
}

/// What has been read of one session.
struct Kept {
    recorded: RecordedSession,
    outputs: BTreeMap<Channel, KeptOutput>,
}

/// What has been read of one output.
struct KeptOutput {
    at: u64,
    /// Where the digest ends.
    until: u64,
    sum: Digester,
    missing: Vec<Missing>,
    is_damaged: bool,
    /// How much damage there was before its last record.
    damages: usize,
}

impl Kept {
    fn new(recorded: RecordedSession) -> Self {
        let totals = recorded.exit.iter().flat_map(|exit| &exit.outputs);
        let of_totals = totals.map(|total| (total.channel, total.digested.unwrap_or(u64::MAX)));
        let mut outputs: BTreeMap<Channel, u64> =
            recorded.outputs.keys().map(|channel| (*channel, u64::MAX)).collect();
        outputs.extend(of_totals);
        let outputs = outputs.into_iter().map(|(channel, until)| (channel, KeptOutput::new(until)));
        Self { outputs: outputs.collect(), recorded }
    }

    fn run(&self) -> Run {
        self.recorded.run
    }

    fn take(&mut self, what: RecordBody<'_>, damages: usize) {
        match what {
            RecordBody::Output { channel, offset, bytes, .. } => {
                if let Some(output) = self.outputs.get_mut(&channel) {
                    output.take(offset, &bytes.0, damages);
                }
            }
            RecordBody::Gap { channel, from, to, .. } => {
                if let Some(output) = self.outputs.get_mut(&channel) {
                    output.reach(from, damages);
                    output.miss(to, MissingBecause::NotRecorded);
                }
            }
            _ => {}
        }
    }

    fn compare(self, damages: usize) -> Comparison {
        let RecordedSession { session, command, run, exit, .. } = self.recorded;
        let total = |channel| total_of(exit.as_ref(), channel);
        let outputs = self.outputs.into_iter();
        Comparison {
            session: session.to_string(),
            command,
            started_at_ms: run.started_at_ms,
            ended: exit.is_some(),
            outputs: outputs
                .map(|(channel, kept)| kept.compare(channel, total(channel), damages))
                .collect(),
        }
    }
}

fn total_of(exit: Option<&ExitRecord>, channel: Channel) -> Option<&OutputTotal> {
    exit?.outputs.iter().find(|total| total.channel == channel)
}

impl KeptOutput {
    fn new(until: u64) -> Self {
        Self {
            at: 0,
            until,
            sum: Digester::default(),
            missing: Vec::new(),
            is_damaged: false,
            damages: 0,
        }
    }

    fn take(&mut self, offset: u64, bytes: &[u8], damages: usize) {
        self.reach(offset, damages);
        let known = self.at.saturating_sub(offset).min(bytes.len() as u64);
        let wanted = self.until.saturating_sub(self.at).min(bytes.len() as u64 - known);
        let bytes = &bytes[known as usize..(known + wanted) as usize];
        self.sum.update(bytes);
        self.at += wanted;
    }

    /// What follows begins at `offset`.
    fn reach(&mut self, offset: u64, damages: usize) {
        let was_damaged = std::mem::replace(&mut self.damages, damages) != damages;
        let because = match (was_damaged, self.at) {
            (true, _) => MissingBecause::Damaged,
            (false, 0) => MissingBecause::Rotated,
            (false, _) => MissingBecause::NotRecorded,
        };
        self.miss(offset, because);
    }

    fn miss(&mut self, to: u64, because: MissingBecause) {
        let to = to.min(self.until);
        if to <= self.at {
            return;
        }
        let from = std::mem::replace(&mut self.at, to);
        self.is_damaged |= because == MissingBecause::Damaged;
        if self.missing.len() < VERIFY_HOLES_MAX {
            self.missing.push(Missing { from, to, because });
        }
    }

    fn compare(
        mut self,
        channel: Channel,
        total: Option<&OutputTotal>,
        damages: usize,
    ) -> OutputComparison {
        let known = total.and_then(|total| Some((total.digested?, total.sha256.as_ref()?)));
        if let Some((bytes, _)) = known {
            self.reach(bytes, damages);
        }
        let kept_bytes = self.sum.bytes();
        let kept = self.missing.is_empty().then(|| self.sum.finish().hex());
        let finding = match (known, &kept) {
            _ if self.is_damaged => Finding::Damaged,
            (None, _) => Finding::Unknown,
            (Some(_), None) => Finding::Partial,
            (Some((_, sha256)), Some(kept)) if sha256 == kept => Finding::Equal,
            (Some(_), Some(_)) => Finding::Differs,
        };
        OutputComparison {
            output: channel.name().to_owned(),
            finding,
            bytes: known.map(|(bytes, _)| bytes),
            sha256: known.map(|(_, sha256)| sha256.clone()),
            kept_bytes,
            kept_sha256: kept.filter(|_| known.is_some()),
            missing: self.missing,
        }
    }
}

#[cfg(test)]
mod tests;
