//! The entries of a log as clients read them. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::ENTRY_COST_BYTES;
use crate::budget::json_bytes;
use crate::forms::exit::Exit;
use crate::forms::problem::Problem;
use crate::v1::value::Content;
use sandbox::log::{Entry, Event, Mark};

/// An entry of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogEntry {
    #[serde(flatten)]
    pub what: Logged,
    /// The host's time of recording, in milliseconds since 1970; absent for entries that are not
    /// from the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub at_ms: Option<u64>,
    /// The position after this entry, for `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub place: Option<String>,
}

/// What was recorded. Clients must ignore unknown types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Logged {
    Started {
        session: String,
        command: String,
        started_at_ms: u64,
    },
    /// Output of a session: `text` if it is UTF-8, otherwise `base64`; so is long output that is mostly
    /// control characters.
    Output {
        session: String,
        stream: LogStream,
        /// The offset of the first byte in the session's output.
        offset: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        base64: Option<String>,
    },
    /// Output from one offset to another that was never recorded.
    Gap {
        session: String,
        stream: LogStream,
        from: u64,
        to: u64,
    },
    /// The size of the session's terminal from here on.
    Resized {
        session: String,
        rows: u16,
        columns: u16,
    },
    Exited {
        session: String,
        exit: Exit,
    },
    /// This many bytes of output were recorded here, and later removed to keep the log within its
    /// limit.
    Missing {
        bytes: u64,
    },
    /// This many bytes of the log's files are damaged. The output in them is lost.
    Damaged {
        bytes: u64,
    },
    /// The sandbox has ended; nothing follows.
    Closed {
        reason: String,
    },
    /// The entries end here, for this reason.
    Problem {
        problem: Problem,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    Stdout,
    Stderr,
    /// The one output of a terminal.
    Terminal,
}

impl LogEntry {
    pub fn new(entry: Entry, mark: Option<Mark>) -> Self {
        let at_ms = Some(entry.time_ms);
        let place = mark.map(|mark| mark.to_string());
        Self { what: entry.event.into(), at_ms, place }
    }

    /// What it takes here and in JSON.
    pub fn cost(&self) -> usize {
        let written = match &self.what {
            Logged::Output { text, base64, .. } => text.as_ref().or(base64.as_ref()),
            Logged::Started { command, .. } => Some(command),
            _ => None,
        };
        let written = written.map_or(&[][..], |text| text.as_bytes());
        ENTRY_COST_BYTES + written.len() + json_bytes(written)
    }

    pub fn problem(problem: Problem) -> Self {
        Self { what: Logged::Problem { problem }, at_ms: None, place: None }
    }
}

impl From<Event> for Logged {
    fn from(event: Event) -> Self {
        match event {
            Event::Started { session, command, started_at_ms } => {
                Self::Started { session: session.to_string(), command, started_at_ms }
            }
            Event::Output { session, channel, offset, bytes } => {
                let (text, base64) = match Content::of(bytes) {
                    Content::Text(text) => (Some(text), None),
                    Content::Base64(base64) => (None, Some(base64)),
                };
                let (session, stream) = (session.to_string(), channel.into());
                Self::Output { session, stream, offset, text, base64 }
            }
            Event::Gap { session, channel, from, to } => {
                Self::Gap { session: session.to_string(), stream: channel.into(), from, to }
            }
            Event::Resized { session, rows, columns } => {
                Self::Resized { session: session.to_string(), rows, columns }
            }
            Event::Exited { session, record } => {
                Self::Exited { session: session.to_string(), exit: record.into() }
            }
            Event::Missing { bytes } => Self::Missing { bytes },
            Event::Damaged { bytes } => Self::Damaged { bytes },
            Event::Closed { why } => Self::Closed { reason: why },
        }
    }
}

impl From<protocol::message::Channel> for LogStream {
    fn from(channel: protocol::message::Channel) -> Self {
        match channel {
            protocol::message::Channel::Stdout => Self::Stdout,
            protocol::message::Channel::Stderr => Self::Stderr,
            protocol::message::Channel::Terminal => Self::Terminal,
        }
    }
}
