//! What a file is.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::NixPath;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use protocol::message::{FileInfo, FileKind, Reply};
use protocol::{Fault, FaultCode, Text};

use super::limits::PERMISSIONS_MAX;
use super::path;
use super::refusal::{refused, unfit};
use crate::task::blocking;

/// Answers what is at a path; with `follow`, what a symlink there points to.
pub async fn stat(path: Text, follow: bool) -> Result<Reply, Fault> {
    blocking(move || {
        let path = path::absolute(path)?;
        let status = status(AT_FDCWD, path.as_path(), follow)
            .map_err(|errno| refused("look at", path.as_path(), errno))?;
        Ok(Reply::Stat(describe(AT_FDCWD, path.as_path(), path::name(&path).to_vec(), &status)))
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

/// The answer for what has `status` at `path` in `directory`.
pub fn describe<P: NixPath + ?Sized>(
    directory: impl AsFd,
    path: &P,
    name: Vec<u8>,
    status: &FileStat,
) -> FileInfo {
    let kind = kind(status);
    // Gone since, or replaced: then it has no target that could be told.
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
    match SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFDIR => FileKind::Directory,
        SFlag::S_IFLNK => FileKind::Symlink,
        SFlag::S_IFIFO => FileKind::Fifo,
        SFlag::S_IFSOCK => FileKind::Socket,
        SFlag::S_IFBLK => FileKind::BlockDevice,
        SFlag::S_IFCHR => FileKind::CharDevice,
        _ => FileKind::File,
    }
}

/// Refuses all but regular files: to open a device can do things, and to read a FIFO can take for
/// ever.
pub fn check_regular(path: &Path, status: &FileStat) -> Result<(), Fault> {
    let what = match kind(status) {
        FileKind::File => return Ok(()),
        FileKind::Directory => "is a directory",
        FileKind::Symlink => "is a symlink",
        FileKind::Fifo => "is a FIFO, not a regular file",
        FileKind::Socket => "is a socket, not a regular file",
        FileKind::BlockDevice | FileKind::CharDevice => "is a device, not a regular file",
    };
    Err(unfit(FaultCode::Invalid, path, what))
}

/// Opens a regular file. It is looked at before, because opening a device is not harmless, and
/// after, because it may have been exchanged between; the flags keep either from blocking.
pub fn open_regular(path: &Path, flags: OFlag) -> Result<(File, FileStat), Fault> {
    let refuse = |errno| refused("open", path, errno);
    check_regular(path, &status(AT_FDCWD, path, true).map_err(refuse)?)?;
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = open(path, flags, Mode::empty()).map_err(refuse)?;
    let status = fstat(&file).map_err(refuse)?;
    check_regular(path, &status)?;
    Ok((file.into(), status))
}

/// Opens a directory to look things up in, following symlinks.
pub fn open_directory(path: &Path) -> Result<OwnedFd, Fault> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|errno| refused("open", path, errno))
}
