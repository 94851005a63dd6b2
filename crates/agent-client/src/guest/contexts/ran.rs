//! The whole output of a run, for callers that want it at the end. Pure.

use protocol::Text;
use protocol::repl::{Display, DisplayRole, ErrorReport, Event, Finished, Happening, Started};

use crate::guest::limits::EVENT_COST_BYTES;

/// An ended run and its output, up to a bound.
#[derive(Clone, Debug)]
pub struct Ran {
    pub run: u64,
    /// Absent when its turn never came.
    pub started: Option<Started>,
    /// All events between the first and the last, in order; outputs of one channel that follow each
    /// other are one event.
    pub events: Vec<Event>,
    pub finished: Finished,
    /// Events that found no room, and the bytes of output that were in them.
    pub dropped_events: u64,
    pub dropped_bytes: u64,
}

impl Ran {
    pub fn stdout(&self) -> Vec<u8> {
        self.output(|what| match what {
            Happening::Stdout { bytes } => Some(bytes),
            _ => None,
        })
    }

    pub fn stderr(&self) -> Vec<u8> {
        self.output(|what| match what {
            Happening::Stderr { bytes } => Some(bytes),
            _ => None,
        })
    }

    /// The value of the last expression.
    pub fn value(&self) -> Option<&Display> {
        self.events.iter().rev().find_map(|event| match &event.what {
            Happening::Display(shown) if shown.role == DisplayRole::Value => Some(shown),
            _ => None,
        })
    }

    pub fn error(&self) -> Option<&ErrorReport> {
        self.events.iter().rev().find_map(|event| match &event.what {
            Happening::Error(report) => Some(report),
            _ => None,
        })
    }

    /// Whether something was left out.
    pub fn is_truncated(&self) -> bool {
        self.dropped_events > 0 || self.dropped_bytes > 0
    }

    fn output(&self, pick: impl Fn(&Happening) -> Option<&Text>) -> Vec<u8> {
        let parts = self.events.iter().filter_map(|event| pick(&event.what));
        parts.flat_map(Text::as_bytes).copied().collect()
    }
}

/// Events of a run that is under way.
#[derive(Debug)]
pub(super) struct Collected {
    run: u64,
    started: Option<Started>,
    events: Vec<Event>,
    room_bytes: usize,
    dropped_events: u64,
    dropped_bytes: u64,
}

impl Collected {
    pub(super) fn new(run: u64, bytes_max: usize) -> Self {
        Self {
            run,
            started: None,
            events: Vec::new(),
            room_bytes: bytes_max,
            dropped_events: 0,
            dropped_bytes: 0,
        }
    }

    /// Takes in the next event; the last one makes a whole of them.
    pub(super) fn take(&mut self, event: Event) -> Option<Ran> {
        match event.what {
            Happening::Started(started) => self.started = Some(started),
            Happening::Finished(finished) => {
                return Some(Ran {
                    run: self.run,
                    started: self.started.take(),
                    events: std::mem::take(&mut self.events),
                    finished,
                    dropped_events: self.dropped_events,
                    dropped_bytes: self.dropped_bytes,
                });
            }
            what => self.keep(Event { what, ..event }),
        }
        None
    }

    fn keep(&mut self, mut event: Event) {
        if let Some(bytes) = output(&mut event.what) {
            self.keep_output(event, bytes);
            return;
        }
        let bytes = content_bytes(&event.what);
        let cost = bytes.saturating_add(EVENT_COST_BYTES);
        if cost > self.room_bytes {
            self.dropped_events += 1;
            if let Happening::Late(late) = &event.what {
                self.dropped_bytes += late.bytes.as_bytes().len() as u64;
            }
            return;
        }
        self.room_bytes -= cost;
        self.events.push(event);
    }

    /// Output is kept while it fits; once some is dropped, so is all that follows.
    fn keep_output(&mut self, mut event: Event, mut bytes: Vec<u8>) {
        let joins = self.events.last().is_some_and(|before| {
            std::mem::discriminant(&before.what) == std::mem::discriminant(&event.what)
        });
        let cost = if joins { 0 } else { EVENT_COST_BYTES };
        let room = if self.dropped_bytes > 0 { 0 } else { self.room_bytes.saturating_sub(cost) };
        let count = room.min(bytes.len());
        self.dropped_bytes += (bytes.len() - count) as u64;
        if count == 0 {
            return;
        }
        self.room_bytes -= cost + count;
        bytes.truncate(count);
        let before = self.events.last_mut().filter(|_| joins);
        if let Some(before) = before.and_then(|event| bytes_of(&mut event.what)) {
            let mut joined = std::mem::take(before).into_bytes();
            joined.extend_from_slice(&bytes);
            *before = joined.into();
        } else {
            if let Some(place) = bytes_of(&mut event.what) {
                *place = bytes.into();
            }
            self.events.push(event);
        }
    }
}

fn bytes_of(what: &mut Happening) -> Option<&mut Text> {
    match what {
        Happening::Stdout { bytes } | Happening::Stderr { bytes } => Some(bytes),
        _ => None,
    }
}

/// Takes the bytes out of an output.
fn output(what: &mut Happening) -> Option<Vec<u8>> {
    bytes_of(what).map(|bytes| std::mem::take(bytes).into_bytes())
}

/// The size of an event's content.
fn content_bytes(what: &Happening) -> usize {
    match what {
        Happening::Stdout { bytes } | Happening::Stderr { bytes } => bytes.as_bytes().len(),
        Happening::Late(late) => late.bytes.as_bytes().len(),
        Happening::Display(shown) => {
            let forms = shown.data.iter();
            let forms: usize = forms
                .map(|form| form.mime.len() + form.data.as_bytes().len() + FORM_COST_BYTES)
                .sum();
            forms + shown.metadata.as_ref().map_or(0, String::len)
        }
        Happening::Artifact(file) => file.path.as_bytes().len() + file.name.len() + file.mime.len(),
        Happening::Error(report) => {
            let frames: usize = report
                .frames
                .iter()
                .map(|frame| {
                    frame.file.len() + frame.function.len() + frame.source.len() + FORM_COST_BYTES
                })
                .sum();
            report.kind.len() + report.message.len() + report.traceback.len() + frames
        }
        Happening::InputRequest { prompt, .. } => prompt.len(),
        Happening::Lost { reason } => reason.len(),
        Happening::Started(_) | Happening::Gap { .. } | Happening::Finished(_) => 0,
    }
}

/// The overhead of a display's form or a traceback's frame.
const FORM_COST_BYTES: usize = 96;
