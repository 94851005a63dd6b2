//! Opening what lies beneath a directory and nothing else.
//!
//! `unpack` and `remove` follow paths that others chose, while others still may exchange a
//! directory for a symlink. The kernel's `openat2` resolves such a path in one step that cannot
//! be led outside, whatever they do.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use protocol::{Fault, FaultCode};

use super::refusal::{Named, refused, unfit};

/// Opens `path` beneath `root`, going through no symlink at all.
pub fn open<P: NixPath + ?Sized>(root: impl AsFd, path: &P, flags: OFlag) -> nix::Result<OwnedFd> {
    resolve(root, path, flags, ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS)
}

/// The same, and `EXDEV` instead of crossing into another mount.
pub fn open_on_mount<P: NixPath + ?Sized>(
    root: impl AsFd,
    path: &P,
    flags: OFlag,
) -> nix::Result<OwnedFd> {
    let within = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    resolve(root, path, flags, within | ResolveFlag::RESOLVE_NO_XDEV)
}

/// Opens an absolute path, going through no symlink on the way.
pub fn open_unlinked(path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    resolve(AT_FDCWD, path, flags, ResolveFlag::RESOLVE_NO_SYMLINKS)
}

/// Why one of these could not be opened, for a client.
pub fn refused_beneath<N: Named + ?Sized>(what: &str, path: &N, errno: Errno) -> Fault {
    match errno {
        Errno::ELOOP => {
            let why = format!("leads through a symlink, where none is followed to {what} it");
            unfit(FaultCode::Denied, path, &why)
        }
        Errno::EXDEV => unfit(FaultCode::Denied, path, "lies on another mount"),
        Errno::ENOSYS => {
            let why = "cannot be opened safely: that takes a kernel of 5.6 or later";
            unfit(FaultCode::Unsupported, path, why)
        }
        other => refused(what, path, other),
    }
}

fn resolve<P: NixPath + ?Sized>(
    root: impl AsFd,
    path: &P,
    flags: OFlag,
    how: ResolveFlag,
) -> nix::Result<OwnedFd> {
    openat2(root, path, OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(how))
}
