//! Files of running sandboxes as resources. There is a template for them and no list: a sandbox has
//! more files than a list can usefully have, and `list_files` lists directories.

use rmcp::model::ResourceTemplate;

use super::uri::{SANDBOXES, parse_file};
use super::{Answering, ResourceContent, Source};
use crate::mcp::limits::RESOURCE_BYTES_MAX;
use crate::mcp::tool::Work;
use crate::mcp::tools::files::{absolute, fill, unread};
use host::mime;
use sandbox::refusal::{Code, Refusal};

const TEMPLATE: &str = "burrow://sandboxes/{sandbox}/files/{+path}";

pub struct Files;

impl Source for Files {
    fn prefix(&self) -> &'static str {
        SANDBOXES
    }

    fn template(&self) -> ResourceTemplate {
        ResourceTemplate::new(TEMPLATE, "sandbox-file")
            .with_title("A file of a sandbox")
            .with_description(
                "A file of a running sandbox: the sandbox by the name that tools give it, and the \
                file by its absolute path. Text comes as text, everything else as a blob.",
            )
    }

    fn read<'a>(&'a self, work: &'a Work, rest: &'a str) -> Answering<'a, ResourceContent> {
        Box::pin(read(work, rest))
    }
}

async fn read(work: &Work, rest: &str) -> Result<ResourceContent, Refusal> {
    let Some((sandbox, path)) = parse_file(rest) else {
        return Err(Refusal::not_found("this is not the URI of a file in a sandbox")
            .hint(format!("use the form {TEMPLATE}")));
    };
    let path = absolute(path)?;
    let inside = work.look(Some(&sandbox)).await?;
    let (mut output, info, _) =
        inside.guest.read_file(path.as_str(), 0, None).await.map_err(unread)?;
    // What a file says of its size is not always what it has.
    work.memory.grow(usize::try_from(info.bytes).unwrap_or(usize::MAX).min(RESOURCE_BYTES_MAX))?;
    let mut bytes = Vec::new();
    let is_over = fill(&mut output, &mut bytes, RESOURCE_BYTES_MAX + 1).await?;
    if !is_over || bytes.len() > RESOURCE_BYTES_MAX {
        let message = format!("{path} has more than {RESOURCE_BYTES_MAX} bytes");
        return Err(Refusal::new(Code::TooLarge, message).hint("`read_file` reads it in parts"));
    }
    let is_text = mime::text(&bytes).is_some_and(|text| text.len() == bytes.len());
    let mime_type = mime::of(&path, &bytes, is_text).to_owned();
    Ok(ResourceContent { mime_type, bytes, is_text })
}
