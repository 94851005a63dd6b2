//! Archives files of this host or of an image as a layer: what `COPY` means.
//!
//! A context and an image are untrusted. Every path is resolved within its own root, where a link can lead
//! nowhere else; directories below are opened through no link at all, and links in them are copied as links.
//! Copied files have one owner, and keep their times; directories that are made on the way have none. So the
//! same files give the same layer.

mod add;
mod root;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use archive::{END_OF_ARCHIVE, Entry, Kind, encode_entry_with, padding};
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::compose::{Xattr, names, xattrs};
use super::digest::{Digest, Digester};
use super::dockerfile::pattern::Ignore;
use super::layer::limits::{BUFFER_BYTES, DEPTH_MAX, LAYER_BYTES_MAX, LAYER_ENTRIES_MAX};
use super::layer::{CAPABILITY, LayerError, open_at};
use host::byte_path::{climbs, components, ends, join, split};
use host::excerpt::path_excerpt;

use root::ResolvedPath;
pub use root::Root;

/// Mode of a directory that is made on the way.
const IMPLIED_DIRECTORY: u32 = 0o755;
/// The bits of a mode without the file type.
const MODE_MASK: u32 = 0o7777;
/// The bits by which a program runs as its owner or group.
const SET_ID: u32 = 0o6000;
const WHITEOUT: &[u8] = b".wh.";

/// Why files cannot be copied. Paths are those of the context or the image.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{path:?} is outside of the build context; only files inside it can be copied")]
    Outside { path: String },
    #[error("cannot copy {path:?}: it does not exist, or .dockerignore or --exclude leaves it out")]
    NoSource { path: String },
    #[error(
        "{path:?} is not a directory, but several files are copied there; end it with '/' to create a directory"
    )]
    Several { path: String },
    #[error("{path:?} is a file, but a directory is needed there")]
    NotDirectory { path: String },
    #[error("{path:?} is a directory, but a file must be written there")]
    IsDirectory { path: String },
    #[error("{path:?} has a whiteout's name, which marks a removed file in an image")]
    Whiteout { path: String },
    #[error("there are more than {max} files")]
    TooMany { max: u64 },
    #[error("the files have more than {max} bytes")]
    TooLarge { max: u64 },
    #[error("{path:?} is more than {max} directories deep")]
    TooDeep { path: String, max: usize },
    #[error("{path:?} cannot be unpacked: {source}")]
    Archive { path: String, source: LayerError },
    #[error(
        "{path:?} is compressed with {with}, which is not supported; COPY it, or unpack it into the \
         context"
    )]
    Compression { path: String, with: &'static str },
    #[error("{path:?}: {source}")]
    Read { path: String, source: io::Error },
    #[error("the layer cannot be written: {0}")]
    Write(#[source] io::Error),
}

/// An absolute path without `..`.
pub fn clean(path: &str) -> String {
    let components = components(path.as_bytes());
    // Components of a text end at slashes, and so are texts.
    format!("/{}", String::from_utf8_lossy(&components.join(&b'/')))
}

/// What is copied where.
#[derive(Debug)]
pub struct Task<'a> {
    pub from: &'a Root,
    /// What is excluded from a context; empty for an image.
    pub ignore: Option<&'a Ignore>,
    /// What is left out of this copy: of a directory, by the path below it; of a file, by its name.
    pub exclude: &'a Ignore,
    pub sources: &'a [String],
    /// Absolute; with a final slash, a directory.
    pub to: &'a str,
    /// Files that the recipe itself has.
    pub texts: &'a [Text],
    /// The owner of everything. Without it, copies belong to root, and unpacked files to the owner in their
    /// archive.
    pub owner: Option<(u32, u32)>,
    pub mode: Option<u32>,
    /// Whether archives are unpacked.
    pub unpacks: bool,
}

impl Task<'_> {
    /// Whether a file is not copied, by its path in the context and its path below what is copied.
    fn leaves_out(&self, path: &[u8], below: &[u8]) -> bool {
        self.ignore.is_some_and(|ignore| ignore.excludes(path)) || self.exclude.excludes(below)
    }

    fn owner(&self) -> (u32, u32) {
        self.owner.unwrap_or((0, 0))
    }

    /// Files of an image keep their owners, as far as the store has them: that of an ordinary user has
    /// everything as that user's. Those of a context are root's.
    fn owner_of(&self, stat: &Stat) -> (u32, u32) {
        let is_kept = self.ignore.is_none() && rustix::process::geteuid().is_root();
        let own = if is_kept { (stat.st_uid, stat.st_gid) } else { (0, 0) };
        self.owner.unwrap_or(own)
    }
}

/// A file that is written in a recipe.
#[derive(Debug)]
pub struct Text {
    pub name: String,
    pub content: String,
}

