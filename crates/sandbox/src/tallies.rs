//! Counts of what has happened to sandboxes, for metrics: sums of events, by kinds that no client chooses.
//!
//! It receives the same events as every observer. Where events are too many to be reported, it counts how
//! many were dropped, without their kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::event::{Event, EventSink};
use egress::{EgressEvent, EventSubject, Verdict};
use workspace::Report;

/// Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Tallies(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    names_allowed: AtomicU64,
    names_refused: AtomicU64,
    connections_allowed: AtomicU64,
    connections_refused: AtomicU64,
    egress_untold: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    exchanges: AtomicU64,
    written: AtomicU64,
    deleted: AtomicU64,
    conflicts: AtomicU64,
    refused: AtomicU64,
    paths_untold: AtomicU64,
}

/// Decisions about egress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressTally {
    pub names_allowed: u64,
    pub names_refused: u64,
    pub connections_allowed: u64,
    pub connections_refused: u64,
    /// Decisions and ends that were not reported.
    pub untold: u64,
    /// Bytes of ended connections.
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

/// Exchanges with workspaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceTally {
    /// Those with a result.
    pub exchanges: u64,
    pub written: u64,
    pub deleted: u64,
    pub conflicts: u64,
    pub refused: u64,
    /// Paths that a report had no room for.
    pub untold: u64,
}

impl Tallies {
    /// Counts what this sink receives from now on.
    pub(super) fn counting(&self, events: EventSink) -> EventSink {
        let tallies = self.clone();
        Arc::new(move |event| {
            match event {
                Event::Egress { event, .. } => tallies.0.hear_egress(event),
                Event::Workspace { event, .. } => tallies.0.hear_workspace(&event.report),
                _ => {}
            }
            events(event);
        })
    }

    pub fn egress(&self) -> EgressTally {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        EgressTally {
            names_allowed: read(&self.0.names_allowed),
            names_refused: read(&self.0.names_refused),
            connections_allowed: read(&self.0.connections_allowed),
            connections_refused: read(&self.0.connections_refused),
            untold: read(&self.0.egress_untold),
            sent_bytes: read(&self.0.sent_bytes),
            received_bytes: read(&self.0.received_bytes),
        }
    }

    pub fn workspaces(&self) -> WorkspaceTally {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WorkspaceTally {
            exchanges: read(&self.0.exchanges),
            written: read(&self.0.written),
            deleted: read(&self.0.deleted),
            conflicts: read(&self.0.conflicts),
            refused: read(&self.0.refused),
            untold: read(&self.0.paths_untold),
        }
    }
}

impl Inner {
    fn hear_egress(&self, event: &EgressEvent) {
        add(&self.egress_untold, event.untold);
        match (event.what, &event.verdict) {
            (EventSubject::Name, Verdict::Allowed { .. }) => add(&self.names_allowed, 1),
            (EventSubject::Name, Verdict::Refused { .. }) => add(&self.names_refused, 1),
            (EventSubject::Connection, Verdict::Allowed { .. }) => {
                add(&self.connections_allowed, 1);
            }
            (EventSubject::Connection, Verdict::Refused { .. }) => {
                add(&self.connections_refused, 1);
            }
            (_, Verdict::Ended { sent_bytes, received_bytes, .. }) => {
                add(&self.sent_bytes, *sent_bytes);
                add(&self.received_bytes, *received_bytes);
            }
            // A part of a connection that is counted already.
            (_, Verdict::Filled { .. }) => {}
        }
    }

    fn hear_workspace(&self, report: &Report) {
        let Report { written, deleted, conflicts, refused, untold } = report;
        add(&self.exchanges, 1);
        add(&self.written, written.len() as u64);
        add(&self.deleted, deleted.len() as u64);
        add(&self.conflicts, conflicts.len() as u64);
        add(&self.refused, refused.len() as u64);
        add(&self.paths_untold, *untold);
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, WorkspaceEvent};

    #[test]
    fn events_are_counted_by_kind_and_passed_on() {
        let counted = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&counted);
        let tallies = Tallies::default();
        let events = tallies.counting(Arc::new(move |_| add(&count, 1)));
        let spec = crate::Spec::new("box".parse().unwrap());
        let of = Record::new("0123456789ab".parse().unwrap(), &spec, 7).subject();
        let decide = |what, verdict, untold| {
            let event = EgressEvent { what, host: "h".to_owned(), port: None, verdict, untold };
            events(&Event::Egress { of: Arc::clone(&of), event });
        };
        let allowed = || Verdict::Allowed { rule: "h".to_owned(), address: None };
        let refused = || Verdict::Refused { why: "no".to_owned() };
        decide(EventSubject::Name, allowed(), 0);
        decide(EventSubject::Name, refused(), 0);
        decide(EventSubject::Connection, allowed(), 3);
        decide(EventSubject::Connection, refused(), 0);
        decide(EventSubject::Connection, Verdict::Filled { secrets: Vec::new() }, 0);
        let ended = Verdict::Ended { sent_bytes: 5, received_bytes: 7, why: None, is_limit: false };
        decide(EventSubject::Connection, ended, 0);
        let expected = EgressTally {
            names_allowed: 1,
            names_refused: 1,
            connections_allowed: 1,
            connections_refused: 1,
            untold: 3,
            sent_bytes: 5,
            received_bytes: 7,
        };
        assert_eq!(tallies.egress(), expected);
        let written = vec!["a".to_owned(), "b".to_owned()];
        let report = Report { written, untold: 1, ..Report::default() };
        let event = WorkspaceEvent { name: "w".to_owned(), report };
        events(&Event::Workspace { of, event });
        let expected =
            WorkspaceTally { exchanges: 1, written: 2, untold: 1, ..WorkspaceTally::default() };
        assert_eq!(tallies.workspaces(), expected);
        assert_eq!(counted.load(Ordering::Relaxed), 7);
    }
}
