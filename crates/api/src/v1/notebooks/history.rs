//! What ran in notebooks, as it is remembered.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::problem::Problem;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Query, Reply};
use crate::v1::sandboxes::NAME;
use sandbox::Name;
use services::store::history::{RunFilter, RunRow};

/// Runs that are answered with when nobody says how many.
const LIMIT_DEFAULT: u64 = 100;

pub fn operations() -> Vec<Operation> {
    vec![
        operation(
            Method::GET,
            "/v1/notebooks/{namespace}/{notebook}/history",
            "notebook_history",
            "List the runs of a notebook, newest first.",
            of_notebook,
        )
        .about("Code and output are cut to their beginnings."),
        operation(
            Method::GET,
            "/v1/history",
            "history",
            "List the runs of all notebooks, newest first.",
            of_all,
        ),
    ]
}

/// Which runs of one notebook to list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotebookHistoryQuery {
    /// Only runs before this number.
    #[serde(default)]
    #[schemars(range(max = u64::MAX))]
    pub before: Option<u64>,
    /// The maximum number of runs, up to 1000; 100 by default.
    #[serde(default)]
    #[schemars(range(max = u64::MAX))]
    pub limit: Option<u64>,
    /// Only runs that began at this time or later.
    #[serde(default)]
    #[schemars(range(max = u64::MAX))]
    pub since_ms: Option<u64>,
    /// Only runs that failed.
    #[serde(default)]
    pub failed: bool,
}

/// Which runs of all notebooks to list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    pub namespace: Option<Name>,
    /// The maximum number of runs, up to 1000; 100 by default.
    #[serde(default)]
    #[schemars(range(max = u64::MAX))]
    pub limit: Option<u64>,
    /// Only runs that began at this time or later.
    #[serde(default)]
    #[schemars(range(max = u64::MAX))]
    pub since_ms: Option<u64>,
    /// Only runs that failed.
    #[serde(default)]
    pub failed: bool,
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

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct History {
    pub runs: Vec<PastRun>,
}

async fn of_notebook(
    call: Call,
    Query(query): Query<NotebookHistoryQuery>,
    _: Nothing,
) -> Result<Reply<History>, Problem> {
    let (namespace, id) = call.notebook()?;
    let notebooks = call.api.notebooks()?;
    notebooks.get(&namespace, &id).await?;
    let NotebookHistoryQuery { before, limit, since_ms, failed } = query;
    let asked = RunFilter {
        namespace: Some(namespace.to_string()),
        notebook: Some(id.to_string()),
        failed,
        before,
        since_ms: since_ms.unwrap_or_default(),
        limit: limit.unwrap_or(LIMIT_DEFAULT),
    };
    Ok(Reply(found(notebooks.history(asked).await?)))
}

async fn of_all(
    call: Call,
    Query(query): Query<HistoryQuery>,
    _: Nothing,
) -> Result<Reply<History>, Problem> {
    let HistoryQuery { namespace, limit, since_ms, failed } = query;
    let asked = RunFilter {
        namespace: call.one_namespace(namespace)?.map(|namespace| namespace.to_string()),
        notebook: None,
        failed,
        before: None,
        since_ms: since_ms.unwrap_or_default(),
        limit: limit.unwrap_or(LIMIT_DEFAULT),
    };
    Ok(Reply(found(call.api.notebooks()?.history(asked).await?)))
}

fn found(runs: Vec<RunRow>) -> History {
    History { runs: runs.into_iter().map(PastRun::from).collect() }
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
