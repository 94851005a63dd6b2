//! What a trail gives to the spans of its operation: of which sandbox they are, and what the record says.

use std::future::Future;

use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use otel::{Attributes, Otel, PARENT, STATE, Scope, Span, SpanKind, TraceContext};

use super::Trail;
use crate::entrance::Entrance;
use access::audit::{Entry, Outcome, Who};
use sandbox::{Record, SandboxRef};

impl Trail {
    /// The place of the operation in its trace.
    pub fn context(&self) -> Option<TraceContext> {
        self.inner.as_ref()?.noted().span.as_ref().map(|span| span.context().clone())
    }

    /// Gives a request to another node its place in the trace.
    pub fn pass_on(&self, headers: &mut HeaderMap) {
        let Some(context) = self.context() else { return };
        headers.remove(STATE);
        let state = context.state().and_then(|state| HeaderValue::from_str(state).ok());
        headers.extend(state.map(|state| (HeaderName::from_static(STATE), state)));
        if let Ok(parent) = HeaderValue::from_str(&context.parent()) {
            headers.insert(PARENT, parent);
        }
    }

    /// Where the spans of what is started in a sandbox are made.
    pub fn scope_in(&self, which: &SandboxRef) -> Option<Scope> {
        let inner = self.inner.as_ref()?;
        let noted = inner.noted();
        let span = noted.span.as_ref()?;
        // Nobody sees the attributes of others.
        let record = if span.is_seen() { inner.registry.get(which).ok() } else { None };
        Some(span.scope(record.as_ref().map(of_sandbox).unwrap_or_default()))
    }

    /// Something that makes a sandbox, as a span of its own.
    pub fn making<E: std::fmt::Display>(
        &self,
        making: impl Future<Output = Result<Record, E>>,
    ) -> impl Future<Output = Result<Record, E>> {
        // Boxed before it is a part of another future: it is large.
        let making = Box::pin(making);
        let span = self.inner.as_ref().and_then(|inner| {
            let scope = inner.noted().span.as_ref()?.scope(Attributes::default());
            scope.child("create sandbox")
        });
        async move {
            let made = making.await;
            if let Some(mut span) = span {
                match &made {
                    Ok(record) => {
                        for (key, value) in of_sandbox(record).iter() {
                            span.set(key.clone(), value.clone());
                        }
                    }
                    Err(error) => span.fail(error.to_string()),
                }
            }
            made
        }
    }
}

/// The span of a request, in the trace that its headers name.
pub fn span_of_request(
    otel: &Otel,
    (method, route): (&Method, &str),
    headers: &HeaderMap,
    entrance: Entrance,
) -> Option<Span> {
    if !otel.has_traces() {
        return None;
    }
    let all = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let caller = TraceContext::parse(all(PARENT), all(STATE));
    let name = format!("{method} {route}");
    let mut span = otel.begin(caller.as_ref(), SpanKind::Server, name)?;
    span.set("http.request.method", method.as_str());
    span.set("http.route", route);
    span.set("url.scheme", entrance.scheme());
    Some(span)
}

/// What every span about a sandbox says.
fn of_sandbox(record: &Record) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.set("burrow.namespace", record.namespace.to_string());
    attributes.set("burrow.sandbox", record.name.to_string());
    attributes.set("burrow.sandbox.id", record.id.to_string());
    attributes.set("burrow.machine", record.machine.name());
    attributes.set_if("container.image.name", record.image.clone());
    attributes.set_if("container.image.id", record.image_digest.map(|digest| digest.to_string()));
    attributes
}

/// Gives a span what the record of its operation has. Secrets, labels and arguments are not among it.
pub(super) fn describe(span: &mut Span, entry: &Entry) {
    if !span.is_seen() {
        return;
    }
    span.set("burrow.operation", entry.operation.as_str());
    span.set("burrow.door", entry.door.name());
    span.set("burrow.outcome", entry.outcome.name());
    span.set_if("burrow.request", entry.request.as_deref());
    span.set_if("burrow.namespace", entry.namespace.as_deref());
    span.set_if("burrow.sandbox", entry.sandbox.as_deref());
    span.set_if("burrow.sandbox.id", entry.id.as_deref());
    span.set_if("container.image.name", entry.image.as_deref());
    span.set_if("container.image.id", entry.digest.as_deref());
    span.set_if("process.executable.name", entry.program.as_deref());
    span.set_if("http.response.status_code", entry.status);
    span.set_if("client.address", entry.remote.as_deref());
    if let Who::Key { id, .. } = &entry.who {
        span.set("enduser.id", id.as_str());
    }
    for (name, fact) in &entry.facts {
        span.set_if(format!("burrow.{name}"), otel::Value::of_json(fact.clone()));
    }
    span.set_if("error.type", entry.code.as_deref());
    if entry.outcome == Outcome::Failed {
        span.fail(entry.code.as_deref().unwrap_or("failed"));
    }
}
