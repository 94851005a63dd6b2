//! How answers show outputs, and `read_output`, which reads the rest of a cut one.

use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::mcp::cut::{Stream, page};
use crate::mcp::limits::{READ_BYTES_DEFAULT, READ_BYTES_MAX};
use crate::mcp::results::{KEPT_FOR, Shown};
use crate::mcp::tool::{Answer, Effect, Entry, Work, tool};
use access::keys::Access;
use sandbox::refusal::Refusal;

pub fn entries() -> Vec<Entry> {
    vec![tool(
        "read_output",
        "Read more of a cut output",
        "Reads more of the cut output of an earlier call. Pass the `run` of that result, and its \
        `next_offset` as `offset`. Newer cut outputs replace old ones.",
        Access::Read,
        Effect::Reads,
        read_output,
    )]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadOutput {
    /// The `run` of the result that was cut.
    run: String,
    /// The first byte to read.
    offset: u64,
    /// Which output; `stdout` by default.
    #[serde(default)]
    stream: Stream,
    /// The maximum number of bytes; 65536 by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = READ_BYTES_MAX))]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct MoreOutput {
    run: String,
    stream: Stream,
    offset: u64,
    text: String,
    /// Where to continue; absent at the end of the kept output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// Bytes of the whole output.
    total_bytes: u64,
    /// Bytes that are kept, from the beginning.
    kept_bytes: u64,
}

async fn read_output(work: Work, request: ReadOutput) -> Result<Answer<MoreOutput>, Refusal> {
    let ReadOutput { run, offset, stream, limit } = request;
    let limit = read_limit(limit)?;
    let results = work.session.results();
    let Some(outputs) = results.get(&run) else {
        let stored = results.runs();
        let stored = if stored.is_empty() { "none".to_owned() } else { stored.join(", ") };
        let run: String = run.chars().take(63).collect();
        return Err(Refusal::not_found(format!("no output of run {run:?} is kept")).hint(format!(
            "these runs are kept: {stored}. Run it again and write its output to a file"
        )));
    };
    let output = outputs.of(stream);
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let page = page(output.bytes(), from, limit);
    let structured = MoreOutput {
        run,
        stream,
        offset,
        text: page.text,
        next_offset: page.next.map(|next| next as u64),
        total_bytes: output.total_bytes(),
        kept_bytes: output.bytes().len() as u64,
    };
    drop(results);
    let text = ContentBlock::text(structured.text.clone());
    let note = match structured.next_offset {
        Some(next) => format!("[continues at offset {next} of {}]", structured.total_bytes),
        None if structured.kept_bytes < structured.total_bytes => format!(
            "[end of the kept output: {} of {} bytes]",
            structured.kept_bytes, structured.total_bytes
        ),
        None => "[the end]".to_owned(),
    };
    Ok(Answer { content: vec![text, ContentBlock::text(note)], structured, is_error: false })
}

/// How many bytes are read at once.
pub fn read_limit(requested: Option<u64>) -> Result<usize, Refusal> {
    let limit = requested.map_or(Some(READ_BYTES_DEFAULT), |limit| usize::try_from(limit).ok());
    limit
        .filter(|limit| (1..=READ_BYTES_MAX).contains(limit))
        .ok_or_else(|| Refusal::invalid(format!("limit must be from 1 to {READ_BYTES_MAX} bytes")))
}

/// Both outputs, if they are any.
pub fn shown_outputs(shown: &Shown) -> Vec<ContentBlock> {
    let mut content = Vec::new();
    if !shown.stdout.is_empty() {
        content.push(ContentBlock::text(shown.stdout.clone()));
    }
    if !shown.stderr.is_empty() {
        content.push(ContentBlock::text(format!("[stderr]\n{}", shown.stderr)));
    }
    content
}

/// The remarks beside the outputs, in brackets, and what was cut.
pub fn notes(more: impl Iterator<Item = String>, shown: &Shown) -> ContentBlock {
    let cuts = shown.rest.iter().map(|rest| {
        let (stream, next) = (rest.stream.name(), rest.next_offset);
        let how = match &shown.run {
            Some(run) => format!(
                "read_output(run={run:?}, stream={stream:?}, offset={next}) reads more; {KEPT_FOR}"
            ),
            None => {
                "the server has no memory to keep the rest; run it again and write its output to a file"
                    .to_owned()
            }
        };
        let (shown, total) = (rest.shown_bytes, rest.total_bytes);
        format!("{stream} was cut: the first {shown} of {total} bytes are shown. {how}")
    });
    let lines: Vec<_> = cuts.chain(more).map(|line| format!("[{line}]")).collect();
    ContentBlock::text(lines.join("\n"))
}
