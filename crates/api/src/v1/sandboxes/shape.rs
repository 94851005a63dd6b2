//! What is said of a sandbox: when it is asked for, and when it is shown.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::Machine;
use crate::v1::files::PATH;
use image::Pull;
use machine::limits::SCRATCH_BYTES_MIN;
use sandbox::limits::{
    CPU_MILLIS_MAX, LABELS_MAX, LIFETIME_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN, PAGE_RECORDS_MAX,
    WORKDIR_BYTES_MAX,
};
use sandbox::{Name, Phase, Record, SandboxRef, State};

/// A sandbox to make. Only its name must be said.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSandbox {
    #[schemars(with = "String", regex(pattern = NAME))]
    pub name: Name,
    /// That of the key, or `default`.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// A name from the server's configuration, or an image of this host's store by name or digest;
    /// with the scope `admin` also a directory of the host.
    #[serde(default)]
    pub image: Option<String>,
    /// Whether the image is pulled from its registry: `never`, `missing` or `always`. The server's
    /// configuration says what without it; more than that can be asked for with the scope `admin`.
    #[serde(default)]
    #[schemars(with = "Option<PullPolicy>")]
    pub pull: Option<Pull>,
    /// The snapshot of its namespace that it goes on from, instead of booting. Machine, image, memory,
    /// processors and writable layer are those of the snapshot.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("pattern" = NAME))]
    pub snapshot: Option<Name>,
    /// What it runs in; the server's configuration says what without it. `process` is no security
    /// boundary, and `external` cannot be asked for here.
    #[serde(default)]
    pub machine: Option<Machine>,
    #[serde(default)]
    #[schemars(range(min = MEMORY_MIB_MIN, max = MEMORY_MIB_MAX))]
    pub memory_mib: Option<u64>,
    /// Processors, in parts if need be; 0 asks for the smallest share.
    #[serde(default)]
    #[schemars(range(min = 0, max = CPUS_MAX))]
    pub cpus: Option<f64>,
    /// Environment of every program in it. Values are shown nowhere.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where programs begin that name no directory.
    #[serde(default)]
    #[schemars(regex(pattern = PATH), length(max = WORKDIR_BYTES_MAX))]
    pub workdir: Option<String>,
    /// Who programs and interpreters run as that name nobody, as `name`, `name:group`, `uid` or
    /// `uid:gid`: the image's user without it.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    pub user: Option<String>,
    #[serde(default)]
    #[schemars(regex(pattern = NAME))]
    pub hostname: Option<String>,
    /// Bytes of its private writable layer; of a virtual machine at most 64 GiB.
    #[serde(default)]
    #[schemars(range(min = SCRATCH_BYTES_MIN))]
    pub scratch_bytes: Option<u64>,
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "pattern": LABEL_KEY }, "maxProperties" = LABELS_MAX))]
    pub labels: BTreeMap<String, String>,
    /// How long it lives from its creation, whatever it is doing then.
    #[serde(default)]
    #[schemars(range(min = 1, max = LIFETIME_MS_MAX))]
    pub ttl_ms: Option<u64>,
    /// How long it lives while nothing is at work in it.
    #[serde(default)]
    #[schemars(range(min = 1, max = LIFETIME_MS_MAX))]
    pub idle_ttl_ms: Option<u64>,
    /// How long record and logs are kept when it has stopped.
    #[serde(default)]
    #[schemars(range(max = LIFETIME_MS_MAX))]
    pub keep_stopped_ms: Option<u64>,
    /// What it may reach; what the server has set when absent, which is nothing unless its operator says
    /// otherwise, and nothing at all when empty. `example.org` is that host at ports 80 and 443,
    /// `example.org:5432` at that port, `*.example.org` every host below it, `public` every host of
    /// the internet. What the machine kind cannot enforce is refused.
    #[serde(default)]
    pub egress: Option<Vec<String>>,
    /// What it has at `/workspace`, as a copy whose changes come back: a workspace of the server's
    /// configuration by name, or, with the scope `admin`, a directory of the host.
    #[serde(default)]
    pub workspace: Option<String>,
    /// Names of secrets of the server's configuration, whose values become variables of the
    /// environment. One that is unknown, or not for this namespace, is refused.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub secrets: Vec<String>,
}

