//! The history of the runs of notebooks.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::forms::notebooks::PastRun;
use crate::forms::sandboxes::NAME;
use crate::route::{Operation, operation};
use crate::shape::{Nothing, Query, Reply};
use sandbox::Name;
use sandbox::refusal::Refusal;
use services::store::history::{RunFilter, RunRow};

/// Runs in an answer by default.
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

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct History {
    pub runs: Vec<PastRun>,
}

async fn of_notebook(
    call: Call,
    Query(query): Query<NotebookHistoryQuery>,
    _: Nothing,
) -> Result<Reply<History>, Refusal> {
    let (namespace, id) = call.notebook()?;
    let notebooks = call.api.notebooks()?;
    notebooks.get(&namespace, &id).await?;
    let NotebookHistoryQuery { before, limit, since_ms, failed } = query;
    let filter = RunFilter {
        namespace: Some(namespace.to_string()),
        notebook: Some(id.to_string()),
        failed,
        before,
        since_ms: since_ms.unwrap_or_default(),
        limit: limit.unwrap_or(LIMIT_DEFAULT),
    };
    Ok(Reply(found(notebooks.history(filter).await?)))
}

async fn of_all(
    call: Call,
    Query(query): Query<HistoryQuery>,
    _: Nothing,
) -> Result<Reply<History>, Refusal> {
    let HistoryQuery { namespace, limit, since_ms, failed } = query;
    let filter = RunFilter {
        namespace: call.one_namespace(namespace)?.map(|namespace| namespace.to_string()),
        notebook: None,
        failed,
        before: None,
        since_ms: since_ms.unwrap_or_default(),
        limit: limit.unwrap_or(LIMIT_DEFAULT),
    };
    Ok(Reply(found(call.api.notebooks()?.history(filter).await?)))
}

fn found(runs: Vec<RunRow>) -> History {
    History { runs: runs.into_iter().map(PastRun::from).collect() }
}
