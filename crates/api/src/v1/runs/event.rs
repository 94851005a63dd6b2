//! The events of runs as clients read them. Pure.

use std::collections::BTreeMap;

use protocol::Text;
use protocol::message::Channel;
use protocol::repl::{self, DisplayRole, Event};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::end::End;
use crate::forms::artifacts::Captured;
use crate::forms::notebooks::InNotebook;
use crate::forms::problem::Problem;
use crate::v1::value::{Content, lossy};
use agent_client::guest::Queued;
use sandbox::refusal::Refusal;

/// An event of a run or of its context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEvent {
    #[serde(flatten)]
    pub what: What,
    /// The run that it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub run: Option<u64>,
    /// The guest's time in microseconds since 1970; absent if the guest does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub at_us: Option<u64>,
}

/// What happened. Clients must ignore unknown types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum What {
    /// The run has its number, and this many runs are before it.
    Queued {
        ahead: u32,
    },
    /// The number of the run in its notebook, and what was restored for it.
    Notebook {
        notebook: InNotebook,
    },
    /// The run started.
    Started {
        /// The number of the run in its interpreter, from 1.
        count: u64,
        /// Why the interpreter is a new one, if the variables of the last run are lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        lost: Option<String>,
    },
    Stdout(Chunk),
    Stderr(Chunk),
    /// Output of an earlier run's threads or children after its end.
    Late(Late),
    Display {
        display: Display,
    },
    Artifact {
        artifact: Artifact,
    },
    /// The captured artifacts, if they were requested. `finished` follows.
    Artifacts {
        captured: Captured,
    },
    /// An uncaught exception. Its traceback is only here, not on stderr.
    Error {
        error: RunError,
    },
    /// The code waits for a line of input.
    InputRequest {
        request: u64,
        prompt: String,
        /// The input must not be shown.
        secret: bool,
    },
    /// The context lost its interpreter outside of a run, or was restarted.
    Lost {
        reason: String,
    },
    /// This client was too slow and missed this much. A run's own stream never has gaps.
    Gap {
        events: u64,
        bytes: u64,
    },
    /// The run's last event.
    Finished(End),
    /// The events end here, for this reason.
    Problem {
        problem: Problem,
    },
}

/// Bytes: `text` if they are UTF-8, otherwise `base64`; so are long ones that are mostly control
/// characters. Exactly one of the two is present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Chunk {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub base64: Option<String>,
}

/// Output that came after the end of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Late {
    /// The run that started the source of this output, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub of: Option<u64>,
    pub channel: RunChannel,
    #[serde(flatten)]
    pub chunk: Chunk,
    /// Bytes before these that were dropped.
    pub dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunChannel {
    Stdout,
    Stderr,
}

/// A display, in every form that it offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Display {
    pub role: DisplayRoleName,
    /// The id that later updates of this display use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub id: Option<String>,
    /// The forms: from MIME type to content.
    pub data: BTreeMap<String, Content>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    pub metadata: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DisplayRoleName {
    /// The value of the run's last expression.
    Value,
    /// The code displayed it.
    Shown,
    /// It replaces the display with the same id.
    Update,
}

/// A file that the code offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    pub path: String,
    /// The exact bytes of the path, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub path_base64: Option<String>,
    pub name: String,
    pub mime: String,
    pub bytes: u64,
}

/// An uncaught exception.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunError {
    /// Its type, such as `ZeroDivisionError` or `TypeError`.
    #[serde(rename = "type")]
    pub kind: String,
    pub message: String,
    /// As the language's own interpreter would print it.
    pub traceback: String,
    /// Outermost first.
    pub frames: Vec<Frame>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    pub file: String,
    pub line: u32,
    pub function: String,
    /// The text of the line.
    pub source: String,
}

impl RunEvent {
    pub fn of(event: &Event, what: What) -> Self {
        let run = (event.run != 0).then_some(event.run);
        Self { what, run, at_us: Some(event.at_us) }
    }

    pub fn queued(queued: Queued) -> Self {
        let what = What::Queued { ahead: queued.ahead };
        Self { what, run: Some(queued.run), at_us: None }
    }

    pub fn notebook(queued: Queued, notebook: &InNotebook) -> Self {
        let what = What::Notebook { notebook: notebook.clone() };
        Self { what, run: Some(queued.run), at_us: None }
    }

    pub fn problem(run: Option<u64>, problem: &Refusal) -> Self {
        Self { what: What::Problem { problem: problem.into() }, run, at_us: None }
    }

    /// Whether nothing can follow.
    pub fn is_problem(&self) -> bool {
        matches!(self.what, What::Problem { .. })
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        match Content::of(bytes) {
            Content::Text(text) => Self { text: Some(text), base64: None },
            Content::Base64(base64) => Self { text: None, base64: Some(base64) },
        }
    }
}

impl From<repl::Late> for Late {
    fn from(late: repl::Late) -> Self {
        let channel = match late.channel {
            Channel::Stderr => RunChannel::Stderr,
            Channel::Stdout | Channel::Terminal => RunChannel::Stdout,
        };
        let of = (late.of != 0).then_some(late.of);
        Self { of, channel, chunk: late.bytes.into_bytes().into(), dropped: late.dropped }
    }
}

impl From<repl::Display> for Display {
    fn from(shown: repl::Display) -> Self {
        let role = match shown.role {
            DisplayRole::Value => DisplayRoleName::Value,
            DisplayRole::Shown => DisplayRoleName::Shown,
            DisplayRole::Update => DisplayRoleName::Update,
        };
        let forms = shown.data.into_iter();
        let data = forms.map(|form| (form.mime, Content::exact(form.data.into_bytes()))).collect();
        // Its maker wrote it; what is no object is not passed on as one.
        let metadata = shown.metadata.and_then(|text| serde_json::from_str(&text).ok());
        Self { role, id: shown.id, data, metadata }
    }
}

impl From<repl::Artifact> for Artifact {
    fn from(file: repl::Artifact) -> Self {
        let repl::Artifact { path, name, mime, bytes } = file;
        let (path, path_base64) = shown_path(path);
        Self { path, path_base64, name, mime, bytes }
    }
}

/// A path for people, and its bytes if they are not UTF-8.
fn shown_path(path: Text) -> (String, Option<String>) {
    let shown = lossy(path.as_bytes());
    match Content::exact(path.into_bytes()) {
        Content::Text(text) => (text, None),
        Content::Base64(base64) => (shown, Some(base64)),
    }
}

impl From<repl::ErrorReport> for RunError {
    fn from(report: repl::ErrorReport) -> Self {
        let frames = report.frames.into_iter().map(|frame| Frame {
            file: frame.file,
            line: frame.line,
            function: frame.function,
            source: frame.source,
        });
        Self {
            kind: report.kind,
            message: report.message,
            traceback: report.traceback,
            frames: frames.collect(),
        }
    }
}
