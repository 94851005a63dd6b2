//! The log of a sandbox over E2B's REST calls: what its programs wrote, and when they began and ended, an entry for
//! each piece. The native API has the bytes themselves.

use std::collections::VecDeque;

use hyper::{Method, StatusCode};
use protocol::Cause;
use protocol::message::Channel;
use serde_json::{Value, json};

use super::answer::CONTROL;
use super::control::seat;
use super::forms::{field, fields};
use super::limits::{LOG_BYTES_MAX, LOG_ENTRIES_MAX};
use crate::body::json_response;
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::sessions::turns::{turn, turns};
use crate::shape::{Nothing, Raw};
use agent_client::program::ran_out_of_memory;
use sandbox::log::{Entry, Event, From, LogError, ReadBudget, Reader, Step};
use sandbox::refusal::Refusal;

/// From the least to the most urgent.
const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];
const INFO: usize = 1;
const WARN: usize = 2;

pub fn operations() -> Vec<Operation> {
    let (old, new) = ("/sandboxes/{sandbox}/logs", "/v2/sandboxes/{sandbox}/logs");
    [
        operation(Method::GET, old, "e2b_logs_old", "Read the log of a sandbox.", read_old),
        operation(Method::GET, new, "e2b_logs", "Read the log of a sandbox.", read),
    ]
    .map(|operation| operation.refusing(CONTROL))
    .to_vec()
}

/// An entry as it is answered.
struct Line {
    time_ms: u64,
    level: usize,
    message: String,
    fields: Value,
}

impl Line {
    fn of(entry: Entry) -> Option<Self> {
        let session = entry.event.session().map(ToString::to_string);
        let (level, message, channel) = match entry.event {
            Event::Started { command, .. } => (INFO, format!("started: {command}"), None),
            Event::Output { channel, bytes, .. } => {
                let level = if channel == Channel::Stderr { WARN } else { INFO };
                (level, String::from_utf8_lossy(&bytes).into_owned(), Some(channel))
            }
            Event::Exited { record, .. } => (INFO, ended(&record.cause), None),
            Event::Gap { channel, from, to, .. } => {
                (WARN, format!("{} bytes were not recorded", to - from), Some(channel))
            }
            Event::Missing { bytes } => {
                (WARN, format!("{bytes} bytes before this are no longer kept"), None)
            }
            Event::Damaged { bytes } => (WARN, format!("{bytes} bytes are damaged"), None),
            Event::Closed { why } => (INFO, format!("the sandbox has ended: {why}"), None),
            Event::Resized { .. } => return None,
        };
        let mut fields = serde_json::Map::new();
        if let Some(session) = session {
            fields.insert("session".to_owned(), session.into());
        }
        if let Some(channel) = channel {
            fields.insert("stream".to_owned(), stream(channel).into());
        }
        Some(Self { time_ms: entry.time_ms, level, message, fields: fields.into() })
    }

    fn shown(&self) -> Value {
        json!({
            "timestamp": host::instant::format(self.time_ms),
            "message": self.message,
            "level": LEVELS[self.level],
            "fields": self.fields,
        })
    }
}

fn ended(cause: &Cause) -> String {
    match cause {
        Cause::Exited { code } => format!("ended with exit code {code}"),
        Cause::Signaled { signal, .. } => format!("ended by signal {signal}"),
        Cause::Killed { signal, by } => format!("ended by signal {signal} of {by}"),
        Cause::TimedOut { limit_ms } => format!("ended, for it took longer than {limit_ms} ms"),
        Cause::OutOfMemory { limit_bytes } => {
            format!("ended: it {}", ran_out_of_memory(*limit_bytes))
        }
        Cause::AgentStopping => "ended with the sandbox".to_owned(),
        Cause::SpawnFailed { failure } => format!("did not start: {}", failure.subject),
    }
}

fn stream(channel: Channel) -> &'static str {
    match channel {
        Channel::Stdout => "stdout",
        Channel::Stderr => "stderr",
        Channel::Terminal => "terminal",
    }
}

