//! Unpacks an untrusted archive into files below one directory, and nowhere else.
//!
//! - Every directory on the way is opened beneath that one and through no symbolic link; links
//!   themselves are names, whose targets are free text.
//! - A name that exists is unlinked and made again, never written through; only a directory stays.
//! - Devices are refused; so are the attributes that overlay file systems use.
//! - The output is bounded: bytes, entries, depth, names, and the memory for them.
//!
//! Owner, set-id bits and attributes are kept as far as this process may set them; losses are counted. It
//! runs in its own thread, and its caller removes a half-made tree.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use archive::{Decoder, Entry, Event, Kind, safe_relative};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::directory::{NOWHERE_ELSE, hold, open_at};
use super::limits::{BUFFER_BYTES, DEPTH_MAX, NAME_BYTES_MAX};
use super::{LayerError, Marks};
use host::byte_path::{ends, join, split};
use host::excerpt::path_excerpt;

/// The prefix of names that remove something.
const WHITEOUT_PREFIX: &[u8] = b".wh.";
/// The name that hides the lower content of its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Notes that an old union file system left for itself begin so, and mean nothing.
const AUFS_PREFIX: &[u8] = b".wh..wh.";

/// The mode of unfinished files.
const UNFINISHED_DIRECTORY: u32 = 0o700;
const UNFINISHED_FILE: u32 = 0o600;
/// The mode of a directory without an entry.
const IMPLIED_DIRECTORY: u32 = 0o755;

/// The id that means "unchanged" to the kernel, so no user has it.
const NOBODY_AT_ALL: u32 = u32::MAX;

/// The attribute that lets a program do more than its user.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
const USER_PREFIX: &[u8] = b"user.";
/// Attributes that overlay file systems read: their writer would control what is visible where.
const OVERLAY_PREFIXES: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// The limits of one layer.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub bytes_max: u64,
    pub entries_max: u64,
}

/// Attributes that could not be kept, because this process may not set them or the file system does
/// not support them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SkippedMetadata {
    pub owners: u64,
    pub attributes: u64,
}

/// The result of unpacking an archive.
#[derive(Debug, Default)]
pub struct UnpackedLayer {
    pub entries: u64,
    pub bytes: u64,
    pub lost: SkippedMetadata,
    pub marks: Marks,
}

/// Unpacks an archive into an empty directory.
pub fn unpack(
    archive: impl Read,
    into: &Path,
    bounds: Bounds,
) -> Result<UnpackedLayer, LayerError> {
    unpack_as(Form::Layer, archive, into, bounds)
}

/// Unpacks an archive that is not a layer: names that would mean removals in a layer are refused. The content
/// of some directories of the root is skipped.
pub fn unpack_files(
    left_out: &'static [&'static str],
    archive: impl Read,
    into: &Path,
    bounds: Bounds,
) -> Result<UnpackedLayer, LayerError> {
    unpack_as(Form::Files { left_out }, archive, into, bounds)
}

/// The kind of an archive.
#[derive(Clone, Copy)]
enum Form {
    Layer,
    Files { left_out: &'static [&'static str] },
}

fn unpack_as(
    form: Form,
    mut archive: impl Read,
    into: &Path,
    bounds: Bounds,
) -> Result<UnpackedLayer, LayerError> {
    let root = hold(into).map_err(|errno| LayerError::at(b"", errno))?;
    let mut unpacker = Unpacker {
        root,
        parent: None,
        bounds,
        form,
        file: None,
        directories: BTreeMap::new(),
        chowns: nix::unistd::geteuid().is_root(),
        unpacked: UnpackedLayer::default(),
    };
    // Until the archive describes the root itself.
    unpacker.unpacked.marks.implied.insert(Vec::new());
    let mut decoder = Decoder::with_xattrs();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = archive.read(&mut buffer).map_err(LayerError::Compression)?;
        if read == 0 {
            break;
        }
        let mut piece = &buffer[..read];
        // The rest after the archive is read, too, because its digest covers all bytes.
        while let Some(event) = decoder.next_event(&mut piece)? {
            match event {
                Event::Entry(entry) => {
                    let xattrs = decoder.take_xattrs();
                    unpacker.begin(entry, xattrs)?;
                }
                Event::Content(bytes) => unpacker.write(bytes)?,
                Event::EndOfEntry => unpacker.end_file()?,
                Event::EndOfArchive => {}
            }
        }
    }
    decoder.finish()?;
    unpacker.finish()
}

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

