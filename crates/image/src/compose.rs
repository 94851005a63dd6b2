//! Layers on top of each other, as one root: directories made again, files as hard links to those of
//! their layers, so that a root costs a name for each file and no bytes.
//!
//! Layers are applied from the lowest up. For each, its removals come first, then its files, then its links
//! to files of lower layers. At the end directories get owner, mode, attributes and times of the topmost
//! layer that describes them. The result is read-only: a write to one of its files would change the layer,
//! and so every image that has it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;

use super::layer::limits::{NOTE_BYTES, NOTED_BYTES_MAX};
use super::layer::{Marks, hold, open_at, remove_tree};
use host::byte_path::{join, split};
use host::excerpt::path_excerpt;

/// Mode of a directory that is not finished.
const UNFINISHED: u32 = 0o700;
/// The longest value of an attribute that the kernel knows, and the longest list of names.
const XATTR_BYTES_MAX: usize = 64 * 1024;
/// The bits of a mode without the file type.
const MODE_MASK: u32 = 0o7777;

/// Why layers do not make a root.
#[derive(Debug, thiserror::Error)]
pub enum ComposeError {
    #[error("{path:?} removes a file through a symbolic link of a lower layer")]
    ThroughSymlink { path: String },
    #[error("{path:?} is a hard link to {target:?}, which is not a file of this or a lower layer")]
    BadLink { path: String, target: String },
    #[error("its directory paths have more than {max} bytes in total")]
    TooMuchNoted { max: usize },
    #[error("{path:?} cannot be added to the root: {source}")]
    Write { path: String, source: io::Error },
}

impl ComposeError {
    fn at(path: &[u8]) -> impl Fn(Errno) -> Self {
        move |errno| Self::Write { path: path_excerpt(path), source: errno.into() }
    }
}

/// A layer as it is kept.
pub struct Layer<'a> {
    pub tree: &'a Path,
    pub marks: &'a Marks,
}

