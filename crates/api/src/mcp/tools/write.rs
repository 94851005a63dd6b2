//! `write_file`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::requests::WriteMode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::files::absolute;
use crate::mcp::tool::{Answer, Effect, Entered, Entry, Work, tool};
use crate::problem::Problem;
use crate::v1::refused;
use access::keys::Access;
use agent_client::guest::FileTarget;

pub fn entries() -> Vec<Entry> {
    vec![tool(
        "write_file",
        "Write a file",
        "Writes or appends to a file of a sandbox, and makes missing parent directories. An \
        existing file is replaced atomically: readers see the old content or the new.",
        Access::Run,
        Effect::Writes,
        write_file,
    )]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    /// The sandbox, by its name; this session's own when left out.
    #[serde(default)]
    sandbox: Option<String>,
    /// Its absolute path.
    #[schemars(length(max = 4096))]
    path: String,
    /// What is written, as text.
    #[serde(default)]
    content: Option<String>,
    /// The same as base64, for what is no text.
    #[serde(default)]
    content_base64: Option<String>,
    /// Write behind the end of the file that is there.
    #[serde(default)]
    append: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct FileWritten {
    sandbox: String,
    path: String,
    /// What was written here.
    bytes: u64,
    /// What there is to know of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

async fn write_file(work: Work, asked: WriteFile) -> Result<Answer<FileWritten>, Problem> {
    let path = absolute(asked.path)?;
    let bytes = match (asked.content, asked.content_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(encoded)) => STANDARD
            .decode(encoded.trim())
            .map_err(|error| Problem::invalid(format!("content_base64: {error}")))?,
        _ => return Err(Problem::invalid("give exactly one of `content` and `content_base64`")),
    };
    let Entered { inside, note } = work.enter(asked.sandbox.as_deref()).await?;
    let mode = if asked.append { WriteMode::Append {} } else { WriteMode::Replace {} };
    let target = FileTarget { mode, parents: true, ..FileTarget::replace(path.as_str()) };
    let mut upload = inside.guest.write_file(target).map_err(refused)?;
    upload.write(&bytes).await.map_err(refused)?;
    let written = upload.finish().await.map_err(refused)?;
    let sandbox = inside.which.to_string();
    Ok(Answer::of(FileWritten { sandbox, path, bytes: written.bytes, note }))
}
