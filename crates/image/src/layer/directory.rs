//! Files below an open directory: no name leads out of it, whatever it contains.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Every path of an image is resolved like this: below its root, and through no link of any kind.
pub const NOWHERE_ELSE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The permissions that emptying a directory needs.
const DIRECTORY_MODE_NEEDED: u32 = 0o700;

/// Opens a directory of the store by its path.
pub fn hold(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// Opens a directory below one that is held; an empty path is that itself.
pub fn open_at(root: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(root, OsStr::from_bytes(path), flags, Mode::empty(), NOWHERE_ELSE)
}

/// Removes whatever has this name in a directory, if anything does. Links are removed and never
/// followed.
pub fn remove_tree(parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let path = Path::new("/proc/self/fd")
        .join(parent.as_raw_fd().to_string())
        .join(OsStr::from_bytes(name));
    let removed = match fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => match fs::remove_dir_all(&path) {
            // The modes of an image's directories only restrict ordinary users.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                widen(&path)?;
                fs::remove_dir_all(&path)
            }
            removed => removed,
        },
        Ok(_) => fs::remove_file(&path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Gives every directory of a tree a mode in which it can be emptied.
fn widen(root: &Path) -> io::Result<()> {
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        let mode = fs::symlink_metadata(&directory)?.permissions().mode();
        let wide = fs::Permissions::from_mode(mode | DIRECTORY_MODE_NEEDED);
        fs::set_permissions(&directory, wide)?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    Ok(())
}
