//! A file that is written beside its place and then put there whole.
//!
//! A reader of the path sees the old content or the new, even after a power cut. An abandoned file
//! leaves nothing.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, fsync, linkat, unlinkat};

use super::attributes::Attributes;
use crate::lookup::DIRECTORY_TO_READ;
use crate::sys::entropy;
use crate::sys::rename::rename_new;

/// Random bytes in a temporary name.
const NAME_BYTES: usize = 8;

/// See the module's description.
pub struct Staged {
    directory: OwnedFd,
    /// `None` once it is in its place.
    name: Option<OsString>,
    file: File,
}

/// What happens to an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Replace,
    Keep,
}

impl Staged {
    /// Begins a file that will be put into `directory`.
    pub fn begin(directory: OwnedFd) -> nix::Result<Self> {
        let name = temporary_name()?;
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // Nobody else can read it before it is complete.
        let file = openat(&directory, name.as_os_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        Ok(Self { directory, name: Some(name), file: file.into() })
    }

    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts it in its place under `name`, durably.
    pub fn commit(
        mut self,
        name: &std::ffi::OsStr,
        attributes: Attributes,
        existing: Existing,
    ) -> nix::Result<()> {
        attributes.apply(&self.file, &fstat(&self.file)?)?;
        sync(&self.file)?;
        let temporary = self.name.as_deref().expect("it is taken only when this has succeeded");
        match existing {
            Existing::Replace => renameat(&self.directory, temporary, &self.directory, name)?,
            Existing::Keep => self.put_new(temporary, name)?,
        }
        self.name = None;
        // It was opened only to find names in it, and this is that directory whatever its name is.
        sync(openat(&self.directory, ".", DIRECTORY_TO_READ | OFlag::O_CLOEXEC, Mode::empty())?)
    }

    fn put_new(&self, temporary: &std::ffi::OsStr, name: &std::ffi::OsStr) -> nix::Result<()> {
        let directory = self.directory.as_fd();
        match rename_new(directory, temporary, directory, name) {
            // Not every file system can rename like that; a link never replaces either.
            Err(Errno::EINVAL | Errno::ENOSYS) => {
                linkat(directory, temporary, directory, name, AtFlags::empty())?;
                unlinkat(directory, temporary, UnlinkatFlags::NoRemoveDir)
            }
            other => other,
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // If even that fails, nothing better can be done here.
            unlinkat(&self.directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir).ok();
        }
    }
}

/// Makes the written bytes durable. Some file systems have nothing to sync, and report an error.
pub fn sync(file: impl AsFd) -> nix::Result<()> {
    match fsync(file) {
        Err(Errno::EINVAL | Errno::EROFS) => Ok(()),
        other => other,
    }
}

fn temporary_name() -> nix::Result<OsString> {
    let mut random = [0; NAME_BYTES];
    entropy::fill(&mut random)
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    let mut name = String::from(".burrow-");
    for byte in random {
        write!(name, "{byte:02x}").expect("a string takes all that is written");
    }
    name.push_str(".tmp");
    Ok(name.into())
}
