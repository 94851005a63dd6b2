//! Making directories.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::sys::stat::{fchmod, fstat, mkdirat};
use protocol::Fault;
use protocol::message::Reply;
use protocol::requests::MakeDirectory;

use super::attributes::{check_permissions, mode};
use super::path;
use super::refusal::refused;
use crate::lookup::{self, DIRECTORY, DIRECTORY_TO_READ, Refused, Way};
use crate::task::blocking;

/// The permissions of a directory when the request names none, and of every missing parent.
pub const PERMISSIONS_NEW: u32 = 0o755;

/// Makes a directory; with `parents` also those that it lies in, and one that is there will do.
pub async fn make_directory(ask: MakeDirectory) -> Result<Reply, Fault> {
    blocking(move || {
        let path = path::absolute(ask.path)?;
        check_permissions(ask.permissions)?;
        if ask.parents {
            if lookup::open(path.as_path(), DIRECTORY, Way::Follow).is_ok() {
                return Ok(Reply::Done {});
            }
            if let Some(parent) = path.parent() {
                make_all(parent)?;
            }
        }
        let (directory, name) = path::place("made", &path)?;
        match make(&directory, name, ask.permissions.unwrap_or(PERMISSIONS_NEW)) {
            // Somebody else was faster.
            Err(Refused::Errno(Errno::EEXIST))
                if ask.parents
                    && lookup::open_at(&directory, name, DIRECTORY, Way::Follow).is_ok() => {}
            Err(why) => return Err(refused("make directory", path.as_path(), why)),
            Ok(()) => {}
        }
        Ok(Reply::Done {})
    })
    .await
}

/// Creates the missing parts of `path`, and opens it. Each directory is made in the one that was made or
/// found before, so that no link that appears meanwhile is followed.
pub fn make_all(path: &Path) -> Result<OwnedFd, Fault> {
    let refuse = |why| refused("make directory", path, why);
    let (mut directory, there) = deepest(path).map_err(refuse)?;
    let missing = path.strip_prefix(there).unwrap_or(Path::new(""));
    for name in missing.components().map(Component::as_os_str) {
        // The kernel says that a `..` exists.
        match mkdirat(&directory, name, mode(PERMISSIONS_NEW)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(refuse(errno.into())),
        }
        directory = lookup::open_at(&directory, name, DIRECTORY, Way::Follow).map_err(refuse)?;
    }
    Ok(directory)
}

/// The deepest directory of a path that is there.
fn deepest(path: &Path) -> Result<(OwnedFd, &Path), Refused> {
    for above in path.ancestors() {
        match lookup::open(above, DIRECTORY, Way::Follow) {
            Ok(directory) => return Ok((directory, above)),
            Err(Refused::Errno(Errno::ENOENT)) => {}
            Err(why) => return Err(why),
        }
    }
    Err(Errno::ENOENT.into())
}

/// Creates one directory with exactly these permissions, whatever the agent's umask is.
fn make(directory: &OwnedFd, name: &OsStr, permissions: u32) -> Result<(), Refused> {
    mkdirat(directory, name, mode(permissions))?;
    let made = lookup::open_at(directory, name, DIRECTORY_TO_READ, Way::Beneath);
    if let Ok(made) = &made
        && mode(fstat(made)?.st_mode) == mode(permissions)
    {
        return Ok(());
    }
    Ok(fchmod(made?, mode(permissions))?)
}
