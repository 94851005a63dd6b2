//! The lines of the journal for a collector. Those about the sending itself stay here: each would make another.

use std::fmt;

use otel::{LogRecord, Otel, Place, Severity, TARGET};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::output;

/// Passes lines on.
pub struct Lines(pub Otel);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let about = event.metadata();
        if about.target() == TARGET || !self.0.has_logs() {
            return;
        }
        let severity = match *about.level() {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warn,
            Level::INFO => Severity::Info,
            Level::DEBUG => Severity::Debug,
            Level::TRACE => Severity::Trace,
        };
        let mut fields = Fields::new(severity);
        event.record(&mut fields);
        let Fields { mut record, trace, span } = fields;
        record.attributes.set("burrow.target", about.target());
        record.context = trace.zip(span).map(|(trace, span)| Place { trace, span });
        self.0.record(record);
    }
}

/// The fields of one line.
struct Fields {
    record: LogRecord,
    trace: Option<String>,
    span: Option<String>,
}

impl Fields {
    fn new(severity: Severity) -> Self {
        Self { record: LogRecord::new(severity, String::new()), trace: None, span: None }
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record.attributes.set(format!("burrow.{}", field.name()), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.record.attributes.set(format!("burrow.{}", field.name()), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "trace" => self.trace = Some(value.to_owned()),
            "span" => self.span = Some(value.to_owned()),
            name => self.record.attributes.set(format!("burrow.{name}"), output::printable(value)),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = output::printable(&format!("{value:?}"));
        match field.name() {
            "message" => self.record.say(text),
            name => self.record.attributes.set(format!("burrow.{name}"), text),
        }
    }
}

#[cfg(test)]
mod tests {
    use otel::Signal;

    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    fn kept(otel: &Otel) -> usize {
        otel.counts().iter().map(|(_, _, waiting)| waiting).sum()
    }

    #[test]
    fn lines_are_kept_for_the_collector_and_those_about_it_are_not() {
        let settings =
            settings::Settings::resolve(None, &|_| None, &settings::Overrides::default());
        let mut settings = settings.unwrap();
        settings.otel.enabled = true;
        let otel = control::telemetry(&settings);
        let subscriber = tracing_subscriber::registry().with(Lines(otel.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "burrow::http", count = 3_u64, key = "k", "one");
            tracing::warn!(target: TARGET, "the collector is away");
        });
        assert_eq!(kept(&otel), 1);
        settings.otel.signals = vec![Signal::Metrics];
        let without = control::telemetry(&settings);
        without.record(LogRecord::new(Severity::Info, "x".to_owned()));
        assert_eq!(kept(&without), 0);
    }
}