/// What is wanted, and what of it is found so far.
struct Look {
    reader: Reader,
    from_ms: u64,
    to_ms: u64,
    is_backward: bool,
    level: usize,
    search: String,
    limit: usize,
    found: VecDeque<Line>,
    bytes: usize,
}

impl Look {
    fn step(&mut self, room: &mut ReadBudget) -> Result<Option<VecDeque<Line>>, LogError> {
        loop {
            let is_full = self.found.len() >= self.limit || self.bytes >= LOG_BYTES_MAX;
            if is_full && !self.is_backward {
                return Ok(Some(std::mem::take(&mut self.found)));
            }
            let entry = match self.reader.step(room)? {
                Step::Entry(entry) => *entry,
                Step::Paused => return Ok(None),
                Step::AtEnd => return Ok(Some(std::mem::take(&mut self.found))),
            };
            if !(self.from_ms..=self.to_ms).contains(&entry.time_ms) {
                continue;
            }
            let line = Line::of(entry)
                .filter(|line| line.level >= self.level && line.message.contains(&self.search));
            if let Some(line) = line {
                self.bytes += line.message.len();
                self.found.push_back(line);
            }
            // Where entries are read from the end, the newest are wanted.
            while self.is_backward
                && self.found.len() > 1
                && (self.found.len() > self.limit || self.bytes > LOG_BYTES_MAX)
            {
                let oldest = self.found.pop_front();
                self.bytes -= oldest.map_or(0, |line| line.message.len());
            }
        }
    }
}

/// The lines that the parameters name; `beginning` is the one that has a point in time.
async fn lines(call: &Call, beginning: &str) -> Result<Vec<Line>, Refusal> {
    let record = seat(call)?;
    let fields = fields(call)?;
    let number = |name| match field(&fields, name).map(str::parse::<u64>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(Refusal::invalid(format!("{name}: it must be a whole number"))),
    };
    let at_ms = number(beginning)?;
    let limit = usize::try_from(number("limit")?.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let is_backward = match field(&fields, "direction") {
        None | Some("forward") => false,
        Some("backward") => true,
        Some(other) => {
            let message = format!("direction: {other:?} is neither forward nor backward");
            return Err(Refusal::invalid(message));
        }
    };
    let level = match field(&fields, "level") {
        None => 0,
        Some(name) => LEVELS.iter().position(|level| *level == name).ok_or_else(|| {
            Refusal::invalid(format!("level: {name:?} is not one of {}", LEVELS.join(", ")))
        })?,
    };
    let directory = call.api.registry().log_directory(&record.which())?;
    let from_ms = if is_backward { 0 } else { at_ms.unwrap_or(0) };
    let from = if from_ms == 0 { From::Start } else { From::Since { ms: from_ms } };
    let reader = turn(move |_| Reader::open(&directory, from)).await?;
    let look = Look {
        reader,
        from_ms,
        to_ms: if is_backward { at_ms.unwrap_or(u64::MAX) } else { u64::MAX },
        is_backward,
        level,
        search: field(&fields, "search").unwrap_or_default().to_owned(),
        limit: limit.clamp(1, LOG_ENTRIES_MAX),
        found: VecDeque::new(),
        bytes: 0,
    };
    let found = turns(look, Look::step).await?;
    call.memory.grow(found.iter().map(|line| line.message.len()).sum())?;
    let in_order = found.into_iter();
    Ok(if is_backward { in_order.rev().collect() } else { in_order.collect() })
}

async fn read(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let lines = lines(&call, "cursor").await?;
    let entries: Vec<Value> = lines.iter().map(Line::shown).collect();
    Ok(Raw(json_response(StatusCode::OK, &json!({ "logs": entries }))))
}

async fn read_old(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let lines = lines(&call, "start").await?;
    let plain: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({ "timestamp": host::instant::format(line.time_ms), "line": line.message })
        })
        .collect();
    let entries: Vec<Value> = lines.iter().map(Line::shown).collect();
    Ok(Raw(json_response(StatusCode::OK, &json!({ "logs": plain, "logEntries": entries }))))
}
