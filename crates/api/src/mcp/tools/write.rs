//! `write_file`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::requests::WriteMode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::files::absolute;
use crate::mcp::tool::{Answer, Effect, Entered, Entry, Work, tool};
use crate::refusal::of_file as refused;
use access::keys::Access;
use agent_client::guest::FileTarget;
use sandbox::refusal::Refusal;

pub fn entries() -> Vec<Entry> {
    vec![tool(
        "write_file",
        "Write a file",
        "Writes or appends to a file, and makes missing parent directories. An existing file is \
        replaced atomically.",
        Access::Run,
        Effect::Writes,
        write_file,
    )]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    /// Default: the session's.
    #[serde(default)]
    sandbox: Option<String>,
    /// The absolute path.
    #[schemars(length(max = 4096))]
    path: String,
    /// The content, as text.
    #[serde(default)]
    content: Option<String>,
    /// The content as base64, for binary data.
    #[serde(default)]
    content_base64: Option<String>,
    /// Append to the existing file.
    #[serde(default)]
    append: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct FileWritten {
    sandbox: String,
    path: String,
    /// Bytes written.
    bytes: u64,
    /// A note about the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

async fn write_file(work: Work, request: WriteFile) -> Result<Answer<FileWritten>, Refusal> {
    let path = absolute(request.path)?;
    let bytes = match (request.content, request.content_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(encoded)) => STANDARD
            .decode(encoded.trim())
            .map_err(|error| Refusal::invalid(format!("content_base64: {error}")))?,
        _ => return Err(Refusal::invalid("give exactly one of `content` and `content_base64`")),
    };
    let Entered { inside, note } = work.enter(request.sandbox.as_deref()).await?;
    let mode = if request.append { WriteMode::Append {} } else { WriteMode::Replace {} };
    let target = FileTarget { mode, parents: true, ..FileTarget::replace(path.as_str()) };
    let mut upload = inside.guest.write_file(target).map_err(refused)?;
    upload.write(&bytes).await.map_err(refused)?;
    let written = upload.finish().await.map_err(refused)?;
    let sandbox = inside.which.to_string();
    Ok(Answer::of(FileWritten { sandbox, path, bytes: written.bytes, note }))
}
