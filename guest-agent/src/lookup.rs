//! The one rule for every path that the agent opens for somebody else.
//!
//! `file`, `process`, `repl` and `session` open paths from clients, images and programs through
//! this module; a test of the tree checks that nothing else opens a path.
//! [`sys::lookup`](crate::sys::lookup) says what the rule forbids, and why. Its forms are here. All
//! of them return the descriptor that was checked: a path is never used twice, since its target may
//! be exchanged in between.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, ResolveFlag};
use nix::sys::stat::{FileStat, SFlag, fstat};

use crate::sys::lookup as rule;
pub use crate::sys::lookup::Refused;

#[cfg(test)]
mod tests;

/// What a lookup may go through, besides directories. Never a magic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All symlinks.
    Follow,
    /// All but the last component, which is opened even if it is a symlink.
    KeepLast,
    /// No symlink.
    Unlinked,
    /// No symlink, and nothing that is not beneath the directory.
    Beneath,
    /// The same, within one mount: `EXDEV` otherwise.
    BeneathOnMount,
}

impl Way {
    fn resolution(self) -> ResolveFlag {
        const BENEATH: ResolveFlag =
            ResolveFlag::RESOLVE_BENEATH.union(ResolveFlag::RESOLVE_NO_SYMLINKS);
        match self {
            Self::Follow | Self::KeepLast => ResolveFlag::empty(),
            Self::Unlinked => ResolveFlag::RESOLVE_NO_SYMLINKS,
            Self::Beneath => BENEATH,
            Self::BeneathOnMount => BENEATH.union(ResolveFlag::RESOLVE_NO_XDEV),
        }
    }
}

/// Enough to look at a directory's entries by name, and to change them.
pub const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);
/// Enough to read its names, too.
pub const DIRECTORY_TO_READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);

/// The directory of absolute paths, which begin at none.
pub const ABSOLUTE: BorrowedFd<'static> = AT_FDCWD;

/// Opens an absolute path.
pub fn open<P: NixPath + ?Sized>(path: &P, flags: OFlag, way: Way) -> Result<OwnedFd, Refused> {
    open_at(ABSOLUTE, path, flags, way)
}

/// Opens a path that begins at a directory which was itself opened by the rule.
pub fn open_at<P: NixPath + ?Sized>(
    directory: impl AsFd,
    path: &P,
    flags: OFlag,
    way: Way,
) -> Result<OwnedFd, Refused> {
    let last = if way == Way::KeepLast { OFlag::O_NOFOLLOW } else { OFlag::empty() };
    rule::open(directory, path, flags | last, way.resolution())
}

/// Why a file of one kind was not opened.
#[derive(Clone, Copy, Debug)]
pub enum Unfit {
    Refused(Refused),
    /// It is something else.
    Kind(SFlag),
}

impl<E: Into<Refused>> From<E> for Unfit {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

impl From<Unfit> for io::Error {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Refused(Refused::Errno(errno)) => errno.into(),
            Unfit::Refused(refused) => Self::new(io::ErrorKind::PermissionDenied, refused),
            Unfit::Kind(_) => Self::new(io::ErrorKind::InvalidInput, "it is another kind of file"),
        }
    }
}

/// Opens only a regular file: opening a device can have effects, and reading a FIFO can block
/// forever.
pub fn open_regular<P: NixPath + ?Sized>(
    directory: impl AsFd,
    path: &P,
    flags: OFlag,
    way: Way,
) -> Result<(File, FileStat), Unfit> {
    open_kind(directory.as_fd(), path, flags, way, SFlag::S_IFREG)
}

/// Opens only a FIFO, without waiting for its other end.
pub fn open_fifo<P: NixPath + ?Sized>(directory: impl AsFd, path: &P) -> Result<File, Unfit> {
    let way = Way::Beneath;
    open_kind(directory.as_fd(), path, OFlag::O_RDONLY, way, SFlag::S_IFIFO).map(|(file, _)| file)
}

fn open_kind<P: NixPath + ?Sized>(
    directory: BorrowedFd<'_>,
    path: &P,
    flags: OFlag,
    way: Way,
    kind: SFlag,
) -> Result<(File, FileStat), Unfit> {
    let found = open_at(directory, path, OFlag::O_PATH, way)?;
    status_of_kind(&found, kind)?;
    // The kind is known; these flags are a second protection against blocking and side effects.
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = match rule::reopen(&found, flags) {
        Some(file) => file?,
        // Without a procfs there are no magic links, and only the kind can have changed.
        None => open_at(directory, path, flags, way)?,
    };
    let status = status_of_kind(&file, kind)?;
    Ok((file.into(), status))
}

fn status_of_kind(file: &OwnedFd, kind: SFlag) -> Result<FileStat, Unfit> {
    let status = fstat(file)?;
    let found = kind_bits(&status);
    if found == kind { Ok(status) } else { Err(Unfit::Kind(found)) }
}

/// Opens the files of procfs that every program may read and the bridge needs: the listening ports
/// (`/proc/net/tcp`, `/proc/net/tcp6`), and whether a process exists (`/proc/NUMBER`). `None` for every other
/// path. It is the agent's own procfs, whatever is mounted there by now.
pub fn open_public(path: &Path, flags: OFlag) -> Option<nix::Result<OwnedFd>> {
    let name = path.to_str()?.strip_prefix("/proc/")?;
    let is_process = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let is_public = matches!(name, "net/tcp" | "net/tcp6") || is_process;
    is_public.then(|| rule::open_in_proc(name, flags))
}

/// A path to an open descriptor, for calls that only take paths: its name among the agent's open
/// files. Without a procfs there are no magic links, and `otherwise` is safe.
pub fn name_of(found: impl AsFd, otherwise: &Path) -> PathBuf {
    match rule::proc() {
        Some(_) => format!("/proc/self/fd/{}", found.as_fd().as_raw_fd()).into(),
        None => otherwise.to_owned(),
    }
}

/// Reads a text of the sandbox's system that the agent itself needs, of so many bytes at the most.
pub fn read_regular(path: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let (file, _) = open_regular(ABSOLUTE, path, OFlag::O_RDONLY, Way::Follow)?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(Errno::EFBIG.into()) } else { Ok(bytes) }
}

/// Whether the rule lets anything be found there.
pub fn exists<P: NixPath + ?Sized>(path: &P) -> bool {
    open(path, OFlag::O_PATH, Way::Follow).is_ok()
}

/// Whether a file is regular, a directory, a device and so on.
pub fn kind_bits(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits())
}
