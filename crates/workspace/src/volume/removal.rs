//! Removes trees that hostile programs have made: as deep and as wide as they like, and growing meanwhile.
//!
//! Nothing here descends. A directory in a directory is moved up beside it first, so that a tree of any depth takes
//! the same stack and the same descriptors.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::limits::{REMOVAL_MAX, ROUNDS_MAX};
use crate::tree::{name_of, open_beneath};
use host::id::RandomId;

/// What directories that are being removed are called in their top; the name tells files of a workspace in the
/// making from others too.
const PREFIX: &str = ".burrow-gone-";
const SUFFIX: &str = ".part";

/// Removes a directory of the bridge's own with all that is in it.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::open(path, flags, Mode::empty())?;
    let mut removal = Removal::new(&top);
    for name in names(&top)? {
        removal.remove(&top, &name)?;
    }
    drop(top);
    std::fs::remove_dir(path)
}

/// Removes what has a name in a directory somewhere below `top`.
pub fn remove(top: &OwnedFd, parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
    Ok(Removal::new(top).remove(parent, name)?)
}

/// Removes what an earlier removal in this directory has left.
pub fn sweep(top: &OwnedFd) {
    for name in names(top).unwrap_or_default() {
        let is_own = name.starts_with(format!("{PREFIX}{}-", *RUN).as_bytes());
        if !is_own && name.starts_with(PREFIX.as_bytes()) && name.ends_with(SUFFIX.as_bytes()) {
            let _ = Removal::new(top).remove(top, &name);
        }
    }
}

/// Tells the names of this process from those that an earlier one has left.
static RUN: LazyLock<String> =
    LazyLock::new(|| RandomId::draw().map_or_else(|_| String::new(), |id| id.to_string()));

struct Removal<'a> {
    top: &'a OwnedFd,
    /// Tells this removal's names from those of others.
    mark: u64,
    next: u64,
    until: Instant,
}

impl<'a> Removal<'a> {
    fn new(top: &'a OwnedFd) -> Self {
        static MARK: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let mark = MARK.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self { top, mark, next: 0, until: Instant::now() + REMOVAL_MAX }
    }

    fn name(&self, number: u64) -> Vec<u8> {
        format!("{PREFIX}{}-{}-{number}{SUFFIX}", *RUN, self.mark).into_bytes()
    }

    fn remove(&mut self, parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let mut directories = Vec::new();
        self.take(parent, name, &mut directories)?;
        while let Some((number, round)) = directories.pop() {
            if Instant::now() > self.until {
                return Err(Errno::TIMEDOUT);
            }
            self.empty(number, round, &mut directories)?;
        }
        Ok(())
    }

    /// Removes what is no directory, and moves a directory up.
    fn take(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        directories: &mut Vec<(u64, u32)>,
    ) -> Result<(), Errno> {
        match rustix::fs::unlinkat(parent, name_of(name), AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            removed => return removed,
        }
        let number = self.next;
        self.next += 1;
        let to = self.name(number);
        match rustix::fs::renameat(parent, name_of(name), self.top, name_of(&to)) {
            // Its owner has forbidden it; that owner may be this user.
            Err(Errno::ACCESS) => {
                unlock(parent, name)?;
                rustix::fs::renameat(parent, name_of(name), self.top, name_of(&to))?;
            }
            moved => moved?,
        }
        directories.push((number, 0));
        Ok(())
    }

    /// Removes all files of a directory that was moved up, and itself if it has become empty.
    fn empty(
        &mut self,
        number: u64,
        round: u32,
        directories: &mut Vec<(u64, u32)>,
    ) -> Result<(), Errno> {
        let own = self.name(number);
        let directory = match self.open(&own) {
            Err(Errno::ACCESS) => {
                unlock(self.top, &own)?;
                self.open(&own)?
            }
            opened => opened?,
        };
        // It is looked at again when those that were in it are gone.
        let mut inner = Vec::new();
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            match self.take(&directory, name, &mut inner) {
                // Somebody else has removed it.
                Err(Errno::NOENT) => {}
                taken => taken?,
            }
            if Instant::now() > self.until {
                return Err(Errno::TIMEDOUT);
            }
        }
        match rustix::fs::unlinkat(self.top, name_of(&own), AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY) if round < ROUNDS_MAX => directories.push((number, round + 1)),
            removed => removed?,
        }
        directories.append(&mut inner);
        Ok(())
    }

    fn open(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        open(self.top, name, OFlags::RDONLY)
    }
}

fn open(parent: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_beneath(parent, name, flags)
}

/// Gives the owner of a directory all rights on it: on that directory, whatever has the name by then.
fn unlock(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let directory = open(parent, name, OFlags::PATH)?;
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    rustix::fs::chmod(path, Mode::RWXU)
}

fn names(directory: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}
