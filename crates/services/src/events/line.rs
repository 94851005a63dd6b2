//! The lines of a log: entries, and the head of a segment. Pure.

use serde::{Deserialize, Serialize};

use super::limits::TEXT_CHARS_MAX;
use sandbox::event::{Facts, Kind};
use sandbox::{Name, Phase, SandboxId};

/// One event, as it is stored and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number in the namespace; each is greater than the one before. Of a gap, the last one that is
    /// missing.
    pub offset: u64,
    /// When it happened, or was found, in milliseconds since 1970.
    pub at_ms: u64,
    pub kind: Kind,
    /// The sandbox, by its name and its own id: names are used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<SandboxId>,
    /// Whether it was found by the bridge after the one that was killed before it could write it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    #[serde(flatten)]
    pub facts: Facts,
}

/// An entry as programs get it outside of its namespace's log.
#[derive(Clone, Debug, Serialize)]
pub struct EntryJson<'a> {
    pub namespace: &'a Name,
    #[serde(flatten)]
    pub entry: &'a Entry,
}

impl Entry {
    /// The events from one offset up to another, which are no longer kept.
    pub(super) fn gap(from: u64, to: u64, at_ms: u64) -> Self {
        let facts = Facts { from: Some(from), to: Some(to), ..Facts::none() };
        let (sandbox, id, late) = (None, None, false);
        Self { offset: to.saturating_sub(1), at_ms, kind: Kind::Gap, sandbox, id, late, facts }
    }

    pub(super) fn lost(offset: u64, at_ms: u64, count: u64) -> Self {
        let facts = Facts { count: Some(count), ..Facts::none() };
        Self { offset, at_ms, kind: Kind::EventsLost, sandbox: None, id: None, late: false, facts }
    }
}

/// A sandbox that the stream knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    pub id: SandboxId,
    pub sandbox: Name,
    pub phase: Phase,
}

/// The first line of a segment: what the events before it have led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub present: Vec<Known>,
}

/// The line of a value, with its end.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    // Only maps whose keys are no text are no JSON.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

pub fn parse(line: &[u8]) -> Option<Entry> {
    serde_json::from_slice(line).ok()
}

/// Limits texts that others have chosen.
pub fn cut(facts: &mut Facts) {
    for text in [&mut facts.cause, &mut facts.image, &mut facts.session].into_iter().flatten() {
        if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
            text.truncate(end);
            text.push('…');
        }
    }
}
