//! The bytes of a file, whole or a range of them.

use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, HeaderValue, IF_RANGE, RANGE,
};
use protocol::Text;
use protocol::message::FileInfo;
use serde_json::json;

use super::super::super::body::{OCTETS, Response, respond};
use super::super::super::call::{Call, Inside};
use super::super::super::outflow::{Source, outflow};
use super::super::super::route::{Document, Output as Answer};
use super::super::super::shape::{Nothing, Query};
use super::path::PathQuery;
use super::range::Range;
use super::tag::{is_same, tag};
use crate::problem;
use crate::refusal::of_file as refused;
use agent_client::guest::{Guest, GuestError, Output};
use sandbox::refusal::{Code, Refusal};

/// The size of the whole file as its file system states it, of which files that the kernel makes up
/// have none to speak of.
const FILE_BYTES: HeaderName = HeaderName::from_static("burrow-file-bytes");

/// An answer that is a file or a part of one.
pub struct Download(Response);

impl Answer for Download {
    fn describe(document: &mut Document<'_>) {
        document.download("file");
    }

    fn into_response(self) -> Response {
        self.0
    }
}

/// A file that is being read.
struct Opened {
    output: Output,
    info: FileInfo,
    /// How many bytes will come, where that is known.
    bytes: Option<u64>,
}

pub async fn read(
    call: Call,
    Query(query): Query<PathQuery>,
    _: Nothing,
) -> Result<Download, Refusal> {
    let path = query.into_text()?;
    let inside = call.inside().await?;
    let header = |name| call.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if let Some(range) = header(RANGE).and_then(Range::parse) {
        let found = part(&inside.guest, &path, range, header(IF_RANGE)).await?;
        match found {
            Part::Some(first, opened) => return some(&call, inside, first, opened),
            Part::Outside(file_bytes) => return outside(&path, file_bytes),
            Part::NotHeeded => {}
        }
    }
    let opened = open(&inside.guest, &path, 0, None).await?;
    whole(&call, inside, opened)
}

/// What becomes of a range.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each download, and it is moved once"
)]
enum Part {
    /// The part from this byte on.
    Some(u64, Opened),
    /// It is beyond the end of a file of so many bytes.
    Outside(u64),
    /// The whole file is the answer.
    NotHeeded,
}

async fn part(
    guest: &Guest,
    path: &Text,
    range: Range,
    if_range: Option<&str>,
) -> Result<Part, Refusal> {
    // No bytes flow, but the headers describe the file.
    let looked = open(guest, path, 0, Some(0)).await?;
    if looked.bytes.is_none() {
        return Ok(Part::NotHeeded);
    }
    let Ok((first, length)) = range.within(looked.info.bytes) else {
        let is_other = if_range.is_some_and(|known| !is_same(known, &tag(&looked.info)));
        return Ok(if is_other { Part::NotHeeded } else { Part::Outside(looked.info.bytes) });
    };
    let opened = open(guest, path, first, Some(length)).await?;
    // The file may be another one by now; what was opened last is what counts.
    let is_same = if_range.is_none_or(|known| is_same(known, &tag(&opened.info)));
    Ok(match opened.bytes {
        Some(0) => Part::Outside(opened.info.bytes),
        Some(_) if is_same => Part::Some(first, opened),
        Some(_) | None => Part::NotHeeded,
    })
}

async fn open(
    guest: &Guest,
    path: &Text,
    offset: u64,
    length: Option<u64>,
) -> Result<Opened, Refusal> {
    let read = guest.read_file(path.clone(), offset, length).await;
    let (output, info, bytes) = read.map_err(refused)?;
    let end = offset.checked_add(bytes.unwrap_or(0));
    let is_too_much = bytes.zip(length).is_some_and(|(bytes, length)| bytes > length);
    if is_too_much || end.is_none_or(|end| bytes.is_some_and(|_| end > info.bytes.max(offset))) {
        return Err(GuestError::Malformed { what: "more of a file than there is" }.into());
    }
    Ok(Opened { output, info, bytes })
}

fn whole(call: &Call, inside: Inside, opened: Opened) -> Result<Download, Refusal> {
    let Opened { output, info, bytes } = opened;
    let source = Source::Guest { output, activity: inside.activity };
    let body = outflow(call, source, bytes)?;
    let mut response = respond(StatusCode::OK, OCTETS, body);
    dress(&mut response, &info, bytes);
    Ok(Download(response))
}

fn some(call: &Call, inside: Inside, first: u64, opened: Opened) -> Result<Download, Refusal> {
    let Opened { output, info, bytes } = opened;
    let last = first + bytes.unwrap_or(0).saturating_sub(1);
    let range = content_range(&format!("bytes {first}-{last}/{}", info.bytes))?;
    let source = Source::Guest { output, activity: inside.activity };
    let body = outflow(call, source, bytes)?;
    let mut response = respond(StatusCode::PARTIAL_CONTENT, OCTETS, body);
    dress(&mut response, &info, bytes);
    response.headers_mut().insert(CONTENT_RANGE, range);
    Ok(Download(response))
}

fn outside(path: &Text, file_bytes: u64) -> Result<Download, Refusal> {
    let message = format!("the range is outside of {path:?}, which has {file_bytes} bytes");
    let refusal = Refusal::new(Code::RangeNotSatisfiable, message);
    let mut response = problem::respond(&refusal.details(json!({ "bytes": file_bytes })));
    let range = content_range(&format!("bytes */{file_bytes}"))?;
    response.headers_mut().insert(CONTENT_RANGE, range);
    Ok(Download(response))
}

fn content_range(text: &str) -> Result<HeaderValue, Refusal> {
    HeaderValue::from_str(text).map_err(|_| Refusal::new(Code::Internal, "a number is no header"))
}

/// The headers of a file.
fn dress(response: &mut Response, info: &FileInfo, bytes: Option<u64>) {
    let headers = response.headers_mut();
    headers.insert(FILE_BYTES, HeaderValue::from(info.bytes));
    if let Some(bytes) = bytes {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    }
    let ranges = if bytes.is_some() { "bytes" } else { "none" };
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static(ranges));
    if let Ok(tag) = HeaderValue::try_from(tag(info)) {
        headers.insert(ETAG, tag);
    }
}
