//! The log of a sandbox over microsandbox's API: what its programs write, followed as events until the sandbox
//! ends. The native API has the bytes themselves.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use protocol::message::Channel;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::answer::API;
use super::limits::{LOG_TURN_BYTES, LOG_TURN_ENTRIES};
use super::seat::find;
use crate::body::{Gone, Outgoing, Sink, respond};
use crate::call::Call;
use crate::forms::exit::met_limit;
use crate::limits::STREAM_BYTES;
use crate::route::{Operation, operation};
use crate::sessions::turns::turn;
use crate::shape::{Nothing, Query, Raw};
use host::instant::format;
use sandbox::limits::LOG_FOLLOW_PAUSE;
use sandbox::log::{Entry, Event, From, LogError, Mark, ReadBudget, Reader, Step};
use sandbox::refusal::Refusal;

const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// The header with the place after which a client goes on.
const LAST: &str = "last-event-id";
/// The clients keep places in units of so many bytes.
const PLACE_BYTES: usize = 16;
const SOURCES: [&str; 4] = ["stdout", "stderr", "output", "system"];

pub fn operations() -> Vec<Operation> {
    let path = "/msb/v1/sandboxes/{sandbox}/logs";
    vec![operation(Method::GET, path, "msb_logs", "Follow the log.", follow).refusing(API)]
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Wanted {
    /// Names with commas between them; all but `system` without.
    sources: Option<String>,
}

/// Which outputs a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sources([bool; SOURCES.len()]);

impl Sources {
    fn parse(text: Option<&str>) -> Result<Self, Refusal> {
        let Some(text) = text else { return Ok(Self([true, true, true, false])) };
        let mut wanted = [false; SOURCES.len()];
        for name in text.split(',') {
            let at = SOURCES.iter().position(|source| *source == name).ok_or_else(|| {
                let known = SOURCES.join(", ");
                Refusal::invalid(format!("sources: {name:?} is not one of {known}"))
            })?;
            wanted[at] = true;
        }
        Ok(Self(wanted))
    }

    fn has(self, source: &str) -> bool {
        SOURCES.iter().zip(self.0).any(|(name, wanted)| *name == source && wanted)
    }
}

/// A place in the log as the clients can keep it: bytes in base64, with a count of units first.
fn shown_place(mark: &Mark) -> String {
    let text = mark.to_string();
    let units = text.len().div_ceil(PLACE_BYTES);
    let mut bytes = vec![0; 1 + units * PLACE_BYTES];
    bytes[0] = units as u8;
    bytes[1..=text.len()].copy_from_slice(text.as_bytes());
    STANDARD.encode(bytes)
}

fn parse_place(text: &str) -> Result<Mark, Refusal> {
    let bytes = STANDARD.decode(text).ok();
    let text = bytes.as_deref().and_then(|bytes| std::str::from_utf8(bytes.get(1..)?).ok());
    let mark = text.and_then(|text| text.trim_end_matches('\0').parse().ok());
    mark.ok_or_else(|| Refusal::invalid(format!("{LAST}: this is no place in a log")))
}

/// An entry as an event, if the client wants it.
fn event(entry: &Entry, place: Option<&Mark>, sources: Sources) -> Option<String> {
    let (source, text) = match &entry.event {
        Event::Output { channel, bytes, .. } => {
            let source = match channel {
                Channel::Stdout => "stdout",
                Channel::Stderr => "stderr",
                Channel::Terminal => "output",
            };
            (source, String::from_utf8_lossy(bytes).into_owned())
        }
        Event::Started { command, .. } => ("system", format!("started: {command}\n")),
        Event::Exited { record, .. } => {
            let why = met_limit(&record.cause).map(|words| format!(": {words}"));
            let code = record.cause.shell_code();
            ("system", format!("ended with exit code {code}{}\n", why.unwrap_or_default()))
        }
        Event::Gap { from, to, .. } => ("system", format!("{} bytes are missing\n", to - from)),
        Event::Missing { bytes } => ("system", format!("{bytes} bytes are no longer kept\n")),
        Event::Damaged { bytes } => ("system", format!("{bytes} bytes are damaged\n")),
        Event::Closed { why } => ("system", format!("the sandbox has ended: {why}\n")),
        Event::Resized { .. } => return None,
    };
    if !sources.has(source) {
        return None;
    }
    let data = json!({ "source": source, "ts": format(entry.time_ms), "text": text });
    let id = place.map(|place| format!("id: {}\n", shown_place(place))).unwrap_or_default();
    Some(format!("{id}event: log\ndata: {data}\n\n"))
}

/// What one turn has found.
struct Turn {
    events: Vec<String>,
    is_at_end: bool,
    is_closed: bool,
}

fn look(
    reader: &mut Reader,
    directory: &Path,
    sources: Sources,
    room: &mut ReadBudget,
) -> Result<Turn, LogError> {
    let (mut events, mut bytes) = (Vec::new(), 0);
    loop {
        let more = |events| Turn { events, is_at_end: false, is_closed: false };
        if events.len() >= LOG_TURN_ENTRIES || bytes >= LOG_TURN_BYTES {
            return Ok(more(events));
        }
        match reader.step(room)? {
            Step::Entry(entry) => {
                if let Some(event) = event(&entry, reader.mark().as_ref(), sources) {
                    bytes += event.len();
                    events.push(event);
                }
            }
            Step::Paused => return Ok(more(events)),
            Step::AtEnd => {
                // A log that was removed will not go on either.
                let is_closed = reader.is_closed() || !directory.exists();
                return Ok(Turn { events, is_at_end: true, is_closed });
            }
        }
    }
}

async fn follow(call: Call, Query(wanted): Query<Wanted>, _: Nothing) -> Result<Raw, Refusal> {
    let which = find(&call)?.which();
    let sources = Sources::parse(wanted.sources.as_deref())?;
    let after = call.headers.get(LAST).and_then(|value| value.to_str().ok());
    let after = after.filter(|text| !text.is_empty()).map(parse_place).transpose()?;
    let directory = call.api.registry().log_directory(&which)?;
    let place = directory.clone();
    let reader = turn(move |_| match after {
        Some(mark) => Reader::resume(&place, mark),
        None => Reader::open(&place, From::Start),
    })
    .await?;
    call.memory.grow(STREAM_BYTES)?;
    let (sink, body) = Outgoing::stream(None);
    let (memory, trail) = (call.memory.clone(), call.trail.clone());
    tokio::spawn(async move {
        let _held = (memory, trail);
        tokio::select! {
            // A client that is gone needs no message.
            _ = tell(reader, directory, sources, &sink) => {}
            () = sink.closed() => {}
        }
    });
    Ok(Raw(respond(StatusCode::OK, EVENTS, body)))
}

async fn tell(
    mut reader: Reader,
    directory: PathBuf,
    sources: Sources,
    sink: &Sink,
) -> Result<(), Gone> {
    loop {
        let place = directory.clone();
        let looked = turn(move |room| {
            let found = look(&mut reader, &place, sources, room)?;
            Ok((reader, found))
        })
        .await;
        let Ok((back, found)) = looked else {
            sink.cut();
            return Err(Gone);
        };
        reader = back;
        for event in found.events {
            sink.send(event).await?;
        }
        if found.is_closed {
            return sink.send("event: end\ndata: {}\n\n").await;
        }
        if found.is_at_end {
            sleep(LOG_FOLLOW_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_in_the_clients_form() {
        for text in ["1-0-0", "12-345678-123456789012"] {
            let mark: Mark = text.parse().unwrap();
            let shown = shown_place(&mark);
            let bytes = STANDARD.decode(&shown).unwrap();
            assert_eq!(bytes.len(), 1 + usize::from(bytes[0]) * PLACE_BYTES);
            assert_eq!(parse_place(&shown).unwrap().to_string(), text);
        }
        for broken in ["", "!", "AA==", "/////w=="] {
            assert!(parse_place(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn sources_are_those_that_are_named_or_the_outputs() {
        let usual = Sources::parse(None).unwrap();
        assert!(usual.has("stdout") && usual.has("output") && !usual.has("system"));
        let one = Sources::parse(Some("stderr,system")).unwrap();
        assert!(one.has("stderr") && one.has("system") && !one.has("stdout"));
        assert!(Sources::parse(Some("stdin")).is_err());
    }
}