/// The mode of such a file.
const TEXT_MODE: u32 = 0o644;

/// What a task copies, by the name that each of its sources has; a source with wildcards may be several.
fn find_sources(task: &Task<'_>) -> Result<Vec<(Vec<u8>, ResolvedPath)>, CopyError> {
    let mut sources = Vec::new();
    for source in task.sources {
        let path = path_excerpt(source.as_bytes());
        let is_outside = task.ignore.is_some() && climbs(source.as_bytes());
        if is_outside {
            return Err(CopyError::Outside { path });
        }
        let before = sources.len();
        for one in task.from.glob(&components(source.as_bytes()))? {
            let name = one.last().cloned().unwrap_or_default();
            let found = task.from.find(&one)?;
            let is_directory = found.kind.is_some_and(FileType::is_dir);
            let is_gone = !is_directory && task.leaves_out(&one.join(&b'/'), &name);
            if found.kind.is_some() && !is_gone {
                sources.push((name, found));
            }
        }
        if sources.len() == before {
            return Err(CopyError::NoSource { path });
        }
    }
    Ok(sources)
}

/// Writes a layer, and records what is in it, whenever that was written.
pub struct Layer<'a> {
    root: &'a Root,
    out: BufWriter<File>,
    key: Digester,
    /// The directories that the layer has.
    made: BTreeSet<Vec<u8>>,
    /// Where the first of several names of a file is, by its device and inode; the others become links to it.
    first_names: HashMap<(u64, u64), Vec<u8>>,
    /// The same, by the place.
    inodes: HashMap<Vec<u8>, (u64, u64)>,
    entries: u64,
    bytes: u64,
}

impl<'a> Layer<'a> {
    /// A layer on top of a root.
    pub fn new(root: &'a Root, to: &Path) -> Result<Self, CopyError> {
        Ok(Self {
            root,
            out: BufWriter::new(File::create(to).map_err(CopyError::Write)?),
            key: Digester::default(),
            made: BTreeSet::new(),
            first_names: HashMap::new(),
            inodes: HashMap::new(),
            entries: 0,
            bytes: 0,
        })
    }

    /// Ends the archive. The digest is of all that is in it but its times.
    pub fn finish(mut self) -> Result<Digest, CopyError> {
        self.out.write_all(END_OF_ARCHIVE).map_err(CopyError::Write)?;
        self.out.flush().map_err(CopyError::Write)?;
        Ok(self.key.finish())
    }

    /// Adds a directory and its parents, as far as they do not exist.
    pub fn directory(&mut self, path: &str, owner: (u32, u32)) -> Result<(), CopyError> {
        let found = self.place(&components(path.as_bytes()))?;
        self.add_directories(&found, owner)
    }

    /// Copies what a task says.
    pub fn copy(&mut self, task: &Task<'_>) -> Result<(), CopyError> {
        let sources = find_sources(task)?;
        let to = components(task.to.as_bytes());
        let place = self.place(&to)?;
        let is_directory = task.to.ends_with(['/', '.']) || self.is_directory(&to)?;
        if sources.len() + task.texts.len() > 1 && !is_directory {
            return Err(CopyError::Several { path: task.to.to_owned() });
        }
        for (name, found) in sources {
            if found.kind.is_some_and(FileType::is_dir) {
                self.tree(task, &found.path, &place)?;
            } else if task.unpacks && add::is_archive(task.from, &found)? {
                self.unpack(task, &found.path, &place)?;
            } else {
                let place = if is_directory { join(&place, &name) } else { place.clone() };
                let (above, _) = split(&place);
                self.add_directories(above, task.owner())?;
                let (parent, last) = split(&found.path);
                let failed = |errno: Errno| CopyError::Read {
                    path: path_excerpt(&found.path),
                    source: errno.into(),
                };
                let held = open_at(&task.from.held, parent).map_err(failed)?;
                self.add(task, &held, &found.path, last, &place)?;
            }
        }
        for text in task.texts {
            let name = text.name.as_bytes();
            let place = if is_directory { join(&place, name) } else { place.clone() };
            self.text(task, &place, text.content.as_bytes())?;
        }
        Ok(())
    }

    fn text(&mut self, task: &Task<'_>, place: &[u8], content: &[u8]) -> Result<(), CopyError> {
        self.add_directories(split(place).0, task.owner())?;
        self.refuse_directory(place)?;
        let (uid, gid) = task.owner();
        let (path, size) = (place.to_vec(), content.len() as u64);
        let (kind, mode) = (Kind::File { size }, task.mode.unwrap_or(TEXT_MODE));
        let entry = Entry { path, kind, mode, uid, gid, mtime_s: 0, mtime_ns: 0 };
        self.begin(entry, &[])?;
        self.content(content)?;
        self.end(size)
    }

