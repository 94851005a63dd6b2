//! What clients read as resources: which kinds there are, their lists, and the way from a URI to what
//! reads it.
//!
//! A kind is a row of one table ([`SOURCES`]). It says what its URIs begin with, what of it is listed,
//! and how one is read; the cursors of lists, the shape of contents and of refusals are the same for
//! all and stay here.

mod artifacts;
mod files;
pub mod uri;

use std::future::Future;
use std::pin::Pin;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::ErrorData;
use rmcp::model::{
    ErrorCode, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use serde_json::json;

use super::carried;
use super::hints;
use super::limits::{CURSOR_BYTES_MAX, RESOURCES_PER_PAGE, URI_BYTES_MAX};
use super::tool::{PROBLEM_META, Work};
use crate::forms::problem::Problem;
use access::keys::Access;
use sandbox::refusal::{Code, Refusal};

pub use uri::of_sandbox;

/// Of a source, on its way.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// A kind of things that are read as resources.
pub trait Source: Send + Sync {
    /// What its URIs begin with, and no other source's.
    fn prefix(&self) -> &'static str;

    fn template(&self) -> ResourceTemplate;

    /// At most so many of those that the caller may read, after the one that `after` names. What is only
    /// found by its template is not listed.
    fn list<'a>(&'a self, work: &'a Work, after: &'a str, count_max: usize) -> Answering<'a, Page> {
        let _ = (work, after, count_max);
        Box::pin(async { Ok(Page::default()) })
    }

    /// The one whose URI has `rest` after the prefix.
    fn read<'a>(&'a self, work: &'a Work, rest: &'a str) -> Answering<'a, ResourceContent>;
}

/// Some of what a source lists.
#[derive(Debug, Default)]
pub struct Page {
    pub resources: Vec<Resource>,
    /// What to ask for as `after`, if there is more.
    pub next: Option<String>,
}

/// What was read.
#[derive(Debug)]
pub struct ResourceContent {
    pub mime_type: String,
    pub bytes: Vec<u8>,
    /// Whether the bytes are sent as text.
    pub is_text: bool,
}

/// Each kind, in the order in which lists show them.
static SOURCES: [&dyn Source; 2] = [&artifacts::Artifacts, &files::Files];

/// A page of all that is listed; one of a source at a time.
pub async fn list(work: &Work, cursor: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
    let (first, after) = parse_cursor(cursor).map_err(|problem| refused(&problem, None))?;
    may_read(work).map_err(|problem| refused(&problem, None))?;
    let mut after = after.to_owned();
    for (at, source) in SOURCES.iter().enumerate().skip(first) {
        let listed = source.list(work, &after, RESOURCES_PER_PAGE).await;
        let page = listed.map_err(|problem| refused(&problem, None))?;
        let next = match page.next {
            Some(next) => Some(format!("{at}:{next}")),
            None if at + 1 < SOURCES.len() => Some(format!("{}:", at + 1)),
            None => None,
        };
        if !page.resources.is_empty() || next.is_none() {
            let mut result = ListResourcesResult::with_all_items(page.resources);
            result.next_cursor = next;
            return Ok(result);
        }
        after = String::new();
    }
    Ok(ListResourcesResult::default())
}

pub fn templates() -> ListResourceTemplatesResult {
    let templates = SOURCES.iter().map(|source| source.template());
    ListResourceTemplatesResult::with_all_items(templates.collect())
}

pub async fn read(work: &Work, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let failed = |problem: Refusal| refused(&problem, Some(uri));
    if let Some(to) = carried::node_of_uri(work, uri).await.map_err(failed)? {
        may_read(work).map_err(failed)?;
        return carried::read(work, uri, &to).await.map_err(failed);
    }
    let found = find(work, uri).await.map_err(failed)?;
    let ResourceContent { mime_type, bytes, is_text } = found;
    let contents = match String::from_utf8(bytes) {
        Ok(text) if is_text => ResourceContents::text(text, uri),
        Ok(text) => ResourceContents::blob(STANDARD.encode(text), uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri),
    };
    Ok(ReadResourceResult::new(vec![contents.with_mime_type(mime_type)]))
}

