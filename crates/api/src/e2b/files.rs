//! `/files`: contents of files, up and down, in a sandbox by its token or by a signed URL.

use std::io::Write;

use flate2::write::GzDecoder;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use hyper::{Method, StatusCode};
use protocol::message::FileKind;
use protocol::requests::WriteMode;
use serde_json::{Value, json};

use super::account::{Account, account};
use super::answer::PLAIN;
use super::forms::{field, fields, lacking, pairs};
use super::passes::{Signed, signer};
use super::seat;
use crate::Api;
use crate::body::json_response;
use crate::call::{Call, Inside, Peer};
use crate::caller::Caller;
use crate::multipart::{Form, Step};
use crate::outflow::{Source, outflow};
use crate::refusal::of_file;
use crate::response::{OCTETS, respond};
use crate::route::{Asked, Operation, operation};
use crate::shape::{Nothing, Octets, Raw};
use access::keys::Access;
use agent_client::guest::{FileTarget, GuestError, Upload};
use host::instant::now_ms;
use sandbox::SandboxRef;
use sandbox::refusal::{Code, Refusal};

const READ: &str = "read";
const WRITE: &str = "write";

pub fn operations() -> Vec<Operation> {
    let mut all = Vec::new();
    for path in ["/.e2b/envd/files", "/files"] {
        all.push(
            operation(Method::GET, path, "e2b_read_file", "Download a file.", read)
                .known_by(|api, asked| known(api, asked, READ)),
        );
        all.push(
            operation(Method::POST, path, "e2b_write_file", "Upload files.", write)
                .access(Some(Access::Run))
                .known_by(|api, asked| known(api, asked, WRITE)),
        );
    }
    all.into_iter().map(|operation| operation.refusing(PLAIN)).collect()
}

/// Lets in by the token of the sandbox or by a signature in the URL.
fn known(api: &Api, asked: &Asked<'_>, operation: &str) -> Result<Caller, Refusal> {
    let fields = pairs(asked.query)?;
    if field(&fields, "signature").is_none() {
        return seat::known(api, asked);
    }
    signed(api, &fields, operation, asked.peer).map(|(_, caller)| caller)
}

fn signed(
    api: &Api,
    fields: &[(String, String)],
    operation: &str,
    peer: Peer,
) -> Result<(SandboxRef, Caller), Refusal> {
    let expires = field(fields, "signature_expiration");
    let is_over = |text: &str| text.parse::<u64>().is_ok_and(|at| at < now_ms() / 1000);
    if expires.is_some_and(is_over) {
        return Err(Refusal::new(Code::Unauthenticated, "the time of this URL is over"));
    }
    let signed = Signed {
        path: field(fields, "path").unwrap_or_default(),
        operation,
        user: field(fields, "username").unwrap_or_default(),
        expires,
        signature: field(fields, "signature").unwrap_or_default(),
    };
    signer(api, &signed, peer)
}

/// The sandbox of a call, and who acts in it.
async fn seated(
    call: &Call,
    fields: &[(String, String)],
    operation: &str,
) -> Result<(Inside, Account), Refusal> {
    let inside = if field(fields, "signature").is_some() {
        // It let the caller in for the signer's sandbox, whichever one the headers name.
        let (which, _) = signed(&call.api, fields, operation, Peer::Local)?;
        call.trail.sandbox(&which);
        seat::enter(call, which).await?
    } else {
        seat::inside(call).await?
    };
    let account = account(&call.api, &inside, field(fields, "username")).await?;
    Ok((inside, account))
}

async fn read(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let fields = fields(&call)?;
    let (inside, account) = seated(&call, &fields, READ).await?;
    let path = account.path(field(&fields, "path").unwrap_or_default())?;
    let opened = inside.guest.read_file(path.as_str(), 0, None).await;
    let (output, info, bytes) = opened.map_err(refused)?;
    if info.kind == FileKind::Directory {
        return Err(Refusal::invalid(format!("{path:?} is a directory")));
    }
    let body = outflow(&call, Source::Guest { output, activity: inside.activity }, bytes)?;
    Ok(Raw(respond(StatusCode::OK, OCTETS, body)))
}