    /// The entries of a directory.
    fn tree(&mut self, task: &Task<'_>, top: &[u8], to: &[u8]) -> Result<(), CopyError> {
        self.add_directories(to, task.owner())?;
        let mut waiting = vec![(top.to_vec(), to.to_vec(), 0)];
        while let Some((from, to, depth)) = waiting.pop() {
            let failed =
                |errno: Errno| CopyError::Read { path: path_excerpt(&from), source: errno.into() };
            if depth > DEPTH_MAX {
                return Err(CopyError::TooDeep { path: path_excerpt(&from), max: DEPTH_MAX });
            }
            let held = open_at(&task.from.held, &from).map_err(failed)?;
            for name in names(&held).map_err(failed)? {
                let (source, place) = (join(&from, &name), join(&to, &name));
                let stat =
                    rustix::fs::statat(&held, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW);
                let stat = stat.map_err(failed)?;
                let below = source.strip_prefix(top).unwrap_or(&source);
                let below = below.strip_prefix(b"/").unwrap_or(below);
                let is_ignored = task.leaves_out(&source, below);
                if FileType::from_raw_mode(stat.st_mode).is_dir() {
                    // A link of the image that leads to a directory stays one.
                    let place = self.place(&components(&place))?;
                    if !is_ignored {
                        self.add_directories(split(&place).0, task.owner())?;
                        self.add(task, &held, &source, &name, &place)?;
                    }
                    // Something in it may be re-included.
                    waiting.push((source, place, depth + 1));
                } else if !is_ignored {
                    self.add_directories(&to, task.owner())?;
                    self.add(task, &held, &source, &name, &place)?;
                }
            }
        }
        Ok(())
    }

    /// The target of a copy, with links on the way resolved.
    fn place(&self, components: &[Vec<u8>]) -> Result<Vec<u8>, CopyError> {
        let Some((last, above)) = components.split_last() else { return Ok(Vec::new()) };
        let whole = self.root.find(components);
        if let Ok(ResolvedPath { path, kind: Some(kind) }) = &whole
            && kind.is_dir()
        {
            return Ok(path.clone());
        }
        let found = self.root.find(above)?;
        if found.kind.is_some_and(|kind| !kind.is_dir()) {
            return Err(CopyError::NotDirectory { path: path_excerpt(&found.path) });
        }
        Ok(join(&found.path, last))
    }

    fn is_directory(&self, components: &[Vec<u8>]) -> Result<bool, CopyError> {
        let place = self.place(components)?;
        let is_there = self.root.find(components)?.kind.is_some_and(FileType::is_dir);
        Ok(is_there || self.made.contains(&place))
    }

    /// Adds a directory and those above it, as far as neither the root nor the layer has them.
    fn add_directories(&mut self, path: &[u8], owner: (u32, u32)) -> Result<(), CopyError> {
        for end in ends(path) {
            let directory = &path[..end];
            if self.made.contains(directory) {
                continue;
            }
            match self.root.find(&components(directory))?.kind {
                Some(kind) if kind.is_dir() => continue,
                Some(_) => return Err(CopyError::NotDirectory { path: path_excerpt(directory) }),
                None => {}
            }
            let (uid, gid) = owner;
            let (mode, kind) = (IMPLIED_DIRECTORY, Kind::Directory);
            let path = directory.to_vec();
            let entry = Entry { path, kind, mode, uid, gid, mtime_s: 0, mtime_ns: 0 };
            self.begin(entry, &[])?;
        }
        Ok(())
    }

