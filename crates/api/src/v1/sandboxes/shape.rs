//! What is said of a sandbox: when it is asked for, and when it is shown.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::Machine;
use crate::v1::files::PATH;
use crate::v1::ranges::CPUS_MAX;
use image::Pull;
use machine::limits::SCRATCH_BYTES_MIN;
use sandbox::limits::{
    LABELS_MAX, LIFETIME_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN, PAGE_RECORDS_MAX, WORKDIR_BYTES_MAX,
};
use sandbox::{Name, Phase, Record, SandboxRef, State};

/// A sandbox to make. Only its name is required.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSandbox {
    #[schemars(with = "String", regex(pattern = NAME))]
    pub name: Name,
    /// The namespace; by default the key's, or `default`.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// An image in the server's configuration, or in this host's store by name or digest. With the
    /// scope `admin` also a directory of the host.
    #[serde(default)]
    pub image: Option<String>,
    /// When the image is pulled from its registry: `never`, `missing` or `always`. The default is
    /// the server's policy; only the scope `admin` may ask for more.
    #[serde(default)]
    #[schemars(with = "Option<PullPolicy>")]
    pub pull: Option<Pull>,
    /// The snapshot of its namespace to start from, instead of booting. The snapshot sets the
    /// machine, image, memory, CPUs and writable layer.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("pattern" = NAME))]
    pub snapshot: Option<Name>,
    /// The machine kind; the default is set by the server's configuration. `process` is not a
    /// security boundary, and `external` is not allowed here.
    #[serde(default)]
    pub machine: Option<Machine>,
    #[serde(default)]
    #[schemars(range(min = MEMORY_MIB_MIN, max = MEMORY_MIB_MAX))]
    pub memory_mib: Option<u64>,
    /// CPUs; fractions are allowed, and 0 asks for the smallest share.
    #[serde(default)]
    #[schemars(range(min = 0, max = CPUS_MAX))]
    pub cpus: Option<f64>,
    /// The environment of every program in it. The values are never shown.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The default working directory of programs.
    #[serde(default)]
    #[schemars(regex(pattern = PATH), length(max = WORKDIR_BYTES_MAX))]
    pub workdir: Option<String>,
    /// The default user of programs and interpreters: `name`, `name:group`, `uid` or `uid:gid`. The
    /// default is the image's user.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    pub user: Option<String>,
    #[serde(default)]
    #[schemars(regex(pattern = NAME))]
    pub hostname: Option<String>,
    /// The size of its private writable layer; at most 64 GiB for a virtual machine.
    #[serde(default)]
    #[schemars(range(min = SCRATCH_BYTES_MIN))]
    pub scratch_bytes: Option<u64>,
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "pattern": LABEL_KEY }, "maxProperties" = LABELS_MAX))]
    pub labels: BTreeMap<String, String>,
    /// The time from its creation until it ends, even if it is busy.
    #[serde(default)]
    #[schemars(range(min = 1, max = LIFETIME_MS_MAX))]
    pub ttl_ms: Option<u64>,
    /// How long it may be idle before it ends.
    #[serde(default)]
    #[schemars(range(min = 1, max = LIFETIME_MS_MAX))]
    pub idle_ttl_ms: Option<u64>,
    /// How long its record and logs are kept after it has stopped.
    #[serde(default)]
    #[schemars(range(max = LIFETIME_MS_MAX))]
    pub keep_stopped_ms: Option<u64>,
    /// What it may reach. The default is the server's setting, which is nothing unless its operator
    /// changed it; an empty list means nothing. `example.org` is that host at ports 80 and 443,
    /// `example.org:5432` that host at that port, `*.example.org` every host below it, `public`
    /// every host of the internet. Rules that the machine kind cannot enforce are refused.
    #[serde(default)]
    pub egress: Option<Vec<String>>,
    /// The workspace, copied to `/workspace`; changes are copied back. The name of a workspace in
    /// the server's configuration, or, with the scope `admin`, a directory of the host.
    #[serde(default)]
    pub workspace: Option<String>,
    /// Names of secrets in the server's configuration; their values become environment variables.
    /// Secrets that are unknown or not for this namespace are refused.
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
/// A label's key, and what its value must be if that is said too.
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
    /// When it ends, even if it is busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub expires_at_ms: Option<u64>,
    /// Since when it has been idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub idle_since_ms: Option<u64>,
    /// When it ends if it stays idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub idle_expires_at_ms: Option<u64>,
    /// Requested options that this host could not provide.
    pub warnings: Vec<String>,
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

/// A sandbox's new time to live. Fields that are left out stay; 0 removes the limit.
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
