//! Making directories.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use protocol::Fault;
use protocol::message::Reply;
use protocol::requests::MakeDirectory;

use super::attributes::{check_permissions, mode};
use super::path;
use super::refusal::{refused, refused_io};
use crate::task::blocking;

/// The permissions of a directory when the request names none, and of every missing parent.
pub const PERMISSIONS_NEW: u32 = 0o755;

/// Makes a directory; with `parents` also those that it lies in, and one that is there will do.
pub async fn make_directory(ask: MakeDirectory) -> Result<Reply, Fault> {
    blocking(move || {
        let path = path::absolute(ask.path)?;
        check_permissions(ask.permissions)?;
        if ask.parents {
            if path.is_dir() {
                return Ok(Reply::Done {});
            }
            if let Some(parent) = path.parent() {
                make_all(parent)?;
            }
        }
        match make(&path, ask.permissions.unwrap_or(PERMISSIONS_NEW)) {
            // Somebody else was faster.
            Err(Errno::EEXIST) if ask.parents && path.is_dir() => {}
            Err(errno) => return Err(refused("make directory", path.as_path(), errno)),
            Ok(()) => {}
        }
        Ok(Reply::Done {})
    })
    .await
}

/// Makes what is missing of `path`.
pub fn make_all(path: &Path) -> Result<(), Fault> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(PERMISSIONS_NEW)
        .create(path)
        .map_err(|error| refused_io("make directory", path, &error))
}

/// Makes one directory with just these permissions, whatever mask the agent was started with.
fn make(path: &Path, permissions: u32) -> nix::Result<()> {
    mkdirat(AT_FDCWD, path, mode(permissions))?;
    let made = std::fs::symlink_metadata(path).map(|made| made.permissions().mode());
    if made.is_ok_and(|made| mode(made) == mode(permissions)) {
        return Ok(());
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    fchmod(open(path, flags, Mode::empty())?, mode(permissions))
}