/// Puts layers, the lowest first, into an empty directory of the same file system.
pub fn compose(layers: &[Layer<'_>], into: &Path) -> Result<(), ComposeError> {
    let root = hold(into).map_err(ComposeError::at(b""))?;
    let mut composer = Composer { root, described: BTreeMap::new(), noted_bytes: 0 };
    let mut trees = Vec::with_capacity(layers.len());
    for (number, layer) in layers.iter().enumerate() {
        let tree = hold(layer.tree).map_err(ComposeError::at(b""))?;
        composer.take_away(layer.marks)?;
        composer.put_on(&tree, number, layer.marks)?;
        composer.link(layer.marks)?;
        trees.push(tree);
    }
    composer.finish(&trees)
}

struct Composer {
    root: OwnedFd,
    /// The layer that describes a directory last, and where that is in it.
    described: BTreeMap<Vec<u8>, (usize, Vec<u8>)>,
    noted_bytes: usize,
}

impl Composer {
    fn take_away(&mut self, marks: &Marks) -> Result<(), ComposeError> {
        for directory in &marks.opaque {
            let Some(held) = self.below(directory)? else { continue };
            for name in names(&held).map_err(ComposeError::at(directory))? {
                self.remove(&held, directory, &name)?;
            }
        }
        for path in &marks.whiteouts {
            let (directory, name) = split(path);
            if let Some(held) = self.below(directory)? {
                self.remove(&held, directory, name)?;
            }
        }
        Ok(())
    }

    /// Opens a directory that exists already. Following a link would remove what the layer has not named;
    /// ignoring it would keep what the layer removes.
    fn below(&self, directory: &[u8]) -> Result<Option<OwnedFd>, ComposeError> {
        match open_at(&self.root, directory) {
            Ok(held) => Ok(Some(held)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(Errno::LOOP | Errno::XDEV) => {
                Err(ComposeError::ThroughSymlink { path: path_excerpt(directory) })
            }
            Err(errno) => Err(ComposeError::at(directory)(errno)),
        }
    }

    fn remove(
        &mut self,
        held: &OwnedFd,
        directory: &[u8],
        name: &[u8],
    ) -> Result<(), ComposeError> {
        let path = join(directory, name);
        remove_tree(held, name)
            .map_err(|source| ComposeError::Write { path: path_excerpt(&path), source })?;
        let below = [path.as_slice(), b"/"].concat();
        let gone: Vec<_> = self
            .described
            .range(path.clone()..)
            .map(|(known, _)| known)
            .take_while(|known| known.starts_with(&path))
            .filter(|known| **known == path || known.starts_with(&below))
            .cloned()
            .collect();
        for path in gone {
            self.described.remove(&path);
        }
        Ok(())
    }

    /// Puts the files of a layer into the root.
    fn put_on(&mut self, tree: &OwnedFd, number: usize, marks: &Marks) -> Result<(), ComposeError> {
        // The path in the layer, and in the root.
        let mut waiting = vec![(Vec::new(), Vec::new())];
        if !self.described.contains_key(&b""[..]) || !marks.implied.contains(&b""[..]) {
            self.describe(Vec::new(), number, Vec::new())?;
        }
        while let Some((directory, place)) = waiting.pop() {
            let failed = ComposeError::at(&directory);
            let from = open_at(tree, &directory).map_err(&failed)?;
            let to = open_at(&self.root, &place).map_err(&failed)?;
            for name in names(&from).map_err(&failed)? {
                let path = join(&directory, &name);
                let failed = ComposeError::at(&path);
                let entry = OsStr::from_bytes(&name);
                if !status(&from, entry).map_err(&failed)?.is_some_and(is_directory) {
                    self.link_over(&from, &name, &to, &place, &name)?;
                    continue;
                }
                let is_implied = marks.implied.contains(&path);
                let mut place = join(&place, &name);
                let was_there = match status(&to, entry).map_err(&failed)? {
                    Some(found) if is_directory(found) => true,
                    Some(_) => {
                        if let Some(other) = self.led_to(&place).filter(|_| is_implied) {
                            place = other;
                            true
                        } else {
                            let (above, name) = split(&place);
                            self.remove(&to, above, name)?;
                            false
                        }
                    }
                    None => false,
                };
                if !was_there {
                    let mode = Mode::from_raw_mode(UNFINISHED);
                    rustix::fs::mkdirat(&to, entry, mode).map_err(&failed)?;
                }
                if !was_there || !is_implied {
                    self.describe(place.clone(), number, path.clone())?;
                }
                waiting.push((path.clone(), place));
            }
        }
        Ok(())
    }

    /// The directory that a link leads to within the root. A layer that has `lib/x` and does not
    /// describe `lib` means the directory that programs find there, not one in place of the link.
    fn led_to(&self, place: &[u8]) -> Option<Vec<u8>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let path = OsStr::from_bytes(place);
        let found = rustix::fs::openat2(&self.root, path, flags, Mode::empty(), within).ok()?;
        let real = |held: &OwnedFd| {
            let link = format!("/proc/self/fd/{}", held.as_raw_fd());
            std::fs::read_link(link).ok()
        };
        let (found, root) = (real(&found)?, real(&self.root)?);
        Some(found.strip_prefix(root).ok()?.as_os_str().as_bytes().to_vec())
    }

    fn describe(
        &mut self,
        place: Vec<u8>,
        number: usize,
        path: Vec<u8>,
    ) -> Result<(), ComposeError> {
        self.noted_bytes += place.len() + path.len() + NOTE_BYTES;
        self.described.insert(place, (number, path));
        if self.noted_bytes > NOTED_BYTES_MAX {
            return Err(ComposeError::TooMuchNoted { max: NOTED_BYTES_MAX });
        }
        Ok(())
    }

    /// Makes links to files of lower layers, or to files that came later in this layer's archive.
    fn link(&mut self, marks: &Marks) -> Result<(), ComposeError> {
        for (path, target) in &marks.links {
            let bad =
                || ComposeError::BadLink { path: path_excerpt(path), target: path_excerpt(target) };
            let (above, old) = split(target);
            let from = self.below(above).ok().flatten().ok_or_else(bad)?;
            let found = status(&from, OsStr::from_bytes(old)).map_err(ComposeError::at(target))?;
            if found.is_none_or(is_directory) {
                return Err(bad());
            }
            let (directory, name) = split(path);
            let to = open_at(&self.root, directory).map_err(ComposeError::at(path))?;
            if same(found, status(&to, OsStr::from_bytes(name)).map_err(ComposeError::at(path))?) {
                continue;
            }
            self.link_over(&from, old, &to, directory, name)?;
        }
        Ok(())
    }

    /// Gives a file another name, and replaces what had it.
    fn link_over(
        &mut self,
        from: &OwnedFd,
        old: &[u8],
        to: &OwnedFd,
        directory: &[u8],
        name: &[u8],
    ) -> Result<(), ComposeError> {
        let link = || {
            let (old, name) = (OsStr::from_bytes(old), OsStr::from_bytes(name));
            rustix::fs::linkat(from, old, to, name, AtFlags::empty())
        };
        let linked = match link() {
            Err(Errno::EXIST) => {
                self.remove(to, directory, name)?;
                link()
            }
            linked => linked,
        };
        linked.map_err(ComposeError::at(&join(directory, name)))
    }

    /// Gives directories their final attributes, the innermost first.
    fn finish(self, trees: &[OwnedFd]) -> Result<(), ComposeError> {
        for (place, (number, path)) in self.described.iter().rev() {
            let described = open_at(&self.root, place).and_then(|held| {
                let from = open_at(&trees[*number], path)?;
                look_like(&held, &from)
            });
            described.map_err(ComposeError::at(place))?;
        }
        Ok(())
    }
}

/// Gives a directory owner, mode, attributes and times of another.
fn look_like(held: &OwnedFd, other: &OwnedFd) -> Result<(), Errno> {
    let found = rustix::fs::fstat(other)?;
    let own = rustix::fs::fstat(held)?;
    if (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid) {
        let (uid, gid) = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
        rustix::fs::fchown(held, Some(uid), Some(gid))?;
    }
    rustix::fs::fchmod(held, Mode::from_raw_mode(found.st_mode & MODE_MASK))?;
    for (name, value) in xattrs(other)? {
        let name = OsStr::from_bytes(&name);
        rustix::fs::fsetxattr(held, name, &value, XattrFlags::empty())?;
    }
    let time = Timespec { tv_sec: found.st_mtime, tv_nsec: found.st_mtime_nsec as _ };
    rustix::fs::futimens(held, &Timestamps { last_access: time, last_modification: time })
}

/// Name and value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);
pub type Xattrs = Vec<Xattr>;

/// The attributes that an image has given something. Others are the host's own labels.
pub fn xattrs(held: impl AsFd) -> Result<Xattrs, Errno> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let held = held.as_fd();
    let length = match rustix::fs::flistxattr(held, &mut names[..]) {
        // This file system has none.
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        listed => listed?,
    };
    let of_image = |name: &&[u8]| *name == b"security.capability" || name.starts_with(b"user.");
    let names = names[..length].split(|byte| *byte == 0).filter(of_image);
    names
        .map(|name| {
            let mut value = vec![0; XATTR_BYTES_MAX];
            let length = rustix::fs::fgetxattr(held, OsStr::from_bytes(name), &mut value[..])?;
            value.truncate(length);
            Ok((name.to_vec(), value))
        })
        .collect()
}

/// All names in a directory, sorted, so that the same layers are always composed in the same order.
pub fn names(held: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(held)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn status(parent: &OwnedFd, name: &OsStr) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn is_directory(found: Stat) -> bool {
    FileType::from_raw_mode(found.st_mode).is_dir()
}

fn same(one: Option<Stat>, other: Option<Stat>) -> bool {
    let inode = |found: Option<Stat>| found.map(|found| (found.st_dev, found.st_ino));
    one.is_some() && inode(one) == inode(other)
}
