//! A tar archive of a *hostile* guest becomes a tree on the host.
//!
//! The archive's effects are limited as follows:
//!
//! - it names one thing: every entry must lie below the first one, and the person has chosen where
//!   that one goes, not the archive;
//! - every directory on the way is opened with `openat2`, beneath the destination and through no
//!   symbolic link, so that a link from the archive (or planted meanwhile) leads nowhere;
//! - a name that is taken is unlinked and made again, never written through;
//! - set-id and sticky bits are dropped, and the person's umask applies;
//! - devices, pipes and sockets are not made; they are counted.
//!
//! Symbolic links themselves are made as the archive has them: their targets are free text.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use archive::{Decoder, Entry, Event, Kind, TarError, safe_relative};
use host::excerpt::path_excerpt;
use host::sparse::{finish_sparse, write_sparse};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;

/// Directories whose times and restrictive modes are set at the end. A larger archive gets its
/// contents unpacked completely, and the times of further directories become those of unpacking.
const DIRECTORIES_REMEMBERED_MAX: usize = 16 * 1024;

/// Bits of a mode that an archive of a guest may set.
const MODE_ALLOWED: u32 = 0o777;
/// The permissions that filling a directory needs.
const DIRECTORY_MODE_NEEDED: u32 = 0o700;

const NOWHERE_ELSE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Why unpacking failed.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("the sandbox sent a broken archive: {0}")]
    Archive(#[from] TarError),
    #[error("the sandbox sent {path:?}, which is outside the requested path")]
    Elsewhere { path: String },
    #[error(
        "{path:?} leads through a symbolic link or out of the destination, so it was not written"
    )]
    Escape { path: String },
    #[error("{path:?}: {source}")]
    Write { path: String, source: io::Error },
    #[error("the destination {path:?}: {source}")]
    Destination { path: String, source: io::Error },
}

/// The result of unpacking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    pub entries: u64,
    /// Devices, pipes and sockets.
    pub left_out: u64,
}

/// The name of the archive's single root entry on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootName {
    /// This name, within the destination.
    As(Vec<u8>),
    /// `None`: its contents go into the destination itself.
    Contents,
}

/// Takes an archive in pieces.
pub struct Unpacker {
    destination: OwnedFd,
    named: RootName,
    decoder: Decoder,
    /// The first component of every entry, once known; none when the archive is rooted at `.`.
    first: Option<Vec<Vec<u8>>>,
    file: Option<(File, Entry)>,
    directories: Vec<(Vec<u8>, Entry)>,
    unpacked: Unpacked,
}

