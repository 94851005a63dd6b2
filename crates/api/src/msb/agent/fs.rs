//! Files of a sandbox: looked at, listed, read, written, made, moved, copied, removed. What a client opens is a
//! path with a handle; each read and write opens it again.

use protocol::message::{FileInfo, FileKind};
use protocol::requests::{MakeDirectory, Move, Remove, WriteMode};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::handles::Opened;
use super::link::{Incoming, Link};
use super::octets::Octets;
use crate::call::Inside;
use crate::msb::answer::{lacking, words};
use crate::msb::limits::PIECE_BYTES_MAX;
use crate::refusal::of_file;
use agent_client::guest::{FileTarget, Output, Piece};
use sandbox::refusal::{Code, Refusal};

pub const RESPONSE: &str = "core.fs.response";
const MILLIS: i64 = 1000;

#[derive(Debug, Deserialize)]
pub struct Ask {
    op: Op,
}

#[derive(Debug, Deserialize)]
enum Op {
    Stat {
        path: String,
        #[serde(default)]
        follow_symlink: bool,
    },
    List {
        path: String,
    },
    ReadLink {
        path: String,
    },
    Mkdir {
        path: String,
        #[serde(default)]
        mode: Option<u32>,
        #[serde(default)]
        user: Option<String>,
    },
    Remove {
        path: String,
    },
    RemoveDir {
        path: String,
        #[serde(default)]
        recursive: bool,
    },
    Copy {
        src: String,
        dst: String,
    },
    Rename {
        src: String,
        dst: String,
    },
    OpenFile {
        path: String,
        options: OpenOptions,
    },
    CloseHandle {
        handle: u64,
    },
    Read {
        handle: u64,
        offset: u64,
        #[serde(default)]
        len: Option<u64>,
    },
    Write {
        handle: u64,
        offset: u64,
        #[serde(default)]
        len: Option<u64>,
    },
    FStat {
        handle: u64,
    },
    RealPath(IgnoredAny),
    SetStat(IgnoredAny),
    FSetStat(IgnoredAny),
    Symlink(IgnoredAny),
    OpenDir(IgnoredAny),
    ReadDir(IgnoredAny),
}

#[derive(Debug, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "it is the wire's")]
struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    create: bool,
    truncate: bool,
    create_new: bool,
    #[serde(default)]
    mode: Option<u32>,
    /// Of releases 0.7.
    #[serde(default)]
    user: Option<String>,
}

/// An entry as the clients read it.
#[derive(Debug, Serialize)]
pub struct Entry {
    path: String,
    kind: &'static str,
    size: u64,
    mode: u32,
    modified: i64,
    uid: u32,
    gid: u32,
    atime: Option<i64>,
    mtime: i64,
}

/// What an answer has.
#[derive(Debug, Serialize)]
pub enum Found {
    Stat(Entry),
    List(Vec<Entry>),
    Handle(u64),
    Path(String),
}

#[derive(Debug, Serialize)]
pub struct Response {
    ok: bool,
    error: Option<String>,
    data: Option<Found>,
}

#[derive(Serialize)]
struct Data {
    data: Octets,
}

pub fn response(reply: Result<Option<Found>, Refusal>) -> Response {
    match reply {
        Ok(data) => Response { ok: true, error: None, data },
        Err(refusal) => Response { ok: false, error: Some(words(&refusal)), data: None },
    }
}

impl Entry {
    fn new(path: String, info: &FileInfo) -> Self {
        let kind = match info.kind {
            FileKind::File => "file",
            FileKind::Directory => "dir",
            FileKind::Symlink => "symlink",
            _ => "other",
        };
        let modified = info.modified_ms.div_euclid(MILLIS);
        Self {
            path,
            kind,
            size: info.bytes,
            mode: info.permissions,
            modified,
            uid: info.uid,
            gid: info.gid,
            atime: None,
            mtime: modified,
        }
    }
}

impl Op {
    /// Its name in the audit log, and whether it only looks.
    fn name(&self) -> (&'static str, bool) {
        match self {
            Self::Stat { .. } | Self::FStat { .. } | Self::ReadLink { .. } => ("msb_stat", true),
            Self::List { .. } => ("msb_ls", true),
            Self::Read { .. } => ("msb_read", true),
            Self::Mkdir { .. } => ("msb_mkdir", false),
            Self::Remove { .. } | Self::RemoveDir { .. } => ("msb_rm", false),
            Self::Copy { .. } => ("msb_cp", false),
            Self::Rename { .. } => ("msb_mv", false),
            Self::OpenFile { options, .. } => ("msb_open", !options.is_for_writing()),
            Self::Write { .. } => ("msb_write", false),
            _ => ("msb_fs", true),
        }
    }
}

