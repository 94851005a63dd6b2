//! Sandboxes in the shape that E2B's clients read.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::limits::ENVD_VERSION;
use super::passes;
use crate::call::Call;
use crate::samples::cpus;
use access::keys::Access;
use access::preview::Base;
use host::instant::{format, now_ms};
use sandbox::refusal::Refusal;
use sandbox::{OnIdle, Record, State};
use workspace::volume::VolumeMount;

/// The label that holds a sandbox's template. Metadata has no names that begin like it.
pub const TEMPLATE: &str = "e2b.template";
/// The label of a sandbox that any request wakes, once it was paused at the end of its time.
pub const AUTO_RESUME: &str = "e2b.auto-resume";
/// What the names of this door's own labels begin with.
pub const OWN_LABELS: &str = "e2b.";
const TEMPLATE_DEFAULT: &str = "base";
/// Every answer names a client, and there are no other hosts.
const CLIENT: &str = "burrow";
/// The time to live of a sandbox without a limit, in answers: E2B's sandboxes all have one.
const ENDLESS_MS: u64 = 365 * 24 * 3600 * 1000;
const MIB: u64 = 1024 * 1024;

pub fn template(record: &Record) -> &str {
    let named = record.labels.get(TEMPLATE).map(String::as_str);
    named.or(record.image.as_deref()).unwrap_or(TEMPLATE_DEFAULT)
}

/// The labels that are metadata.
pub fn metadata(record: &Record) -> BTreeMap<&str, &str> {
    let labels = record.labels.iter().filter(|(key, _)| !key.starts_with(OWN_LABELS));
    labels.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// The answer to who makes a sandbox or connects to it.
pub fn connected(call: &Call, record: &Record) -> Result<Value, Refusal> {
    let token = passes::token_of(&call.api, (&record.which(), &record.id), &call.caller)?;
    Ok(json!({
        "templateID": template(record),
        "sandboxID": record.id,
        "clientID": CLIENT,
        "alias": record.name,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": token,
        "trafficAccessToken": token,
        "domain": domain(call),
    }))
}

/// Below which host ports have names, with its port; null where they have none.
fn domain(call: &Call) -> Option<String> {
    call.api.previews().base().map(Base::authority)
}

/// An entry of a list.
pub fn listed(record: &Record) -> Value {
    let ends = ends_at_ms(record);
    json!({
        "templateID": template(record),
        "alias": record.name,
        "sandboxID": record.id,
        "clientID": CLIENT,
        "startedAt": format(record.created_at_ms),
        "endAt": format(ends),
        "cpuCount": cpus(record),
        "memoryMB": record.memory_mib.unwrap_or_else(host_memory_mib),
        "diskSizeMB": record.scratch_bytes / MIB,
        "state": state(record).unwrap_or("running"),
        "envdVersion": ENVD_VERSION,
        "metadata": metadata(record),
        "volumeMounts": record.volumes.iter().map(shown_mount).collect::<Vec<_>>(),
    })
}

fn shown_mount(mount: &VolumeMount) -> Value {
    json!({ "name": mount.name, "path": mount.path })
}

/// When a sandbox ends, or is paused if nothing is at work in it until then.
fn ends_at_ms(record: &Record) -> u64 {
    let paused = match (record.on_idle, &record.state) {
        (OnIdle::Stop, _) => None,
        (_, State::Paused { since_ms, .. }) => Some(*since_ms),
        (OnIdle::Pause | OnIdle::Snapshot, _) => {
            record.idle_expires_at_ms.or(record.idle_ttl_ms.map(|ms| now_ms().saturating_add(ms)))
        }
    };
    let endless = record.created_at_ms.saturating_add(ENDLESS_MS);
    paused.or(record.expires_at_ms).unwrap_or(endless)
}

/// Whether any request wakes it; without that only a connection does.
pub fn wakes_itself(record: &Record) -> bool {
    record.labels.contains_key(AUTO_RESUME) || !record.labels.contains_key(TEMPLATE)
}

/// All that is known of one.
pub fn detailed(call: &Call, record: &Record) -> Result<Value, Refusal> {
    let mut detailed = listed(record);
    let more: &mut Map<String, Value> = detailed.as_object_mut().expect("`listed` makes an object");
    if call.caller.may(Access::Run) {
        let token = passes::token_of(&call.api, (&record.which(), &record.id), &call.caller)?;
        more.insert("envdAccessToken".to_owned(), token.into());
    }
    more.insert("domain".to_owned(), json!(domain(call)));
    let on_timeout = if record.on_idle.is_stop() { "kill" } else { "pause" };
    let lifecycle = json!({ "autoResume": wakes_itself(record), "onTimeout": on_timeout });
    more.insert("lifecycle".to_owned(), lifecycle);
    more.insert("allowInternetAccess".to_owned(), (!record.egress.is_empty()).into());
    Ok(detailed)
}

/// A sandbox of which E2B has a word for its state; the others are not there to its clients.
pub fn state(record: &Record) -> Option<&'static str> {
    match record.state {
        State::Running => Some("running"),
        State::Paused { .. } => Some("paused"),
        _ => None,
    }
}

pub fn is_there(record: &Record) -> bool {
    state(record).is_some()
}

fn host_memory_mib() -> u64 {
    host::memory::total_bytes().unwrap_or_default() / MIB
}

/// Whether a text names a template that sandboxes are made of when none is chosen.
pub fn is_usual(template: &str) -> bool {
    ["base", "code-interpreter-v1"].contains(&template)
}
