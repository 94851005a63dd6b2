//! What is in a volume, from outside of a sandbox: looked at, read, written and removed beneath the volume's own
//! descriptor, through no link, and never by opening a pipe or a device.
//!
//! A file is written in `incoming/`, where no sandbox is, and gets its name when it is whole.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::limits::{
    DIRECTORY_MODE, FILE_MODE, LISTED_DEPTH_MAX, LISTED_MAX, MEASURED_DEPTH_MAX, MEASURED_MAX,
    MODE_MAX, PATH_BYTES_MAX, UPLOAD_BYTES_MAX,
};
use super::{VolumeError, removal};
use crate::limits::NAME_BYTES_MAX;
use crate::manifest::Kind;
use crate::tree::{Temporary, Tree, TreeEntry, is_temporary, name_of, open_beneath, sync};
use host::byte_path::{join, split};

/// A block of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// What a path of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Link,
    /// A pipe or a socket.
    Other,
}

/// See [`Files::look`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEntry {
    pub name: String,
    /// From the volume's root, which is `/`.
    pub path: String,
    pub kind: EntryKind,
    pub bytes: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub accessed_ms: u64,
    pub modified_ms: u64,
    pub changed_ms: u64,
    /// What a link says.
    pub target: Option<String>,
}

/// What a client sets of a file or a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mode: Option<u32>,
}

/// The content of one volume.
#[derive(Debug)]
pub struct Files {
    tree: Tree,
    incoming: Tree,
}

/// A file that is being uploaded. Dropped, it is gone.
pub struct Incoming {
    file: File,
    temporary: Temporary,
    bytes_max: u64,
    bytes: u64,
}

impl Attributes {
    fn check(&self) -> Result<(), VolumeError> {
        let bounded = [
            ("uid", self.uid, u32::MAX - 1),
            ("gid", self.gid, u32::MAX - 1),
            ("mode", self.mode, MODE_MAX),
        ];
        for (what, value, max) in bounded {
            if let Some(value) = value.filter(|value| *value > max) {
                let (value, max) = (value.into(), max.into());
                return Err(VolumeError::OutOfRange { what, max, value });
            }
        }
        Ok(())
    }

    /// Sets them of an open file or directory.
    fn set(&self, file: &impl std::os::fd::AsFd, mode: Option<u32>) -> Result<(), Errno> {
        if self.uid.is_some() || self.gid.is_some() {
            let (uid, gid) = (self.uid.map(Uid::from_raw), self.gid.map(Gid::from_raw));
            rustix::fs::fchown(file, uid, gid)?;
        }
        // After the owner, whose change takes some of it away.
        match self.mode.or(mode) {
            Some(mode) => rustix::fs::fchmod(file, Mode::from_raw_mode(mode)),
            None => Ok(()),
        }
    }
}

impl Files {
    pub(super) fn open(files: &Path, incoming: &Path) -> io::Result<Self> {
        let tree = Tree::open_own(files, "")?;
        Ok(Self { tree, incoming: Tree::open_own(incoming, "upload")? })
    }

    /// What is at a path.
    pub fn look(&self, path: &str) -> Result<VolumeEntry, VolumeError> {
        let inner = parse(path)?;
        let found = self.found(&inner)?;
        Ok(self.shown(split(&inner).0, &found))
    }

