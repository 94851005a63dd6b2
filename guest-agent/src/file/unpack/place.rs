//! The place of one entry of an archive, and how it is made there.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use archive::{Entry, Kind};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{
    FchmodatFlags, Mode, SFlag, UtimensatFlags, fchmodat, futimens, makedev, mkdirat, mknodat,
    utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, linkat, symlinkat, unlinkat};
use protocol::message::FileKind;
use protocol::{Fault, FaultCode};

use super::super::attributes::{Attributes, mode};
use super::super::directory::PERMISSIONS_NEW;
use super::super::info;
use super::super::layer::{Xattrs, set_xattrs};
use super::super::refusal::{quoted, unfit};
use super::refused::refused_entry;
use crate::lookup::{self, DIRECTORY, DIRECTORY_TO_READ, Refused, Way};

/// A name in a directory that certainly lies beneath the root.
pub struct Place {
    directory: OwnedFd,
    name: Vec<u8>,
    /// Relative to the root, for faults and to find it again.
    path: Vec<u8>,
}

impl Place {
    /// The place that safe components lead to, its missing parents made. None for the root itself.
    pub fn of(root: &OwnedFd, components: &[&[u8]]) -> Result<Option<Self>, Fault> {
        let Some((name, parents)) = components.split_last() else { return Ok(None) };
        let path = components.join(&b'/');
        let directory = open_parents(root, parents).map_err(|why| refused_entry(&path, why))?;
        Ok(Some(Self { directory, name: name.to_vec(), path }))
    }

    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Whether a directory is here and another kind of entry is wanted, or the other way round.
    pub fn has_other(&self, wants_directory: bool) -> bool {
        let found = info::status(&self.directory, self.name.as_slice(), false);
        found.is_ok_and(|found| (info::kind(&found) == FileKind::Directory) != wants_directory)
    }

    /// Gives a directory that is here these attributes.
    pub fn set_xattrs(&self, xattrs: Xattrs) -> Result<(), Fault> {
        if xattrs.is_empty() {
            return Ok(());
        }
        let name = self.name.as_slice();
        let opened = lookup::open_at(&self.directory, name, DIRECTORY_TO_READ, Way::Beneath);
        let directory = opened.map_err(|why| refused_entry(&self.path, why))?;
        set_xattrs(directory.as_fd(), xattrs).map_err(|errno| self.refused(errno))
    }

    /// Creates a directory, or finds it. Until the archive has ended the agent must be able to
    /// write to it, whatever its permissions will be.
    pub fn make_directory(&self, permissions: u32) -> Result<(), Fault> {
        const OWNER_ALL: u32 = 0o700;
        let made = mode(permissions & 0o777 | OWNER_ALL);
        let found = match mkdirat(&self.directory, self.name.as_slice(), made) {
            Err(Errno::EEXIST) => info::status(&self.directory, self.name.as_slice(), false),
            Err(errno) => return Err(self.refused(errno)),
            Ok(()) => return Ok(()),
        };
        match info::kind(&found.map_err(|errno| self.refused(errno))?) {
            FileKind::Directory => Ok(()),
            // Replacing it by a directory could remove what others reach through it.
            FileKind::Symlink => Err(self.refused(Errno::ELOOP)),
            _ => {
                self.remove_file()?;
                mkdirat(&self.directory, self.name.as_slice(), made)
                    .map_err(|errno| self.refused(errno))
            }
        }
    }

