//! One directory of the control group hierarchy, and the small files in it.
//!
//! `cgroup` and `boot` work through it. It has no policy: they decide which groups exist.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, unlinkat};

/// The longest file of a group that is read whole; `cgroup.procs` of a fork bomb is the longest.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Groups within groups that are looked for. Ours are two deep.
const DEPTH_MAX: usize = 8;

/// How often, and how far apart, a removal is tried: the kernel releases the last process shortly
/// after it has been collected.
const REMOVALS_MAX: usize = 40;
const REMOVAL_PAUSE: Duration = Duration::from_millis(5);

const FLAGS: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_RDONLY).union(OFlag::O_CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl From<OwnedFd> for Directory {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Directory {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, FLAGS, Mode::empty())?))
    }

    pub fn open_below(&self, name: &str) -> io::Result<Self> {
        Ok(Self(openat(&self.0, name, FLAGS, Mode::empty())?))
    }

    /// Makes a group below this one; fails if there is one of the name.
    pub fn make(&self, name: &str) -> io::Result<()> {
        mkdirat(&self.0, name, Mode::from_bits_truncate(0o755)).map_err(io::Error::from)
    }

    /// Gives this group to a user, who may then make groups below it and move processes between
    /// them, and may not change its limits.
    pub fn delegate(&self, owner: u32) -> io::Result<()> {
        let (user, group) = (Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)));
        for name in [".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
            fchownat(&self.0, name, user, group, AtFlags::empty())?;
        }
        Ok(())
    }

    pub fn has(&self, name: &str) -> bool {
        fstatat(&self.0, name, AtFlags::empty()).is_ok()
    }

    pub fn read(&self, name: &str) -> io::Result<String> {
        let mut text = String::new();
        self.open_to_read(name)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Opens a file to read it again and again.
    pub fn open_to_read(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, Mode::empty())?))
    }

    pub fn write(&self, name: &str, value: &str) -> io::Result<()> {
        self.open_to_write(name)?.write_all(value.as_bytes())
    }

    /// Opens a file for a later write: the kernel checks the opener's rights.
    pub fn open_to_write(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, Mode::empty())?))
    }

    /// Removes an empty group below this one. One that is gone is removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.0, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Ends every process of a group below this one, and removes it with all groups below it.
    /// Blocks the thread for up to a fifth of a second.
    pub fn kill_and_remove(&self, name: &str) -> io::Result<()> {
        let mut result = Ok(());
        for _ in 0..REMOVALS_MAX {
            if let Ok(group) = self.open_below(name) {
                // A kernel before 5.14 cannot do this; then living processes keep the group in
                // place.
                group.write("cgroup.kill", "1").ok();
            }
            result = self.remove_tree(name);
            if result.is_ok() {
                break;
            }
            std::thread::sleep(REMOVAL_PAUSE);
        }
        result
    }

    /// Removes a group below this one with all groups below it, unless a process lives in one.
    pub fn remove_tree(&self, name: &str) -> io::Result<()> {
        if let Ok(group) = self.open_below(name) {
            group.remove_children(DEPTH_MAX);
        }
        self.remove(name)
    }

    /// Removes what can be removed; failures show when the parent is removed.
    fn remove_children(&self, depth: usize) {
        for name in self.children().unwrap_or_default() {
            if depth > 1
                && let Ok(child) = self.open_below(&name)
            {
                child.remove_children(depth - 1);
            }
            self.remove(&name).ok();
        }
    }

    /// The names of the groups right below this one.
    pub fn children(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::openat(&self.0, ".", FLAGS, Mode::empty())?.iter() {
            let entry = entry?;
            if let (Some(Type::Directory), Ok(name)) =
                (entry.file_type(), entry.file_name().to_str())
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}
