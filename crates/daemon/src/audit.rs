//! Converts events of the bridge and requests on the control socket into entries of the audit log.

use access::audit::{Audit, Door, Entry, Outcome, Verdict, Who};
use control::audit::{described, of_egress};
use control::message::{About, ErrorCode, ErrorReply, Reply, Request};
use host::instant;
use sandbox::{Event, EventSink, Registry, SandboxRef, State, StopReason, Subject, WorkspaceEvent};
use workspace::Report;

/// The operation that grants something; its record says what.
const CREATION: &str = "create_sandbox";

/// Logs events, and records those that change something.
pub(super) fn recording(events: EventSink, audit: Audit) -> EventSink {
    std::sync::Arc::new(move |event| {
        if let Some(entry) = of_event(event) {
            audit.record(entry);
        }
        events(event);
    })
}

fn of_event(event: &Event) -> Option<Entry> {
    let entry = match event {
        Event::Listening { on } => Entry::of_bridge("bridge.listening").fact("on", on.as_str()),
        Event::Ending { running } => Entry::of_bridge("bridge.ending").fact("running", *running),
        Event::Cleaned { id, why } => {
            let entry = Entry::of_bridge("sandbox.cleaned").fact("why", why.as_str());
            Entry { id: Some(id.clone()), ..entry }
        }
        Event::Adopted { .. } => Entry::of_bridge("sandbox.adopted"),
        Event::Removed { .. } => Entry::of_bridge("sandbox.removed"),
        Event::State { state: State::Stopped { why, .. }, .. } => {
            let operation = match why {
                StopReason::Expired { .. } => "sandbox.expired",
                StopReason::Ended { .. } | StopReason::BridgeAway => "sandbox.ended",
                _ => "sandbox.stopped",
            };
            Entry::of_bridge(operation).fact("why", why.to_string())
        }
        Event::State { state: State::Lost { reason }, .. } => {
            let entry = Entry::of_bridge("sandbox.lost").fact("why", reason.as_str());
            Entry { outcome: Outcome::Failed, ..entry }
        }
        Event::State { state: State::Damaged { reason }, .. } => {
            let entry = Entry::of_bridge("sandbox.damaged").fact("why", reason.as_str());
            Entry { outcome: Outcome::Failed, ..entry }
        }
        Event::Pool(event) => Entry::of_bridge("pool").fact("what", event.to_string()),
        Event::Egress { event, .. } => of_egress(event),
        Event::Workspace { event, .. } => of_workspace(event),
        Event::State { .. } | Event::Happened { .. } | Event::Trouble { .. } => return None,
    };
    let entry = about(entry, event.which());
    Some(match event.subject() {
        Some(of) => of_subject(entry, of),
        None => entry,
    })
}

/// The sandbox, distinguishable from others of its name, and its owner. Its secrets are not
/// named again: an entry of a secret that went out names that one.
fn of_subject(entry: Entry, of: &Subject) -> Entry {
    let entry = Entry {
        id: Some(of.id.to_string()),
        image: of.image.clone(),
        digest: of.image_digest.map(|digest| digest.to_string()),
        labels: of.labels.clone(),
        ..entry
    };
    match &of.key {
        Some(key) => entry.fact("key", key.as_str()),
        None => entry,
    }
}

/// The result of copying a workspace back: how much, and the first path that failed.
fn of_workspace(event: &WorkspaceEvent) -> Entry {
    let Report { written, deleted, conflicts, refused, untold } = &event.report;
    let entry = Entry::of_bridge("workspace.sync")
        .fact("workspace", event.name.as_str())
        .fact("written", written.len())
        .fact("deleted", deleted.len())
        .fact("conflicts", conflicts.len())
        .fact("refused", refused.len())
        .fact("untold", *untold);
    match event.report.warnings().next() {
        Some(first) => entry.fact("first", first),
        None => entry,
    }
}

fn about(mut entry: Entry, which: Option<&SandboxRef>) -> Entry {
    entry.namespace = which.map(|which| which.namespace.to_string());
    entry.sandbox = which.map(|which| which.name.to_string());
    entry
}

/// The entry of a request, before it is carried out; none for one that only looks, unless those are
/// wanted.
pub(super) fn of_request(
    request: &Request,
    who: &Who,
    registry: &Registry,
    audit: &Audit,
) -> Option<Entry> {
    let About { operation, looks, sandbox: which } = request.about();
    if looks && !audit.reads() {
        return None;
    }
    let entry = about(Entry::new(who.clone(), Door::Cli, operation), which.as_ref());
    let entry = request.facts(entry, audit.arguments());
    Some(match request.subject().and_then(|which| registry.get(&which).ok()) {
        Some(record) => described(entry, record),
        None => entry,
    })
}

/// The same after it was carried out.
pub(super) fn ended(entry: Entry, reply: Result<&Reply, &ErrorReply>, began_ms: u64) -> Entry {
    let duration_us = Some(instant::now_ms().saturating_sub(began_ms).saturating_mul(1000));
    let entry = Entry { duration_us, ..entry };
    match reply {
        Ok(reply @ Reply::Sandbox(record)) if entry.operation == CREATION => {
            reply.facts(entry).facts(record.granted())
        }
        Ok(reply) => reply.facts(entry),
        Err(refusal) => {
            let code = serde_json::to_value(refusal.code).ok();
            let outcome = match refusal.code {
                ErrorCode::StartFailed
                | ErrorCode::SecretFailed
                | ErrorCode::PullFailed
                | ErrorCode::WorkspaceFailed
                | ErrorCode::Io
                | ErrorCode::Stuck => Outcome::Failed,
                _ => Outcome::Refused,
            };
            let policy = match refusal.code {
                ErrorCode::UnknownSecret | ErrorCode::SecretFailed => Some(Verdict::Secret),
                ErrorCode::Limit => Some(Verdict::Limit),
                ErrorCode::CapExceeded => Some(Verdict::Cap),
                _ => None,
            };
            let code = code.and_then(|code| code.as_str().map(str::to_owned));
            Entry { outcome, code, policy, ..entry }
        }
    }
}