    /// Creates an empty file that nobody else can read before it is complete.
    pub fn make_file(&self) -> Result<File, Fault> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let permissions = Mode::S_IRUSR | Mode::S_IWUSR;
        self.put(|| openat(&self.directory, self.name.as_slice(), flags, permissions))
            .map(File::from)
    }

    pub fn make_symlink(&self, target: &[u8]) -> Result<(), Fault> {
        self.put(|| symlinkat(target, &self.directory, self.name.as_slice()))
    }

    /// Gives a file that lies beneath the root another name.
    pub fn make_hard_link(&self, root: &OwnedFd, target: &[&[u8]]) -> Result<(), Fault> {
        let Some((name, parents)) = target.split_last() else {
            let why = "is a hard link to a directory, which cannot be";
            return Err(unfit(FaultCode::Invalid, self.path.as_slice(), why));
        };
        if target.join(&b'/') == self.path {
            let why = "is a hard link to itself";
            return Err(unfit(FaultCode::Invalid, self.path.as_slice(), why));
        }
        let refuse = |why: Refused| {
            let target = target.join(&b'/');
            let shown = quoted(target.as_slice());
            let Fault { code, message, errno, spawn } = refused_entry(&self.path, why);
            Fault { code, message: format!("{message} (a hard link to {shown})"), errno, spawn }
        };
        let from = open_beneath(root, parents).map_err(refuse)?;
        // Looked for first, so that nothing is unlinked for the sake of a link that cannot be.
        info::status(&from, *name, false).map_err(|errno| refuse(errno.into()))?;
        self.put(|| {
            let empty = AtFlags::empty();
            linkat(&from, *name, &self.directory, self.name.as_slice(), empty)
        })
    }

    /// Makes a FIFO or a device.
    pub fn make_special(
        &self,
        kind: SFlag,
        permissions: u32,
        device: (u32, u32),
    ) -> Result<(), Fault> {
        let device = makedev(u64::from(device.0), u64::from(device.1));
        let permissions = mode(permissions & 0o777);
        self.put(|| mknodat(&self.directory, self.name.as_slice(), kind, permissions, device))
    }

    /// Sets the owner, permissions and time of something that was just made. Not for files, which
    /// have a descriptor, nor for directories, which must wait.
    pub fn set_attributes(&self, attributes: Attributes, entry: &Entry) -> Result<(), Fault> {
        let name = self.name.as_slice();
        let set = || {
            let Attributes { permissions, uid, gid } = attributes;
            if uid.is_some() || gid.is_some() {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                fchownat(&self.directory, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            }
            // Linux knows no permissions of symlinks, and its `fchmodat` follows them.
            if let Some(permissions) = permissions
                && !matches!(entry.kind, Kind::Symlink { .. })
            {
                self.change_mode(mode(permissions))?;
            }
            let time = time(entry);
            let access = TimeSpec::UTIME_OMIT;
            let link = UtimensatFlags::NoFollowSymlink;
            utimensat(&self.directory, name, &access, &time, link)
        };
        set().map_err(|errno| self.refused(errno))
    }

    /// Changes the permissions of a FIFO or device, which must not be opened, and not of the target
    /// of a symlink that has replaced it meanwhile. This needs a recent kernel or a mounted procfs,
    /// so it is skipped if the agent's umask has removed nothing.
    fn change_mode(&self, permissions: Mode) -> nix::Result<()> {
        let status = info::status(&self.directory, self.name.as_slice(), false)?;
        if mode(status.st_mode) == permissions {
            return Ok(());
        }
        fchmodat(&self.directory, self.name.as_slice(), permissions, FchmodatFlags::NoFollowSymlink)
    }

    /// Removes a file; a directory is a fault.
    pub fn remove_file(&self) -> Result<(), Fault> {
        match unlinkat(&self.directory, self.name.as_slice(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(Errno::EISDIR) => {
                let why = "is a directory, which no other entry of an archive replaces";
                Err(unfit(FaultCode::Exists, self.path.as_slice(), why))
            }
            Err(errno) => Err(self.refused(errno)),
        }
    }

    /// Makes something in this place, and removes what is there. All calls that make something here
    /// fail with `EEXIST` instead of using what exists.
    fn put<T>(&self, make: impl Fn() -> nix::Result<T>) -> Result<T, Fault> {
        match make() {
            Err(Errno::EEXIST) => {
                self.remove_file()?;
                make()
            }
            other => other,
        }
        .map_err(|errno| self.refused(errno))
    }

    fn refused(&self, errno: Errno) -> Fault {
        refused_entry(&self.path, errno)
    }
}

/// Sets the time of an open file or directory.
pub fn set_time(file: impl AsFd, entry: &Entry) -> nix::Result<()> {
    futimens(file, &TimeSpec::UTIME_OMIT, &time(entry))
}

fn time(entry: &Entry) -> TimeSpec {
    TimeSpec::new(entry.mtime_s, i64::from(entry.mtime_ns))
}

/// Opens the directory that safe components lead to. Archives need not name their directories, so
/// those that are missing are made.
fn open_parents(root: &OwnedFd, parents: &[&[u8]]) -> Result<OwnedFd, Refused> {
    match open_beneath(root, parents) {
        Err(Refused::Errno(Errno::ENOENT)) => {}
        other => return other,
    }
    for depth in 1..=parents.len() {
        let (name, above) = parents[..depth].split_last().expect("there is at least one");
        let above = open_beneath(root, above)?;
        match mkdirat(&above, *name, mode(PERMISSIONS_NEW)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    open_beneath(root, parents)
}

/// Opens the directory of these components; without any, the root itself.
fn open_beneath(root: &OwnedFd, components: &[&[u8]]) -> Result<OwnedFd, Refused> {
    let path = if components.is_empty() { b".".to_vec() } else { components.join(&b'/') };
    lookup::open_at(root, path.as_slice(), DIRECTORY, Way::Beneath)
}
