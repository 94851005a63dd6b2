//! Search in the files of a sandbox: for names, for text in them, and to put other text in its place.

use hyper::{Method, StatusCode};
use image::dockerfile::pattern;
use protocol::message::{FileInfo, FileKind};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{TOOLBOX, coded, refused, shown};
use super::limits::{
    ENTRIES_MAX, FILES_PER_CALL_MAX, MATCH_LINE_CHARS_MAX, MATCHES_MAX, SEARCHED_BYTES_MAX,
    TEXT_BYTES_MAX, VALUE_BYTES,
};
use super::seat::{self, Paths, path};
use crate::body::json_response;
use crate::call::Call;
use crate::route::{Operation, operation};
use crate::shape::{Json, Nothing, Query, Raw};
use agent_client::guest::{FileTarget, Guest};
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    [
        operation(
            Method::GET,
            "/daytona/toolbox/{sandbox}/files/search",
            "daytona_search",
            "Find files by their names.",
            search,
        ),
        operation(
            Method::GET,
            "/daytona/toolbox/{sandbox}/files/find",
            "daytona_find",
            "Find text in files.",
            find,
        ),
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/files/replace",
            "daytona_replace",
            "Replace text in files.",
            replace,
        )
        .run(),
    ]
    .map(|operation| operation.refusing(TOOLBOX))
    .to_vec()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Wanted {
    path: String,
    pattern: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Replacement {
    files: Vec<String>,
    pattern: String,
    new_value: String,
}

/// All that is below a path, directories before what is in them. Links are not followed.
struct Walk<'a> {
    guest: &'a Guest,
    /// What is still to be looked at, the next one last.
    waiting: Vec<(String, FileInfo)>,
    seen: usize,
}

impl<'a> Walk<'a> {
    async fn below(guest: &'a Guest, top: String) -> Result<Self, Refusal> {
        let info = guest.stat(top.as_str(), true).await.map_err(refused)?;
        Ok(Self { guest, waiting: vec![(top, info)], seen: 0 })
    }

    async fn next(&mut self) -> Result<Option<(String, FileInfo)>, Refusal> {
        let Some((path, info)) = self.waiting.pop() else { return Ok(None) };
        self.seen += 1;
        if self.seen > ENTRIES_MAX {
            let message = format!("there are more than {ENTRIES_MAX} entries; search further down");
            return Err(Refusal::new(Code::LimitReached, message));
        }
        if info.kind == FileKind::Directory {
            // It may be gone by now, or nobody may look into it.
            let found = self.guest.list(path.clone()).await.unwrap_or_default();
            let above = path.trim_end_matches('/');
            let below = found.into_iter().rev();
            self.waiting.extend(below.map(|info| (format!("{above}/{}", info.name), info)));
        }
        Ok(Some((path, info)))
    }
}

async fn search(call: Call, Query(ask): Query<Wanted>, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let top = path(&call, &inside, &ask.path).await?;
    let mut walk = Walk::below(&inside.guest, top).await?;
    // The path itself is not below it.
    walk.next().await?;
    let mut files: Vec<Value> = Vec::new();
    while let Some((path, _)) = walk.next().await? {
        let name = path.rsplit('/').next().unwrap_or_default();
        if pattern::matches(ask.pattern.as_bytes(), name.as_bytes()) {
            call.memory.grow(VALUE_BYTES + 2 * path.len())?;
            files.push(path.into());
        }
    }
    Ok(Raw(json_response(StatusCode::OK, &json!({ "files": files }))))
}

/// The content of a file of text; `None` for one that is none.
async fn text_of(guest: &Guest, path: &str) -> Option<Vec<u8>> {
    let (output, _, _) = guest.read_file(path, 0, None).await.ok()?;
    let bytes = output.whole(TEXT_BYTES_MAX).await.ok()??;
    (!bytes.contains(&0)).then_some(bytes)
}

async fn find(call: Call, Query(ask): Query<Wanted>, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let top = path(&call, &inside, &ask.path).await?;
    let mut walk = Walk::below(&inside.guest, top).await?;
    let (mut matches, mut read_bytes) = (Vec::new(), 0);
    while let Some((path, info)) = walk.next().await? {
        if info.kind != FileKind::File || info.bytes > TEXT_BYTES_MAX as u64 {
            continue;
        }
        read_bytes += info.bytes;
        if read_bytes > SEARCHED_BYTES_MAX {
            let message = format!("a search reads at most {SEARCHED_BYTES_MAX} bytes");
            return Err(Refusal::new(Code::LimitReached, message));
        }
        let _portion = call.memory.portion(info.bytes as usize)?;
        let Some(text) = text_of(&inside.guest, &path).await else { continue };
        for (number, line) in lines_with(&text, ask.pattern.as_bytes()) {
            if matches.len() >= MATCHES_MAX {
                let message = format!("there are more than {MATCHES_MAX} matches");
                return Err(Refusal::new(Code::LimitReached, message));
            }
            let line = String::from_utf8_lossy(line);
            let content: String = line.chars().take(MATCH_LINE_CHARS_MAX).collect();
            call.memory.grow(4 * VALUE_BYTES + 2 * (path.len() + content.len()))?;
            matches.push(json!({ "file": path, "line": number, "content": content }));
        }
    }
    Ok(Raw(json_response(StatusCode::OK, &matches)))
}

