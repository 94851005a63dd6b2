//! A sandbox as every door shows it, and the schemas that more than one door takes for a new one.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forms::machine::Machine;
use sandbox::limits::{LIFETIME_MAX, PAGE_RECORDS_MAX};
use sandbox::{
    Durability, Followed, Name, OnIdle, OnLost, Phase, Record, RecordPolicy, SandboxRef, State,
};
use services::build::packages::{PACKAGE, PACKAGE_BYTES_MAX, PACKAGES_MAX};
use workspace::volume::VolumeMount;

/// Packages by the names that their package managers know.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the document's words for `Packages`, which knows no documents")]
pub struct PackageList {
    /// Python requirements, as `pandas` or `pandas==2.2`.
    #[serde(default)]
    #[schemars(length(max = PACKAGES_MAX), inner(regex(pattern = PACKAGE), length(max = PACKAGE_BYTES_MAX)))]
    pip: Vec<String>,
    /// Node.js packages, as `express` or `express@4`, installed for all users.
    #[serde(default)]
    #[schemars(length(max = PACKAGES_MAX), inner(regex(pattern = PACKAGE), length(max = PACKAGE_BYTES_MAX)))]
    npm: Vec<String>,
}

/// When an image is pulled.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "the document's words for `Pull`, which knows no documents")]
pub enum PullPolicy {
    Never,
    Missing,
    Always,
}

pub const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$";
/// The name of a template, with or without a tag.
pub const TEMPLATE: &str = "^[A-Za-z0-9][A-Za-z0-9_-]{0,62}(:[A-Za-z0-9][A-Za-z0-9_.-]{0,63})?$";
pub const LABEL_KEY: &str = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$";
/// [`LIFETIME_MAX`] as the schema says it.
pub const LIFETIME_MS_MAX: u64 = LIFETIME_MAX.as_millis() as u64;
/// A label's key, and its required value if there is one.
const SELECTOR: &str = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[^\\x00-\\x1f\\x7f-\\x9f]{0,255})?$";

/// A sandbox.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// Its unique id, which is never reused, even if its name is.
    pub id: String,
    pub namespace: String,
    pub name: String,
    pub state: StateName,
    /// Why it stopped, or does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub stopped_at_ms: Option<u64>,
    pub machine: Machine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub image: Option<String>,
    /// The digest of its image in this host's store, even if the image's name has moved since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub image_digest: Option<String>,
    /// The template that it was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub template: Option<String>,
    pub hostname: String,
    pub created_at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub cpus: Option<f64>,
    /// Only the names, because values may be secrets.
    pub env_names: Vec<String>,
    /// The names of its secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Its volumes, each as `NAME:/path`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub volumes: Vec<VolumeMount>,
    /// Its workspace, at `/workspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub workspace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub workdir: Option<String>,
    /// The default user of programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub user: Option<String>,
    pub scratch_bytes: u64,
    /// Where the writable layer of a process sandbox is: `memory` or `disk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub scratch_place: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The egress rules.
    #[serde(default)]
    pub egress: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub idle_ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub keep_stopped_ms: Option<u64>,
    /// What happens when it has been idle for `idle_ttl_ms`.
    pub on_idle: OnIdle,
    /// Whether what its programs write outlives the host.
    #[serde(default, skip_serializing_if = "Durability::is_off")]
    #[schemars(with = "Durability")]
    pub durability: Durability,
    /// What is recorded of its sessions.
    #[serde(default, skip_serializing_if = "RecordPolicy::is_on")]
    #[schemars(with = "RecordPolicy")]
    pub record: RecordPolicy,
    /// What becomes of it when it is lost with its node.
    #[serde(default, skip_serializing_if = "OnLost::is_lose")]
    #[schemars(with = "OnLost")]
    pub on_lost: OnLost,
    /// The lost sandbox of this name that it was made after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Followed")]
    pub follows: Option<Followed>,
    /// It is paused because it was idle, and continues at the next request. One that was paused by a
    /// call continues when it is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asleep: bool,
    /// It is paused, and its memory is on disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_disk: bool,
    /// When it ends, even if it is busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub expires_at_ms: Option<u64>,
    /// Since when it has been idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub idle_since_ms: Option<u64>,
    /// When it ends, or is paused, if it stays idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub idle_expires_at_ms: Option<u64>,
    /// Requested options that this host could not provide.
    pub warnings: Vec<String>,
    /// What it was forked from, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<Ancestor>,
    /// The node of the fleet that has it; only in lists of all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub node: Option<String>,
}

/// A sandbox that another was forked from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ancestor {
    pub id: String,
    /// Its name at that moment.
    pub name: String,
    /// When it was forked.
    pub at_ms: u64,
}

/// The state of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    Creating,
    Running,
    /// Its machine is paused, with everything in it.
    Paused,
    Stopping,
    Stopped,
    /// Its machine runs, but its agent does not answer.
    Lost,
    /// Its record cannot be read. It can be killed and removed, nothing else.
    Damaged,
}

