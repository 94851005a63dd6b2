//! A file on its way in.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::fstat;
use protocol::message::Reply;
use protocol::requests::{WriteFile, WriteMode};
use protocol::{Fault, FaultCode};

use super::attributes::{Attributes, check_permissions, mode};
use super::directory::make_all;
use super::limits::SYMLINKS_MAX;
use super::refusal::{refused, refused_io, unfit};
use super::staged::{Existing, Staged, sync};
use super::work::{Consumer, receive};
use super::{info, path};
use crate::flow::Inlet;
use crate::task::blocking;

/// The permissions of a new file when the request names none.
const PERMISSIONS_NEW: u32 = 0o644;

/// What Linux takes as the name of a file. Checked before the upload, not found out after it.
const NAME_BYTES_MAX: usize = 255;

/// Answers when the stream has ended and the file is durable. A stream that is given up leaves a
/// replaced file as it was, and of one that is written in place what had arrived.
pub async fn write_file(ask: WriteFile, inlet: Inlet) -> Result<Reply, Fault> {
    let writer = blocking(move || Writer::open(ask)).await?;
    receive(Box::new(writer), &inlet).await
}

struct Writer {
    /// What the client calls it.
    path: PathBuf,
    sink: Sink,
    attributes: Attributes,
    written: u64,
}

enum Sink {
    /// Put in the place of `target` when it is complete.
    Beside { staged: Staged, target: PathBuf, existing: Existing },
    /// Written where it is, `at` an offset or at its end.
    InPlace { file: File, at: Option<u64> },
}

impl Writer {
    fn open(ask: WriteFile) -> Result<Self, Fault> {
        let path = path::absolute(ask.path)?;
        check_permissions(ask.permissions)?;
        let wanted = Attributes { permissions: ask.permissions, uid: ask.uid, gid: ask.gid };
        if ask.parents
            && let Some(parent) = path.parent()
        {
            make_all(parent)?;
        }
        let (sink, attributes) = match ask.mode {
            WriteMode::Replace {} => beside(resolve(&path)?, Existing::Replace, wanted)?,
            WriteMode::Create {} => beside(path.clone(), Existing::Keep, wanted)?,
            WriteMode::At { offset } => in_place(&resolve(&path)?, Some(offset), wanted)?,
            WriteMode::Append {} => in_place(&resolve(&path)?, None, wanted)?,
        };
        Ok(Self { path, sink, attributes, written: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.sink {
            Sink::Beside { staged, .. } => staged.file().write_all(bytes),
            Sink::InPlace { file, at: None } => file.write_all(bytes),
            Sink::InPlace { file, at: Some(at) } => {
                let too_large = || io::Error::from_raw_os_error(Errno::EFBIG as i32);
                let end = at.checked_add(bytes.len() as u64).ok_or_else(too_large)?;
                i64::try_from(end).map_err(|_| too_large())?;
                file.write_all_at(bytes, *at)?;
                *at = end;
                Ok(())
            }
        }
    }
}

impl Consumer for Writer {
    fn consume(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.write(bytes).map_err(|error| {
            let what = format!("write after {} bytes to", self.written);
            refused_io(&what, self.path.as_path(), &error)
        })?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Reply, Fault> {
        let Self { path, sink, attributes, written } = *self;
        let done = match sink {
            Sink::Beside { staged, target, existing } => {
                let (_, name) = path::split_to("written", &target)?;
                staged.commit(name, attributes, existing)
            }
            Sink::InPlace { file, .. } => fstat(&file)
                .and_then(|status| attributes.apply(&file, &status))
                .and_then(|()| sync(&file)),
        };
        done.map_err(|errno| refused("complete", path.as_path(), errno))?;
        Ok(Reply::Written { bytes: written, entries: 1 })
    }
}

/// Begins a file that will be at `target`.
fn beside(
    target: PathBuf,
    existing: Existing,
    wanted: Attributes,
) -> Result<(Sink, Attributes), Fault> {
    let refuse = |errno| refused("write", target.as_path(), errno);
    let (parent, name) = path::split_to("written", &target)?;
    let kept = match info::status(AT_FDCWD, target.as_path(), false) {
        // Also said when the file is complete; by now nothing was sent for nothing.
        Ok(_) if existing == Existing::Keep => return Err(refuse(Errno::EEXIST)),
        Ok(status) => {
            info::check_regular(&target, &status)?;
            Attributes::of(&status)
        }
        Err(Errno::ENOENT) => new_file(),
        Err(errno) => return Err(refuse(errno)),
    };
    if name.as_bytes().len() > NAME_BYTES_MAX {
        return Err(refuse(Errno::ENAMETOOLONG));
    }
    let directory = info::open_directory(parent)?;
    let staged = Staged::begin(directory).map_err(refuse)?;
    Ok((Sink::Beside { staged, target, existing }, wanted.or(kept)))
}

/// Opens a file to be written where it is, and makes it if need be.
fn in_place(
    target: &Path,
    at: Option<u64>,
    wanted: Attributes,
) -> Result<(Sink, Attributes), Fault> {
    path::split_to("written", target)?;
    let position = if at.is_none() { OFlag::O_APPEND } else { OFlag::empty() };
    let flags = OFlag::O_WRONLY | position;
    let (file, attributes) = match info::open_regular(target, flags) {
        Ok((file, _)) => (file, wanted),
        Err(fault) if fault.code == FaultCode::NotFound => {
            let create = flags | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
            let file = nix::fcntl::open(target, create, mode(PERMISSIONS_NEW))
                .map_err(|errno| refused("make", target, errno))?;
            (file.into(), wanted.or(new_file()))
        }
        Err(fault) => return Err(fault),
    };
    Ok((Sink::InPlace { file, at }, attributes))
}

/// A new file belongs to the agent unless the request says otherwise.
fn new_file() -> Attributes {
    Attributes { permissions: Some(PERMISSIONS_NEW), ..Attributes::default() }
}

/// Where writing to `path` ends up: a symlink stays, and what it points to is written, also when
/// that is not there yet.
fn resolve(path: &Path) -> Result<PathBuf, Fault> {
    let mut target = path.to_path_buf();
    for _ in 0..SYMLINKS_MAX {
        match std::fs::read_link(&target) {
            Ok(next) => {
                let Some(parent) = target.parent() else { break };
                target = parent.join(next);
            }
            // It is there and no symlink, or not there: either is an end.
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EINVAL | Errno::ENOENT) => return Ok(target),
                _ => return Err(refused_io("write", path, &error)),
            },
        }
    }
    Err(unfit(FaultCode::Io, path, "leads through too many symlinks"))
}