impl OpenOptions {
    fn is_for_writing(&self) -> bool {
        self.write || self.append || self.create || self.create_new || self.truncate
    }
}

pub async fn answer(
    link: &Link,
    number: u32,
    ask: Ask,
    incoming: Incoming,
) -> Result<Option<Found>, Refusal> {
    // Nothing of it is in the sandbox.
    if let Op::CloseHandle { handle } = ask.op {
        return link.handles.close(handle).map(|()| None);
    }
    let (name, looks) = ask.op.name();
    link.recorded(name, looks, |inside, _| carry_out(link, number, ask.op, inside, incoming)).await
}

async fn carry_out(
    link: &Link,
    number: u32,
    op: Op,
    inside: Inside,
    incoming: Incoming,
) -> Result<Option<Found>, Refusal> {
    let guest = &inside.guest;
    match op {
        Op::Stat { path, follow_symlink } => {
            let info = guest.stat(path.as_str(), follow_symlink).await.map_err(of_file)?;
            Ok(Some(Found::Stat(Entry::new(path, &info))))
        }
        Op::FStat { handle } => {
            let path = link.handles.get(handle)?.path;
            let info = guest.stat(path.as_str(), true).await.map_err(of_file)?;
            Ok(Some(Found::Stat(Entry::new(path, &info))))
        }
        Op::ReadLink { path } => {
            let info = guest.stat(path.as_str(), false).await.map_err(of_file)?;
            let no_link = || Refusal::invalid(format!("{path:?} is no symbolic link"));
            let target = info.target.ok_or_else(no_link)?;
            Ok(Some(Found::Path(target.to_string())))
        }
        Op::List { path } => list(link, &inside, &path).await.map(Some),
        Op::Mkdir { path, mode, user } => {
            as_user(user.as_deref())?;
            let ask = MakeDirectory { path: path.into(), permissions: mode, parents: true };
            guest.make_directory(ask).await.map_err(of_file)?;
            Ok(None)
        }
        Op::Remove { path } => {
            remove(&inside, path, false, false).await?;
            Ok(None)
        }
        Op::RemoveDir { path, recursive } => {
            remove(&inside, path, true, recursive).await?;
            Ok(None)
        }
        Op::Rename { src, dst } => {
            let ask = Move { from: src.into(), to: dst.into(), replace: true };
            guest.rename(ask).await.map_err(of_file)?;
            Ok(None)
        }
        Op::Copy { src, dst } => copy(&inside, &src, dst).await.map(|()| None),
        Op::OpenFile { path, options } => open(link, &inside, path, &options).await.map(Some),
        Op::Read { handle, offset, len } => {
            let file = link.handles.get(handle)?;
            if !file.reads {
                return Err(Refusal::invalid(format!("the file {handle} is not open for reading")));
            }
            read(link, number, &inside, &file, (offset, len)).await.map(|()| None)
        }
        Op::Write { handle, offset, len } => {
            let file = link.handles.get(handle)?;
            if !file.writes {
                return Err(Refusal::invalid(format!("the file {handle} is not open for writing")));
            }
            write(&inside, file, (offset, len), incoming).await.map(|()| None)
        }
        Op::CloseHandle { .. } => Ok(None),
        Op::RealPath(_) | Op::Symlink(_) => Err(lacking("symbolic links over this connection")),
        Op::SetStat(_) | Op::FSetStat(_) => Err(lacking("a change of a file's attributes")),
        Op::OpenDir(_) | Op::ReadDir(_) => Err(lacking("handles of directories; list them")),
    }
}

fn as_user(user: Option<&str>) -> Result<(), Refusal> {
    match user {
        None => Ok(()),
        Some(_) => Err(lacking("files as another user; run a program as that user")),
    }
}

async fn list(link: &Link, inside: &Inside, path: &str) -> Result<Found, Refusal> {
    let found = inside.guest.list(path).await.map_err(of_file)?;
    let mut entries = Vec::with_capacity(found.len());
    let mut portions = Vec::new();
    for info in found {
        let path = format!("{}/{}", path.trim_end_matches('/'), info.name);
        // Here, and once more as CBOR.
        portions.push(link.seat.memory.portion(2 * (size_of::<Entry>() + path.len()))?);
        entries.push(Entry::new(path, &info));
    }
    Ok(Found::List(entries))
}

async fn remove(
    inside: &Inside,
    path: String,
    directory: bool,
    recursive: bool,
) -> Result<(), Refusal> {
    let info = inside.guest.stat(path.as_str(), false).await.map_err(of_file)?;
    match (info.kind == FileKind::Directory, directory) {
        (true, false) => {
            return Err(Refusal::invalid(format!("{path:?} is a directory; use remove_dir")));
        }
        (false, true) => {
            return Err(Refusal::invalid(format!("{path:?} is no directory; use remove")));
        }
        _ => {}
    }
    inside.guest.remove(Remove { path: path.into(), recursive }).await.map_err(of_file)
}

