//! What is in volumes, over E2B's calls: directories, files and what they are. The token of a volume lets in to its
//! content, and to nothing else.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::AUTHORIZATION;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::answer::VOLUME;
use super::connect::Message;
use super::forms::{field, fields};
use super::limits::VOLUME_PIECES_WAITING_MAX;
use crate::Api;
use crate::body::{Response, json_response};
use crate::call::Call;
use crate::caller::Caller;
use crate::outflow::{Source, outflow};
use crate::response::{OCTETS, respond};
use crate::route::{Asked, Operation, operation};
use crate::shape::{Done, Nothing, Octets, Raw};
use access::keys::Access;
use host::instant::format;
use sandbox::SandboxError;
use sandbox::refusal::{Code, Refusal};
use workspace::volume::{Attributes, EntryKind, Files, Volume, VolumeEntry, VolumeError, Volumes};

const PREFIX: &str = "/volumecontent/";
/// What comes before a token in `Authorization`.
const BEARER: &str = "Bearer ";

/// What a client sets of a path.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
}

pub fn operations() -> Vec<Operation> {
    let (dir, path, file) = (
        "/volumecontent/{volume}/dir",
        "/volumecontent/{volume}/path",
        "/volumecontent/{volume}/file",
    );
    let (get, put) = (Method::GET, Method::PUT);
    [
        operation(get.clone(), dir, "e2b_list_volume", "List a directory of a volume.", list),
        operation(Method::POST, dir, "e2b_make_volume_dir", "Make a directory.", make_directory)
            .access(Some(Access::Run)),
        operation(get.clone(), path, "e2b_look_volume", "What a path of a volume is.", look),
        operation(Method::PATCH, path, "e2b_set_volume", "Set owner and mode.", set)
            .access(Some(Access::Run)),
        operation(Method::DELETE, path, "e2b_remove_in_volume", "Remove a path.", remove)
            .access(Some(Access::Run)),
        operation(get, file, "e2b_read_volume", "Download a file of a volume.", read),
        operation(put, file, "e2b_write_volume", "Upload a file to a volume.", write)
            .access(Some(Access::Run)),
    ]
    .map(|operation| operation.known_by(known).refusing(VOLUME))
    .to_vec()
}

/// Lets in by the token of the volume that the path names. Of a volume that is not there it says no more than of a
/// wrong token.
fn known(api: &Api, asked: &Asked<'_>) -> Result<Caller, Refusal> {
    let id = asked.path.strip_prefix(PREFIX).and_then(|rest| rest.split('/').next());
    let volume = id.and_then(|id| api.registry().volumes().get(id).ok());
    let header = asked.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|text| text.strip_prefix(BEARER)).unwrap_or_default();
    let volume = volume.filter(|volume| Volumes::is_token(volume, token));
    let namespace = volume.and_then(|volume| volume.namespace.parse().ok());
    namespace.map(Caller::Visitor).ok_or_else(|| {
        let message = "this is not the token of the volume";
        Refusal::new(Code::Unauthenticated, message).hint("`Volume.connect` gives the token")
    })
}

async fn list(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let fields = fields(&call)?;
    let depth = number(&fields, "depth")?.unwrap_or(1);
    let path = path(&fields)?;
    let listed = on_disk(&call, move |files| files.list(&path, depth)).await?;
    let listed: Vec<Value> = listed.iter().map(shown).collect();
    Ok(Raw(json_response(StatusCode::OK, &listed)))
}

async fn make_directory(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let fields = fields(&call)?;
    let (path, attributes, force) = (path(&fields)?, attributes(&fields)?, is_forced(&fields)?);
    let made = on_disk(&call, move |files| files.make_directory(&path, &attributes, force)).await?;
    Ok(Raw(entry(StatusCode::CREATED, &made)))
}

async fn look(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let path = path(&fields(&call)?)?;
    let found = on_disk(&call, move |files| files.look(&path)).await?;
    Ok(Raw(entry(StatusCode::OK, &found)))
}

async fn set(call: Call, _: Nothing, Message(ask): Message<Metadata>) -> Result<Raw, Refusal> {
    let path = path(&fields(&call)?)?;
    let Metadata { uid, gid, mode } = ask;
    let attributes = Attributes { uid, gid, mode };
    let changed = on_disk(&call, move |files| files.set(&path, &attributes)).await?;
    Ok(Raw(entry(StatusCode::OK, &changed)))
}

