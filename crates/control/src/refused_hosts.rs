//! Records the egress decisions about a sandbox for one command, as they are recorded for every other
//! sandbox, and keeps what was refused for a message at the end.

use std::sync::Arc;

use super::audit::of_egress;
use access::audit::{Audit, Entry};
use egress::{EgressEvent, EgressSink, RefusedHosts};
use sandbox::SandboxRef;

/// Takes the decisions about a sandbox.
pub fn egress_sink(hosts: &RefusedHosts, audit: Audit, which: &SandboxRef) -> EgressSink {
    let (hosts, which) = (hosts.clone(), which.clone());
    Arc::new(move |event: EgressEvent| {
        audit.record(Entry {
            namespace: Some(which.namespace.to_string()),
            sandbox: Some(which.name.to_string()),
            ..of_egress(&event)
        });
        hosts.note(event);
    })
}
