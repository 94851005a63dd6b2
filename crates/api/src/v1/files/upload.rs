//! Writing files: the body of a request is written to a file, or to a part of one, as it arrives.
//!
//! A client that disconnects or is too slow drops the handler, and with it the upload. The agent
//! then discards a new file, and keeps what has arrived for a file that is written in place.

use protocol::Text;
use protocol::requests::WriteMode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::super::super::call::Call;
use super::super::super::route::{Document, Input};
use super::super::super::shape::{Query, Reply};
use super::digest::{CONTENT_DIGEST, Digest};
use super::path::{PERMISSIONS, PathQuery, Permissions};
use super::received;
use crate::forms::files::FileWritten;
use crate::refusal::of_file as refused;
use agent_client::guest::{FileTarget, Guest};
use sandbox::refusal::{Code, Refusal};

/// Which file to write, and how.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteQuery {
    #[serde(flatten)]
    at: PathQuery,
    /// Make missing parent directories.
    #[serde(default)]
    parents: bool,
    /// Octal. By default an existing file keeps its own and a new file gets 0644.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = PERMISSIONS))]
    permissions: Option<Permissions>,
    /// Refuse to write an existing file. Not with `append`, nor with an `offset` other than 0.
    #[serde(default)]
    create_only: bool,
    /// Append to the file. Not with `offset`.
    #[serde(default)]
    append: bool,
    /// Write from this byte on, which must not be past the end of the file. 0 starts the file
    /// again.
    #[serde(default)]
    #[schemars(with = "u64")]
    offset: Option<u64>,
}

/// A body of bytes, and its expected digest if the client sent one.
#[derive(Clone)]
pub struct FileBody(Option<Digest>);

impl Input for FileBody {
    fn describe(document: &mut Document<'_>) {
        let content = json!({ "application/octet-stream": { "schema": {} } });
        document.insert("requestBody", json!({ "required": false, "content": content }));
        document.parameters().push(json!({
            "name": CONTENT_DIGEST.as_str(), "in": "header", "required": false,
            "description": "The digest that the body must have. Not with `append` or `offset`.",
            "schema": { "type": "string", "pattern": "^sha-256=:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=:$" }
        }));
    }

    async fn read(call: &mut Call) -> Result<Self, Refusal> {
        Digest::expected(&call.headers).map(Self)
    }
}

pub async fn write(
    mut call: Call,
    Query(query): Query<WriteQuery>,
    FileBody(mut digest): FileBody,
) -> Result<Reply<FileWritten>, Refusal> {
    let mode = mode(&query)?;
    if digest.is_some() && !matches!(mode, WriteMode::Replace {} | WriteMode::Create {}) {
        let message = "Content-Digest cannot be checked before the file is written";
        return Err(Refusal::invalid(message)
            .hint("leave out `append` and `offset`, or check the file afterwards"));
    }
    let path = query.at.into_text()?;
    let target = FileTarget {
        path,
        mode,
        permissions: query.permissions.map(|Permissions(bits)| bits),
        uid: None,
        gid: None,
        parents: query.parents,
    };
    let inside = call.inside().await?;
    match mode {
        WriteMode::At { offset: 0 } => empty(&inside.guest, &target, query.create_only).await?,
        WriteMode::At { offset } => reaches(&inside.guest, &target.path, offset).await?,
        WriteMode::Replace {} | WriteMode::Create {} | WriteMode::Append {} => {}
    }
    let mut upload = inside.guest.write_file(target).map_err(refused)?;
    while let Some(bytes) = call.body.chunk().await? {
        if let Some(digest) = &mut digest {
            digest.update(&bytes);
        }
        upload.write(&bytes).await.map_err(refused)?;
    }
    if let Some(digest) = digest {
        digest.check()?;
    }
    let (written, file) = upload.finish_accounted().await.map_err(refused)?;
    received::note(&call.trail, file);
    Ok(Reply(FileWritten { bytes: written.bytes }))
}

fn mode(query: &WriteQuery) -> Result<WriteMode, Refusal> {
    match (query.offset, query.append, query.create_only) {
        (None, false, false) => Ok(WriteMode::Replace {}),
        (None, false, true) => Ok(WriteMode::Create {}),
        (None, true, false) => Ok(WriteMode::Append {}),
        (Some(0), false, _) => Ok(WriteMode::At { offset: 0 }),
        (Some(offset), false, false) => Ok(WriteMode::At { offset }),
        (Some(_), true, _) => Err(Refusal::invalid("append and offset exclude each other")),
        (_, _, true) => Err(Refusal::invalid(
            "create_only needs a new file, and append or offset an existing one",
        )),
    }
}

/// Begins a new file, so that nothing of an older and longer one is left after the new end.
async fn empty(guest: &Guest, target: &FileTarget, create_only: bool) -> Result<(), Refusal> {
    let mode = if create_only { WriteMode::Create {} } else { WriteMode::Replace {} };
    let emptied = guest.write_file(FileTarget { mode, ..target.clone() }).map_err(refused)?;
    // What follows is recorded from its first byte on.
    emptied.of_the_bridge().finish().await.map_err(refused)?;
    Ok(())
}

/// Refuses an offset that would leave a hole.
async fn reaches(guest: &Guest, path: &Text, offset: u64) -> Result<(), Refusal> {
    let bytes = guest.stat(path.clone(), true).await.map_err(refused)?.bytes;
    if offset <= bytes {
        return Ok(());
    }
    let message = format!("offset {offset} is past the end of {path:?}, which has {bytes} bytes");
    Err(Refusal::new(Code::Conflict, message)
        .hint("continue at the file's end, or start again with offset=0")
        .details(json!({ "reason": "offset_behind_end", "bytes": bytes })))
}
