//! Metadata of files.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::NixPath;
use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};
use protocol::message::{FileInfo, FileKind, Reply};
use protocol::{Fault, FaultCode, Text};

use super::limits::PERMISSIONS_MAX;
use super::path;
use super::refusal::{refused, unfit};
use crate::lookup::{self, ABSOLUTE, DIRECTORY_TO_READ, Refused, Unfit, Way, kind_bits};
use crate::task::blocking;

/// Answers with the metadata of a path; with `follow`, of a symlink's target.
pub async fn stat(path: Text, follow: bool) -> Result<Reply, Fault> {
    blocking(move || {
        let path = path::absolute(path)?;
        let refuse = |why| refused("look at", path.as_path(), why);
        let way = if follow { Way::Follow } else { Way::KeepLast };
        let found = match lookup::open_public(&path, OFlag::O_PATH) {
            Some(found) => found.map_err(Refused::from),
            None => lookup::open(path.as_path(), OFlag::O_PATH, way),
        }
        .map_err(refuse)?;
        let status = fstat(&found).map_err(|errno| refuse(errno.into()))?;
        Ok(Reply::Stat(describe(&found, b"".as_slice(), path::name(&path).to_vec(), &status)))
    })
    .await
}

/// `fstatat`, with the one choice that matters here.
pub fn status<P: NixPath + ?Sized>(
    directory: impl AsFd,
    path: &P,
    follow: bool,
) -> nix::Result<FileStat> {
    let flags = if follow { AtFlags::empty() } else { AtFlags::AT_SYMLINK_NOFOLLOW };
    fstatat(directory, path, flags)
}

/// The answer for a file with `status` at `path` in `directory`.
pub fn describe<P: NixPath + ?Sized>(
    directory: impl AsFd,
    path: &P,
    name: Vec<u8>,
    status: &FileStat,
) -> FileInfo {
    let kind = kind(status);
    // Gone or replaced since: then it has no target.
    let target = (kind == FileKind::Symlink)
        .then(|| readlinkat(directory, path).ok())
        .flatten()
        .map(|target| Text::from(target.into_vec()));
    FileInfo {
        name: name.into(),
        kind,
        bytes: status.st_size.max(0) as u64,
        permissions: status.st_mode & PERMISSIONS_MAX,
        uid: status.st_uid,
        gid: status.st_gid,
        modified_ms: status
            .st_mtime
            .saturating_mul(1000)
            .saturating_add(status.st_mtime_nsec / 1_000_000),
        target,
    }
}

pub fn kind(status: &FileStat) -> FileKind {
    kind_of(kind_bits(status))
}

fn kind_of(bits: SFlag) -> FileKind {
    match bits {
        SFlag::S_IFDIR => FileKind::Directory,
        SFlag::S_IFLNK => FileKind::Symlink,
        SFlag::S_IFIFO => FileKind::Fifo,
        SFlag::S_IFSOCK => FileKind::Socket,
        SFlag::S_IFBLK => FileKind::BlockDevice,
        SFlag::S_IFCHR => FileKind::CharDevice,
        _ => FileKind::File,
    }
}

/// Refuses all but regular files: opening a device can have effects, and reading a FIFO can block
/// forever.
pub fn check_regular(path: &Path, status: &FileStat) -> Result<(), Fault> {
    match kind(status) {
        FileKind::File => Ok(()),
        other => Err(unfit_kind(path, other)),
    }
}

fn unfit_kind(path: &Path, kind: FileKind) -> Fault {
    let what = match kind {
        FileKind::Directory => "is a directory",
        FileKind::Symlink => "is a symlink",
        FileKind::Fifo => "is a FIFO, not a regular file",
        FileKind::Socket => "is a socket, not a regular file",
        FileKind::BlockDevice | FileKind::CharDevice => "is a device, not a regular file",
        FileKind::File => "was another kind of file",
    };
    unfit(FaultCode::Invalid, path, what)
}

/// Opens a regular file of the sandbox to read it.
pub fn open_regular(path: &Path) -> Result<(File, FileStat), Fault> {
    if let Some(file) = lookup::open_public(path, OFlag::O_RDONLY) {
        let opened = file.and_then(|file| fstat(&file).map(|status| (file, status)));
        let (file, status) = opened.map_err(|errno| refused("open", path, errno))?;
        check_regular(path, &status)?;
        return Ok((file.into(), status));
    }
    lookup::open_regular(ABSOLUTE, path, OFlag::O_RDONLY, Way::Follow)
        .map_err(|why| refused_regular("open", path, why))
}

/// Why a regular file could not be opened, for a client.
pub fn refused_regular(what: &str, path: &Path, why: Unfit) -> Fault {
    match why {
        Unfit::Refused(why) => refused(what, path, why),
        Unfit::Kind(bits) => unfit_kind(path, kind_of(bits)),
    }
}

/// Opens a directory to look things up in, following symlinks.
pub fn open_directory(path: &Path) -> Result<OwnedFd, Fault> {
    lookup::open(path, DIRECTORY_TO_READ, Way::Follow).map_err(|why| refused("open", path, why))
}