async fn remove(call: Call, _: Nothing, _: Nothing) -> Result<Done, Refusal> {
    let path = path(&fields(&call)?)?;
    on_disk(&call, move |files| files.remove(&path)).await?;
    Ok(Done)
}

async fn read(call: Call, _: Nothing, _: Nothing) -> Result<Raw, Refusal> {
    let path = path(&fields(&call)?)?;
    let (file, length) = on_disk(&call, move |files| files.read(&path)).await?;
    let source = Source::File { file, first: 0, length };
    let body = outflow(&call, source, Some(length))?;
    Ok(Raw(respond(StatusCode::OK, OCTETS, body)))
}

/// A file that others see when all of it is there.
async fn write(mut call: Call, _: Nothing, _: Octets) -> Result<Raw, Refusal> {
    let fields = fields(&call)?;
    let (path, attributes, force) = (path(&fields)?, attributes(&fields)?, is_forced(&fields)?);
    let volume = volume(&call)?;
    let room = call.api.registry().room_in(&volume)?;
    let (pieces, mut waiting) = mpsc::channel::<Bytes>(VOLUME_PIECES_WAITING_MAX);
    let writing = on_disk(&call, move |files| {
        let mut incoming = files.begin(room.unwrap_or(u64::MAX))?;
        while let Some(bytes) = waiting.blocking_recv() {
            incoming.write(&bytes)?;
        }
        Ok(incoming)
    });
    let writing = tokio::spawn(writing);
    while let Some(bytes) = call.body.chunk().await? {
        if pieces.send(bytes).await.is_err() {
            // What went wrong is what it returns.
            break;
        }
    }
    drop(pieces);
    let incoming = writing.await.map_err(|error| Refusal::of(Code::Internal, &error))??;
    let bytes = incoming.bytes();
    let place = move |files: Files| files.place(incoming, &path, &attributes, force);
    let placed = on_disk(&call, place).await?;
    call.api.registry().volumes().count(&volume, bytes);
    Ok(Raw(entry(StatusCode::CREATED, &placed)))
}

/// The volume of a call that was let in.
fn volume(call: &Call) -> Result<Arc<Volume>, Refusal> {
    let id: String = call.parameter("volume")?;
    call.trail.fact("volume", id.clone());
    Ok(call.api.registry().volumes().get(&id).map_err(SandboxError::from)?)
}

/// Does what waits for the disk on a thread for that.
fn on_disk<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce(Files) -> Result<T, VolumeError> + Send + 'static,
) -> impl Future<Output = Result<T, Refusal>> + Send + 'static {
    let (volume, volumes) = (volume(call), Arc::clone(call.api.registry().volumes()));
    async move {
        let volume = volume?;
        let done = tokio::task::spawn_blocking(move || work(volumes.files(&volume)?)).await;
        let done = done.map_err(|error| Refusal::of(Code::Internal, &error))?;
        done.map_err(|error| SandboxError::from(error).into())
    }
}

fn path(fields: &[(String, String)]) -> Result<String, Refusal> {
    let path = field(fields, "path").map(str::to_owned);
    path.ok_or_else(|| Refusal::invalid("the query has no path"))
}

fn attributes(fields: &[(String, String)]) -> Result<Attributes, Refusal> {
    let number = |name| number(fields, name);
    Ok(Attributes { uid: number("uid")?, gid: number("gid")?, mode: number("mode")? })
}

fn number(fields: &[(String, String)], name: &str) -> Result<Option<u32>, Refusal> {
    let text = field(fields, name);
    text.map(str::parse).transpose().map_err(|_| {
        let text = text.unwrap_or_default();
        Refusal::invalid(format!("{name} must be a whole number from 0 on, not {text:?}"))
    })
}

fn is_forced(fields: &[(String, String)]) -> Result<bool, Refusal> {
    match field(fields, "force") {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(Refusal::invalid(format!("force must be true or false, not {other:?}"))),
    }
}

fn entry(status: StatusCode, entry: &VolumeEntry) -> Response {
    json_response(status, &shown(entry))
}

fn shown(entry: &VolumeEntry) -> Value {
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "symlink",
        EntryKind::Other => "unknown",
    };
    let mut shown = json!({
        "name": entry.name,
        "path": entry.path,
        "type": kind,
        "size": entry.bytes,
        "mode": entry.mode,
        "uid": entry.uid,
        "gid": entry.gid,
        "atime": format(entry.accessed_ms),
        "mtime": format(entry.modified_ms),
        "ctime": format(entry.changed_ms),
    });
    if let Some(target) = &entry.target {
        shown["target"] = target.clone().into();
    }
    shown
}
