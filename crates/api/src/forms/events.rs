//! An event of a namespace, as clients read it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use host::instant::now_ms;
use sandbox::event::{Facts, Kind};
use sandbox::{Name, SandboxId};
use services::events::Entry;

/// A kind of event.
pub struct KindName;

impl JsonSchema for KindName {
    fn schema_name() -> Cow<'static, str> {
        "EventKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let kinds: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        let rows = Kind::ALL.iter().map(|kind| format!("- `{kind}`: {}", kind.about()));
        let about = format!("A kind of event:\n\n{}", rows.collect::<Vec<_>>().join("\n"));
        json_schema!({ "type": "string", "enum": kinds, "description": about })
    }
}

/// Something that has happened to a sandbox. Clients must ignore unknown kinds and fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventInfo {
    /// Its number in the namespace; each is greater than the one before. A client that was
    /// disconnected continues with `since` one greater. Of a gap, the number of the last event that is
    /// missing.
    pub offset: u64,
    /// When it happened, or was found, in milliseconds since 1970.
    pub at_ms: u64,
    #[schemars(with = "KindName")]
    pub kind: Kind,
    pub namespace: String,
    /// The node of the fleet that it happened at, which counts its own offsets; only in events of all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub node: Option<String>,
    /// The sandbox; absent if it is about the stream itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub sandbox: Option<String>,
    /// The sandbox's own id: names are used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub id: Option<String>,
    /// Whether the bridge that it happened to was killed before it could record it: then `at_ms` is when
    /// the next one found it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// Of `created`: the kind of its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub machine: Option<String>,
    /// Of `created`, as requested; of `committed`, the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub image: Option<String>,
    /// Of `created`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Of `paused`: `asked`, `idle` or `lease`. Of `resumed`: `request`, `asked`, `lease` or `found`. Of `exited`: `asked`, `killed`, `ended` (by itself), `expired_idle`, `expired_age`,
    /// `expired_run_time`, `expired_output`, or `bridge_away`. Of `command_ended` and `run_ended`: how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub reason: Option<String>,
    /// Why it happened, as text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub cause: Option<String>,
    /// Of `paused`: its memory was written to disk and freed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub on_disk: Option<bool>,
    /// Of `snapshotted`: the name of the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub snapshot: Option<String>,
    /// Of `out_of_memory`: the session that was killed; absent if the machine was. Of `command_begun` and
    /// `command_ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub session: Option<String>,
    /// Of `command_ended`: the exit code of a program that returned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub code: Option<i32>,
    /// Of `run_begun` and `run_ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub context: Option<String>,
    /// Of `run_begun` and `run_ended`: the number of the run in its context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub run: Option<u64>,
    /// Of `command_ended` and `run_ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub duration_us: Option<u64>,
    /// Of `command_ended` and `run_ended`: CPU time, with that of the children that it has waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cpu_us: Option<u64>,
    /// Of `command_ended` and `run_ended`: the most memory at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_bytes_peak: Option<u64>,
    /// Of `command_ended`: from block devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub read_bytes: Option<u64>,
    /// Of `command_ended`: to block devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub written_bytes: Option<u64>,
    /// Of `out_of_memory`: how much memory there was, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub limit_bytes: Option<u64>,
    /// Of `changed`; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub idle_ttl_ms: Option<u64>,
    /// Of `events_lost`: how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub count: Option<u64>,
    /// Of `gap`: the first offset that is missing, and the one after the last that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub to: Option<u64>,
}

impl EventInfo {
    pub fn new(namespace: &Name, entry: Entry) -> Self {
        let facts = entry.facts;
        Self {
            offset: entry.offset,
            at_ms: entry.at_ms,
            kind: entry.kind,
            namespace: namespace.to_string(),
            node: None,
            sandbox: entry.sandbox.map(|name| name.to_string()),
            id: entry.id.as_ref().map(SandboxId::to_string),
            late: entry.late,
            machine: facts.machine.map(|machine| machine.to_string()),
            image: facts.image,
            labels: facts.labels,
            reason: facts.reason,
            cause: facts.cause,
            on_disk: facts.on_disk,
            snapshot: facts.snapshot,
            session: facts.session,
            code: facts.code,
            context: facts.context,
            run: facts.run,
            duration_us: facts.duration_us,
            cpu_us: facts.cpu_us,
            memory_bytes_peak: facts.memory_bytes_peak,
            read_bytes: facts.read_bytes,
            written_bytes: facts.written_bytes,
            limit_bytes: facts.limit_bytes,
            ttl_ms: facts.ttl_ms,
            idle_ttl_ms: facts.idle_ttl_ms,
            count: facts.count,
            from: facts.from,
            to: facts.to,
        }
    }

    /// That a node does not answer, which its events come behind: from this offset on.
    pub fn unanswered(namespace: &Name, node: &str, offset: u64, why: String) -> Self {
        let facts = Facts { cause: Some(why), ..Facts::default() };
        let (at_ms, kind) = (now_ms(), Kind::Unanswered);
        let entry = Entry { offset, at_ms, kind, sandbox: None, id: None, late: false, facts };
        Self { node: Some(node.to_owned()), ..Self::new(namespace, entry) }
    }

    /// What it takes here and in JSON.
    pub fn cost(&self) -> usize {
        const FIELDS_BYTES: usize = 1024;
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len());
        FIELDS_BYTES + 2 * (labels.sum::<usize>() + self.cause.as_ref().map_or(0, String::len))
    }
}
