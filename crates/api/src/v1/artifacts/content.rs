//! The bytes of an artifact, whole or a range, with headers that make a browser treat them as a
//! file only.

use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, IF_RANGE, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use serde_json::json;

use super::super::super::body::{OCTETS, Outgoing, Response, respond};
use super::super::super::call::Call;
use super::super::super::outflow::{Source, outflow};
use super::super::super::route::{Document, Output};
use super::super::super::shape::Nothing;
use super::super::files::Range;
use super::found;
use crate::problem;
use sandbox::refusal::{Code, Refusal};
use services::store::artifacts::ArtifactRow;

/// What browsers show of themselves, without running anything in it. A drawing (SVG) may have
/// programs in it, and is for saving.
const SHOWN: [&str; 8] = [
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "image/bmp",
    "video/mp4",
    "video/webm",
    "audio/",
];
/// Whatever is in it belongs to no origin, runs nothing and loads nothing.
const POLICY: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'");

/// An answer that is an artifact, a part of one, or that it is what the client has.
pub struct Download(Response);

impl Output for Download {
    fn describe(document: &mut Document<'_>) {
        document.download("artifact");
        document.response("304", json!({ "description": "The client already has it." }));
        document.header("if-none-match", "ETags: if one is the artifact's, no content is sent.");
    }

    fn into_response(self) -> Response {
        self.0
    }
}

pub async fn read(call: Call, _: Nothing, _: Nothing) -> Result<Download, Refusal> {
    let row = found(&call).await?;
    let header = |name: HeaderName| call.headers.get(name).and_then(|value| value.to_str().ok());
    let tag = format!("\"{}\"", row.digest);
    if header(IF_NONE_MATCH).is_some_and(|known| is_among(known, &tag)) {
        let mut response = respond(StatusCode::NOT_MODIFIED, OCTETS, Outgoing::empty());
        dress(&mut response, &row, &tag);
        return Ok(Download(response));
    }
    let is_heeded = header(IF_RANGE).is_none_or(|known| known.trim() == tag);
    let range = header(RANGE).filter(|_| is_heeded).and_then(Range::parse);
    let (status, first, length) = match range.map(|range| range.within(row.size)) {
        None => (StatusCode::OK, 0, row.size),
        Some(Ok((first, length))) => (StatusCode::PARTIAL_CONTENT, first, length),
        Some(Err(_)) => return Ok(outside(&row)),
    };
    let file = call.api.artifacts()?.open_content(&row).await?;
    let body = outflow(&call, Source::File { file, first, length }, Some(length))?;
    let mut response = respond(status, OCTETS, body);
    dress(&mut response, &row, &tag);
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    if status == StatusCode::PARTIAL_CONTENT {
        let last = first + length - 1;
        headers.insert(CONTENT_RANGE, value(&format!("bytes {first}-{last}/{}", row.size)));
    }
    Ok(Download(response))
}

fn outside(row: &ArtifactRow) -> Download {
    let bytes = row.size;
    let message = format!("the range is outside of the artifact, which has {bytes} bytes");
    let refusal = Refusal::new(Code::RangeNotSatisfiable, message);
    let mut response = problem::respond(&refusal.details(json!({ "bytes": bytes })));
    response.headers_mut().insert(CONTENT_RANGE, value(&format!("bytes */{bytes}")));
    Download(response)
}

/// Whether a tag is among those that a client has. Only their bytes distinguish them, so that
/// a weak one is as good.
fn is_among(known: &str, tag: &str) -> bool {
    let mut tags = known.split(',').map(|one| one.trim().trim_start_matches("W/"));
    tags.any(|one| one == tag || one == "*")
}

fn dress(response: &mut Response, row: &ArtifactRow, tag: &str) {
    let headers = response.headers_mut();
    headers.insert(ETAG, value(tag));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    let charset = if row.mime.starts_with("text/") { "; charset=utf-8" } else { "" };
    headers.insert(CONTENT_TYPE, value(&format!("{}{charset}", row.mime)));
    let is_shown = SHOWN.iter().any(|kind| row.mime.starts_with(kind));
    headers.insert(CONTENT_DISPOSITION, value(&disposition(&row.name, is_shown)));
}

/// A header of what we write and what a row says, which has no byte that a header must not have; one
/// that has, in spite of that, is left empty.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// How to save a file. Every name is written in the one form that any name fits, and in plain
/// letters for programs that do not read it.
fn disposition(name: &str, is_shown: bool) -> String {
    let kind = if is_shown { "inline" } else { "attachment" };
    // Of a path only its end, so that nothing is saved elsewhere than its reader means.
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " ._-()+".contains(c);
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let plain = plain.trim_start_matches('.');
    let plain = if plain.is_empty() { "artifact" } else { plain };
    let mut exact = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            exact.push(char::from(byte));
        } else {
            exact.push('%');
            for nibble in [byte >> 4, byte & 0xf] {
                exact.extend(char::from_digit(u32::from(nibble), 16));
            }
        }
    }
    format!("{kind}; filename=\"{plain}\"; filename*=UTF-8''{exact}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_a_header_that_says_no_more_than_a_name() {
        for (name, plain, exact) in [
            ("plot.png", "plot.png", "plot.png"),
            ("a\"b\r\nx: y", "a_b__x_ y", "a%22b%0d%0ax%3a%20y"),
            ("../../etc/passwd", "passwd", "passwd"),
            ("C:\\x.exe", "x.exe", "x.exe"),
            ("Übung.pdf", "_bung.pdf", "%c3%9cbung.pdf"),
            ("..", "artifact", ".."),
            ("", "artifact", ""),
        ] {
            let header = disposition(name, false);
            let expected = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{exact}");
            assert_eq!(header, expected);
            assert!(HeaderValue::from_str(&header).is_ok());
        }
    }

    #[test]
    fn any_tag_of_a_list_matches_the_content() {
        assert!(is_among("\"x\", W/\"ab\"", "\"ab\"") && is_among("*", "\"ab\""));
        assert!(!is_among("\"abc\"", "\"ab\"") && !is_among("", "\"ab\""));
    }
}
