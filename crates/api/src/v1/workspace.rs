//! Workspaces: brings the changes in a sandbox's workspace back on request.

use hyper::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::route::{Operation, operation};
use super::super::shape::{Nothing, Reply};
use sandbox::refusal::{Code, Refusal};
use workspace::Report;

pub fn operations() -> Vec<Operation> {
    vec![
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/workspace/sync",
            "sync_workspace",
            "Copy a sandbox's workspace changes back.",
            sync,
        )
        .run()
        .about(
            "Answers when all changes are on the host's disk. The bridge also does this by itself \
            after each program or run, and before a stop.",
        )
        .problems(&[Code::Conflict, Code::GuestUnreachable, Code::WorkspaceFailed])
        .tag("sandboxes"),
    ]
}

/// The files that were copied back, as paths in the workspace; at most a thousand of each kind.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Synced {
    pub written: Vec<String>,
    pub deleted: Vec<String>,
    /// What both sides have changed. The host's is as it was.
    pub conflicts: Vec<Conflict>,
    /// What was not carried, and why.
    pub refused: Vec<Refused>,
    /// Paths that were not named here.
    pub untold: u64,
}

/// A file that both sides have changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    pub path: String,
    /// Where the sandbox's is on the host; absent where the sandbox has removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub kept_as: Option<String>,
}

/// A change that was not made on the host.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    pub path: String,
    pub why: String,
}

impl From<Report> for Synced {
    fn from(report: Report) -> Self {
        let Report { written, deleted, conflicts, refused, untold } = report;
        let conflicts = conflicts.into_iter();
        let refused = refused.into_iter();
        Self {
            written,
            deleted,
            conflicts: conflicts
                .map(|conflict| Conflict { path: conflict.path, kept_as: conflict.kept_as })
                .collect(),
            refused: refused
                .map(|refused| Refused { path: refused.path, why: refused.why })
                .collect(),
            untold,
        }
    }
}

async fn sync(call: Call, _: Nothing, _: Nothing) -> Result<Reply<Synced>, Refusal> {
    Ok(Reply(call.api.registry().sync(&call.which()?).await?.into()))
}
