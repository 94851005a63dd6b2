//! `read_file` and `list_files`.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::message::FileKind;
use rmcp::model::{ContentBlock, ResourceContents};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::output::read_limit;
use crate::api::call::Inside;
use crate::api::mcp::limits::{ENTRIES_MAX, IMAGE_BYTES_MAX, READ_BYTES_MAX};
use crate::api::mcp::tool::{Answer, Effect, Entry, Work, tool};
use crate::api::problem::{Code, Problem};
use crate::api::v1::{FileEntry, refused};
use crate::guest::{Output, Piece};
use crate::keys::Access;
use crate::mime;

pub fn entries() -> Vec<Entry> {
    vec![
        tool(
            "read_file",
            "Read a file",
            "Reads a file of a sandbox: text as text, a picture (PNG, JPEG, GIF, WebP) as an image, \
             and anything else as a resource with its MIME type. A long file comes in parts: ask \
             again with `next_offset`.",
            Access::Read,
            Effect::Reads,
            read_file,
        ),
        tool(
            "list_files",
            "List a directory",
            "The entries of a directory of a sandbox, in the order of their names. A long list comes \
             in parts: ask again with `next` as `after`.",
            Access::Read,
            Effect::Reads,
            list_files,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    /// The sandbox, by its name; this session's own when left out.
    #[serde(default)]
    sandbox: Option<String>,
    /// Its absolute path.
    #[schemars(length(max = 4096))]
    path: String,
    /// The first byte that is wanted; 0 when left out.
    #[serde(default)]
    offset: Option<u64>,
    /// At most so many bytes: 65536 when left out. A picture is always read whole.
    #[serde(default)]
    #[schemars(range(min = 1, max = READ_BYTES_MAX))]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct FileRead {
    sandbox: String,
    path: String,
    mime_type: String,
    /// Of the whole file.
    total_bytes: u64,
    offset: u64,
    /// What was read of it here.
    bytes: u64,
    /// Where it goes on; absent at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// What was read, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

async fn read_file(work: Work, asked: ReadFile) -> Result<Answer<FileRead>, Problem> {
    let path = absolute(asked.path)?;
    let (limit, offset) = (read_limit(asked.limit)?, asked.offset.unwrap_or(0));
    let inside = work.look(asked.sandbox.as_deref()).await?;
    let opened = inside.guest.read_file(path.as_str(), offset, None).await.map_err(refused)?;
    let (mut output, info, _) = opened;
    if info.kind == FileKind::Directory {
        return Err(
            Problem::invalid(format!("{path} is a directory")).hint("`list_files` lists it")
        );
    }
    let mut bytes = Vec::new();
    let mut is_over = fill(&mut output, &mut bytes, mime::HEAD_BYTES).await?;
    let is_picture = offset == 0 && mime::is_picture(mime::of(&path, &bytes, false));
    let wanted = if is_picture { IMAGE_BYTES_MAX + 1 } else { limit };
    let memory = work.api.budget().share();
    memory.grow(wanted)?;
    is_over = is_over || fill(&mut output, &mut bytes, wanted).await?;
    if is_picture && bytes.len() > IMAGE_BYTES_MAX {
        let message = format!("{path} is a picture of more than {IMAGE_BYTES_MAX} bytes");
        return Err(Problem::new(Code::TooLarge, message)
            .hint("make a smaller one of it in the sandbox, and read that"));
    }
    is_over = is_over && bytes.len() <= wanted;
    bytes.truncate(wanted);
    let text = mime::text(&bytes).filter(|_| !is_picture).map(str::to_owned);
    let mime_type = mime::of(&path, &bytes, text.is_some());
    // Text ends between characters, and goes on with the next.
    let read =
        text.as_ref().filter(|text| !is_over && !text.is_empty()).map_or(bytes.len(), String::len);
    let next_offset = (!is_over || read < bytes.len()).then_some(offset + read as u64);
    let uri = uri(&inside, &path);
    let mut content = vec![match &text {
        Some(text) => ContentBlock::text(text.clone()),
        None if is_picture => ContentBlock::image(STANDARD.encode(&bytes), mime_type),
        None => {
            let blob = ResourceContents::blob(STANDARD.encode(&bytes), uri);
            ContentBlock::resource(blob.with_mime_type(mime_type))
        }
    }];
    if let Some(next) = next_offset {
        let total = info.bytes;
        content.push(ContentBlock::text(format!("[it goes on at offset {next} of {total}]")));
    }
    let structured = FileRead {
        sandbox: inside.which.to_string(),
        path,
        mime_type: mime_type.to_owned(),
        total_bytes: info.bytes.max(offset + bytes.len() as u64),
        offset,
        bytes: read as u64,
        next_offset,
        text,
    };
    Ok(Answer { content, structured, is_error: false })
}

/// Reads until there are so many bytes, or more; whether the file ended.
async fn fill(output: &mut Output, bytes: &mut Vec<u8>, wanted: usize) -> Result<bool, Problem> {
    while bytes.len() < wanted {
        match output.next().await {
            Piece::Bytes { bytes: more, .. } => bytes.extend(more),
            Piece::End => return Ok(true),
            Piece::Failed(error) => return Err(refused(error)),
            Piece::Gap { .. } => {
                return Err(Problem::new(Code::GuestUnreachable, "the file came with a gap"));
            }
        }
    }
    Ok(false)
}

/// Refuses a path that is not absolute: what it would begin at is nobody's to guess.
pub fn absolute(path: String) -> Result<String, Problem> {
    if path.starts_with('/') && !path.contains('\0') {
        return Ok(path);
    }
    Err(Problem::invalid("path: not an absolute path").hint("begin it with `/`, as in /tmp/x"))
}

/// The name of a file as a resource.
pub fn uri(inside: &Inside, path: &str) -> String {
    let mut uri = format!("burrow://{}/{}", inside.which.namespace, inside.which.name);
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    /// The sandbox, by its name; this session's own when left out.
    #[serde(default)]
    sandbox: Option<String>,
    /// The directory's absolute path.
    #[schemars(length(max = 4096))]
    path: String,
    /// The name behind which the list goes on: `next` of the answer before.
    #[serde(default)]
    after: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct FilesListed {
    sandbox: String,
    path: String,
    entries: Vec<FileEntry>,
    /// What to ask for as `after`; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

async fn list_files(work: Work, asked: ListFiles) -> Result<Answer<FilesListed>, Problem> {
    let path = absolute(asked.path)?;
    let inside = work.look(asked.sandbox.as_deref()).await?;
    let after = asked.after.filter(|after| !after.is_empty()).map(Into::into);
    let listed = inside.guest.list_page(&path.as_str().into(), after.as_ref()).await;
    let page = listed.map_err(refused)?;
    let more = page.more || page.entries.len() > ENTRIES_MAX;
    let mut entries: Vec<FileEntry> = page.entries.into_iter().map(FileEntry::from).collect();
    entries.truncate(ENTRIES_MAX);
    let next = entries.last().filter(|_| more).map(|last| last.name.clone());
    Ok(Answer::of(FilesListed { sandbox: inside.which.to_string(), path, entries, next }))
}
