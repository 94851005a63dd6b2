//! Removing a file, or a directory with all that is in it.
//!
//! A tree is walked by descriptors: each directory is opened from its parent, through no symlink
//! and into no other mount, so that concurrent changes cannot lead the walk elsewhere.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use protocol::message::Reply;
use protocol::requests::Remove;
use protocol::{Fault, FaultCode};

use super::limits::{REMOVE_PASSES_MAX, TREE_DEPTH_MAX};
use super::names::{Hint, Names};
use super::path;
use super::refusal::{refused, refused_unlinked, unfit};
use crate::lookup::{self, DIRECTORY_TO_READ, Refused, Way};
use crate::task::blocking;

/// Removes what is at a path. A symlink is removed, never its target.
pub async fn remove(ask: Remove) -> Result<Reply, Fault> {
    blocking(move || {
        let path = path::absolute(ask.path)?;
        let (parent, name) = path::place("removed", &path)?;
        if ask.recursive {
            remove_tree(&parent, name.as_bytes(), &path)?;
        } else {
            remove_one(&parent, name.as_bytes(), &path)?;
        }
        Ok(Reply::Done {})
    })
    .await
}

fn remove_one(parent: &OwnedFd, name: &[u8], path: &Path) -> Result<(), Fault> {
    let removed = match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => unlinkat(parent, name, UnlinkatFlags::RemoveDir),
        other => other,
    };
    removed.map_err(|errno| refused("remove", path, errno))
}

/// A directory that is being emptied.
struct Level {
    directory: OwnedFd,
    /// In the directory above.
    name: Vec<u8>,
    names: Names,
    /// Whether anything was removed in this pass; if not, another one would not help.
    progress: bool,
    passes: usize,
}

pub(super) fn remove_tree(parent: &OwnedFd, name: &[u8], path: &Path) -> Result<(), Fault> {
    let mut levels: Vec<Level> = Vec::new();
    if let Some(level) = remove_or_enter(parent.as_fd(), name, Hint::Unknown)
        .map_err(|errno| refused_here(path, errno))?
    {
        levels.push(level);
    }
    while let Some(level) = levels.last_mut() {
        let next = level.names.next(&level.directory);
        let next = next.map_err(|errno| refused_here(&path_of(path, &levels, b""), errno))?;
        let Some(entry) = next else {
            leave(parent.as_fd(), path, &mut levels)?;
            continue;
        };
        let level = levels.last_mut().expect("only leaving a level takes it away");
        match remove_or_enter(level.directory.as_fd(), &entry.bytes, entry.hint) {
            Ok(None) => level.progress = true,
            Ok(Some(_)) if levels.len() == TREE_DEPTH_MAX => {
                let why = format!("lies deeper than {TREE_DEPTH_MAX} directories; remove it first");
                let path = path_of(path, &levels, &entry.bytes);
                return Err(unfit(FaultCode::Limit, path.as_path(), &why));
            }
            Ok(Some(inner)) => levels.push(inner),
            Err(Refused::Errno(Errno::ENOENT)) => {}
            Err(why) => return Err(refused_here(&path_of(path, &levels, &entry.bytes), why)),
        }
    }
    Ok(())
}

/// Removes an entry, or opens it when it is a directory.
fn remove_or_enter(
    directory: BorrowedFd<'_>,
    name: &[u8],
    hint: Hint,
) -> Result<Option<Level>, Refused> {
    if hint != Hint::Directory {
        match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
            Err(Errno::EISDIR) => {}
            other => return Ok(other.map(|()| None)?),
        }
    }
    match lookup::open_at(directory, name, DIRECTORY_TO_READ, Way::BeneathOnMount) {
        Ok(directory) => Ok(Some(Level {
            directory,
            name: name.to_vec(),
            names: Names::default(),
            progress: false,
            passes: 1,
        })),
        // It is no longer a directory.
        Err(Refused::Errno(Errno::ELOOP | Errno::ENOTDIR)) => {
            Ok(unlinkat(directory, name, UnlinkatFlags::NoRemoveDir).map(|()| None)?)
        }
        Err(why) => Err(why),
    }
}

/// Removes the innermost directory, whose end was read. Entries may have been skipped, because the
/// directory changed while it was read, or added: then it is read again.
fn leave(parent: BorrowedFd<'_>, path: &Path, levels: &mut Vec<Level>) -> Result<(), Fault> {
    let Some(mut level) = levels.pop() else { return Ok(()) };
    let above = levels.last().map_or(parent, |level| level.directory.as_fd());
    let removed = unlinkat(above, level.name.as_slice(), UnlinkatFlags::RemoveDir);
    let again = matches!(removed, Err(Errno::ENOTEMPTY | Errno::EEXIST))
        && level.progress
        && level.passes < REMOVE_PASSES_MAX;
    let outcome = match removed {
        _ if again => level.names.rewind(&level.directory),
        Err(Errno::ENOENT) => Ok(()),
        other => other,
    };
    outcome.map_err(|errno| refused_here(&path_of(path, levels, &level.name), errno))?;
    if again {
        level.progress = false;
        level.passes += 1;
        levels.push(level);
    } else if let Some(above) = levels.last_mut() {
        above.progress = true;
    }
    Ok(())
}

/// The path of `name` in the innermost level; of that level itself if the name is empty.
fn path_of(root: &Path, levels: &[Level], name: &[u8]) -> PathBuf {
    let mut path = root.to_path_buf();
    // The first level is the root itself.
    let inner = levels.iter().skip(1).map(|level| level.name.as_slice());
    // A failure to leave the root names the root.
    let name = if levels.is_empty() { b"" } else { name };
    for part in inner.chain([name]).filter(|part| !part.is_empty()) {
        path.push(std::ffi::OsStr::from_bytes(part));
    }
    path
}

fn refused_here(path: &Path, why: impl Into<Refused>) -> Fault {
    match why.into() {
        Refused::Errno(errno @ (Errno::EXDEV | Errno::EBUSY)) => {
            let why = "is a mount point, and a removal never crosses into another mount";
            let fault = unfit(FaultCode::Denied, path, why);
            Fault { errno: Some(errno as i32), ..fault }
        }
        other => refused_unlinked("remove", path, other),
    }
}