/// The lines that have a text in them, with their numbers.
fn lines_with<'a>(
    text: &'a [u8],
    wanted: &'a [u8],
) -> impl Iterator<Item = (usize, &'a [u8])> + 'a {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let lines =
        text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    (1..).zip(lines).filter(move |(_, line)| place_of(line, wanted).is_some())
}

fn place_of(text: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return None;
    }
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// A text with all places of `old` replaced; `None` if it would be longer than texts may be.
fn replaced(mut text: &[u8], old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let mut made = Vec::with_capacity(text.len());
    while let Some(at) = place_of(text, old) {
        made.extend_from_slice(&text[..at]);
        made.extend_from_slice(new);
        text = &text[at + old.len()..];
        if made.len() > TEXT_BYTES_MAX {
            return None;
        }
    }
    made.extend_from_slice(text);
    (made.len() <= TEXT_BYTES_MAX).then_some(made)
}

async fn replace(call: Call, _: Nothing, Json(ask): Json<Replacement>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    if ask.files.len() > FILES_PER_CALL_MAX {
        let message = format!("a call has at most {FILES_PER_CALL_MAX} files");
        return Err(Refusal::new(Code::LimitReached, message));
    }
    if ask.pattern.is_empty() {
        return Err(Refusal::invalid("pattern is empty; it is the text to replace"));
    }
    let mut paths = Paths::default();
    let mut results = Vec::new();
    for file in &ask.files {
        let path = paths.find(&call, &inside, file).await?;
        let outcome = replace_in(&call, &inside.guest, &path, &ask).await;
        results.push(match outcome {
            Ok(()) => json!({ "file": file, "success": true, "error": "" }),
            Err(refusal) => {
                let shown = shown(&refusal, super::answer::DAEMON);
                json!({ "file": file, "success": false, "error": shown["message"] })
            }
        });
    }
    Ok(Raw(json_response(StatusCode::OK, &results)))
}

async fn replace_in(
    call: &Call,
    guest: &Guest,
    path: &str,
    ask: &Replacement,
) -> Result<(), Refusal> {
    let info = guest.stat(path, true).await.map_err(refused)?;
    if info.kind != FileKind::File {
        let refusal = Refusal::invalid(format!("{path:?} is no file"));
        return Err(coded(refusal, "INVALID_FILE_PATH"));
    }
    if info.bytes > TEXT_BYTES_MAX as u64 {
        let message = format!("{path:?} is larger than {TEXT_BYTES_MAX} bytes");
        return Err(Refusal::new(Code::TooLarge, message));
    }
    let _portion = call.memory.portion(info.bytes as usize + TEXT_BYTES_MAX)?;
    let (output, _, _) = guest.read_file(path, 0, None).await.map_err(refused)?;
    let text = output.whole(TEXT_BYTES_MAX).await.map_err(refused)?;
    let text = text.ok_or_else(|| Refusal::new(Code::TooLarge, format!("{path:?} has grown")))?;
    if place_of(&text, ask.pattern.as_bytes()).is_none() {
        return Ok(());
    }
    let text = replaced(&text, ask.pattern.as_bytes(), ask.new_value.as_bytes());
    let text = text.ok_or_else(|| {
        let message = format!("{path:?} would be larger than {TEXT_BYTES_MAX} bytes");
        Refusal::new(Code::TooLarge, message)
    })?;
    // It stays whose it was.
    let target = FileTarget {
        permissions: Some(info.permissions),
        uid: Some(info.uid),
        gid: Some(info.gid),
        ..FileTarget::replace(path)
    };
    let mut upload = guest.write_file(target).map_err(refused)?;
    upload.write(&text).await.map_err(refused)?;
    upload.finish().await.map_err(refused)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_numbers_and_no_ends() {
        let found: Vec<_> = lines_with(b"a b\r\nc\nb\n", b"b").collect();
        assert_eq!(found, [(1, &b"a b"[..]), (3, &b"b"[..])]);
        assert_eq!(lines_with(b"a\n", b"").count(), 0);
        assert_eq!(lines_with(b"", b"a").count(), 0);
    }

    #[test]
    fn all_places_are_replaced_and_what_is_put_in_is_not_looked_at() {
        let replaced = |text: &str, old: &str, new: &str| {
            replaced(text.as_bytes(), old.as_bytes(), new.as_bytes())
        };
        assert_eq!(replaced("aXbX", "X", "XX").unwrap(), b"aXXbXX");
        assert_eq!(replaced("abc", "d", "").unwrap(), b"abc");
        assert_eq!(replaced("aaa", "aa", "").unwrap(), b"a");
        let long = "x".repeat(TEXT_BYTES_MAX / 2 + 1);
        assert_eq!(replaced("aa", "a", &long), None);
    }
}