    /// What is in a directory, and in its directories down to a depth: each directory by its names, before those in it.
    pub fn list(&self, path: &str, depth: u32) -> Result<Vec<VolumeEntry>, VolumeError> {
        if depth == 0 || depth > LISTED_DEPTH_MAX {
            let (max, value) = (LISTED_DEPTH_MAX.into(), depth.into());
            return Err(VolumeError::OutOfRange { what: "depth", max, value });
        }
        let top = parse(path)?;
        if self.found(&top)?.kind != Some(Kind::Directory) {
            return Err(VolumeError::Kind { path: outer(&top), what: "no directory" });
        }
        let (mut listed, mut level) = (Vec::new(), vec![top.clone()]);
        for _ in 0..depth {
            let mut next = Vec::new();
            for directory in level {
                let room = LISTED_MAX.saturating_sub(listed.len());
                let inner = match self.tree.list_up_to(&directory, room + 1) {
                    // It is gone, or became something else, since it was seen.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)
                        if directory != top =>
                    {
                        continue;
                    }
                    inner => inner.map_err(|errno| failed(&directory, errno))?,
                };
                for found in inner {
                    if directory.is_empty() && is_temporary(&found.name) {
                        continue;
                    }
                    if listed.len() >= LISTED_MAX {
                        let (what, max) = ("the number of entries", LISTED_MAX as u64);
                        return Err(VolumeError::TooLarge { what, max });
                    }
                    if found.kind == Some(Kind::Directory) {
                        next.push(join(&directory, &found.name));
                    }
                    listed.push(self.shown(&directory, &found));
                }
            }
            level = next;
        }
        Ok(listed)
    }

    /// Opens a file to read it, with its size.
    pub fn read(&self, path: &str) -> Result<(File, u64), VolumeError> {
        let inner = parse(path)?;
        let (file, bytes) = match self.found(&inner)?.kind {
            Some(Kind::File) => self.open_known(&inner, OFlags::RDONLY, FileType::RegularFile)?,
            Some(Kind::Directory) => return Err(of_kind(&inner, "a directory")),
            Some(Kind::Link) => return Err(of_kind(&inner, "a symbolic link; read its target")),
            None => return Err(of_kind(&inner, "neither a file nor a directory")),
        };
        Ok((File::from(file), bytes))
    }

