//! Notebooks as clients read and write them. Pure.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Api;
use crate::forms::files::PATH;
use crate::forms::machine::Machine;
use crate::forms::ranges::{CPUS_MAX, cpu_millis};
use crate::forms::sandboxes::{LABEL_KEY, LIFETIME_MS_MAX, NAME};
use sandbox::limits::{LABELS_MAX, MEMORY_MIB_MAX, MEMORY_MIB_MIN, WORKDIR_BYTES_MAX};
use sandbox::refusal::Refusal;
use sandbox::{Name, OnIdle, Spec};
use services::notebook::limits::ID_BYTES_MAX;
use services::notebook::{self, Reopened as BroughtBack, manifest};
use services::store::history::RunRow;

/// A notebook to open.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenNotebook {
    /// Its name in its namespace, of at most 54 characters.
    #[schemars(with = "String", regex(pattern = NAME), length(max = ID_BYTES_MAX))]
    pub name: Name,
    /// The namespace; by default the key's, or `default`.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// `python` or `node`; a new notebook has `python` by default.
    #[serde(default)]
    #[schemars(length(max = 63))]
    pub language: Option<String>,
    /// A running sandbox of its namespace to run in.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub sandbox: Option<Name>,
    /// The options of its own sandbox.
    #[serde(default)]
    pub spec: Option<OwnSandbox>,
}

/// The options of a notebook's own sandbox. There is no `env`, because it may hold secrets and
/// these options are stored.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OwnSandbox {
    #[serde(default)]
    pub machine: Option<Machine>,
    #[serde(default)]
    pub image: Option<String>,
    #[serde(default)]
    #[schemars(range(min = MEMORY_MIB_MIN, max = MEMORY_MIB_MAX))]
    pub memory_mib: Option<u64>,
    #[serde(default)]
    #[schemars(range(min = 0, max = CPUS_MAX))]
    pub cpus: Option<f64>,
    #[serde(default)]
    #[schemars(regex(pattern = PATH), length(max = WORKDIR_BYTES_MAX))]
    pub workdir: Option<String>,
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "pattern": LABEL_KEY }, "maxProperties" = LABELS_MAX))]
    pub labels: BTreeMap<String, String>,
    /// How long it may be idle before it ends or is paused; 30 minutes by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = LIFETIME_MS_MAX))]
    pub idle_ttl_ms: Option<u64>,
    /// What happens then: it ends by default, or is paused until the next run.
    #[serde(default)]
    pub on_idle: Option<OnIdle>,
}

/// A notebook.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Notebook {
    pub name: String,
    pub namespace: String,
    pub language: String,
    pub created_at_ms: u64,
    /// When its last run started.
    pub used_at_ms: u64,
    /// The sandbox of its runs.
    pub sandbox: String,
    /// Whether that sandbox belongs to it.
    pub own_sandbox: bool,
    /// How many runs it has had.
    pub runs: u64,
    /// How many runs have changes that are not on disk. Cancelled runs and runs that were already
    /// reported as lost are not counted.
    pub unsaved_runs: u64,
    /// Its variables on disk; absent in lists and before the first save.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SavedState")]
    pub saved: Option<SavedState>,
}

/// The saved variables of a notebook, name by name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SavedState {
    /// The last run whose changes are saved.
    pub run: u64,
    pub saved_at_ms: u64,
    pub bytes: u64,
    pub kept: Vec<KeptName>,
    /// Variables that a reopening does not restore, with the reasons.
    pub lost: Vec<LostName>,
    /// Saved variables whose code uses lost ones.
    pub depends: Vec<Dependent>,
    /// Saved variables that could not be loaded when last tried.
    pub unavailable: Vec<Unavailable>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptName {
    pub name: String,
    /// Its type, as the language names it.
    pub kind: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LostName {
    pub name: String,
    pub kind: String,
    /// The reason, with the path to the part that cannot be kept.
    pub reason: String,
    /// The lost variables that it depends on.
    pub because_of: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dependent {
    pub name: String,
    pub uses: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Unavailable {
    pub name: String,
    pub reason: String,
}

/// The notebook's part of a run's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InNotebook {
    pub notebook: String,
    /// The number of the run in the notebook, from 1.
    pub number: u64,
    /// What was restored before the run; present if the interpreter was new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Reopened")]
    pub reopened: Option<Reopened>,
}

/// What a new interpreter restored of a notebook's variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reopened {
    /// The variables are as this run left them; 0 if nothing was saved.
    pub as_of_run: u64,
    /// How many later runs lost their changes; cancelled runs are not counted.
    pub unsaved_runs: u64,
    pub restored: Vec<String>,
    pub lost: Vec<LostName>,
    pub depends: Vec<Dependent>,
    pub unavailable: Vec<Unavailable>,
    /// Why the working directory is different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub directory_lost: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotebookList {
    pub notebooks: Vec<Notebook>,
}

/// Which notebooks to list.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotebooksQuery {
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetRequest {
    #[schemars(length(max = 1000))]
    pub names: Vec<String>,
}

/// The statistics of a notebook.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stats {
    /// The notebook's name.
    pub session_id: String,
    pub total_executions: u64,
    /// In seconds.
    pub average_execution_time: f64,
    /// The cache hits per run, over runs whose language reports it; 0 if there were none.
    pub cache_hit_ratio: f64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    /// How many pieces of compiled code its interpreter caches now; absent while it is busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub cached_compilations: Option<u64>,
    pub artifacts_count: u64,
}

