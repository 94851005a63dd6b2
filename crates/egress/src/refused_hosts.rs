//! The hosts that a sandbox for one command was refused to reach: kept for a message at the end, each
//! host once.
//!
//! `run` and image builds use it. It decides nothing, and gets no more than is recorded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::event::{EgressEvent, EgressSink, Verdict};

/// Hosts that are listed by name.
const HOSTS_TOLD_MAX: usize = 8;
/// Hosts that are distinguished: of a program that tries many, the rest is counted.
const HOSTS_KNOWN_MAX: usize = 1024;

/// See the module's description. Clones are the same.
#[derive(Clone, Default)]
pub struct RefusedHosts(Arc<Mutex<BTreeMap<String, String>>>);

impl RefusedHosts {
    /// Takes the decisions about a sandbox, and passes each one on.
    pub fn before(&self, next: &EgressSink) -> EgressSink {
        let (hosts, next) = (self.clone(), Arc::clone(next));
        Arc::new(move |event: EgressEvent| {
            hosts.note(event.clone());
            next(event);
        })
    }

    /// Takes one decision.
    pub fn note(&self, event: EgressEvent) {
        let Verdict::Refused { why } = event.verdict else { return };
        let host = event.port.map_or(event.host.clone(), |port| format!("{}:{port}", event.host));
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A name that was refused is refused whatever port was meant.
        if hosts.len() < HOSTS_KNOWN_MAX && !hosts.contains_key(&event.host) {
            hosts.entry(host).or_insert(why);
        }
    }

    /// The message, in lines.
    pub fn lines(&self) -> Vec<String> {
        let hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = hosts.iter().take(HOSTS_TOLD_MAX);
        let mut lines: Vec<String> =
            shown.map(|(host, why)| format!("egress to {host} was refused: {why}")).collect();
        let more = hosts.len().saturating_sub(HOSTS_TOLD_MAX);
        if more > 0 {
            let at_least = if hosts.len() == HOSTS_KNOWN_MAX { " at least" } else { "" };
            let noun = if more == 1 { "host" } else { "hosts" };
            lines.push(format!("egress to{at_least} {more} more {noun} was refused"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventSubject;

    fn refused(host: &str, port: Option<u16>) -> EgressEvent {
        let what = EventSubject::Name;
        let verdict = Verdict::Refused { why: "no rule allows it".to_owned() };
        EgressEvent { what, host: host.to_owned(), port, verdict, untold: 0 }
    }

    #[test]
    fn each_host_is_reported_once_and_a_flood_is_counted() {
        let hosts = RefusedHosts::default();
        assert!(hosts.lines().is_empty());
        for port in [None, None, Some(443)] {
            hosts.note(refused("evil.example", port));
        }
        assert_eq!(hosts.lines(), ["egress to evil.example was refused: no rule allows it"]);
        for number in 0..5000 {
            hosts.note(refused(&format!("n{number}.example"), Some(443)));
        }
        let lines = hosts.lines();
        assert_eq!(lines.len(), HOSTS_TOLD_MAX + 1);
        assert_eq!(lines[HOSTS_TOLD_MAX], "egress to at least 1016 more hosts was refused");
    }

    #[test]
    fn what_is_allowed_is_not_reported() {
        let hosts = RefusedHosts::default();
        let verdict = Verdict::Allowed { rule: "good.example".to_owned(), address: None };
        hosts.note(EgressEvent { verdict, ..refused("good.example", None) });
        assert!(hosts.lines().is_empty());
    }
}
