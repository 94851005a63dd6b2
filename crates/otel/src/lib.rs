//! Traces, figures and logs for a collector of OpenTelemetry, over OTLP/HTTP with JSON.
//!
//! ```text
//!  api, agent-client ── spans ──▶ bounded queue ─┐
//!  journal, audit, events ─ records ▶ bounded queue ─┼─▶ a task each ──POST──▶ the collector
//!  figures, read at intervals ───────────────────┘      again after 429, 502, 503, 504; else counted
//! ```
//!
//! It only reads what the bridge records anyway: a span is a request on its way into the audit log, or a
//! program or run of its; figures are those of `/metrics`. Nobody waits for the collector: what finds no
//! room in a queue is counted and dropped. It knows nothing of requests and sandboxes; those who record
//! bring words. Output, input, environments and code are never brought.

#![forbid(unsafe_code)]

mod context;
mod encode;
mod exporter;
mod figures;
pub mod limits;
mod queue;
mod record;
mod sender;
mod span;
mod value;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use context::{PARENT, PARENT_VARIABLE, STATE, STATE_VARIABLE, SpanId, TraceContext, TraceId};
pub use exporter::{Exporter, Source, TARGET};
pub use figures::{Family, Kind, Labels, Number, Point, Spread};
pub use queue::Counts;
pub use record::{LogRecord, Place, Severity};
pub use sender::{Header, HeaderText, SendError};
pub use span::{Scope, Span, SpanKind};
pub use value::{Attributes, Value};

use bytes::Bytes;
use host::dial::Origin;
use host::id::random_bytes;
use host::instant::now_ns;
use host::secret::Secrets;
use queue::{Queue, Tally};
use sender::Sender;
use span::{EndedSpan, Parent};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Traces,
    Metrics,
    Logs,
}

impl Signal {
    pub const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    /// The name, which is also the end of the path of requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

/// Where and what is sent.
pub struct Options {
    pub origin: Origin,
    /// What comes before `/v1/traces` in the path of requests.
    pub path: String,
    pub headers: Vec<Header>,
    /// Those that headers name.
    pub secrets: Secrets,
    /// Files of certificates that are trusted besides the host's own.
    pub ca: Vec<PathBuf>,
    pub signals: Vec<Signal>,
    /// How often figures are sent.
    pub interval: Duration,
    /// How many of a hundred traces that begin here are recorded.
    pub sample_percent: u8,
    /// What says who sends: `service.name` and others.
    pub resource: Attributes,
}

/// Where spans and records go. Clones share it; the default keeps and sends nothing.
#[derive(Clone, Default)]
pub struct Otel(Option<Arc<Inner>>);

struct Inner {
    options: Options,
    began_ns: u64,
    spans: Queue<EndedSpan>,
    records: Queue<LogRecord>,
    figures: Tally,
}

impl Otel {
    /// Keeps what comes, in bounds, until [`Otel::start`] sends it.
    pub fn new(options: Options) -> Self {
        let (spans, records, figures) = (Queue::default(), Queue::default(), Tally::default());
        Self(Some(Arc::new(Inner { options, began_ns: now_ns(), spans, records, figures })))
    }

    /// Begins to send. `figures` are read for each interval.
    pub fn start(&self, figures: Source) -> Exporter {
        Exporter::start(self.clone(), figures)
    }

    /// Asks the collector to take nothing of each signal, to find out whether it would take something.
    pub async fn probe(&self) -> Vec<(Signal, Result<(), SendError>)> {
        let mut probed = Vec::new();
        for (inner, signal) in self
            .0
            .iter()
            .flat_map(|inner| inner.options.signals.iter().map(move |signal| (inner, *signal)))
        {
            let mut sender = Sender::new(&inner.options, signal);
            let sent = sender.send(&inner.options, Bytes::from_static(b"{}")).await;
            probed.push((signal, sent.map(drop)));
        }
        probed
    }

    /// Whether spans are wanted.
    pub fn has_traces(&self) -> bool {
        self.wants(Signal::Traces).is_some()
    }

    /// Whether records are wanted.
    pub fn has_logs(&self) -> bool {
        self.wants(Signal::Logs).is_some()
    }

    /// Begins a span of a caller's trace, or of a trace of its own; `None` where no traces are sent.
    pub fn begin(
        &self,
        caller: Option<&TraceContext>,
        kind: SpanKind,
        name: impl Into<String>,
    ) -> Option<Span> {
        let inner = self.wants(Signal::Traces)?;
        let id = draw().ok().map(SpanId)?;
        let place = if let Some(caller) = caller {
            let parent = Parent { span: caller.span, is_remote: true };
            (caller.at(id), Some(parent))
        } else {
            let trace: [u8; 16] = draw().ok()?;
            let drawn = u16::from_be_bytes([trace[14], trace[15]]) % 100;
            let is_sampled = drawn < u16::from(inner.options.sample_percent);
            (TraceContext::root(TraceId(trace), id, is_sampled), None)
        };
        Some(Span::begin(self.clone(), place, kind, name.into()))
    }

    /// Adds a record of the log. It never waits.
    pub fn record(&self, record: LogRecord) {
        if let Some(inner) = self.wants(Signal::Logs) {
            let bytes = record.bytes();
            inner.records.push(record, bytes);
        }
    }

    fn end(&self, span: EndedSpan) {
        if let Some(inner) = &self.0 {
            let bytes = span.bytes();
            inner.spans.push(span, bytes);
        }
    }

    /// What became of each signal that is sent, and how much of it waits.
    pub fn counts(&self) -> Vec<(Signal, Counts, usize)> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let of = |signal| match signal {
            Signal::Traces => (signal, inner.spans.tally.counts(), inner.spans.len()),
            Signal::Metrics => (signal, inner.figures.counts(), 0),
            Signal::Logs => (signal, inner.records.tally.counts(), inner.records.len()),
        };
        inner.options.signals.iter().map(|signal| of(*signal)).collect()
    }

    fn wants(&self, signal: Signal) -> Option<&Arc<Inner>> {
        self.0.as_ref().filter(|inner| inner.options.signals.contains(&signal))
    }
}

/// Random bytes that are not all zero, which no id may be.
fn draw<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    loop {
        let drawn = random_bytes()?;
        if drawn != [0; COUNT] {
            return Ok(drawn);
        }
    }
}

#[cfg(test)]
mod tests;
