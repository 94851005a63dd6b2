//! Sandboxes in the shape that Daytona's clients read.

use serde_json::{Value, json};

use super::labels::{EPHEMERAL, OWN_LABELS, SNAPSHOT, TARGET};
use super::limits::{IDLE_FOREVER_MS, MINUTE_MS};
use crate::call::Call;
use crate::samples::cpus;
use host::instant::{format, now_ms};
use sandbox::{Record, State};
use workspace::volume::VolumeMount;

const TARGET_DEFAULT: &str = "burrow";
/// The version of the toolbox that the clients believe to speak with: the first that knows all that is here.
pub const DAEMON_VERSION: &str = "0.216.0";
/// Who acts in a sandbox of which nobody was named.
const USER_DEFAULT: &str = "root";
const MIB_PER_GIB: u64 = 1024;
const GIB: u64 = 1024 * 1024 * 1024;

/// Daytona's word for a state; `None` for a sandbox that is over, which is not there to its clients.
pub fn state(record: &Record) -> Option<&'static str> {
    match record.state {
        State::Creating => Some("creating"),
        State::Running => Some("started"),
        State::Paused { .. } => Some("stopped"),
        State::Stopping => Some("stopping"),
        State::Lost { .. } | State::Damaged { .. } => Some("error"),
        State::Stopped { .. } => None,
    }
}

pub fn is_there(record: &Record) -> bool {
    state(record).is_some()
}

pub fn is_ephemeral(record: &Record) -> bool {
    record.labels.contains_key(EPHEMERAL)
}

/// A sandbox, as all answers have it.
pub fn shown(call: &Call, record: &Record) -> Value {
    shown_as(call, record, state(record).unwrap_or("destroyed"))
}

/// The same in a state that it has only for the one who has asked.
pub fn shown_as(call: &Call, record: &Record, state: &str) -> Value {
    let labels = record.labels.iter().filter(|(key, _)| !key.starts_with(OWN_LABELS));
    let labels: serde_json::Map<String, Value> =
        labels.map(|(key, value)| (key.clone(), value.as_str().into())).collect();
    let target = record.labels.get(TARGET).map_or(TARGET_DEFAULT, String::as_str);
    let error = match &record.state {
        State::Lost { reason } | State::Damaged { reason } => Some(reason),
        _ => None,
    };
    let desired = match state {
        "stopped" | "stopping" => "stopped",
        "destroyed" | "destroying" => "destroyed",
        _ => "started",
    };
    let created = format(record.created_at_ms);
    let idle_ms = record.idle_ttl_ms.filter(|ms| *ms < IDLE_FOREVER_MS);
    json!({
        "id": record.id,
        "organizationId": record.namespace,
        "name": record.name,
        "snapshot": snapshot(record),
        "user": record.user.as_deref().unwrap_or(USER_DEFAULT),
        "env": {},
        "labels": labels,
        "public": call.api.previews().is_public(&record.namespace),
        "networkBlockAll": record.egress.is_empty(),
        "kvm": false,
        "target": target,
        "cpu": cpus(record),
        "gpu": 0,
        "memory": memory_gib(record),
        "disk": disk_gib(record),
        "state": state,
        "desiredState": desired,
        "errorReason": error,
        "autoStopInterval": idle_ms.unwrap_or(0).div_ceil(MINUTE_MS),
        "autoArchiveInterval": 0,
        "autoDeleteInterval": if is_ephemeral(record) { 0 } else { -1 },
        "volumes": record.volumes.iter().map(mount).collect::<Vec<_>>(),
        "autoDestroyAt": record.expires_at_ms.map(format),
        "createdAt": created,
        "updatedAt": created,
        "lastActivityAt": format(record.idle_since_ms.unwrap_or_else(now_ms)),
        "sandboxClass": if record.machine.is_virtual() { "linux-vm" } else { "container" },
        "daemonVersion": DAEMON_VERSION,
        "toolboxProxyUrl": proxy(call),
    })
}

/// A volume of a sandbox, which it has by its name.
fn mount(mount: &VolumeMount) -> Value {
    json!({ "volumeId": mount.name, "mountPath": mount.path })
}

/// Below which address the toolboxes are.
pub fn proxy(call: &Call) -> String {
    format!("{}/daytona/toolbox", call.origin())
}

/// What a sandbox was made of, as far as its client has named it.
pub fn snapshot(record: &Record) -> Option<&str> {
    record.labels.get(SNAPSHOT).map(String::as_str).or(record.image.as_deref())
}

pub fn memory_gib(record: &Record) -> u64 {
    let of_host = || host::memory::total_bytes().unwrap_or_default().div_ceil(GIB);
    record.memory_mib.map_or_else(of_host, |mib| mib.div_ceil(MIB_PER_GIB))
}

pub fn disk_gib(record: &Record) -> u64 {
    record.scratch_bytes.div_ceil(GIB)
}