struct Unpacker {
    root: OwnedFd,
    /// The directory of the entry before, which is as a rule that of the next too.
    parent: Option<(Vec<u8>, OwnedFd)>,
    bounds: Bounds,
    form: Form,
    file: Option<(File, Entry, Xattrs)>,
    /// Their modes and times are set last, when nothing is added to them any more.
    directories: BTreeMap<Vec<u8>, Entry>,
    chowns: bool,
    unpacked: UnpackedLayer,
}

impl Unpacker {
    fn begin(&mut self, entry: Entry, xattrs: Xattrs) -> Result<(), LayerError> {
        self.unpacked.entries += 1;
        if self.unpacked.entries > self.bounds.entries_max {
            return Err(LayerError::TooMany { max: self.bounds.entries_max });
        }
        let components = components(&entry.path)?;
        if let ([first, _, ..], Form::Files { left_out }) = (&components[..], self.form)
            && left_out.iter().any(|name| name.as_bytes() == *first)
        {
            return Ok(());
        }
        let path = components.join(&b'/');
        let marked = components.iter().position(|name| name.starts_with(WHITEOUT_PREFIX));
        match marked {
            Some(at) if at + 1 == components.len() => return self.mark(&path, &entry),
            Some(_) => {
                let (path, why) = (path_excerpt(&path), "the layer puts a file in it");
                return Err(LayerError::Whiteout { path, why });
            }
            None => {}
        }
        let xattrs = kept_xattrs(&path, xattrs)?;
        match &entry.kind {
            Kind::Directory => self.make_directory(path, entry, &xattrs),
            Kind::CharDevice { .. } | Kind::BlockDevice { .. } => {
                Err(LayerError::Device { path: path_excerpt(&path) })
            }
            _ if path.is_empty() => Err(LayerError::Collision { path: "/".to_owned() }),
            Kind::File { size } => {
                self.unpacked.bytes = self.unpacked.bytes.saturating_add(*size);
                if self.unpacked.bytes > self.bounds.bytes_max {
                    return Err(LayerError::TooLarge { max: self.bounds.bytes_max });
                }
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(UNFINISHED_FILE);
                let file = self.make(&path, |parent, name| {
                    rustix::fs::openat2(parent, name, flags, mode, NOWHERE_ELSE)
                })?;
                self.file = Some((File::from(file), entry, xattrs));
                Ok(())
            }
            Kind::Symlink { target } => {
                let target = OsStr::from_bytes(target);
                self.make(&path, |parent, name| rustix::fs::symlinkat(target, parent, name))?;
                self.describe_name(&path, &entry, false)
            }
            Kind::Fifo => {
                let mode = Mode::from_raw_mode(UNFINISHED_FILE);
                self.make(&path, |parent, name| {
                    rustix::fs::mknodat(parent, name, FileType::Fifo, mode, 0)
                })?;
                self.describe_name(&path, &entry, true)
            }
            Kind::HardLink { target } => self.make_link(&path, target),
        }
    }