    /// Begins a file of at most so many bytes.
    pub fn begin(&self, bytes_max: u64) -> Result<Incoming, VolumeError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let begun = self.incoming.temporary(b"file", number);
        let (temporary, file) = begun.map_err(|errno| failed(b"", errno))?;
        let bytes_max = bytes_max.min(UPLOAD_BYTES_MAX);
        Ok(Incoming { file, temporary, bytes_max, bytes: 0 })
    }

    /// Gives a file its path, in the place of a file that is there. With `parents`, directories that lead to it are made.
    pub fn place(
        &self,
        mut incoming: Incoming,
        path: &str,
        attributes: &Attributes,
        parents: bool,
    ) -> Result<VolumeEntry, VolumeError> {
        attributes.check()?;
        let inner = parse(path)?;
        let (above, name) = split(&inner);
        check_name(&inner, name)?;
        let parent = self.parent(&inner, above, parents)?;
        let settled = attributes.set(&incoming.file, Some(FILE_MODE));
        settled.map_err(|errno| failed(&inner, errno))?;
        let synced = incoming.file.sync_all();
        synced.map_err(|source| VolumeError::File { path: outer(&inner), source })?;
        match incoming.temporary.place_in(&parent, name) {
            Err(Errno::ISDIR) => return Err(of_kind(&inner, "a directory")),
            placed => placed.map_err(|errno| failed(&inner, errno))?,
        }
        self.look(path)
    }

    /// Makes a directory. With `parents`, those that lead to it too, and one that is there will do.
    pub fn make_directory(
        &self,
        path: &str,
        attributes: &Attributes,
        parents: bool,
    ) -> Result<VolumeEntry, VolumeError> {
        attributes.check()?;
        let inner = parse(path)?;
        let (above, name) = split(&inner);
        if !inner.is_empty() {
            check_name(&inner, name)?;
            let parent = self.parent(&inner, above, parents)?;
            let made =
                rustix::fs::mkdirat(&parent, name_of(name), Mode::from_raw_mode(DIRECTORY_MODE));
            match made {
                Err(Errno::EXIST) if parents => {}
                Err(Errno::EXIST) => return Err(VolumeError::PathTaken { path: outer(&inner) }),
                made => {
                    made.and_then(|()| sync(&parent)).map_err(|errno| failed(&inner, errno))?;
                    let default = Some(DIRECTORY_MODE);
                    let (own, _) = self.open_known(&inner, OFlags::RDONLY, FileType::Directory)?;
                    attributes.set(&own, default).map_err(|errno| failed(&inner, errno))?;
                }
            }
        } else if !parents {
            return Err(VolumeError::PathTaken { path: outer(&inner) });
        }
        let found = self.look(path)?;
        match found.kind {
            EntryKind::Directory => Ok(found),
            _ => Err(VolumeError::PathTaken { path: outer(&inner) }),
        }
    }

    /// Sets the owner and the mode of a file or a directory.
    pub fn set(&self, path: &str, attributes: &Attributes) -> Result<VolumeEntry, VolumeError> {
        attributes.check()?;
        let inner = parse(path)?;
        let kind = match self.found(&inner)?.kind {
            Some(Kind::File) => FileType::RegularFile,
            Some(Kind::Directory) => FileType::Directory,
            Some(Kind::Link) => return Err(of_kind(&inner, "a symbolic link")),
            None => return Err(of_kind(&inner, "neither a file nor a directory")),
        };
        let (file, _) = self.open_known(&inner, OFlags::RDONLY, kind)?;
        attributes.set(&file, None).map_err(|errno| failed(&inner, errno))?;
        self.look(path)
    }

    /// Removes a file, or a directory with all that is in it.
    pub fn remove(&self, path: &str) -> Result<(), VolumeError> {
        let inner = parse(path)?;
        if inner.is_empty() {
            let why = "the root of a volume goes with the volume";
            return Err(VolumeError::Path { path: "/".to_owned(), why });
        }
        self.found(&inner)?;
        let (above, name) = split(&inner);
        let both =
            self.tree.directory(above).and_then(|parent| Ok((parent, self.tree.directory(b"")?)));
        let (parent, top) = both.map_err(|errno| failed(&inner, errno))?;
        match removal::remove(&top, &parent, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(VolumeError::NoPath { path: outer(&inner) })
            }
            removed => removed.map_err(|source| VolumeError::File { path: outer(&inner), source }),
        }
    }

    /// Removes what a removal has left that was cut off.
    pub(super) fn sweep(&self) {
        if let Ok(top) = self.tree.directory(b"") {
            removal::sweep(&top);
        }
    }

    /// What all files take on disk; more than any disk has for a tree that is too large or too deep to be measured.
    pub(super) fn disk_bytes(&self) -> u64 {
        let Ok(top) = self.tree.directory(b"") else { return 0 };
        let Ok(inner) = rustix::fs::Dir::read_from(&top) else { return 0 };
        let (mut bytes, mut entries) = (0_u64, 0_u64);
        // As many are open as directories are in each other.
        let mut open = vec![(top, inner)];
        while let Some((directory, inner)) = open.last_mut() {
            let Some(Ok(entry)) = inner.next() else {
                open.pop();
                continue;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            entries += 1;
            if entries > MEASURED_MAX {
                return u64::MAX;
            }
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let Ok(found) = rustix::fs::statat(&*directory, name_of(name), flags) else { continue };
            let blocks = u64::try_from(found.st_blocks).unwrap_or_default();
            bytes = bytes.saturating_add(blocks.saturating_mul(BLOCK_BYTES));
            if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
                continue;
            }
            let next = open_directory(directory, name);
            let next = next.and_then(|next| Ok((rustix::fs::Dir::read_from(&next)?, next)));
            if let Ok((inner, next)) = next {
                if open.len() > MEASURED_DEPTH_MAX {
                    return u64::MAX;
                }
                open.push((next, inner));
            }
        }
        bytes
    }

    fn found(&self, inner: &[u8]) -> Result<TreeEntry, VolumeError> {
        let path = if inner.is_empty() { b"." } else { inner };
        let found = self.tree.look(path).map_err(|errno| failed(inner, errno))?;
        found.ok_or_else(|| VolumeError::NoPath { path: outer(inner) })
    }

    /// The directory that a path is in.
    fn parent(&self, inner: &[u8], above: &[u8], make: bool) -> Result<OwnedFd, VolumeError> {
        let opened = if make { self.tree.parent(inner) } else { self.tree.directory(above) };
        opened.map_err(|errno| match errno {
            Errno::NOENT => VolumeError::NoPath { path: outer(above) },
            Errno::NOTDIR | Errno::LOOP => of_kind(above, "no directory"),
            errno => failed(inner, errno),
        })
    }

    /// Opens a path that is of a kind: nothing of another kind is opened, even if it takes its place meanwhile.
    fn open_known(
        &self,
        inner: &[u8],
        flags: OFlags,
        kind: FileType,
    ) -> Result<(OwnedFd, u64), VolumeError> {
        let opened = self.tree.locate(inner).and_then(|place| {
            let found = rustix::fs::fstat(&place)?;
            if FileType::from_raw_mode(found.st_mode) != kind {
                return Err(Errno::NOENT);
            }
            let path = format!("/proc/self/fd/{}", place.as_raw_fd());
            let file = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?;
            Ok((file, u64::try_from(found.st_size).unwrap_or_default()))
        });
        opened.map_err(|errno| failed(inner, errno))
    }

    fn shown(&self, above: &[u8], found: &TreeEntry) -> VolumeEntry {
        let is_root = found.name == b".";
        let inner = if is_root { Vec::new() } else { join(above, &found.name) };
        let (kind, target) = match found.kind {
            Some(Kind::File) => (EntryKind::File, None),
            Some(Kind::Directory) => (EntryKind::Directory, None),
            Some(Kind::Link) => {
                let target = self.tree.read_link(&inner).unwrap_or_default();
                (EntryKind::Link, Some(text_of(&target)))
            }
            None => (EntryKind::Other, None),
        };
        VolumeEntry {
            name: if is_root { "/".to_owned() } else { text_of(&found.name) },
            path: outer(&inner),
            kind,
            bytes: found.stamp.bytes,
            mode: found.mode,
            uid: found.uid,
            gid: found.gid,
            accessed_ms: millis(found.accessed),
            modified_ms: millis(found.stamp.modified),
            changed_ms: millis(found.stamp.changed),
            target,
        }
    }
}

