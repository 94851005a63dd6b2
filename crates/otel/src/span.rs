//! Spans: what took how long within what. A span ends when it is dropped.
//!
//! ```text
//!  Otel::begin ─▶ Span ──scope──▶ Scope ──child──▶ Span …
//!                   └─ dropped: into the queue, if its trace is sampled
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::Otel;
use super::context::{SpanId, TraceContext};
use super::value::{Attributes, Key, Value, cut};
use host::instant::now_ns;

/// On which side of what it is, by the numbers of OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal = 1,
    Server = 2,
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct EndedSpan {
    pub context: TraceContext,
    pub parent: Option<Parent>,
    pub kind: SpanKind,
    pub name: String,
    pub begun_ns: u64,
    pub ended_ns: u64,
    pub attributes: Attributes,
    /// Why it has failed, in a few words.
    pub failure: Option<String>,
}

/// The span that another one is a child of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    pub span: SpanId,
    /// Whether a caller has named it.
    pub is_remote: bool,
}

/// The parts of a span that every one has.
const SPAN_BYTES: usize = 320;

impl EndedSpan {
    /// What it costs in memory, about.
    pub fn bytes(&self) -> usize {
        let texts = self.name.len() + self.failure.as_ref().map_or(0, String::len);
        SPAN_BYTES + texts + self.attributes.bytes()
    }
}

/// A span that goes on. Dropping it ends it.
pub struct Span {
    otel: Otel,
    context: TraceContext,
    parent: Option<Parent>,
    kind: SpanKind,
    name: String,
    begun_ns: u64,
    begun: Instant,
    attributes: Attributes,
    failure: Option<String>,
    is_discarded: bool,
}

impl Span {
    pub(super) fn begin(
        otel: Otel,
        (context, parent): (TraceContext, Option<Parent>),
        kind: SpanKind,
        name: String,
    ) -> Self {
        Self {
            otel,
            context,
            parent,
            kind,
            name: cut(name),
            begun_ns: now_ns(),
            begun: Instant::now(),
            attributes: Attributes::default(),
            failure: None,
            is_discarded: false,
        }
    }

    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// Whether anybody will see it. What costs something to find out is left out of others.
    pub fn is_seen(&self) -> bool {
        self.context.is_sampled() && !self.is_discarded
    }

    pub fn set(&mut self, key: impl Into<Key>, value: impl Into<Value>) {
        if self.is_seen() {
            self.attributes.set(key, value);
        }
    }

    pub fn set_if(&mut self, key: impl Into<Key>, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Marks it as failed.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.failure = Some(cut(why.into()));
    }

    /// It is not sent. Its children are.
    pub fn discard(&mut self) {
        self.is_discarded = true;
    }

    /// Where its children are made. They have those attributes too.
    pub fn scope(&self, attributes: Attributes) -> Scope {
        Scope {
            otel: self.otel.clone(),
            context: self.context.clone(),
            attributes: attributes.into(),
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if !self.is_seen() {
            return;
        }
        let elapsed_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.otel.end(EndedSpan {
            context: self.context.clone(),
            parent: self.parent,
            kind: self.kind,
            name: std::mem::take(&mut self.name),
            begun_ns: self.begun_ns,
            ended_ns: self.begun_ns.saturating_add(elapsed_ns),
            attributes: std::mem::take(&mut self.attributes),
            failure: self.failure.take(),
        });
    }
}

/// A span as the place where its children are made. Clones are the same.
#[derive(Clone)]
pub struct Scope {
    otel: Otel,
    context: TraceContext,
    attributes: Arc<Attributes>,
}

impl Scope {
    /// Begins a child; `None` where there are no random numbers for its id.
    pub fn child(&self, name: impl Into<String>) -> Option<Span> {
        let id = super::draw().ok().map(SpanId)?;
        let parent = Parent { span: self.context.span, is_remote: false };
        let place = (self.context.at(id), Some(parent));
        let mut span = Span::begin(self.otel.clone(), place, SpanKind::Internal, name.into());
        if span.is_seen() {
            span.attributes = (*self.attributes).clone();
        }
        Some(span)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("context", &self.context).finish_non_exhaustive()
    }
}
