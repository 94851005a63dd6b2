//! A context's directory, in which languages that cannot receive descriptors find their outputs and
//! orders.
//!
//! It belongs to the agent and has a name that cannot be guessed. The files in it belong to the user that
//! the interpreter runs as. So no file in it can be replaced, and only that user can open them.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, mkfifoat, unlinkat};

use super::channel::{Token, hex};
use crate::lookup::{self, DIRECTORY, Unfit, Way};
use crate::sys::entropy;
use crate::sys::spawn::Identity;

/// The parents of such directories: the first writable one is used. `/dev/shm` is first because a commit to
/// an image leaves it out.
const PLACES: [&str; 3] = ["/dev/shm", "/run", "/tmp"];

/// Its owner's permissions for a file in it; nobody else has any.
const OWNER: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// Its files.
pub const DRIVER: &str = "driver";
pub const CODE: &str = "code";
pub const RUN: &str = "run";
pub const STDOUT: &str = "out";
pub const STDERR: &str = "err";
const ALL: [&str; 5] = [DRIVER, CODE, RUN, STDOUT, STDERR];

/// See the module's description. It is removed with its value.
pub struct Directory {
    /// Its parent, and its name there.
    place: OwnedFd,
    name: String,
    /// The path as the interpreter sees it.
    path: PathBuf,
    /// What an image or a program has put at its path meanwhile is never opened.
    opened: OwnedFd,
    owner: Option<Identity>,
}

impl Directory {
    pub fn make(owner: Option<Identity>) -> io::Result<Self> {
        let mut token = Token::default();
        entropy::fill(&mut token)?;
        let name = format!("burrow-repl-{}", hex(&token));
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for place in PLACES {
            match make_in(place, &name) {
                Ok((found, opened)) => {
                    let path = Path::new(place).join(&name);
                    return Ok(Self { place: found, name, path, opened, owner });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub fn path(&self) -> &str {
        self.path.to_str().expect("made of ASCII")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file that the interpreter may read.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.remove(name)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(&self.opened, name, flags, OWNER)?);
        self.give(&file)?;
        file.write_all(content)
    }

    /// Makes a FIFO that the interpreter may write to, and opens it for reading.
    pub fn fifo(&self, name: &str) -> io::Result<OwnedFd> {
        self.remove(name)?;
        mkfifoat(&self.opened, name, OWNER)?;
        // Root in the sandbox can replace any file.
        let file = lookup::open_fifo(&self.opened, name)?;
        self.give(&file)?;
        Ok(file.into())
    }

    /// Removes a FIFO's name. Processes that have it open keep it.
    pub fn forget(&self, name: &str) {
        // If this fails, the next run replaces it.
        self.remove(name).ok();
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.opened, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn give(&self, file: &File) -> io::Result<()> {
        let Some(owner) = &self.owner else { return Ok(()) };
        fchown(file.as_fd(), Some(owner.uid), Some(owner.gid))?;
        file.set_permissions(Permissions::from_mode(0o600))
    }
}

/// Makes the directory in a place, which may be a symlink of the image's.
fn make_in(place: &str, name: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    let place = lookup::open(place, DIRECTORY, Way::Follow).map_err(Unfit::from)?;
    mkdirat(&place, name, Mode::from_bits_truncate(0o711))?;
    let made = lookup::open_at(&place, name, DIRECTORY, Way::Beneath).map_err(Unfit::from)?;
    Ok((place, made))
}

impl Drop for Directory {
    fn drop(&mut self) {
        for name in ALL {
            self.forget(name);
        }
        unlinkat(&self.place, self.name.as_str(), UnlinkatFlags::RemoveDir).ok();
    }
}