impl Unpacker {
    /// Unpacks into `destination`, an existing directory.
    pub fn new(destination: &Path, named: RootName) -> Result<Self, UnpackError> {
        let opened = rustix::fs::open(
            destination,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let destination = opened.map_err(|source| UnpackError::Destination {
            path: destination.display().to_string(),
            source: source.into(),
        })?;
        Ok(Self {
            destination,
            named,
            decoder: Decoder::new(),
            first: None,
            file: None,
            directories: Vec::new(),
            unpacked: Unpacked::default(),
        })
    }

    /// Takes the next piece.
    pub fn push(&mut self, mut piece: &[u8]) -> Result<(), UnpackError> {
        loop {
            match self.decoder.next_event(&mut piece)? {
                None => return Ok(()),
                Some(Event::Entry(entry)) => self.begin(entry)?,
                Some(Event::Content(bytes)) => {
                    if let Some((file, entry)) = &mut self.file {
                        let written = write_sparse(file, bytes);
                        written.map_err(|source| write_error(&entry.path, source))?;
                    }
                }
                Some(Event::EndOfEntry) => self.end_file()?,
                Some(Event::EndOfArchive) => {}
            }
        }
    }

    /// The stream has ended: checks that the archive was whole, then gives directories their
    /// times and modes, the innermost first.
    pub fn finish(mut self) -> Result<Unpacked, UnpackError> {
        self.decoder.finish()?;
        for (path, entry) in std::mem::take(&mut self.directories).into_iter().rev() {
            let Ok(directory) = self.open_directory(&path) else { continue };
            let mode = entry.mode & MODE_ALLOWED;
            if mode & DIRECTORY_MODE_NEEDED != DIRECTORY_MODE_NEEDED
                && let Ok(status) = rustix::fs::fstat(&directory)
            {
                let narrowed = status.st_mode & (mode | !DIRECTORY_MODE_NEEDED) & MODE_ALLOWED;
                let _ = rustix::fs::fchmod(&directory, Mode::from_raw_mode(narrowed));
            }
            let _ = rustix::fs::futimens(&directory, &times(&entry));
        }
        Ok(self.unpacked)
    }

    fn begin(&mut self, entry: Entry) -> Result<(), UnpackError> {
        let path = self.place(&entry.path)?;
        let made = match &entry.kind {
            Kind::Directory => self.make_directory(&path),
            // The destination itself is there, and is a directory.
            _ if path.is_empty() => return Err(elsewhere(&entry.path)),
            Kind::File { .. } => self.make_file(&path, &entry),
            Kind::Symlink { target } => self.make_symlink(&path, target),
            Kind::HardLink { target } => {
                let target = self.place(target)?;
                self.make_link(&path, &target)
            }
            Kind::Fifo | Kind::CharDevice { .. } | Kind::BlockDevice { .. } => {
                self.unpacked.left_out += 1;
                return Ok(());
            }
        };
        made.map_err(|errno| match errno {
            Errno::LOOP | Errno::XDEV => UnpackError::Escape { path: path_excerpt(&entry.path) },
            errno => write_error(&entry.path, errno.into()),
        })?;
        self.unpacked.entries += 1;
        if entry.kind == Kind::Directory && self.directories.len() < DIRECTORIES_REMEMBERED_MAX {
            self.directories.push((path, entry));
        }
        Ok(())
    }

    /// The target of an entry, relative to the destination; empty for the destination itself.
    fn place(&mut self, path: &[u8]) -> Result<Vec<u8>, UnpackError> {
        let components = safe_relative(path)?;
        let first = self
            .first
            .get_or_insert_with(|| components.iter().take(1).map(|name| name.to_vec()).collect());
        let rest = match (first.as_slice(), components.as_slice()) {
            ([], all) => all,
            ([name], [one, rest @ ..]) if name.as_slice() == *one => rest,
            _ => return Err(elsewhere(path)),
        };
        let mut place = match &self.named {
            RootName::As(name) => name.clone(),
            RootName::Contents => Vec::new(),
        };
        for component in rest {
            if !place.is_empty() {
                place.push(b'/');
            }
            place.extend_from_slice(component);
        }
        Ok(place)
    }

    fn make_directory(&self, path: &[u8]) -> Result<(), Errno> {
        if path.is_empty() {
            return Ok(());
        }
        let (parent, name) = self.open_parent(path)?;
        let mode = Mode::from_raw_mode(MODE_ALLOWED);
        match rustix::fs::mkdirat(&parent, name, mode) {
            // An existing file must be a directory, and no link to one.
            Err(Errno::EXIST) => self.open_directory(path).map(drop),
            made => made,
        }
    }

    fn make_file(&mut self, path: &[u8], entry: &Entry) -> Result<(), Errno> {
        let (parent, name) = self.open_parent(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(entry.mode & MODE_ALLOWED);
        let file = replacing(&parent, name, || {
            rustix::fs::openat2(&parent, name, flags, mode, NOWHERE_ELSE)
        })?;
        self.file = Some((File::from(file), entry.clone()));
        Ok(())
    }

    fn make_symlink(&self, path: &[u8], target: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.open_parent(path)?;
        let target = OsStr::from_bytes(target);
        replacing(&parent, name, || rustix::fs::symlinkat(target, &parent, name))
    }

    fn make_link(&self, path: &[u8], target: &[u8]) -> Result<(), Errno> {
        if target.is_empty() {
            return Err(Errno::ISDIR);
        }
        let (from, old) = self.open_parent(target)?;
        let (parent, name) = self.open_parent(path)?;
        replacing(&parent, name, || rustix::fs::linkat(&from, old, &parent, name, AtFlags::empty()))
    }

    /// The directory that contains `path`, and its last component. Archives need not name parents
    /// first, so missing ones are made.
    fn open_parent<'a>(&self, path: &'a [u8]) -> Result<(OwnedFd, &'a OsStr), Errno> {
        let (parent, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&path[..0], path),
        };
        let opened = match self.open_directory(parent) {
            Err(Errno::NOENT) => {
                self.make_directory(parent)?;
                self.open_directory(parent)
            }
            opened => opened,
        };
        Ok((opened?, OsStr::from_bytes(name)))
    }

    fn open_directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat2(
            &self.destination,
            OsStr::from_bytes(path),
            flags,
            Mode::empty(),
            NOWHERE_ELSE,
        )
    }

    fn end_file(&mut self) -> Result<(), UnpackError> {
        if let Some((file, entry)) = self.file.take() {
            finish_sparse(&file).map_err(|source| write_error(&entry.path, source))?;
            // A time that a file system cannot hold is no reason to fail a copy.
            let _ = rustix::fs::futimens(&file, &times(&entry));
        }
        Ok(())
    }
}

/// Makes something under a name; an existing file is unlinked first, unless it is a directory.
fn replacing<T>(
    parent: &OwnedFd,
    name: &OsStr,
    make: impl Fn() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match make() {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
            make()
        }
        made => made,
    }
}

fn times(entry: &Entry) -> Timestamps {
    let time = Timespec { tv_sec: entry.mtime_s, tv_nsec: i64::from(entry.mtime_ns) };
    Timestamps { last_access: time, last_modification: time }
}

fn elsewhere(path: &[u8]) -> UnpackError {
    UnpackError::Elsewhere { path: path_excerpt(path) }
}

fn write_error(path: &[u8], source: io::Error) -> UnpackError {
    UnpackError::Write { path: path_excerpt(path), source }
}

#[cfg(test)]
mod tests;
