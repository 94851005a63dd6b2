//! An entry as it is recorded, and a record as it is written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::limits::{ARGUMENTS_MAX, FACTS_MAX, LIST_MAX, TEXT_CHARS_MAX};
use host::instant;
use otel::Place;

/// Who carried out the operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Who {
    /// The holder of a key, by the key's id or fingerprint and its label.
    Key {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// A user of this host, on the control socket.
    User {
        uid: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Anybody who reaches a server that requires no keys.
    Local,
    /// Somebody without a valid key.
    Anybody,
    /// The bridge itself.
    Bridge,
}

impl Who {
    /// Whether this word, as given to a query, matches.
    pub fn is(&self, word: &str) -> bool {
        match self {
            Self::Key { id, name } => id == word || name.as_deref() == Some(word) || word == "key",
            Self::User { uid, name } => {
                word.parse() == Ok(*uid) || name.as_deref() == Some(word) || word == "user"
            }
            Self::Local => word == "local",
            Self::Anybody => word == "anybody",
            Self::Bridge => word == "bridge",
        }
    }
}

/// The interface that was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    Rest,
    Rpc,
    Mcp,
    Cli,
    Ssh,
    Bridge,
}

impl Door {
    /// The name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Rpc => "rpc",
            Self::Mcp => "mcp",
            Self::Cli => "cli",
            Self::Ssh => "ssh",
            Self::Bridge => "bridge",
        }
    }
}

/// The outcome of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    /// It was not started, because it was not allowed or the request was invalid.
    Refused,
    /// It was started and failed.
    Failed,
}

impl Outcome {
    /// The name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl std::str::FromStr for Outcome {
    type Err = InvalidOutcome;

    fn from_str(text: &str) -> Result<Self, InvalidOutcome> {
        match text {
            "ok" => Ok(Self::Ok),
            "refused" => Ok(Self::Refused),
            "failed" => Ok(Self::Failed),
            _ => Err(InvalidOutcome(text.chars().take(32).collect())),
        }
    }
}

/// Text that is not an outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an outcome: write ok, refused or failed")]
pub struct InvalidOutcome(pub String);

/// The policy that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Key,
    Scope,
    Rate,
    Limit,
    Cap,
    Secret,
    Egress,
}

/// An entry to record. Long texts are cut when it is written; nothing else is changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Milliseconds since 1970; written as a time.
    #[serde(skip)]
    pub at_ms: u64,
    pub who: Who,
    pub door: Door,
    pub operation: String,
    pub outcome: Outcome,
    /// The code of a refusal or failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Verdict>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The sandbox's own id: names are used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The life of its name in a fleet, which one fence is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// The node of the fleet that has written this; it is set when that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Names only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The program that was started, and its arguments if they are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The peer's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// The span of the operation, for those who send it on; it is not written.
    #[serde(skip)]
    pub place: Option<Place>,
    /// Facts of this kind of entry, such as a destination or a reason.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
}

impl Entry {
    pub fn new(who: Who, door: Door, operation: impl Into<String>) -> Self {
        Self {
            at_ms: instant::now_ms(),
            who,
            door,
            operation: operation.into(),
            outcome: Outcome::Ok,
            code: None,
            status: None,
            duration_us: None,
            policy: None,
            namespace: None,
            sandbox: None,
            id: None,
            incarnation: None,
            node: None,
            image: None,
            digest: None,
            secrets: Vec::new(),
            labels: BTreeMap::new(),
            program: None,
            arguments: Vec::new(),
            request: None,
            remote: None,
            place: None,
            facts: Map::new(),
        }
    }

    /// Notes the sandbox that it is about, distinguishable from others of its name.
    pub fn describe(&mut self, record: sandbox::Record) {
        self.id = Some(record.id.to_string());
        self.incarnation = record.incarnation;
        self.image = record.image;
        self.digest = record.image_digest.map(|digest| digest.to_string());
        self.secrets = record.secrets;
        self.labels = record.labels;
    }

    /// An entry for something that the bridge did by itself.
    pub fn of_bridge(operation: &str) -> Self {
        Self::new(Who::Bridge, Door::Bridge, operation)
    }

    #[must_use]
    pub fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(name.to_owned(), value.into());
        self
    }

    /// Adds several facts; a later one replaces an earlier one of the same name.
    #[must_use]
    pub fn facts(mut self, all: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        self.facts.extend(all.into_iter().map(|(name, value)| (name.to_owned(), value)));
        self
    }

    /// An entry for records that were lost.
    pub(super) fn lost(count: u64) -> Self {
        let entry = Self::of_bridge("audit.lost").fact("records", count);
        Self { outcome: Outcome::Failed, ..entry }
    }

    /// Limits the length of texts that others have chosen.
    pub(super) fn cut(mut self) -> Self {
        let texts = [&mut self.program, &mut self.image, &mut self.request, &mut self.code];
        texts.into_iter().flatten().for_each(cut_text);
        cut_text(&mut self.operation);
        self.arguments.truncate(ARGUMENTS_MAX);
        self.arguments.iter_mut().for_each(cut_text);
        let surplus: Vec<_> = self.facts.keys().skip(FACTS_MAX).cloned().collect();
        for name in surplus {
            self.facts.remove(&name);
        }
        for value in self.facts.values_mut() {
            match value {
                Value::String(text) => cut_text(text),
                Value::Array(texts) => {
                    texts.truncate(LIST_MAX);
                    for text in texts {
                        if let Value::String(text) = text {
                            cut_text(text);
                        }
                    }
                }
                _ => {}
            }
        }
        self
    }
}

fn cut_text(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// From one, without gaps.
    pub seq: u64,
    /// RFC 3339 in UTC, with milliseconds; as text, later is greater.
    pub time: String,
    #[serde(flatten)]
    pub entry: Entry,
    /// The SHA-256 of the line before, in a log that is chained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<String>,
}
