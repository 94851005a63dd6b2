//! Converts events of the bridge and requests on the control socket into entries of the audit log.

use access::audit::{Audit, Door, Entry, Outcome, Verdict, Who};
use control::message::{Code, Refusal, Reply, Request};
use egress::{EgressEvent, EventSubject};
use host::instant;
use sandbox::{
    Event, EventSink, Record, Registry, SandboxRef, State, StopReason, Subject, WorkspaceEvent,
};
use workspace::Report;

/// Operations that grant something; their records say what.
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
        Event::Pool(event) => Entry::of_bridge("pool").fact("what", event.to_string()),
        Event::Egress { event, .. } => of_egress(event),
        Event::Workspace { event, .. } => of_workspace(event),
        Event::State { .. } | Event::Trouble { .. } => return None,
    };
    let entry = about(entry, event.which());
    Some(match event.subject() {
        Some(of) => of_subject(entry, of),
        None => entry,
    })
}

/// The sandbox, so that it can be told from others of its name, and whose it is. Its secrets are not
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

/// An egress decision for a sandbox, or the end of an allowed connection.
fn of_egress(event: &EgressEvent) -> Entry {
    let operation = match (event.what, &event.verdict) {
        (EventSubject::Name, _) => "egress.name",
        (EventSubject::Connection, egress::Verdict::Ended { .. }) => "egress.ended",
        (EventSubject::Connection, egress::Verdict::Filled { .. }) => "egress.secret",
        (EventSubject::Connection, _) => "egress.connection",
    };
    let mut entry = Entry::of_bridge(operation).fact("host", event.host.as_str());
    entry.policy = Some(Verdict::Egress);
    if let Some(port) = event.port {
        entry = entry.fact("port", port);
    }
    if event.untold > 0 {
        entry = entry.fact("untold", event.untold);
    }
    match &event.verdict {
        egress::Verdict::Allowed { rule, address } => {
            let entry = entry.fact("rule", rule.as_str());
            match address {
                Some(address) => entry.fact("address", address.to_string()),
                None => entry,
            }
        }
        egress::Verdict::Refused { why } => {
            Entry { outcome: Outcome::Refused, ..entry.fact("why", why.as_str()) }
        }
        egress::Verdict::Filled { secrets } => Entry { secrets: secrets.clone(), ..entry },
        egress::Verdict::Ended { sent_bytes, received_bytes, why, is_limit } => {
            let outcome = if *is_limit { Outcome::Failed } else { Outcome::Ok };
            let entry = Entry { outcome, ..entry };
            let entry =
                entry.fact("sent_bytes", *sent_bytes).fact("received_bytes", *received_bytes);
            match why {
                Some(why) => entry.fact("why", why.as_str()),
                None => entry,
            }
        }
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
    let (operation, which) = match request {
        Request::Start(spec) => (CREATION, Some(spec.which())),
        // What is done through the agent's own socket is not seen here, but that it was asked for is, and
        // what for in the word of whoever asked.
        Request::Dial { sandbox, .. } => ("dial_sandbox", Some(sandbox.clone())),
        Request::Stop { sandbox, .. } => ("stop_sandbox", Some(sandbox.clone())),
        Request::Kill { sandbox } => ("kill_sandbox", Some(sandbox.clone())),
        Request::Remove { sandbox, .. } => ("remove_sandbox", Some(sandbox.clone())),
        Request::Pause { sandbox } => ("pause_sandbox", Some(sandbox.clone())),
        Request::Resume { sandbox } => ("resume_sandbox", Some(sandbox.clone())),
        Request::Snapshot { sandbox, .. } => ("take_snapshot", Some(sandbox.clone())),
        Request::Sync { sandbox } => ("sync_workspace", Some(sandbox.clone())),
        Request::Commit { sandbox, .. } => ("commit_sandbox", Some(sandbox.clone())),
        Request::RemoveSnapshot { .. } => ("remove_snapshot", None),
        Request::RemoveArtifact { .. } => ("remove_artifact", None),
        Request::Mcp(_) => ("mcp_session", None),
        Request::App(order) if !order.looks() || audit.reads() => {
            let (operation, which) = order.operation();
            (operation, which.cloned())
        }
        _ if !audit.reads() => return None,
        Request::Version {} => ("version", None),
        Request::List(_) => ("list_sandboxes", None),
        Request::Inspect { sandbox } | Request::Work { sandbox } => {
            ("get_sandbox", Some(sandbox.clone()))
        }
        Request::Snapshots {} => ("list_snapshots", None),
        Request::Pool {} => ("get_pool", None),
        Request::Caps { .. } => ("get_caps", None),
        // Told above.
        Request::App(_) => return None,
    };
    let entry = Entry::new(who.clone(), Door::Cli, operation);
    let mut entry = about(entry, which.as_ref());
    match request {
        Request::Start(spec) => {
            entry.image.clone_from(&spec.image);
            entry.secrets.clone_from(&spec.secrets);
            entry.labels.clone_from(&spec.labels);
            entry = entry.facts(spec.asked());
        }
        Request::Dial { purpose: Some(purpose), .. } => {
            entry = entry.fact("for", purpose.verb.as_str());
            entry.program.clone_from(&purpose.program);
            if audit.arguments() {
                entry.arguments.clone_from(&purpose.arguments);
            }
            let found = which.and_then(|which| registry.get(&which).ok());
            entry = found.map_or(entry.clone(), |record| described(entry, record));
        }
        Request::Snapshot { name, .. } => entry = entry.fact("snapshot", name.as_str()),
        Request::RemoveSnapshot { snapshot } => {
            entry = entry.fact("snapshot", snapshot.to_string());
        }
        Request::RemoveArtifact { id } => entry = entry.fact("artifact", id.as_str()),
        _ => {
            let found = which.and_then(|which| registry.get(&which).ok());
            entry = found.map_or(entry.clone(), |record| described(entry, record));
        }
    }
    Some(entry)
}

fn described(entry: Entry, record: Record) -> Entry {
    Entry {
        id: Some(record.id.to_string()),
        image: record.image,
        digest: record.image_digest.map(|digest| digest.to_string()),
        secrets: record.secrets,
        labels: record.labels,
        ..entry
    }
}

/// The same after it was carried out.
pub(super) fn ended(entry: Entry, reply: Result<&Reply, &Refusal>, began_ms: u64) -> Entry {
    let duration_us = Some(instant::now_ms().saturating_sub(began_ms).saturating_mul(1000));
    let entry = Entry { duration_us, ..entry };
    match reply {
        Ok(Reply::Sandbox(record)) if entry.operation == CREATION => {
            described(entry, (**record).clone()).facts(record.granted())
        }
        Ok(Reply::Sandbox(record)) => described(entry, (**record).clone()),
        Ok(Reply::Committed { digest }) => entry.fact("committed", digest.to_string()),
        Ok(_) => entry,
        Err(refusal) => {
            let code = serde_json::to_value(refusal.code).ok();
            let outcome = match refusal.code {
                Code::StartFailed
                | Code::SecretFailed
                | Code::PullFailed
                | Code::WorkspaceFailed
                | Code::Io
                | Code::Stuck => Outcome::Failed,
                _ => Outcome::Refused,
            };
            let policy = match refusal.code {
                Code::UnknownSecret | Code::SecretFailed => Some(Verdict::Secret),
                Code::Limit => Some(Verdict::Limit),
                Code::CapExceeded => Some(Verdict::Cap),
                _ => None,
            };
            let code = code.and_then(|code| code.as_str().map(str::to_owned));
            Entry { outcome, code, policy, ..entry }
        }
    }
}
