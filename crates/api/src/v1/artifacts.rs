//! Artifacts: what runs have left, listed, looked at, fetched in whole or in part, and removed; and a
//! file of a sandbox made one by hand.
//!
//! Content is whatever untrusted code has made of it, so no answer lets a browser run it under this
//! server's name: see `content`.

mod content;

use hyper::Method;
use protocol::Text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::call::Call;
use super::super::capture::origin;
use super::super::route::{Operation, operation};
use super::super::shape::{Created, Json, Nothing, Query, Reply};
use super::files::FilePath;
use crate::forms::artifacts::{CategoryName, KeptArtifact};
use crate::forms::ranges::check_range;
use crate::forms::sandboxes::NAME;
use crate::refusal::of_file as refused;
use sandbox::Name;
use sandbox::refusal::{Code, Refusal};
use services::artifact::{self, ArtifactError, ArtifactId, Category, CleanupResult};
use services::store::artifacts::{ArtifactFilter, ArtifactRow};
use services::store::limits::ARTIFACTS_PAGE_MAX;

/// Artifacts on a page when none are asked for.
const PAGE_DEFAULT: u64 = 100;
/// What the name of a notebook looks like.
const NOTEBOOK_BYTES_MAX: usize = 128;
const NOTEBOOK: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$";

pub fn operations() -> Vec<Operation> {
    let all = "/v1/artifacts";
    let one = "/v1/artifacts/{id}";
    [
        operation(Method::GET, all, "list_artifacts", "List artifacts.", list)
            .about("Newest first, one page at a time. Each content is fetched separately."),
        operation(Method::GET, one, "get_artifact", "One artifact.", get),
        operation(
            Method::GET,
            "/v1/artifacts/{id}/content",
            "read_artifact",
            "Download an artifact.",
            content::read,
        )
        .about(
            "Supports `Range` with one range, and `If-Range` and `If-None-Match` with its `ETag`, \
            which is its digest. Pictures, videos and sounds are served to be shown; everything \
            else is served as a download, and nothing in it runs in a browser.",
        )
        .problems(&[Code::RangeNotSatisfiable, Code::Io]),
        operation(Method::DELETE, one, "remove_artifact", "Remove an artifact.", remove).run(),
        operation(Method::DELETE, all, "remove_artifacts", "Remove many artifacts.", clean)
            .run()
            .about(
                "Removes all artifacts that match the query, in the namespace of the query or of \
                the key. A query that matches every artifact needs `all`.",
            ),
        operation(
            Method::POST,
            "/v1/sandboxes/{namespace}/{name}/artifacts",
            "keep_artifact",
            "Keep a file of a sandbox.",
            keep,
        )
        .run()
        .about(
            "The file must be regular, and its path must have no symlinks. Later changes to the \
        file do not change the artifact.",
        )
        .problems(&[
            Code::Io,
            Code::Gone,
            Code::TooLarge,
            Code::LimitReached,
            Code::DeadlineExceeded,
        ]),
    ]
    .map(|operation| operation.tag("artifacts"))
    .to_vec()
}

/// Which artifacts to list.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArtifactsQuery {
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    namespace: Option<Name>,
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    sandbox: Option<Name>,
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NOTEBOOK))]
    notebook: Option<String>,
    #[serde(default)]
    #[schemars(with = "u64", range(max = u64::MAX))]
    run: Option<u64>,
    #[serde(default)]
    #[schemars(with = "CategoryName")]
    category: Option<CategoryName>,
    /// Only artifacts made at this time or later, in milliseconds since 1970.
    #[serde(default)]
    #[schemars(with = "u64", range(max = u64::MAX))]
    since_ms: Option<u64>,
    #[serde(default)]
    #[schemars(with = "u64", range(min = 1, max = ARTIFACTS_PAGE_MAX))]
    limit: Option<u64>,
    /// `next` of the previous page.
    #[serde(default)]
    #[schemars(with = "u64", range(max = u64::MAX))]
    after: Option<u64>,
}

/// A page of artifacts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArtifactPage {
    pub artifacts: Vec<KeptArtifact>,
    /// The value for `after` on the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub next: Option<u64>,
}

/// Which artifacts to remove. At least one of these besides the namespace must be given.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CleanQuery {
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    namespace: Option<Name>,
    #[serde(default)]
    #[schemars(with = "u64", range(max = u64::MAX))]
    older_than_ms: Option<u64>,
    #[serde(default)]
    #[schemars(with = "CategoryName")]
    category: Option<CategoryName>,
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NAME))]
    sandbox: Option<Name>,
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = NOTEBOOK))]
    notebook: Option<String>,
    /// Every artifact of the namespace.
    #[serde(default)]
    all: bool,
}

