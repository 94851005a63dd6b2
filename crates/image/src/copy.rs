//! Archives files of this host or of an image as a layer: what `COPY` means.
//!
//! A context and an image are untrusted. Every path is resolved within its own root, where a link can lead
//! nowhere else; directories below are opened through no link at all, and links in them are copied as links.
//! Copied files have one owner, and keep their times; directories that are made on the way have none. So the
//! same files give the same layer.

mod add;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use archive::{END_OF_ARCHIVE, Entry, Kind, encode_entry_with, padding};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::compose::{Xattr, names, xattrs};
use super::digest::{Digest, Digester};
use super::dockerfile::pattern::{self, Ignore};
use super::layer::limits::{BUFFER_BYTES, DEPTH_MAX, LAYER_BYTES_MAX, LAYER_ENTRIES_MAX};
use super::layer::{CAPABILITY, LayerError, hold, open_at};
use host::byte_path::{climbs, components, ends, join, split};
use host::excerpt::path_excerpt;

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

/// A directory out of which nothing leads.
#[derive(Debug)]
pub struct Root {
    held: OwnedFd,
    real: PathBuf,
}

/// The resolution of a path within a root.
struct ResolvedPath {
    /// Without links, as far as it exists.
    path: Vec<u8>,
    kind: Option<FileType>,
}

impl Root {
    pub fn open(path: &Path) -> Result<Self, CopyError> {
        let failed = |errno: Errno| CopyError::Read {
            path: path_excerpt(path.as_os_str().as_bytes()),
            source: errno.into(),
        };
        let held = hold(path).map_err(failed)?;
        let real = real(&held).map_err(CopyError::Write)?;
        Ok(Self { held, real })
    }

    /// Whether a path is a directory there.
    pub fn has_directory(&self, path: &str) -> Result<bool, CopyError> {
        let found = self.find(&components(path.as_bytes()))?;
        Ok(found.kind.is_some_and(FileType::is_dir))
    }

    /// A small file within the root, if it is there.
    pub fn read(&self, path: &str, max: u64) -> Option<String> {
        let found = self.find(&components(path.as_bytes())).ok()?;
        found.kind.filter(|kind| kind.is_file())?;
        let mut text = String::new();
        self.file(&found.path).ok()?.take(max).read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn find(&self, components: &[Vec<u8>]) -> Result<ResolvedPath, CopyError> {
        let mut found = ResolvedPath { path: Vec::new(), kind: Some(FileType::Directory) };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        if components.len() > DEPTH_MAX {
            let path = path_excerpt(&components.join(&b'/'));
            return Err(CopyError::TooDeep { path, max: DEPTH_MAX });
        }
        for component in components {
            let path = join(&found.path, component);
            let failed = |source| CopyError::Read { path: path_excerpt(&path), source };
            match found.kind {
                Some(kind) if !kind.is_dir() => {
                    return Err(CopyError::NotDirectory { path: path_excerpt(&found.path) });
                }
                None => found.path = path,
                Some(_) => {
                    let name = OsStr::from_bytes(&path);
                    match rustix::fs::openat2(&self.held, name, flags, Mode::empty(), within) {
                        Ok(at) => {
                            let stat = rustix::fs::fstat(&at).map_err(|e| failed(e.into()))?;
                            let real = real(&at).map_err(&failed)?;
                            let below = real.strip_prefix(&self.real);
                            let below = below
                                .map_err(|_| CopyError::Outside { path: path_excerpt(&path) })?;
                            found.path = below.as_os_str().as_bytes().to_vec();
                            found.kind = Some(FileType::from_raw_mode(stat.st_mode));
                        }
                        Err(Errno::NOENT) => (found.path, found.kind) = (path, None),
                        Err(errno) => return Err(failed(errno.into())),
                    }
                }
            }
        }
        Ok(found)
    }

    fn file(&self, path: &[u8]) -> io::Result<File> {
        // Opening a pipe must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let within =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let name = OsStr::from_bytes(path);
        let file = File::from(rustix::fs::openat2(&self.held, name, flags, Mode::empty(), within)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// The matches of a path with wildcards, sorted.
    fn glob(&self, components: &[Vec<u8>]) -> Result<Vec<Vec<Vec<u8>>>, CopyError> {
        let mut found: Vec<Vec<Vec<u8>>> = vec![Vec::new()];
        for component in components {
            if !pattern::is_pattern(component) {
                for path in &mut found {
                    path.push(component.clone());
                }
                continue;
            }
            let mut next = Vec::new();
            for path in found {
                let at = self.find(&path)?;
                if !at.kind.is_some_and(FileType::is_dir) {
                    continue;
                }
                let failed = |errno: Errno| CopyError::Read {
                    path: path_excerpt(&at.path),
                    source: errno.into(),
                };
                let held = open_at(&self.held, &at.path).map_err(failed)?;
                for name in names(&held).map_err(failed)? {
                    if pattern::matches(component, &name) {
                        next.push([path.clone(), vec![name]].concat());
                    }
                }
                if next.len() as u64 > LAYER_ENTRIES_MAX {
                    return Err(CopyError::TooMany { max: LAYER_ENTRIES_MAX });
                }
            }
            found = next;
        }
        Ok(found)
    }
}

fn real(held: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd()))
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

/// Writes a layer, and records what is in it, whenever that was written.
pub struct Layer<'a> {
    root: &'a Root,
    out: BufWriter<File>,
    key: Digester,
    made: BTreeSet<Vec<u8>>,
    linked: HashMap<(u64, u64), Vec<u8>>,
    /// The layer's own writer.
    firsts: HashMap<Vec<u8>, (u64, u64)>,
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
            linked: HashMap::new(),
            firsts: HashMap::new(),
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
        self.imply(&found, owner)
    }