    /// Adds one file, link or directory of the source.
    fn add(
        &mut self,
        task: &Task<'_>,
        held: &OwnedFd,
        source: &[u8],
        name: &[u8],
        place: &[u8],
    ) -> Result<(), CopyError> {
        let failed = |source_of: io::Error| CopyError::Read {
            path: path_excerpt(source),
            source: source_of,
        };
        let own = OsStr::from_bytes(name);
        let stat = rustix::fs::statat(held, own, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| failed(errno.into()))?;
        let found = FileType::from_raw_mode(stat.st_mode);
        let (_, last) = split(place);
        if last.starts_with(WHITEOUT) {
            return Err(CopyError::Whiteout { path: path_excerpt(source) });
        }
        let (mut content, mut attributes) = (None, Vec::new());
        let kind = if found.is_dir() {
            let opened = open_at(held, name);
            attributes = opened.and_then(xattrs).map_err(|errno| failed(errno.into()))?;
            Kind::Directory
        } else if found.is_symlink() {
            let target = rustix::fs::readlinkat(held, own, Vec::new());
            Kind::Symlink { target: target.map_err(|errno| failed(errno.into()))?.into_bytes() }
        } else if found.is_file() {
            let file = task.from.file(source).map_err(failed)?;
            let size = file.metadata().map_err(failed)?.len();
            let inode = (stat.st_dev, stat.st_ino);
            match self.first_names.get(&inode) {
                Some(first) if first != place => Kind::HardLink { target: first.clone() },
                _ => {
                    attributes = xattrs(&file).map_err(|errno| failed(errno.into()))?;
                    content = Some((file, size));
                    Kind::File { size }
                }
            }
        } else {
            // Sockets, devices and pipes have no place in an image.
            return Ok(());
        };
        if !found.is_dir() {
            self.refuse_directory(place)?;
            // It now has another content.
            if let Some(gone) = self.inodes.remove(place) {
                self.first_names.remove(&gone);
            }
        }
        if content.is_some() && stat.st_nlink > 1 {
            let inode = (stat.st_dev, stat.st_ino);
            self.first_names.insert(inode, place.to_vec());
            self.inodes.insert(place.to_vec(), inode);
        }
        let entry = Self::entry_of(task, &stat, place, kind);
        if (entry.uid, entry.gid) != (stat.st_uid, stat.st_gid) {
            // Like the bits of the mode that say the same.
            attributes.retain(|(name, _)| name != CAPABILITY);
        }
        self.write(entry, &attributes, content)
    }

    /// A file does not take the place of a directory.
    fn refuse_directory(&self, place: &[u8]) -> Result<(), CopyError> {
        let there = self.root.find(&components(place)).ok().and_then(|found| found.kind);
        if there.is_some_and(FileType::is_dir) || self.made.contains(place) {
            return Err(CopyError::IsDirectory { path: path_excerpt(place) });
        }
        Ok(())
    }

    /// The entry of a file: its owner, mode and time in the layer.
    fn entry_of(task: &Task<'_>, stat: &Stat, place: &[u8], kind: Kind) -> Entry {
        let (uid, gid) = task.owner_of(stat);
        let mut own_mode = stat.st_mode & MODE_MASK;
        if matches!(kind, Kind::File { .. }) && (uid, gid) != (stat.st_uid, stat.st_gid) {
            // A set-id file must not run as another owner than before.
            own_mode &= !SET_ID;
        }
        let mode = match kind {
            Kind::Symlink { .. } => own_mode,
            _ => task.mode.unwrap_or(own_mode),
        };
        let mtime_ns = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        Entry { path: place.to_vec(), kind, mode, uid, gid, mtime_s: stat.st_mtime, mtime_ns }
    }

    /// Writes an entry, and its content if it has some.
    fn write(
        &mut self,
        entry: Entry,
        attributes: &[Xattr],
        content: Option<(File, u64)>,
    ) -> Result<(), CopyError> {
        let path = path_excerpt(&entry.path);
        self.begin(entry, attributes)?;
        let Some((mut file, size)) = content else { return Ok(()) };
        let failed = |source| CopyError::Read { path: path.clone(), source };
        let (mut left, mut buffer) = (size, vec![0; BUFFER_BYTES]);
        while left > 0 {
            let wanted = usize::try_from(left).map_or(BUFFER_BYTES, |left| left.min(BUFFER_BYTES));
            let read = file.read(&mut buffer[..wanted]).map_err(failed)?;
            if read == 0 {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
            self.content(&buffer[..read])?;
            left -= read as u64;
        }
        self.end(size)
    }

    /// Begins an entry, whose content comes then.
    fn begin(&mut self, entry: Entry, attributes: &[Xattr]) -> Result<(), CopyError> {
        self.entries += 1;
        if self.entries > LAYER_ENTRIES_MAX {
            return Err(CopyError::TooMany { max: LAYER_ENTRIES_MAX });
        }
        self.bytes = self.bytes.saturating_add(entry.kind.content_bytes());
        if self.bytes > LAYER_BYTES_MAX {
            return Err(CopyError::TooLarge { max: LAYER_BYTES_MAX });
        }
        if matches!(entry.kind, Kind::Directory) {
            self.made.insert(entry.path.clone());
        }
        let encoded = |entry: &Entry| {
            let mut header = Vec::new();
            let encoded =
                encode_entry_with(entry, attributes, &mut header).map_err(io::Error::other);
            encoded.map(|()| header).map_err(CopyError::Write)
        };
        self.out.write_all(&encoded(&entry)?).map_err(CopyError::Write)?;
        self.key.update(&encoded(&Entry { mtime_s: 0, mtime_ns: 0, ..entry })?);
        Ok(())
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        self.key.update(bytes);
        self.out.write_all(bytes).map_err(CopyError::Write)
    }

    fn end(&mut self, size: u64) -> Result<(), CopyError> {
        self.out.write_all(padding(size)).map_err(CopyError::Write)
    }
}