async fn write(mut call: Call, _: Nothing, _: Octets) -> Result<Raw, Refusal> {
    let fields = fields(&call)?;
    if call.headers.keys().any(|name| name.as_str().starts_with("x-metadata-")) {
        return Err(lacking("metadata of files"));
    }
    let (inside, account) = seated(&call, &fields, WRITE).await?;
    let path = field(&fields, "path").map(|path| account.path(path)).transpose()?;
    let target = Target { inside, account };
    let kind = header(&call.headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    let written = if let Some(form) = Form::of(kind) {
        target.form(&mut call, form, path).await?
    } else {
        let path = path.ok_or_else(|| Refusal::invalid("the query has no path"))?;
        vec![target.bytes(&mut call, path).await?]
    };
    if written.is_empty() {
        return Err(Refusal::invalid("the form has no part named \"file\""));
    }
    Ok(Raw(json_response(StatusCode::OK, &written)))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Where files are written, and who owns them.
struct Target {
    inside: Inside,
    account: Account,
}

impl Target {
    /// A file that others see only when all of it is there.
    fn open(&self, path: &str) -> Result<Upload, Refusal> {
        let (uid, gid) = self.account.ids.unzip();
        let mode = WriteMode::Replace {};
        let target =
            FileTarget { path: path.into(), mode, permissions: None, uid, gid, parents: true };
        self.inside.guest.write_file(target).map_err(refused)
    }

    /// A body that is the file.
    async fn bytes(&self, call: &mut Call, path: String) -> Result<Value, Refusal> {
        let mut upload = self.open(&path)?;
        let is_packed = match header(&call.headers, CONTENT_ENCODING.as_str()) {
            None | Some("identity") => false,
            Some("gzip") => true,
            Some(other) => {
                let message = format!("the content encoding {other:?} is not taken, only gzip");
                return Err(Refusal::new(Code::UnsupportedMediaType, message));
            }
        };
        let mut unpacked = is_packed.then(|| GzDecoder::new(Vec::new()));
        let broken = |error| Refusal::invalid(format!("the body is not gzip: {error}"));
        while let Some(bytes) = call.body.chunk().await? {
            match &mut unpacked {
                None => upload.write(&bytes).await.map_err(refused)?,
                Some(decoder) => {
                    // A small piece of the body may be much of the file.
                    for piece in bytes.chunks(1024) {
                        decoder.write_all(piece).map_err(broken)?;
                        let ready = std::mem::take(decoder.get_mut());
                        upload.write(&ready).await.map_err(refused)?;
                    }
                }
            }
        }
        if let Some(decoder) = unpacked {
            upload.write(&decoder.finish().map_err(broken)?).await.map_err(refused)?;
        }
        upload.finish().await.map_err(refused)?;
        Ok(shown(&path))
    }

    /// A form: the path of its one file is in the query, or each part's name is its path.
    async fn form(
        &self,
        call: &mut Call,
        mut form: Form,
        path: Option<String>,
    ) -> Result<Vec<Value>, Refusal> {
        let mut written = Vec::new();
        let mut current: Option<(String, Upload)> = None;
        loop {
            match form.step()? {
                Step::More => match call.body.chunk().await? {
                    Some(bytes) => form.push(&bytes),
                    None => return Err(Refusal::invalid("the form is cut off")),
                },
                Step::Part(part) if part.name == "file" => {
                    let named = part.filename.unwrap_or_default();
                    let path = match &path {
                        Some(path) => path.clone(),
                        None => self.account.path(&named)?,
                    };
                    current = Some((path.clone(), self.open(&path)?));
                }
                // Another field than a file.
                Step::Part(_) => {}
                Step::Bytes(bytes) => {
                    if let Some((_, upload)) = &mut current {
                        upload.write(&bytes).await.map_err(refused)?;
                    }
                }
                Step::PartEnd => {
                    if let Some((path, upload)) = current.take() {
                        upload.finish().await.map_err(refused)?;
                        written.push(shown(&path));
                    }
                }
                Step::End => return Ok(written),
            }
        }
    }
}

fn shown(path: &str) -> Value {
    let name = path.rsplit('/').next().unwrap_or_default();
    json!({ "name": name, "type": "file", "path": path })
}

/// A full disk has a status of its own.
fn refused(error: GuestError) -> Refusal {
    let is_full = match &error {
        GuestError::Fault(fault) => {
            matches!(fault.errno, Some(nix::libc::ENOSPC | nix::libc::EDQUOT))
        }
        _ => false,
    };
    let refusal = of_file(error);
    if is_full { Refusal { code: Code::InsufficientStorage, ..refusal } } else { refusal }
}
