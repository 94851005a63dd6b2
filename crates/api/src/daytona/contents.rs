//! Contents of files, up and down: one as it is, or many in a form.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use protocol::limits::CREDIT_BYTES_INITIAL;
use protocol::message::{FileInfo, FileKind};
use protocol::requests::WriteMode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::answer::{DAEMON, TOOLBOX, coded, refused, shown};
use super::limits::{FIELD_BYTES_MAX, FILES_PER_CALL_MAX};
use super::seat::{self, Paths, path};
use crate::body::{Gone, Hold, Outgoing, Sink, json_response};
use crate::call::{Call, Inside};
use crate::limits::STREAM_BYTES;
use crate::multipart::{Form, Step};
use crate::outflow::{Source, outflow};
use crate::response::{OCTETS, respond};
use crate::route::{Operation, operation};
use crate::shape::{Json, Nothing, Octets, Query, Raw};
use agent_client::guest::{FileTarget, Output, Piece, Upload};
use host::hex::digits;
use host::id::random_bytes;
use sandbox::refusal::{Code, Refusal};

pub fn operations() -> Vec<Operation> {
    [
        operation(
            Method::GET,
            "/daytona/toolbox/{sandbox}/files/download",
            "daytona_read",
            "Download a file.",
            read,
        ),
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/files/bulk-download",
            "daytona_read_many",
            "Download files.",
            read_many,
        ),
        operation(
            Method::POST,
            "/daytona/toolbox/{sandbox}/files/bulk-upload",
            "daytona_write",
            "Upload files.",
            write,
        )
        .run(),
    ]
    .map(|operation| operation.refusing(TOOLBOX))
    .to_vec()
}

#[derive(Debug, Deserialize, JsonSchema)]
struct OnePath {
    path: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Many {
    paths: Vec<String>,
}

/// A file that is open, with its length if it has one.
async fn open(inside: &Inside, path: &str) -> Result<(Output, FileInfo, Option<u64>), Refusal> {
    let (output, info, bytes) = inside.guest.read_file(path, 0, None).await.map_err(refused)?;
    if info.kind == FileKind::Directory {
        let refusal = Refusal::invalid(format!("{path:?} is a directory"));
        return Err(coded(refusal, "INVALID_FILE_PATH"));
    }
    Ok((output, info, bytes))
}

async fn read(call: Call, Query(ask): Query<OnePath>, _: Nothing) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let path = path(&call, &inside, &ask.path).await?;
    let (output, _, bytes) = open(&inside, &path).await?;
    let body = outflow(&call, Source::Guest { output, activity: inside.activity }, bytes)?;
    Ok(Raw(respond(StatusCode::OK, OCTETS, body)))
}

async fn read_many(call: Call, _: Nothing, Json(ask): Json<Many>) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    if ask.paths.len() > FILES_PER_CALL_MAX {
        let message = format!("a call has at most {FILES_PER_CALL_MAX} files");
        return Err(Refusal::new(Code::LimitReached, message));
    }
    let (mut paths, mut found) = (Paths::default(), Vec::new());
    for text in ask.paths {
        let path = paths.find(&call, &inside, &text).await;
        found.push((text, path));
    }
    let drawn = random_bytes::<24>().map_err(|error| Refusal::of(Code::Internal, &error))?;
    // What is in a file cannot know it.
    let boundary = format!("burrow-{}", digits(&drawn));
    let kind = format!("multipart/form-data; boundary={boundary}");
    let kind = HeaderValue::try_from(kind).expect("hexadecimal digits are a header's");
    let portion = call.memory.portion(STREAM_BYTES + CREDIT_BYTES_INITIAL as usize)?;
    let held: Hold = Arc::new((portion, call.trail.clone()));
    let (sink, body) = Outgoing::pieces(None);
    tokio::spawn(async move {
        let _held = held;
        let carried = tokio::select! {
            carried = parts(&inside, found, &boundary, &sink) => carried,
            () = sink.closed() => Err(Gone),
        };
        // Without it the client learns that something is missing.
        if carried.is_ok() {
            sink.finish();
        }
    });
    let mut response = respond(StatusCode::OK, OCTETS, body);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(Raw(response))
}

/// Sends each file as a part of the form, or why there is none.
async fn parts(
    inside: &Inside,
    files: Vec<(String, Result<String, Refusal>)>,
    boundary: &str,
    sink: &Sink,
) -> Result<(), Gone> {
    for (name, path) in files {
        let opened = match path {
            Ok(path) => open(inside, &path).await,
            Err(refusal) => Err(refusal),
        };
        let (output, bytes) = match opened {
            Ok((output, _, bytes)) => (output, bytes),
            Err(refusal) => {
                let body = shown(&refusal, DAEMON).to_string();
                let head = head(boundary, ("error", &name), "application/json", None);
                sink.send(format!("{head}{body}\r\n")).await?;
                continue;
            }
        };
        sink.send(head(boundary, ("file", &name), "application/octet-stream", bytes)).await?;
        carry(output, bytes, sink).await?;
        sink.send(Bytes::from_static(b"\r\n")).await?;
    }
    sink.send(format!("--{boundary}--\r\n")).await
}