    /// Records what an entry removes.
    fn mark(&mut self, path: &[u8], entry: &Entry) -> Result<(), LayerError> {
        let (directory, name) = split(path);
        let refused = |why| LayerError::Whiteout { path: path_excerpt(path), why };
        if matches!(self.form, Form::Files { .. }) {
            return Err(refused("its name marks a removed file in an image"));
        }
        if !matches!(entry.kind, Kind::File { size: 0 }) {
            return Err(refused("it is not an empty file"));
        }
        let marks = &mut self.unpacked.marks;
        if name == OPAQUE {
            marks.note(directory)?;
            marks.opaque.insert(directory.to_vec());
            return Ok(());
        }
        if name.starts_with(AUFS_PREFIX) {
            return Ok(());
        }
        let gone = &name[WHITEOUT_PREFIX.len()..];
        if matches!(gone, b"" | b"." | b"..") {
            return Err(refused("it names nothing"));
        }
        marks.note(path)?;
        marks.whiteouts.insert(join(directory, gone));
        Ok(())
    }

    fn make_directory(
        &mut self,
        path: Vec<u8>,
        entry: Entry,
        xattrs: &Xattrs,
    ) -> Result<(), LayerError> {
        self.unpacked.marks.implied.remove(&path);
        if !path.is_empty() {
            let (parent, name) = self.open_parent(&path)?;
            self.forget_link(&path);
            let mode = Mode::from_raw_mode(UNFINISHED_DIRECTORY);
            let name = OsStr::from_bytes(name);
            let parent = &parent;
            let made = match rustix::fs::mkdirat(parent, name, mode) {
                Err(Errno::EXIST) if is_directory(parent, name) => Ok(()),
                Err(Errno::EXIST) => rustix::fs::unlinkat(parent, name, AtFlags::empty())
                    .and_then(|()| rustix::fs::mkdirat(parent, name, mode)),
                made => made,
            };
            made.map_err(|errno| LayerError::at(&path, errno))?;
        }
        if !xattrs.is_empty() {
            let held = open_at(&self.root, &path).map_err(|errno| LayerError::at(&path, errno))?;
            self.set_xattrs(&held, &path, xattrs)?;
        }
        self.unpacked.marks.note(&path)?;
        self.directories.insert(path, entry);
        Ok(())
    }