async fn find(work: &Work, uri: &str) -> Result<ResourceContent, Refusal> {
    may_read(work)?;
    let unknown = || {
        let shown: String = uri.chars().take(URI_CHARS_SHOWN).collect();
        Refusal::not_found(format!("there is no resource {shown:?}"))
            .hint("resources/templates/list shows the form of this server's URIs")
    };
    if uri.len() > URI_BYTES_MAX {
        return Err(unknown());
    }
    let with_rest = |source: &&'static dyn Source| {
        uri.strip_prefix(source.prefix()).map(|rest| (*source, rest))
    };
    let (source, rest) = SOURCES.iter().find_map(with_rest).ok_or_else(unknown)?;
    source.read(work, rest).await
}

/// How much of a URI is repeated to the client.
const URI_CHARS_SHOWN: usize = 128;

fn may_read(work: &Work) -> Result<(), Refusal> {
    if work.caller.may(Access::Read) {
        return Ok(());
    }
    let message = format!("this key may not do that: it needs the scope {}", Access::Read);
    Err(Refusal::new(Code::Forbidden, message))
}

/// A cursor is the place of a source in the table, and what that source goes on behind.
fn parse_cursor(cursor: Option<&str>) -> Result<(usize, &str), Refusal> {
    let Some(cursor) = cursor else { return Ok((0, "")) };
    let parsed = (cursor.len() <= CURSOR_BYTES_MAX)
        .then(|| cursor.split_once(':'))
        .flatten()
        .and_then(|(at, after)| Some((at.parse::<usize>().ok()?, after)))
        .filter(|(at, _)| *at < SOURCES.len());
    parsed.ok_or_else(|| {
        Refusal::invalid("cursor: this server did not give this cursor")
            .hint("leave it out to start with the first page")
    })
}

/// A refusal as the protocol has it for what is no tool: an error, with our own problem beside it.
fn refused(problem: &Refusal, uri: Option<&str>) -> ErrorData {
    let body = Problem::new(problem, hints::words);
    let hint = body.hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
    let message = format!("{}: {}{hint}", problem.code.name(), body.message);
    let mut data = json!({ PROBLEM_META: body });
    if let Some(uri) = uri.filter(|uri| uri.len() <= URI_BYTES_MAX) {
        data["uri"] = json!(uri);
    }
    let code = match problem.code {
        Code::NotFound => ErrorCode::RESOURCE_NOT_FOUND,
        Code::Internal | Code::GuestUnreachable | Code::Unavailable => ErrorCode::INTERNAL_ERROR,
        _ => ErrorCode::INVALID_PARAMS,
    };
    ErrorData::new(code, message, Some(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_one_that_was_given_or_is_refused() {
        assert_eq!(parse_cursor(None).unwrap(), (0, ""));
        assert_eq!(parse_cursor(Some("0:a:b")).unwrap(), (0, "a:b"));
        let long = format!("0:{}", "x".repeat(CURSOR_BYTES_MAX));
        for wrong in ["", "0", "x:", "-1:", "9999:", "18446744073709551616:", &long] {
            assert_eq!(parse_cursor(Some(wrong)).unwrap_err().code, Code::Invalid, "{wrong:?}");
        }
    }

    #[test]
    fn no_source_takes_what_is_anothers() {
        for (at, source) in SOURCES.iter().enumerate() {
            let template = source.template();
            assert!(template.uri_template.starts_with(source.prefix()), "{template:?}");
            assert!(template.description.is_some(), "{template:?}");
            let mut others = SOURCES.iter().enumerate().filter(|(other, _)| *other != at);
            assert!(others.all(|(_, other)| !other.prefix().starts_with(source.prefix())));
        }
    }

    #[test]
    fn a_missing_resource_is_refused_with_the_protocols_code() {
        let error = refused(&Refusal::not_found("there is no x").hint("look"), Some("burrow://x"));
        assert_eq!(error.code, ErrorCode::RESOURCE_NOT_FOUND);
        assert_eq!(error.message, "not_found: there is no x; look");
        let data = error.data.expect("data");
        assert_eq!(
            (&data["uri"], &data[PROBLEM_META]["code"]),
            (&json!("burrow://x"), &json!("not_found"))
        );
    }
}
