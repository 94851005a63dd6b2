//! A file on its way in.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::fstat;
use protocol::Fault;
use protocol::message::Reply;
use protocol::requests::{WriteFile, WriteMode};

use super::attributes::{Attributes, check_permissions, mode};
use super::directory::make_all;
use super::limits::SYMLINKS_MAX;
use super::refusal::{refused, refused_io};
use super::sparse::{finish_sparse, write_sparse};
use super::staged::{Existing, Staged, sync};
use super::work::{Consumer, receive};
use super::{info, path};
use crate::flow::Inlet;
use crate::lookup::{self, DIRECTORY, Refused, Unfit, Way};
use crate::task::blocking;

/// The permissions of a new file when the request names none.
const PERMISSIONS_NEW: u32 = 0o644;

/// The longest name of a file on Linux. Checked before the upload, not found out after it.
const NAME_BYTES_MAX: usize = 255;

/// Answers when the stream has ended and the file is durable. An aborted stream leaves a replaced
/// file as it was; a file that is written in place keeps what had arrived.
pub async fn write_file(ask: WriteFile, inlet: Inlet) -> Result<Reply, Fault> {
    let writer = blocking(move || Writer::open(ask)).await?;
    receive(Box::new(writer), &inlet).await
}

struct Writer {
    /// The client's name for it.
    path: PathBuf,
    sink: Sink,
    attributes: Attributes,
    written: u64,
}

enum Sink {
    /// Put in its place under `name` when it is complete.
    Beside { staged: Staged, name: OsString, existing: Existing },
    /// Written in place, `at` an offset or at its end.
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
        let target = match ask.mode {
            WriteMode::Create {} => Target::named(&path)?,
            _ => Target::followed(&path)?,
        };
        let (sink, attributes) = match ask.mode {
            WriteMode::Replace {} => target.beside(&path, Existing::Replace, wanted)?,
            WriteMode::Create {} => target.beside(&path, Existing::Keep, wanted)?,
            WriteMode::At { offset } => target.in_place(&path, Some(offset), wanted)?,
            WriteMode::Append {} => target.in_place(&path, None, wanted)?,
        };
        Ok(Self { path, sink, attributes, written: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.sink {
            Sink::Beside { staged, .. } => write_sparse(staged.file(), bytes),
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
            Sink::Beside { mut staged, name, existing } => finish_sparse(staged.file())
                .and_then(|()| staged.commit(&name, attributes, existing)),
            Sink::InPlace { file, .. } => fstat(&file)
                .and_then(|status| attributes.apply(&file, &status))
                .and_then(|()| sync(&file)),
        };
        done.map_err(|errno| refused("complete", path.as_path(), errno))?;
        Ok(Reply::Written { bytes: written, entries: 1 })
    }
}

/// Where a file is written: a name in a directory that `lookup` has opened. The name itself is
/// never followed through a symlink again.
struct Target {
    directory: OwnedFd,
    name: OsString,
}

impl Target {
    /// The target of a path.
    fn named(path: &Path) -> Result<Self, Fault> {
        let (directory, name) = path::place("written", path)?;
        Ok(Self { directory, name: name.to_owned() })
    }

    /// The final target of a write to `path`: a symlink stays, and its target is written, even if that does
    /// not exist yet. The kernel finds the directory of each symlink; the last name is read here, because a
    /// file that is replaced or made needs its directory and name.
    fn followed(path: &Path) -> Result<Self, Fault> {
        let refuse = |why| refused("write", path, why);
        let mut target = Self::named(path)?;
        for _ in 0..SYMLINKS_MAX {
            let link = match readlinkat(&target.directory, target.name.as_os_str()) {
                Ok(link) => PathBuf::from(link),
                // It is there and no symlink, or not there: either is an end.
                Err(Errno::EINVAL | Errno::ENOENT) => return Ok(target),
                Err(errno) => return Err(refuse(errno.into())),
            };
            let (parent, name) = path::split_to("written", &link)?;
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            target.directory = lookup::open_at(&target.directory, parent, DIRECTORY, Way::Follow)
                .map_err(refuse)?;
            name.clone_into(&mut target.name);
        }
        Err(refuse(Errno::ELOOP.into()))
    }

    /// Begins a file that will be there.
    fn beside(
        self,
        path: &Path,
        existing: Existing,
        wanted: Attributes,
    ) -> Result<(Sink, Attributes), Fault> {
        let refuse = |errno| refused("write", path, errno);
        let Self { directory, name } = self;
        let owner = match info::status(&directory, name.as_os_str(), false) {
            // Checked again when the file is complete; checking now avoids a useless upload.
            Ok(_) if existing == Existing::Keep => return Err(refuse(Errno::EEXIST)),
            Ok(status) => {
                info::check_regular(path, &status)?;
                Attributes::of(&status)
            }
            Err(Errno::ENOENT) => new_file(),
            Err(errno) => return Err(refuse(errno)),
        };
        if name.as_bytes().len() > NAME_BYTES_MAX {
            return Err(refuse(Errno::ENAMETOOLONG));
        }
        let staged = Staged::begin(directory).map_err(refuse)?;
        Ok((Sink::Beside { staged, name, existing }, wanted.or(owner)))
    }

    /// Opens a file to write it in place, and creates it if needed.
    fn in_place(
        self,
        path: &Path,
        at: Option<u64>,
        wanted: Attributes,
    ) -> Result<(Sink, Attributes), Fault> {
        let position = if at.is_none() { OFlag::O_APPEND } else { OFlag::empty() };
        let flags = OFlag::O_WRONLY | position;
        let Self { directory, name } = self;
        let name = name.as_os_str();
        let (file, attributes) = match lookup::open_regular(&directory, name, flags, Way::Beneath) {
            Ok((file, _)) => (file, wanted),
            Err(Unfit::Refused(Refused::Errno(Errno::ENOENT))) => {
                let create = flags | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
                let file = openat(&directory, name, create, mode(PERMISSIONS_NEW))
                    .map_err(|errno| refused("make", path, errno))?;
                (file.into(), wanted.or(new_file()))
            }
            Err(why) => return Err(info::refused_regular("write", path, why)),
        };
        Ok((Sink::InPlace { file, at }, attributes))
    }
}

/// A new file belongs to the agent unless the request says otherwise.
fn new_file() -> Attributes {
    Attributes { permissions: Some(PERMISSIONS_NEW), ..Attributes::default() }
}