/// The removed artifacts.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Removed {
    pub removed: u64,
    /// Their total size. Equal contents are stored once.
    pub bytes: u64,
}

/// A file to keep.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeepArtifact {
    pub path: FilePath,
}

/// The artifact that the path names, if the key reaches it. One that it does not reach looks as if it did
/// not exist.
async fn found(call: &Call) -> Result<ArtifactRow, Refusal> {
    let id: ArtifactId = call.parameter("id")?;
    let row = call.api.artifacts()?.get(&id).await?;
    let namespace = row.namespace.parse::<Name>();
    if namespace.is_ok_and(|namespace| call.caller.covers(&namespace)) {
        return Ok(row);
    }
    Err(ArtifactError::NotFound { id }.into())
}

/// The name of a notebook, which is one of no odd letters.
fn notebook(id: Option<String>) -> Result<Option<String>, Refusal> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = |name: &str| {
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        begins && name.len() <= NOTEBOOK_BYTES_MAX && name.chars().all(is_part)
    };
    match id {
        Some(name) if !is_name(&name) => {
            Err(Refusal::invalid("notebook: this is not the name of a notebook"))
        }
        id => Ok(id),
    }
}

fn category(name: Option<CategoryName>) -> Option<String> {
    name.map(|name| Category::from(name).to_string())
}

async fn list(
    call: Call,
    Query(query): Query<ArtifactsQuery>,
    _: Nothing,
) -> Result<Reply<ArtifactPage>, Refusal> {
    check_range("limit", query.limit, 1, ARTIFACTS_PAGE_MAX)?;
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    let which = ArtifactFilter {
        namespace: call.one_namespace(query.namespace)?.map(|one| one.to_string()),
        sandbox: query.sandbox.map(|name| name.to_string()),
        notebook: notebook(query.notebook)?,
        run: query.run,
        category: category(query.category),
        since_ms: query.since_ms,
        below: query.after,
        ..ArtifactFilter::default()
    };
    let rows = call.api.artifacts()?.list(which, limit).await?;
    let is_full = rows.len() as u64 == limit;
    let next = rows.last().map(|row| row.number).filter(|_| is_full);
    let artifacts = rows.into_iter().map(KeptArtifact::from).collect();
    Ok(Reply(ArtifactPage { artifacts, next }))
}

async fn get(call: Call, _: Nothing, _: Nothing) -> Result<Reply<KeptArtifact>, Refusal> {
    Ok(Reply(found(&call).await?.into()))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Reply<KeptArtifact>, Refusal> {
    let row = found(&call).await?;
    let which = ArtifactFilter { id: Some(row.id.clone()), ..ArtifactFilter::default() };
    call.api.artifacts()?.remove(which).await?;
    Ok(Reply(row.into()))
}

async fn clean(
    call: Call,
    Query(query): Query<CleanQuery>,
    _: Nothing,
) -> Result<Reply<Removed>, Refusal> {
    let CleanQuery { older_than_ms, sandbox, all, .. } = query;
    let category = category(query.category);
    let names_any = older_than_ms.is_some()
        || category.is_some()
        || sandbox.is_some()
        || query.notebook.is_some();
    if !names_any && !all {
        return Err(Refusal::invalid("the query does not say which artifacts to remove").hint(
            "give older_than_ms, category, sandbox or notebook; all=true removes all of them",
        ));
    }
    let which = ArtifactFilter {
        namespace: call.one_namespace(query.namespace)?.map(|one| one.to_string()),
        sandbox: sandbox.map(|name| name.to_string()),
        notebook: notebook(query.notebook)?,
        category,
        until_ms: older_than_ms.map(artifact::before_ms),
        ..ArtifactFilter::default()
    };
    let CleanupResult { count, bytes } = call.api.artifacts()?.remove(which).await?;
    Ok(Reply(Removed { removed: count, bytes }))
}

async fn keep(
    call: Call,
    _: Nothing,
    Json(request): Json<KeepArtifact>,
) -> Result<Created<KeptArtifact>, Refusal> {
    let path: Text = request.path.into_text()?;
    let inside = call.inside().await?;
    // A missing file has the same refusal as any file.
    inside.guest.stat(path.clone(), false).await.map_err(refused)?;
    let artifacts = call.api.artifacts()?;
    let artifact = artifacts.keep(&inside.guest, path, &origin(&inside)).await?;
    Ok(Created(artifact.into()))
}
