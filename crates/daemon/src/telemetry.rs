//! What a collector gets of the audit log, of the stream of events and of the figures: converts each, and
//! nothing else. Arguments of programs stay here, also where the audit log has them.

use access::audit::{Audit, Entry, Outcome};
use api::Api;
use otel::{Exporter, LogRecord, Otel, Severity, Value};
use sandbox::event::{Facts, Kind};
use sandbox::{Event, EventSink, Subject};
use serde_json::{Map, Value as Json};

const NS_PER_MS: u64 = 1_000_000;
/// What an audit record has that no collector gets, and what it gets in another form.
const LEFT_OUT: [&str; 1] = ["arguments"];

/// Sends the records of the audit log as they are written.
pub(super) fn observe(audit: &Audit, otel: &Otel) {
    if otel.has_logs() {
        let otel = otel.clone();
        audit.observe(Box::new(move |entry| otel.record(of_entry(&entry))));
    }
}

/// A sink that sends the rows of the stream of events, and passes all on.
pub(super) fn recording(events: EventSink, otel: &Otel) -> EventSink {
    if !otel.has_logs() {
        return events;
    }
    let otel = otel.clone();
    std::sync::Arc::new(move |event| {
        if let Event::Happened { of, kind, facts } = event {
            otel.record(of_event(of, *kind, facts));
        }
        events(event);
    })
}

/// Begins to send, figures of this door included.
pub(super) fn start(otel: &Otel, api: &Api) -> Exporter {
    let api = api.clone();
    otel.start(Box::new(move || {
        let api = api.clone();
        Box::pin(async move { api.figures().await })
    }))
}

fn of_entry(entry: &Entry) -> LogRecord {
    let severity = match entry.outcome {
        Outcome::Ok => Severity::Info,
        Outcome::Refused => Severity::Warn,
        Outcome::Failed => Severity::Error,
    };
    let body = format!("{}: {}", entry.operation, entry.outcome.name());
    let mut record = LogRecord {
        at_ns: entry.at_ms.saturating_mul(NS_PER_MS),
        event: Some("burrow.audit".to_owned()),
        context: entry.place.clone(),
        ..LogRecord::new(severity, body)
    };
    let Ok(Json::Object(mut fields)) = serde_json::to_value(entry) else { return record };
    for name in LEFT_OUT {
        fields.remove(name);
    }
    add(&mut record, fields);
    record
}

fn of_event(of: &Subject, kind: Kind, facts: &Facts) -> LogRecord {
    let mut record = LogRecord {
        event: Some(format!("burrow.sandbox.{kind}")),
        ..LogRecord::new(Severity::Info, format!("{}: {kind}", of.which))
    };
    let attributes = &mut record.attributes;
    attributes.set("burrow.namespace", of.which.namespace.to_string());
    attributes.set("burrow.sandbox", of.which.name.to_string());
    attributes.set("burrow.id", of.id.to_string());
    attributes.set_if("burrow.image", of.image.clone());
    if let Ok(Json::Object(fields)) = serde_json::to_value(facts) {
        add(&mut record, fields);
    }
    record
}

fn add(record: &mut LogRecord, fields: Map<String, Json>) {
    for (name, value) in fields {
        record.attributes.set_if(format!("burrow.{name}"), Value::of_json(value));
    }
}

#[cfg(test)]
mod tests {
    use access::audit::{Door, Who};
    use otel::Place;

    use super::*;

    #[test]
    fn a_record_of_the_audit_log_keeps_its_facts_and_loses_arguments() {
        let who = Who::Key { id: "k1".to_owned(), name: None };
        let entry = Entry {
            at_ms: 1_700_000_000_123,
            outcome: Outcome::Refused,
            status: Some(403),
            program: Some("curl".to_owned()),
            arguments: vec!["--header=secret".to_owned()],
            place: Some(Place { trace: "a".repeat(32), span: "b".repeat(16) }),
            ..Entry::new(who, Door::Rest, "exec")
        };
        let record = of_entry(&entry.fact("port", 80));
        assert_eq!((record.severity, record.body.as_str()), (Severity::Warn, "exec: refused"));
        assert_eq!(record.at_ns, 1_700_000_000_123_000_000);
        assert_eq!(record.context.as_ref().unwrap().trace, "a".repeat(32));
        let has = |name: &str| record.attributes.get(name);
        assert_eq!(has("burrow.status"), Some(&Value::Whole(403)));
        assert_eq!(has("burrow.program"), Some(&Value::Text("curl".to_owned())));
        assert!(matches!(has("burrow.facts"), Some(Value::Table(_))));
        assert_eq!(has("burrow.arguments"), None);
    }
}