impl CreateSandbox {
    /// Of which nothing is said but its name.
    pub fn named(name: Name) -> Self {
        Self {
            name,
            namespace: None,
            image: None,
            pull: None,
            snapshot: None,
            machine: None,
            memory_mib: None,
            cpus: None,
            env: BTreeMap::new(),
            workdir: None,
            user: None,
            hostname: None,
            scratch_bytes: None,
            labels: BTreeMap::new(),
            ttl_ms: None,
            idle_ttl_ms: None,
            keep_stopped_ms: None,
            egress: None,
            workspace: None,
            secrets: Vec::new(),
        }
    }
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
pub const LABEL_KEY: &str = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$";
/// [`LIFETIME_MAX`] as the schema says it.
pub const LIFETIME_MS_MAX: u64 = LIFETIME_MAX.as_millis() as u64;
/// [`CPU_MILLIS_MAX`] in whole processors, as clients say them.
pub const CPUS_MAX: u32 = CPU_MILLIS_MAX / 1000;
/// A label's key, and what its value must be if that is said too.
const SELECTOR: &str = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[^\\x00-\\x1f\\x7f-\\x9f]{0,255})?$";

/// A sandbox.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// Its own, and never another's, even when a name is used again.
    pub id: String,
    pub namespace: String,
    pub name: String,
    pub state: StateName,
    /// Why it has stopped, or does not answer.
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
    /// That of the image of this host's store that it has, whatever its name means now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub image_digest: Option<String>,
    pub hostname: String,
    pub created_at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub cpus: Option<f64>,
    /// Names alone: values may be secrets.
    pub env_names: Vec<String>,
    /// The secrets that it was given, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// What it has at `/workspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub workspace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub workdir: Option<String>,
    /// Who programs run as that name nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub user: Option<String>,
    pub scratch_bytes: u64,
    pub labels: BTreeMap<String, String>,
    /// What it may reach.
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
    /// When it ends whatever it is doing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub expires_at_ms: Option<u64>,
    /// Since when nothing has been at work in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub idle_since_ms: Option<u64>,
    /// When it ends if nothing is at work in it until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub idle_expires_at_ms: Option<u64>,
    /// What was asked for and could not be had here.
    pub warnings: Vec<String>,
}

/// Where a sandbox is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    Creating,
    Running,
    /// Its machine stands still, with all that is in it.
    Paused,
    Stopping,
    Stopped,
    /// Its machine lives, and its agent does not answer.
    Lost,
}

/// The largest page that may be asked for.
pub const PAGE_MAX: u16 = PAGE_RECORDS_MAX as u16;

/// Some of the sandboxes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxPage {
    pub sandboxes: Vec<Sandbox>,
    /// What to ask for as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub next: Option<String>,
}

/// Which sandboxes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// `key` or `key=value`; several must all match.
    #[serde(default)]
    #[schemars(inner(regex(pattern = SELECTOR)))]
    pub label: Vec<String>,
    /// Several mean any of them.
    #[serde(default)]
    #[schemars(with = "Vec<StateName>")]
    pub state: Vec<Phase>,
    /// At most so many.
    #[serde(default)]
    #[schemars(with = "u16", range(min = 1, max = 1000))]
    pub limit: Option<u16>,
    /// `next` of the page before.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = "^([A-Za-z0-9][A-Za-z0-9_-]{0,62}/)?[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"))]
    pub after: Option<SandboxRef>,
}

/// How a sandbox is stopped.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopSandbox {
    /// What its processes are given before they are killed.
    #[serde(default)]
    #[schemars(range(max = 3_600_000))]
    pub grace_ms: Option<u64>,
}

/// How long a sandbox shall live. What is left out stays; 0 takes the bound away.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendSandbox {
    /// From now on.
    #[serde(default)]
    #[schemars(range(max = LIFETIME_MS_MAX))]
    pub ttl_ms: Option<u64>,
    #[serde(default)]
    #[schemars(range(max = LIFETIME_MS_MAX))]
    pub idle_ttl_ms: Option<u64>,
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
    /// `stopped` when left out.
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
    /// Its creation is over, well or not.
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
        }
    }
}

impl From<Record> for Sandbox {
    fn from(record: Record) -> Self {
        let (reason, stopped_at_ms) = match &record.state {
            State::Stopped { why, at_ms } => (Some(why.to_string()), Some(*at_ms)),
            State::Lost { reason } => (Some(reason.clone()), None),
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
            hostname: record.hostname,
            created_at_ms: record.created_at_ms,
            memory_mib: record.memory_mib,
            cpus: record.cpu_millis.map(|millis| f64::from(millis) / 1000.0),
            env_names: record.env_names,
            secrets: record.secrets,
            workspace: record.workspace,
            workdir: record.workdir,
            user: record.user,
            scratch_bytes: record.scratch_bytes,
            labels: record.labels,
            egress: record.egress,
            ttl_ms: record.ttl_ms,
            idle_ttl_ms: record.idle_ttl_ms,
            keep_stopped_ms: record.keep_stopped_ms,
            expires_at_ms: record.expires_at_ms,
            idle_since_ms: record.idle_since_ms,
            idle_expires_at_ms: record.idle_expires_at_ms,
            warnings: record.warnings,
        }
    }
}
