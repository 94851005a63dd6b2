//! Records the egress decisions about a sandbox that no daemon keeps, as they are recorded for every other
//! sandbox.

use std::sync::Arc;

use super::audit::of_egress;
use access::audit::{Audit, Entry};
use egress::{EgressEvent, EgressSink};
use sandbox::SandboxRef;

/// Takes the decisions about a sandbox.
pub fn egress_recorder(audit: Audit, which: SandboxRef) -> EgressSink {
    Arc::new(move |event: EgressEvent| {
        audit.record(Entry {
            namespace: Some(which.namespace.to_string()),
            sandbox: Some(which.name.to_string()),
            ..of_egress(&event)
        });
    })
}