impl Incoming {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > self.bytes_max {
            return Err(VolumeError::TooLarge {
                what: "the size of the file",
                max: self.bytes_max,
            });
        }
        let written = self.file.write_all(bytes);
        written.map_err(|source| VolumeError::File { path: "/".to_owned(), source })
    }
}

/// A path in a volume as its parts, with or without a slash before it.
fn parse(path: &str) -> Result<Vec<u8>, VolumeError> {
    let refused = |why| {
        let path = path.chars().take(NAME_BYTES_MAX).collect();
        Err(VolumeError::Path { path, why })
    };
    if path.len() > PATH_BYTES_MAX {
        return refused("it is too long");
    }
    if path.contains('\0') {
        return refused("it has a zero byte");
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return refused("it has \"..\"");
    }
    Ok(parts.join("/").into_bytes())
}

/// Refuses names that are this bridge's own.
fn check_name(inner: &[u8], name: &[u8]) -> Result<(), VolumeError> {
    let why = match name {
        b"" => "it is the root of the volume",
        name if is_temporary(name) => "names like that are this server's own",
        _ => return Ok(()),
    };
    Err(VolumeError::Path { path: outer(inner), why })
}

fn of_kind(inner: &[u8], what: &'static str) -> VolumeError {
    VolumeError::Kind { path: outer(inner), what }
}

fn failed(inner: &[u8], errno: Errno) -> VolumeError {
    let path = outer(inner);
    match errno {
        Errno::NOENT => VolumeError::NoPath { path },
        Errno::LOOP => VolumeError::Kind { path, what: "reached through a symbolic link" },
        errno => VolumeError::File { path, source: errno.into() },
    }
}

fn outer(inner: &[u8]) -> String {
    format!("/{}", text_of(inner))
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn millis((seconds, nanoseconds): (i64, u32)) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    seconds.saturating_mul(1000) + u64::from(nanoseconds / 1_000_000)
}

fn open_directory(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_beneath(parent, name, flags)
}
