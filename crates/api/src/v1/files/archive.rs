//! Trees of files as tar archives.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::super::call::Call;
use super::super::super::outflow::{Source, outflow};
use super::super::super::shape::{Nothing, Query, Reply};
use super::super::archives::{Archive, ArchiveResponse};
use super::path::PathQuery;
use super::received;
use crate::forms::files::ArchiveUnpacked;
use crate::refusal::of_file as refused;
use sandbox::refusal::Refusal;

/// What to archive.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PackQuery {
    #[serde(flatten)]
    at: PathQuery,
    /// If there is a symlink at the path, archive what it points to.
    #[serde(default)]
    follow: bool,
}

/// The directory where an archive is unpacked.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnpackQuery {
    #[serde(flatten)]
    at: PathQuery,
    /// Make the directory and its parents if they are missing.
    #[serde(default)]
    parents: bool,
    /// Give entries the owners named in the archive.
    #[serde(default)]
    owners: bool,
}

pub async fn pack(
    call: Call,
    Query(query): Query<PackQuery>,
    _: Nothing,
) -> Result<ArchiveResponse, Refusal> {
    let path = query.at.into_text()?;
    let inside = call.inside().await?;
    let output = inside.guest.tar_get(path, query.follow).await.map_err(refused)?;
    let source = Source::Guest { output, activity: inside.activity };
    let body = outflow(&call, source, None)?;
    Ok(ArchiveResponse::new(body))
}

pub async fn unpack(
    mut call: Call,
    Query(query): Query<UnpackQuery>,
    _: Archive,
) -> Result<Reply<ArchiveUnpacked>, Refusal> {
    let path = query.at.into_text()?;
    let inside = call.inside().await?;
    let upload = inside.guest.tar_put(path, query.owners, query.parents);
    let mut upload = upload.map_err(refused)?;
    while let Some(bytes) = call.body.chunk().await? {
        upload.write(&bytes).await.map_err(refused)?;
    }
    let (written, file) = upload.finish_accounted().await.map_err(refused)?;
    received::note(&call.trail, file);
    Ok(Reply(ArchiveUnpacked { bytes: written.bytes, entries: written.entries }))
}