impl OwnSandbox {
    /// Fills in what is asked for.
    pub fn ask(self, spec: &mut Spec) -> Result<(), Refusal> {
        spec.machine = self.machine.map(|Machine(kind)| kind);
        spec.image = self.image;
        spec.memory_mib = self.memory_mib;
        spec.cpu_millis = self.cpus.map(cpu_millis).transpose()?;
        spec.workdir = self.workdir;
        spec.labels = self.labels;
        spec.idle_ttl_ms = self.idle_ttl_ms.or(spec.idle_ttl_ms);
        spec.on_idle = self.on_idle;
        Ok(())
    }
}

impl Stats {
    pub fn new(found: &notebook::Notebook, compiled: Option<u64>, artifacts: u64) -> Self {
        let totals = found.totals;
        let ratio = |part: u64, whole: u64| {
            if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
        };
        Self {
            session_id: found.id.clone(),
            total_executions: totals.runs,
            average_execution_time: ratio(totals.runs_us, totals.runs) / 1e6,
            cache_hit_ratio: ratio(totals.cache_hits, totals.cache_hits + totals.cache_misses),
            cache_hits: totals.cache_hits,
            cache_misses: totals.cache_misses,
            cached_compilations: compiled,
            artifacts_count: artifacts,
        }
    }
}

impl Notebook {
    /// Without its variables.
    pub fn summary(found: notebook::Notebook) -> Self {
        Self { saved: None, ..found.into() }
    }
}

impl From<notebook::Notebook> for Notebook {
    fn from(found: notebook::Notebook) -> Self {
        Self {
            name: found.id,
            namespace: found.namespace,
            language: found.language,
            created_at_ms: found.created_ms,
            used_at_ms: found.used_ms,
            sandbox: found.sandbox.name.to_string(),
            own_sandbox: found.is_own,
            runs: found.totals.runs,
            unsaved_runs: found.unsaved_runs,
            saved: found.saved.map(SavedState::from),
        }
    }
}

impl From<notebook::Saved> for SavedState {
    fn from(saved: notebook::Saved) -> Self {
        let manifest::SavedVariables { kept, lost, depends, unavailable } = saved.variables;
        let kept = kept.into_iter().map(|one| {
            let manifest::KeptName { name, kind, bytes } = one;
            KeptName { name, kind, bytes }
        });
        Self {
            run: saved.run,
            saved_at_ms: saved.saved_ms,
            bytes: saved.bytes,
            kept: kept.collect(),
            lost: lost.into_iter().map(LostName::from).collect(),
            depends: depends.into_iter().map(Dependent::from).collect(),
            unavailable: unavailable.into_iter().map(Unavailable::from).collect(),
        }
    }
}

impl From<BroughtBack> for Reopened {
    fn from(back: BroughtBack) -> Self {
        Self {
            as_of_run: back.as_of_run,
            unsaved_runs: back.unsaved_runs,
            restored: back.restored,
            lost: back.lost.into_iter().map(LostName::from).collect(),
            depends: back.depends.into_iter().map(Dependent::from).collect(),
            unavailable: back.unavailable.into_iter().map(Unavailable::from).collect(),
            directory_lost: back.directory_lost,
        }
    }
}

impl From<manifest::LostName> for LostName {
    fn from(lost: manifest::LostName) -> Self {
        let manifest::LostName { name, kind, reason, because_of } = lost;
        Self { name, kind, reason, because_of }
    }
}

impl From<manifest::Dependent> for Dependent {
    fn from(dependent: manifest::Dependent) -> Self {
        let manifest::Dependent { name, uses } = dependent;
        Self { name, uses }
    }
}

impl From<manifest::Unavailable> for Unavailable {
    fn from(away: manifest::Unavailable) -> Self {
        let manifest::Unavailable { name, reason } = away;
        Self { name, reason }
    }
}

/// A run in the history.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PastRun {
    pub notebook: String,
    pub namespace: String,
    pub number: u64,
    pub started_at_ms: u64,
    pub duration_us: u64,
    /// The status in the run's result, or `abandoned` if nobody waited for its end.
    pub status: String,
    /// The beginning of the code.
    pub code: String,
    pub code_bytes: u64,
    /// SHA-256, in hexadecimal digits.
    pub code_digest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub cache_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub cache_hit: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub error_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub error: Option<String>,
    /// The beginning of the output.
    pub stdout: String,
    pub stdout_bytes: u64,
    pub stderr: String,
    pub stderr_bytes: u64,
    pub artifacts: u64,
    pub sandbox: String,
    /// The key that started it.
    pub by: String,
}

impl From<RunRow> for PastRun {
    fn from(run: RunRow) -> Self {
        Self {
            notebook: run.notebook,
            namespace: run.namespace,
            number: run.number,
            started_at_ms: run.started_ms,
            duration_us: run.duration_us,
            status: run.status,
            code: run.code,
            code_bytes: run.code_bytes,
            code_digest: run.code_digest,
            cache_key: run.cache_key,
            cache_hit: run.cache_hit,
            error_type: run.error_type,
            error: run.error_message,
            stdout: run.stdout,
            stdout_bytes: run.stdout_bytes,
            stderr: run.stderr,
            stderr_bytes: run.stderr_bytes,
            artifacts: run.artifacts,
            sandbox: run.sandbox,
            by: run.by_whom,
        }
    }
}

/// See [`Stats`].
pub async fn stats_of(api: &Api, namespace: &Name, id: &Name) -> Result<Stats, Refusal> {
    let notebooks = api.notebooks()?;
    let found = notebooks.get(namespace, id).await?;
    let compiled = notebooks.compiled(namespace, id, false).await?;
    let artifacts = match api.artifact_store() {
        Some(store) => store.count_of_notebook(namespace.as_str(), id.as_str()).await?,
        None => 0,
    };
    Ok(Stats::new(&found, compiled, artifacts))
}
