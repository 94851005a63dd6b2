//! `list_artifacts` and `cleanup_artifacts`: lists and removes the artifacts of calls.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forms::artifacts::{CategoryName, KeptArtifact};
use crate::mcp::limits::{ARTIFACTS_LISTED_DEFAULT, ARTIFACTS_LISTED_MAX};
use crate::mcp::tool::{Answer, Effect, Entry, Work, tool};
use access::keys::Access;
use sandbox::refusal::Refusal;
use sandbox::{Name, SandboxRef};
use services::artifact::{Category, CleanupResult, before_ms};
use services::store::artifacts::ArtifactFilter;

pub fn entries() -> Vec<Entry> {
    vec![
        tool(
            "list_artifacts",
            "List artifacts",
            "Lists the artifacts of earlier calls, newest first: figures, pictures, new and \
            changed files. They outlive their sandboxes.",
            Access::Read,
            Effect::Reads,
            list_artifacts,
        ),
        tool(
            "cleanup_artifacts",
            "Remove artifacts",
            "Removes the artifacts that match all given conditions, for good.",
            Access::Run,
            Effect::Ends,
            cleanup_artifacts,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListArtifacts {
    /// Only of this sandbox, which may be gone.
    #[serde(default)]
    sandbox: Option<String>,
    /// Only of this category.
    #[serde(default)]
    category: Option<CategoryName>,
    /// The maximum number of artifacts; 50 by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = ARTIFACTS_LISTED_MAX))]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct ArtifactList {
    artifacts: Vec<KeptArtifact>,
    /// Whether there are older artifacts.
    more: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CleanupArtifacts {
    /// Only older than this many seconds.
    #[serde(default)]
    #[schemars(range(min = 0))]
    older_than_seconds: Option<f64>,
    /// Only of this category.
    #[serde(default)]
    category: Option<CategoryName>,
    /// Only of this sandbox, which may be gone.
    #[serde(default)]
    sandbox: Option<String>,
    /// Removes all; needed when no condition is given.
    #[serde(default)]
    all: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct CleanedUp {
    removed: u64,
    /// Their total size.
    bytes: u64,
}

/// Those of a sandbox, or of this session's namespace.
fn of(work: &Work, sandbox: Option<&str>) -> Result<ArtifactFilter, Refusal> {
    let own = work.session.namespace(&work.caller);
    let invalid = |error: &dyn std::fmt::Display| Refusal::invalid(format!("sandbox: {error}"));
    let (namespace, sandbox) = match sandbox {
        None => (own, None),
        Some(name) if name.contains('/') => {
            let which: SandboxRef = name.parse().map_err(|error| invalid(&error))?;
            work.reaches(&which)?;
            (which.namespace, Some(which.name))
        }
        Some(name) => {
            let name: Name = name.parse().map_err(|error| invalid(&error))?;
            (own, Some(name))
        }
    };
    Ok(ArtifactFilter {
        namespace: Some(namespace.to_string()),
        sandbox: sandbox.map(|name| name.to_string()),
        ..ArtifactFilter::default()
    })
}

fn category(name: Option<CategoryName>) -> Option<String> {
    name.map(|name| Category::from(name).to_string())
}

async fn list_artifacts(
    work: Work,
    request: ListArtifacts,
) -> Result<Answer<ArtifactList>, Refusal> {
    let limit = request.limit.unwrap_or(ARTIFACTS_LISTED_DEFAULT);
    if !(1..=ARTIFACTS_LISTED_MAX).contains(&limit) {
        let message = format!("limit must be from 1 to {ARTIFACTS_LISTED_MAX}, not {limit}");
        return Err(Refusal::invalid(message));
    }
    let which = ArtifactFilter {
        category: category(request.category),
        ..of(&work, request.sandbox.as_deref())?
    };
    let mut rows = work.api.artifacts()?.list(which, limit + 1).await?;
    let more = rows.len() as u64 > limit;
    rows.truncate(limit as usize);
    let artifacts = rows.into_iter().map(KeptArtifact::from).collect();
    Ok(Answer::of(ArtifactList { artifacts, more }))
}

async fn cleanup_artifacts(
    work: Work,
    request: CleanupArtifacts,
) -> Result<Answer<CleanedUp>, Refusal> {
    let CleanupArtifacts { older_than_seconds, sandbox, all, .. } = request;
    let age = older_than_seconds
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|error| Refusal::invalid(format!("older_than_seconds: {error}")))?;
    if age.is_none() && request.category.is_none() && sandbox.is_none() && !all {
        return Err(Refusal::invalid("the call does not say which artifacts to remove")
            .hint("give older_than_seconds, category or sandbox; all=true removes all of them"));
    }
    let until_ms = age.map(|age| before_ms(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
    let category = category(request.category);
    let which = ArtifactFilter { category, until_ms, ..of(&work, sandbox.as_deref())? };
    let CleanupResult { count, bytes } = work.api.artifacts()?.remove(which).await?;
    Ok(Answer::of(CleanedUp { removed: count, bytes }))
}