    pub fn copy(&mut self, task: &Task<'_>) -> Result<(), CopyError> {
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
                self.imply(above, task.owner())?;
                let (parent, last) = split(&found.path);
                let failed = |errno: Errno| CopyError::Read {
                    path: path_excerpt(&found.path),
                    source: errno.into(),
                };
                let held = open_at(&task.from.held, parent).map_err(failed)?;
                self.entry(task, &held, &found.path, last, &place)?;
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
        self.imply(split(place).0, task.owner())?;
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
        self.imply(to, task.owner())?;
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
                        self.imply(split(&place).0, task.owner())?;
                        self.entry(task, &held, &source, &name, &place)?;
                    }
                    // Something in it may be re-included.
                    waiting.push((source, place, depth + 1));
                } else if !is_ignored {
                    self.imply(&to, task.owner())?;
                    self.entry(task, &held, &source, &name, &place)?;
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

    fn imply(&mut self, path: &[u8], owner: (u32, u32)) -> Result<(), CopyError> {
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

    fn entry(
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
            match self.linked.get(&inode) {
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
            if let Some(gone) = self.firsts.remove(place) {
                self.linked.remove(&gone);
            }
        }
        if content.is_some() && stat.st_nlink > 1 {
            let inode = (stat.st_dev, stat.st_ino);
            self.linked.insert(inode, place.to_vec());
            self.firsts.insert(place.to_vec(), inode);
        }
        let entry = Self::looks(task, &stat, place, kind);
        if (entry.uid, entry.gid) != (stat.st_uid, stat.st_gid) {
            // Like the bits of the mode that say the same.
            attributes.retain(|(name, _)| name != CAPABILITY);
        }
        self.put(entry, &attributes, content)
    }

    /// A file does not take the place of a directory.
    fn refuse_directory(&self, place: &[u8]) -> Result<(), CopyError> {
        let there = self.root.find(&components(place)).ok().and_then(|found| found.kind);
        if there.is_some_and(FileType::is_dir) || self.made.contains(place) {
            return Err(CopyError::IsDirectory { path: path_excerpt(place) });
        }
        Ok(())
    }

    fn looks(task: &Task<'_>, stat: &Stat, place: &[u8], kind: Kind) -> Entry {
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

    fn put(
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