/// The largest page that may be asked for.
pub const PAGE_MAX: u16 = PAGE_RECORDS_MAX as u16;

/// A page of sandboxes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxPage {
    pub sandboxes: Vec<Sandbox>,
    /// The value for `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
    /// Nodes of the fleet that did not answer: what they have is missing here. Absent if all did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<UnansweredNode>,
}

/// A node that did not answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnansweredNode {
    pub node: String,
    pub why: String,
}

/// Which sandboxes to list.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// `key` or `key=value`; all must match.
    #[serde(default)]
    #[schemars(inner(regex(pattern = SELECTOR)))]
    pub label: Vec<String>,
    /// The states; any of them matches.
    #[serde(default)]
    #[schemars(with = "Vec<StateName>")]
    pub state: Vec<Phase>,
    /// The maximum number of entries.
    #[serde(default)]
    #[schemars(with = "u16", range(min = 1, max = 1000))]
    pub limit: Option<u16>,
    /// `next` of the previous page.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = "^([A-Za-z0-9][A-Za-z0-9_-]{0,62}/)?[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"))]
    pub after: Option<SandboxRef>,
    /// Those of all nodes of the fleet, instead of the one that is asked.
    #[serde(default)]
    pub all_nodes: bool,
}

/// How to stop a sandbox.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopSandbox {
    /// How long its processes may take to end before they are killed.
    #[serde(default)]
    #[schemars(range(max = 3_600_000))]
    pub grace_ms: Option<u64>,
}

/// What to change of a sandbox. Fields that are left out stay; a time of 0 removes the limit.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendSandbox {
    /// The time to live from now on.
    #[serde(default)]
    #[schemars(range(max = LIFETIME_MS_MAX))]
    pub ttl_ms: Option<u64>,
    #[serde(default)]
    #[schemars(range(max = LIFETIME_MS_MAX))]
    pub idle_ttl_ms: Option<u64>,
    /// The egress rules, instead of those that it has; an empty list allows nothing.
    #[serde(default)]
    pub egress: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveQuery {
    /// Kill it first if it runs.
    #[serde(default)]
    pub force: bool,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    /// The state; `stopped` by default.
    #[serde(default)]
    #[schemars(with = "WaitFor")]
    pub until: Option<WaitFor>,
    #[serde(default)]
    #[schemars(with = "u64", range(max = 86_400_000))]
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// Its creation has succeeded or failed.
    Created,
    Stopped,
    Removed,
}

impl From<Phase> for StateName {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Creating => Self::Creating,
            Phase::Running => Self::Running,
            Phase::Paused => Self::Paused,
            Phase::Stopping => Self::Stopping,
            Phase::Stopped => Self::Stopped,
            Phase::Lost => Self::Lost,
            Phase::Damaged => Self::Damaged,
        }
    }
}

impl From<sandbox::Ancestor> for Ancestor {
    fn from(one: sandbox::Ancestor) -> Self {
        Self { id: one.id.to_string(), name: one.name.to_string(), at_ms: one.at_ms }
    }
}

impl From<Record> for Sandbox {
    fn from(record: Record) -> Self {
        let (reason, stopped_at_ms) = match &record.state {
            State::Stopped { why, at_ms } => (Some(why.to_string()), Some(*at_ms)),
            State::Lost { reason } | State::Damaged { reason } => (Some(reason.clone()), None),
            State::Creating | State::Running | State::Paused { .. } | State::Stopping => {
                (None, None)
            }
        };
        Self {
            id: record.id.to_string(),
            namespace: record.namespace.to_string(),
            name: record.name.to_string(),
            state: record.state.phase().into(),
            reason,
            stopped_at_ms,
            machine: record.machine.into(),
            image: record.image,
            image_digest: record.image_digest.map(|digest| digest.to_string()),
            template: record.template.map(|template| template.to_string()),
            hostname: record.hostname,
            created_at_ms: record.created_at_ms,
            memory_mib: record.memory_mib,
            cpus: record.cpu_millis.map(|millis| f64::from(millis) / 1000.0),
            env_names: record.env_names,
            secrets: record.secrets,
            volumes: record.volumes,
            workspace: record.workspace,
            workdir: record.workdir,
            user: record.user,
            scratch_bytes: record.scratch_bytes,
            scratch_place: record.scratch_place.map(|place| place.name().to_owned()),
            labels: record.labels,
            egress: record.egress,
            ttl_ms: record.ttl_ms,
            idle_ttl_ms: record.idle_ttl_ms,
            keep_stopped_ms: record.keep_stopped_ms,
            on_idle: record.on_idle,
            durability: record.durability,
            record: record.record,
            on_lost: record.on_lost,
            follows: record.follows,
            asleep: record.state.is_asleep(),
            on_disk: record.state.is_on_disk(),
            expires_at_ms: record.expires_at_ms,
            idle_since_ms: record.idle_since_ms,
            idle_expires_at_ms: record.idle_expires_at_ms,
            ancestors: record.ancestors.into_iter().map(Ancestor::from).collect(),
            warnings: record.warnings,
            node: None,
        }
    }
}
