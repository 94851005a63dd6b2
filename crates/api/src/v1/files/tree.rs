//! Directories and names of files: listed, created, moved, removed.

use protocol::requests::{MakeDirectory, Move, Remove};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::super::call::Call;
use super::super::super::shape::{Done, Json, Nothing, Query, Reply};
use super::limits::PAGE_ENTRIES_MAX;
use super::path::{CURSOR, Cursor, FilePath, PERMISSIONS, PathQuery, Permissions, cursor};
use crate::forms::files::FileEntry;
use crate::forms::files::FilePage;
use crate::refusal::of_file as refused;
use sandbox::refusal::Refusal;

/// Which directory to list, and which part of it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListFiles {
    #[serde(flatten)]
    at: PathQuery,
    /// `next` of the previous page.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = CURSOR))]
    after: Option<Cursor>,
    /// The maximum number of entries.
    #[serde(default)]
    #[schemars(with = "u16", extend("minimum" = 1, "maximum" = PAGE_ENTRIES_MAX))]
    limit: Option<u16>,
}

/// What to look up.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatQuery {
    #[serde(flatten)]
    at: PathQuery,
    /// If there is a symlink at the path, look at what it points to.
    #[serde(default)]
    follow: bool,
}

/// What to remove.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveFile {
    #[serde(flatten)]
    at: PathQuery,
    /// Remove a directory with its content, but never across a mount.
    #[serde(default)]
    recursive: bool,
}

/// A directory to make.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDirectory {
    path: FilePath,
    /// Octal; 0755 by default.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = PERMISSIONS))]
    permissions: Option<Permissions>,
    /// Make missing parent directories, and accept an existing directory.
    #[serde(default)]
    parents: bool,
}

/// What to move where.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    from: FilePath,
    to: FilePath,
    /// Replace what is already there.
    #[serde(default)]
    replace: bool,
}

pub async fn list(
    call: Call,
    Query(query): Query<ListFiles>,
    _: Nothing,
) -> Result<Reply<FilePage>, Refusal> {
    let path = query.at.into_text()?;
    let limit = query.limit.map_or(PAGE_ENTRIES_MAX, usize::from);
    if !(1..=PAGE_ENTRIES_MAX).contains(&limit) {
        return Err(Refusal::invalid(format!("limit must be from 1 to {PAGE_ENTRIES_MAX}")));
    }
    let inside = call.inside().await?;
    let after = query.after.map(|Cursor(name)| name);
    let page = inside.guest.list_page(&path, after.as_ref()).await.map_err(refused)?;
    let (mut entries, mut more) = (page.entries, page.more);
    more |= entries.len() > limit;
    entries.truncate(limit);
    let next = entries.last().filter(|_| more).map(|last| cursor(&last.name));
    let entries = entries.into_iter().map(FileEntry::from).collect();
    Ok(Reply(FilePage { entries, next }))
}

pub async fn stat(
    call: Call,
    Query(query): Query<StatQuery>,
    _: Nothing,
) -> Result<Reply<FileEntry>, Refusal> {
    let path = query.at.into_text()?;
    let info = call.inside().await?.guest.stat(path, query.follow).await.map_err(refused)?;
    Ok(Reply(info.into()))
}

pub async fn make_directory(
    call: Call,
    _: Nothing,
    Json(request): Json<NewDirectory>,
) -> Result<Done, Refusal> {
    let path = request.path.into_text()?;
    let permissions = request.permissions.map(|Permissions(bits)| bits);
    let ask = MakeDirectory { path, permissions, parents: request.parents };
    let inside = call.inside().await?;
    inside.guest.make_directory(ask).await.map_err(refused)?;
    Ok(Done)
}

pub async fn rename(
    call: Call,
    _: Nothing,
    Json(request): Json<MoveFile>,
) -> Result<Done, Refusal> {
    let (from, to) = (request.from.into_text()?, request.to.into_text()?);
    let inside = call.inside().await?;
    let ask = Move { from, to, replace: request.replace };
    inside.guest.rename(ask).await.map_err(refused)?;
    Ok(Done)
}

pub async fn remove(
    call: Call,
    Query(query): Query<RemoveFile>,
    _: Nothing,
) -> Result<Done, Refusal> {
    let path = query.at.into_text()?;
    let inside = call.inside().await?;
    let ask = Remove { path, recursive: query.recursive };
    inside.guest.remove(ask).await.map_err(refused)?;
    Ok(Done)
}