    /// A link to a file of this layer is made; one to a file that is not here means a layer below.
    fn make_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), LayerError> {
        let components = components(target)?;
        let target = components.join(&b'/');
        let bad =
            || LayerError::BadLink { path: path_excerpt(path), target: path_excerpt(&target) };
        if target.is_empty() || components.iter().any(|name| name.starts_with(WHITEOUT_PREFIX)) {
            return Err(bad());
        }
        if target == path {
            return Err(bad());
        }
        let (from, old) = split(&target);
        let linked = match open_at(&self.root, from) {
            Ok(from) if exists(&from, old) => {
                let old = OsStr::from_bytes(old);
                self.make(path, |parent, name| {
                    rustix::fs::linkat(&from, old, parent, name, AtFlags::empty())
                })
            }
            Ok(_) | Err(Errno::NOENT) => {
                self.clear(path)?;
                let marks = &mut self.unpacked.marks;
                marks.note(path)?;
                marks.note(&target)?;
                marks.links.insert(path.to_vec(), target.clone());
                Ok(())
            }
            Err(errno) => Err(LayerError::at(&target, errno)),
        };
        match linked {
            // The kernel's word on hard links to directories.
            Err(LayerError::Write { source, .. })
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Err(bad())
            }
            linked => linked,
        }
    }

    /// Makes something under a name; whatever has the name is removed first, unless it is a
    /// directory.
    fn make<T>(
        &mut self,
        path: &[u8],
        make: impl Fn(&OwnedFd, &OsStr) -> Result<T, Errno>,
    ) -> Result<T, LayerError> {
        let (parent, name) = self.open_parent(path)?;
        let name = OsStr::from_bytes(name);
        let made = match make(&parent, name) {
            Err(Errno::EXIST) => rustix::fs::unlinkat(&parent, name, AtFlags::empty())
                .and_then(|()| make(&parent, name)),
            made => made,
        };
        self.forget_link(path);
        made.map_err(|errno| LayerError::at(path, errno))
    }

    /// Takes a file away that this layer has named before.
    fn clear(&mut self, path: &[u8]) -> Result<(), LayerError> {
        let (parent, name) = self.open_parent(path)?;
        match rustix::fs::unlinkat(&parent, OsStr::from_bytes(name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(LayerError::at(path, errno)),
        }
    }

    /// The new file replaces the link to a lower layer.
    fn forget_link(&mut self, path: &[u8]) {
        self.unpacked.marks.links.remove(path);
    }

    /// The directory that a path is in, and its last component. What is missing on the way is made,
    /// and noted: archives need not name parents that are below.
    fn open_parent<'a>(&mut self, path: &'a [u8]) -> Result<(OwnedFd, &'a [u8]), LayerError> {
        let (directory, name) = split(path);
        let copy = |held: &OwnedFd| {
            held.try_clone()
                .map_err(|source| LayerError::Write { path: path_excerpt(directory), source })
        };
        if let Some((known, held)) = &self.parent
            && known == directory
        {
            return Ok((copy(held)?, name));
        }
        let opened = match open_at(&self.root, directory) {
            Err(Errno::NOENT) => self.imply(directory)?,
            opened => opened.map_err(|errno| LayerError::at(path, errno))?,
        };
        let held = copy(&opened)?;
        self.parent = Some((directory.to_vec(), opened));
        Ok((held, name))
    }

    fn imply(&mut self, directory: &[u8]) -> Result<OwnedFd, LayerError> {
        for end in ends(directory) {
            let path = &directory[..end];
            let (above, name) = split(path);
            let made = open_at(&self.root, above).and_then(|above| {
                let mode = Mode::from_raw_mode(UNFINISHED_DIRECTORY);
                rustix::fs::mkdirat(above, OsStr::from_bytes(name), mode)
            });
            match made {
                Ok(()) => {
                    self.forget_link(path);
                    self.unpacked.marks.note(path)?;
                    self.unpacked.marks.implied.insert(path.to_vec());
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(LayerError::at(directory, errno)),
            }
        }
        open_at(&self.root, directory).map_err(|errno| LayerError::at(directory, errno))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LayerError> {
        let Some((file, entry, _)) = &mut self.file else { return Ok(()) };
        file.write_all(bytes)
            .map_err(|source| LayerError::Write { path: path_excerpt(&entry.path), source })
    }

    fn end_file(&mut self) -> Result<(), LayerError> {
        let Some((file, entry, xattrs)) = self.file.take() else { return Ok(()) };
        self.describe(&file, &entry, &xattrs)
    }

    /// Sets owner, mode, attributes and times of an open file, in this order: a new owner clears
    /// set-id bits and capabilities, and everything changes the times.
    fn describe(
        &mut self,
        held: impl AsFd,
        entry: &Entry,
        xattrs: &Xattrs,
    ) -> Result<(), LayerError> {
        let held = held.as_fd();
        let chowned = || {
            rustix::fs::fchown(held, Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)))
        };
        self.own(entry, chowned)?;
        rustix::fs::fchmod(held, Mode::from_raw_mode(entry.mode))
            .map_err(|errno| LayerError::at(&entry.path, errno))?;
        self.set_xattrs(held, &entry.path, xattrs)?;
        // A time that a file system cannot hold is no reason to refuse an image.
        let _ = rustix::fs::futimens(held, &times(entry));
        Ok(())
    }

    /// The same for something that cannot be opened.
    fn describe_name(
        &mut self,
        path: &[u8],
        entry: &Entry,
        has_mode: bool,
    ) -> Result<(), LayerError> {
        let (parent, name) = self.open_parent(path)?;
        let name = OsStr::from_bytes(name);
        let link = AtFlags::SYMLINK_NOFOLLOW;
        self.own(entry, || {
            let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
            rustix::fs::chownat(&parent, name, Some(uid), Some(gid), link)
        })?;
        if has_mode {
            rustix::fs::chmodat(&parent, name, Mode::from_raw_mode(entry.mode), AtFlags::empty())
                .map_err(|errno| LayerError::at(path, errno))?;
        }
        let _ = rustix::fs::utimensat(&parent, name, &times(entry), link);
        Ok(())
    }

    /// Gives something its owner, or counts it when this process may not.
    fn own(
        &mut self,
        entry: &Entry,
        chown: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), LayerError> {
        // For an ordinary user all files belong to this user, who is root in the sandbox.
        if !self.chowns || [entry.uid, entry.gid].contains(&NOBODY_AT_ALL) {
            self.unpacked.lost.owners += u64::from((entry.uid, entry.gid) != (0, 0));
            return Ok(());
        }
        match chown() {
            Err(Errno::PERM | Errno::INVAL) => {
                self.unpacked.lost.owners += 1;
                Ok(())
            }
            owned => owned.map_err(|errno| LayerError::at(&entry.path, errno)),
        }
    }

    fn set_xattrs(
        &mut self,
        held: impl AsFd,
        path: &[u8],
        xattrs: &Xattrs,
    ) -> Result<(), LayerError> {
        for (name, value) in xattrs {
            let name = OsStr::from_bytes(name);
            match rustix::fs::fsetxattr(held.as_fd(), name, value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP | Errno::INVAL) => {
                    self.unpacked.lost.attributes += 1;
                }
                Err(errno) => return Err(LayerError::at(path, errno)),
            }
        }
        Ok(())
    }

    /// Gives directories their final attributes, the innermost first.
    fn finish(mut self) -> Result<UnpackedLayer, LayerError> {
        for path in std::mem::take(&mut self.unpacked.marks.implied) {
            let held = open_at(&self.root, &path).map_err(|errno| LayerError::at(&path, errno))?;
            rustix::fs::fchmod(&held, Mode::from_raw_mode(IMPLIED_DIRECTORY))
                .map_err(|errno| LayerError::at(&path, errno))?;
            self.unpacked.marks.implied.insert(path);
        }
        for (path, entry) in std::mem::take(&mut self.directories).into_iter().rev() {
            let held = open_at(&self.root, &path).map_err(|errno| LayerError::at(&path, errno))?;
            self.describe(&held, &entry, &Vec::new())?;
        }
        Ok(self.unpacked)
    }
}

