//! `read_file` and `list_files`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::Text;
use protocol::message::FileInfo;
use rmcp::model::{ContentBlock, ResourceContents};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::output::read_limit;
use crate::forms::files::FileEntry;
use crate::mcp::limits::{ENTRIES_BYTES_MAX, ENTRIES_MAX, IMAGE_BYTES_MAX, READ_BYTES_MAX};
use crate::mcp::resources::of_sandbox;
use crate::mcp::tool::{Answer, Effect, Entry, Work, tool};
use crate::refusal::of_file as refused;
use access::keys::Access;
use agent_client::guest::{GuestError, Output, Piece};
use host::mime;
use sandbox::refusal::{Code, Refusal};

pub fn entries() -> Vec<Entry> {
    vec![
        tool(
            "read_file",
            "Read a file",
            "Reads a file: text as text, a picture (PNG, JPEG, GIF, WebP) as an image, and \
            anything else as a resource with its MIME type. A long file comes in parts: call again \
            with `offset` set to `next_offset`.",
            Access::Read,
            Effect::Reads,
            read_file,
        ),
        tool(
            "list_files",
            "List a directory",
            "Lists a directory, ordered by name. A long list comes in parts: call again with \
            `after` set to `next`.",
            Access::Read,
            Effect::Reads,
            list_files,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
    /// The absolute path.
    #[schemars(length(max = 4096))]
    path: String,
    /// The first byte to read; 0 by default.
    #[serde(default)]
    offset: Option<u64>,
    /// The maximum number of bytes; 65536 by default. A picture is always read whole.
    #[serde(default)]
    #[schemars(range(min = 1, max = READ_BYTES_MAX))]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct FileRead {
    sandbox: String,
    path: String,
    mime_type: String,
    /// Bytes of the whole file.
    total_bytes: u64,
    offset: u64,
    /// Bytes read here.
    bytes: u64,
    /// Where to continue; absent at the end of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// The content, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

async fn read_file(work: Work, request: ReadFile) -> Result<Answer<FileRead>, Refusal> {
    let path = absolute(request.path)?;
    let (limit, offset) = (read_limit(request.limit)?, request.offset.unwrap_or(0));
    let inside = work.look(request.sandbox.as_deref()).await?;
    let opened = inside.guest.read_file(path.as_str(), offset, None).await.map_err(unread)?;
    let (mut output, info, _) = opened;
    let mut bytes = Vec::new();
    let mut is_over = fill(&mut output, &mut bytes, mime::HEAD_BYTES).await?;
    let is_picture = offset == 0 && mime::is_picture(mime::of(&path, &bytes, false));
    let wanted = if is_picture { IMAGE_BYTES_MAX + 1 } else { limit };
    work.memory.grow(wanted)?;
    is_over = is_over || fill(&mut output, &mut bytes, wanted).await?;
    if is_picture && bytes.len() > IMAGE_BYTES_MAX {
        let message = format!("{path} is a picture of more than {IMAGE_BYTES_MAX} bytes");
        return Err(Refusal::new(Code::TooLarge, message)
            .hint("make a smaller copy in the sandbox and read that"));
    }
    is_over = is_over && bytes.len() <= wanted;
    bytes.truncate(wanted);
    let (text, read) = if is_picture { (None, bytes.len()) } else { shown(&bytes, is_over) };
    let mime_type = mime::of(&path, &bytes, text.is_some());
    let behind = offset.saturating_add(read as u64);
    let next_offset = (!is_over || read < bytes.len()).then_some(behind);
    let uri = of_sandbox(&inside.which, "files", &path);
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
        content.push(ContentBlock::text(format!("[continues at offset {next} of {total}]")));
    }
    let structured = FileRead {
        sandbox: inside.which.to_string(),
        path,
        mime_type: mime_type.to_owned(),
        // What a file says of its size is not always what it has.
        total_bytes: if bytes.is_empty() { info.bytes } else { info.bytes.max(behind) },
        offset,
        bytes: read as u64,
        next_offset,
        text,
    };
    Ok(Answer { content, structured, is_error: false })
}

/// What is shown of a part of a file as text, and how much of the part that is. Text ends between
/// characters, and goes on with the next. What would be shown as less than it is, is no text.
fn shown(bytes: &[u8], is_over: bool) -> (Option<String>, usize) {
    let text = mime::text(bytes).filter(|text| {
        let is_whole = text.len() == bytes.len();
        is_whole || (!is_over && !text.is_empty())
    });
    (text.map(str::to_owned), text.map_or(bytes.len(), str::len))
}

/// A refusal to open a file, with what helps here.
pub fn unread(error: GuestError) -> Refusal {
    let problem = refused(error);
    match problem.code {
        Code::Invalid => {
            problem.hint("`read_file` reads only regular files; `list_files` lists a directory")
        }
        Code::NotFound => problem.hint("`list_files` shows which files exist"),
        _ => problem,
    }
}

/// Reads until there are so many bytes, or more; whether the file ended.
pub async fn fill(
    output: &mut Output,
    bytes: &mut Vec<u8>,
    wanted: usize,
) -> Result<bool, Refusal> {
    while bytes.len() < wanted {
        match output.next().await {
            Piece::Bytes { bytes: more, .. } => bytes.extend(more),
            Piece::End => return Ok(true),
            Piece::Failed(error) => return Err(refused(error)),
            Piece::Gap { .. } => {
                return Err(Refusal::new(Code::GuestUnreachable, "a part of the file is missing"));
            }
        }
    }
    Ok(false)
}

/// Refuses a path that is not absolute: its base would be a guess.
pub fn absolute(path: String) -> Result<String, Refusal> {
    if path.starts_with('/') && !path.contains('\0') {
        return Ok(path);
    }
    Err(Refusal::invalid("path must be absolute").hint("start it with `/`, as in /tmp/x"))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
    /// The absolute path of the directory.
    #[schemars(length(max = 4096))]
    path: String,
    /// The name after which the list continues: `next` of the previous answer.
    #[serde(default)]
    after: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct FilesListed {
    sandbox: String,
    path: String,
    entries: Vec<FileEntry>,
    /// The value for `after`; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

async fn list_files(work: Work, request: ListFiles) -> Result<Answer<FilesListed>, Refusal> {
    let path = absolute(request.path)?;
    let inside = work.look(request.sandbox.as_deref()).await?;
    let after = request.after.filter(|after| !after.is_empty()).map(parse_name).transpose()?;
    let listed = inside.guest.list_page(&path.as_str().into(), after.as_ref()).await;
    let page = listed.map_err(refused)?;
    let mut room = ENTRIES_BYTES_MAX;
    let has_room = |info: &&FileInfo| {
        let target = info.target.as_ref().map_or(0, |target| target.as_bytes().len());
        let bytes = info.name.as_bytes().len() + target;
        let is_first = room == ENTRIES_BYTES_MAX;
        room = room.saturating_sub(bytes);
        is_first || room > 0
    };
    let shown = page.entries.iter().take(ENTRIES_MAX).take_while(has_room).count();
    let more = page.more || page.entries.len() > shown;
    let next = page.entries[..shown].last().filter(|_| more).map(|last| encode_name(&last.name));
    let entries = page.entries.into_iter().take(shown).map(FileEntry::from).collect();
    Ok(Answer::of(FilesListed { sandbox: inside.which.to_string(), path, entries, next }))
}

/// What no name begins with, before the bytes of one that is no text.
const AS_BYTES: &str = "/base64/";

fn encode_name(name: &Text) -> String {
    match std::str::from_utf8(name.as_bytes()) {
        Ok(name) => name.to_owned(),
        Err(_) => format!("{AS_BYTES}{}", STANDARD.encode(name.as_bytes())),
    }
}

fn parse_name(name: String) -> Result<Text, Refusal> {
    let Some(encoded) = name.strip_prefix(AS_BYTES) else { return Ok(name.into()) };
    let bytes = STANDARD.decode(encoded);
    let bytes = bytes.map_err(|error| Refusal::invalid(format!("after: {error}")))?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_of_a_file_is_shown_as_nothing() {
        let euro = "a€".as_bytes();
        assert_eq!(shown(euro, true), (Some("a€".to_owned()), 4));
        assert_eq!(
            shown(&euro[..2], false),
            (Some("a".to_owned()), 1),
            "the rest comes with the next"
        );
        assert_eq!(shown(&euro[..2], true), (None, 2), "no rest will come");
        assert_eq!(shown(&euro[1..2], false), (None, 1), "it would get no further");
        assert_eq!(shown(b"", true), (Some(String::new()), 0));
    }

    #[test]
    fn a_list_goes_on_behind_every_name() {
        for name in [&b"plain"[..], "é".as_bytes(), b"\xff\xfe", b"base64"] {
            let name = Text::from(name.to_vec());
            assert_eq!(parse_name(encode_name(&name)).unwrap(), name);
        }
        assert!(parse_name("/base64/!".to_owned()).is_err());
    }
}
