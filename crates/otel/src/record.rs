//! A line of the log, a record of the audit log, or an event, as a collector has it.

use super::context::TraceContext;
use super::value::{Attributes, cut};
use host::instant::now_ns;

/// How much it matters, by the numbers of OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Trace = 1,
    Debug = 5,
    Info = 9,
    Warn = 13,
    Error = 17,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct LogRecord {
    pub at_ns: u64,
    pub severity: Severity,
    /// What kind of event it is, where it is one.
    pub event: Option<String>,
    pub body: String,
    pub attributes: Attributes,
    /// The span that it belongs to.
    pub context: Option<Place>,
}

/// The ids of a span that a record belongs to, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub trace: String,
    pub span: String,
}

impl From<&TraceContext> for Place {
    fn from(context: &TraceContext) -> Self {
        Self { trace: context.trace.to_string(), span: context.span.to_string() }
    }
}

/// The parts of a record that every one has.
const RECORD_BYTES: usize = 256;

impl LogRecord {
    pub fn new(severity: Severity, body: String) -> Self {
        let (event, context) = (None, None);
        let (body, attributes) = (cut(body), Attributes::default());
        Self { at_ns: now_ns(), severity, event, body, attributes, context }
    }

    /// Sets its words.
    pub fn say(&mut self, body: String) {
        self.body = cut(body);
    }

    /// What it costs in memory, about.
    pub fn bytes(&self) -> usize {
        RECORD_BYTES + self.body.len() + self.attributes.bytes()
    }
}