async fn carry(mut output: Output, length: Option<u64>, sink: &Sink) -> Result<(), Gone> {
    let mut sent = 0;
    loop {
        match output.next().await {
            Piece::Bytes { bytes, .. } => {
                sent += bytes.len() as u64;
                sink.send(bytes).await?;
            }
            // A file that has shrunk is not whole.
            Piece::End if length.is_none_or(|length| sent == length) => return Ok(()),
            Piece::End | Piece::Gap { .. } | Piece::Failed(_) => return Err(Gone),
        }
    }
}

/// The head of a part. A name that is not ASCII comes in the form that RFC 8187 has for it, too.
fn head(boundary: &str, (field, name): (&str, &str), kind: &str, length: Option<u64>) -> String {
    let is_plain = |c: char| c.is_ascii() && !c.is_ascii_control();
    let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
    let quoted: String = quoted.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let extended = if name.chars().all(is_plain) {
        String::new()
    } else {
        let encoded = name.bytes().fold(String::new(), |mut encoded, byte| {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
            encoded
        });
        format!("; filename*=UTF-8''{encoded}")
    };
    let length = length.map_or_else(String::new, |length| format!("Content-Length: {length}\r\n"));
    format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"{field}\"; \
         filename=\"{quoted}\"{extended}\r\nContent-Type: {kind}\r\n{length}\r\n"
    )
}

/// What a part of an upload is: the path or the content of a file with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Path(usize),
    File(usize),
}

impl Field {
    fn of(name: &str) -> Option<Self> {
        let (number, what) = name.strip_prefix("files[")?.split_once("].")?;
        let number = number.parse().ok().filter(|number| *number < FILES_PER_CALL_MAX)?;
        match what {
            "path" => Some(Self::Path(number)),
            "file" => Some(Self::File(number)),
            _ => None,
        }
    }
}

/// The part that comes at the moment.
enum Current {
    /// One that means nothing.
    Other,
    Path(usize, Vec<u8>),
    File(String, Box<Upload>, u64),
}

async fn write(mut call: Call, _: Nothing, _: Octets) -> Result<Raw, Refusal> {
    let inside = seat::inside(&call).await?;
    let kind = call.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let form = kind.and_then(Form::of);
    let mut form = form.ok_or_else(|| Refusal::invalid("the body must be multipart/form-data"))?;
    let (mut paths, mut named, mut written) = (Paths::default(), HashMap::new(), Vec::new());
    let mut current = Current::Other;
    loop {
        match form.step()? {
            Step::More => match call.body.chunk().await? {
                Some(bytes) => form.push(&bytes),
                None => return Err(Refusal::invalid("the form is cut off")),
            },
            Step::Part(part) => {
                current = match Field::of(&part.name) {
                    Some(Field::Path(number)) => Current::Path(number, Vec::new()),
                    Some(Field::File(number)) => {
                        let text = named.remove(&number).or(part.filename);
                        let text = text.ok_or_else(|| Refusal::invalid("a file has no path"))?;
                        let path = paths.find(&call, &inside, &text).await?;
                        let upload = target(&inside, &path)?;
                        Current::File(path, Box::new(upload), 0)
                    }
                    None => Current::Other,
                };
            }
            Step::Bytes(bytes) => match &mut current {
                Current::Other => {}
                Current::Path(_, text) if text.len() + bytes.len() <= FIELD_BYTES_MAX => {
                    text.extend_from_slice(&bytes);
                }
                Current::Path(..) => return Err(Refusal::invalid("a path is too long")),
                Current::File(_, upload, count) => {
                    *count += bytes.len() as u64;
                    upload.write(&bytes).await.map_err(refused)?;
                }
            },
            Step::PartEnd => match std::mem::replace(&mut current, Current::Other) {
                Current::Other => {}
                Current::Path(number, text) => {
                    let text = String::from_utf8(text);
                    let text = text.map_err(|_| Refusal::invalid("a path is not UTF-8"))?;
                    named.insert(number, text);
                }
                Current::File(path, upload, count) => {
                    upload.finish().await.map_err(refused)?;
                    written.push(json!({ "path": path, "bytes": count }));
                }
            },
            Step::End => break,
        }
    }
    Ok(Raw(json_response(StatusCode::OK, &json!({ "files": written, "errors": [] }))))
}

/// A file that others see only when all of it is there.
fn target(inside: &Inside, path: &str) -> Result<Upload, Refusal> {
    let mode = WriteMode::Replace {};
    let (permissions, uid, gid) = (None, None, None);
    let target = FileTarget { path: path.into(), mode, permissions, uid, gid, parents: true };
    inside.guest.write_file(target).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_an_upload_is_a_path_or_a_file() {
        assert_eq!(Field::of("files[0].path"), Some(Field::Path(0)));
        assert_eq!(Field::of("files[12].file"), Some(Field::File(12)));
        for other in ["", "file", "files[].file", "files[-1].file", "files[9999].file"] {
            assert_eq!(Field::of(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_cannot_end_the_head_of_its_part() {
        let head = head("b", ("file", "/a\"\r\nX: y/é\\"), "text/plain", Some(3));
        let expected = "--b\r\nContent-Disposition: form-data; name=\"file\"; \
            filename=\"/a\\\"__X: y/_\\\\\"; \
            filename*=UTF-8''%2F%61%22%0D%0A%58%3A%20%79%2F%C3%A9%5C\r\n\
            Content-Type: text/plain\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(head, expected);
    }
}