/// The components of a path of the archive, each within bounds.
fn components(path: &[u8]) -> Result<Vec<&[u8]>, LayerError> {
    let components = safe_relative(path)?;
    if components.len() > DEPTH_MAX {
        return Err(LayerError::TooDeep { path: path_excerpt(path), max: DEPTH_MAX });
    }
    if components.iter().any(|name| name.len() > NAME_BYTES_MAX) {
        return Err(LayerError::NameTooLong { path: path_excerpt(path), max: NAME_BYTES_MAX });
    }
    Ok(components)
}

/// The attributes that are kept. Others belong to the host that the image was made on.
pub(crate) fn kept_xattrs(path: &[u8], xattrs: Xattrs) -> Result<Xattrs, LayerError> {
    let of_overlay = |name: &[u8]| OVERLAY_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if let Some((name, _)) = xattrs.iter().find(|(name, _)| of_overlay(name)) {
        return Err(LayerError::OverlayAttribute {
            path: path_excerpt(path),
            name: path_excerpt(name),
        });
    }
    let is_kept = |name: &[u8]| name == CAPABILITY || name.starts_with(USER_PREFIX);
    Ok(xattrs.into_iter().filter(|(name, _)| is_kept(name) && !name.contains(&0)).collect())
}

fn is_directory(parent: &OwnedFd, name: &OsStr) -> bool {
    let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir())
}

fn exists(parent: &OwnedFd, name: &[u8]) -> bool {
    rustix::fs::statat(parent, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

fn times(entry: &Entry) -> Timestamps {
    let time = Timespec { tv_sec: entry.mtime_s, tv_nsec: i64::from(entry.mtime_ns) };
    Timestamps { last_access: time, last_modification: time }
}