/// Opens a file for writing, in this way.
fn target(path: String, mode: WriteMode, permissions: Option<u32>) -> FileTarget {
    FileTarget { mode, permissions, ..FileTarget::replace(path) }
}

async fn open(
    link: &Link,
    inside: &Inside,
    path: String,
    options: &OpenOptions,
) -> Result<Found, Refusal> {
    as_user(options.user.as_deref())?;
    let is_new = match inside.guest.stat(path.as_str(), true).await {
        Ok(info) if info.kind == FileKind::Directory => {
            return Err(Refusal::invalid(format!("{path:?} is a directory")));
        }
        Ok(_) => false,
        Err(error) => {
            let refusal = of_file(error);
            let makes = options.create || options.create_new;
            if refusal.code != Code::NotFound || !makes {
                return Err(refusal);
            }
            true
        }
    };
    if options.create_new || is_new || options.truncate {
        let mode = if options.create_new { WriteMode::Create {} } else { WriteMode::Replace {} };
        let upload = inside.guest.write_file(target(path.clone(), mode, options.mode));
        upload.map_err(of_file)?.finish().await.map_err(of_file)?;
    }
    let writes = options.write || options.append;
    let file = Opened { path, reads: options.read, writes, appends: options.append };
    link.handles.open(file).map(Found::Handle)
}

async fn read(
    link: &Link,
    number: u32,
    inside: &Inside,
    file: &Opened,
    (offset, len): (u64, Option<u64>),
) -> Result<(), Refusal> {
    let opened = inside.guest.read_file(file.path.as_str(), offset, len).await;
    let (output, _, length) = opened.map_err(of_file)?;
    let mut content = Content { output, length, taken: 0 };
    while let Some(bytes) = content.next().await? {
        for piece in bytes.chunks(PIECE_BYTES_MAX) {
            let data = Data { data: Octets(piece.to_vec()) };
            let gone = |_| Refusal::new(Code::Unavailable, "the client disconnected");
            link.send(number, "core.fs.data", &data).await.map_err(gone)?;
        }
    }
    Ok(())
}

/// A file that is read, and how much of it there must be.
struct Content {
    output: Output,
    length: Option<u64>,
    taken: u64,
}

impl Content {
    /// The next bytes; `None` once all have come.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Refusal> {
        match self.output.next().await {
            Piece::Bytes { bytes, .. } => {
                self.taken += bytes.len() as u64;
                Ok(Some(bytes))
            }
            Piece::End if self.length.is_none_or(|length| self.taken == length) => Ok(None),
            Piece::Failed(error) => Err(of_file(error)),
            Piece::End | Piece::Gap { .. } => {
                Err(Refusal::new(Code::Io, "the file has changed while it was read"))
            }
        }
    }
}

/// Writes what follows until a frame without bytes.
async fn write(
    inside: &Inside,
    file: Opened,
    (offset, len): (u64, Option<u64>),
    mut incoming: Incoming,
) -> Result<(), Refusal> {
    let mode = if file.appends { WriteMode::Append {} } else { WriteMode::At { offset } };
    let mut upload = inside.guest.write_file(target(file.path, mode, None)).map_err(of_file)?;
    let mut left = len;
    while let Some(input) = incoming.inputs.recv().await {
        if input.bytes.is_empty() {
            upload.finish().await.map_err(of_file)?;
            return match left {
                None | Some(0) => Ok(()),
                Some(left) => Err(Refusal::invalid(format!("{left} bytes are missing"))),
            };
        }
        if let Some(left) = &mut left {
            *left = left.checked_sub(input.bytes.len() as u64).ok_or_else(|| {
                Refusal::invalid("more bytes came than the request has announced")
            })?;
        }
        upload.write(&input.bytes).await.map_err(of_file)?;
    }
    Err(Refusal::new(Code::Unavailable, "the rest of the file did not come"))
}

/// Copies one file, which passes through this server: the agent has no request for it.
async fn copy(inside: &Inside, from: &str, to: String) -> Result<(), Refusal> {
    let (output, info, length) = inside.guest.read_file(from, 0, None).await.map_err(of_file)?;
    if info.kind != FileKind::File {
        return Err(Refusal::invalid(format!("{from:?} is no file; copy its files one by one")));
    }
    let target = target(to, WriteMode::Replace {}, Some(info.permissions));
    let mut upload = inside.guest.write_file(target).map_err(of_file)?;
    let mut content = Content { output, length, taken: 0 };
    while let Some(bytes) = content.next().await? {
        upload.write(&bytes).await.map_err(of_file)?;
    }
    upload.finish().await.map_err(of_file)?;
    Ok(())
}
