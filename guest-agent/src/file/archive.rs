//! A tree on its way out, as a tar archive.
//!
//! The archive is made piece by piece while it is sent. What changes meanwhile is archived as it
//! is found; a file keeps the size that its header says, cut or filled up with zeros, because a
//! header cannot be taken back.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use archive::{END_OF_ARCHIVE, Entry, Kind, encode_entry_with, padding};
use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::{FileStat, fstat, major, minor};
use protocol::message::{FileKind, Reply};
use protocol::requests::TarGet;
use protocol::{Fault, FaultCode, Text};

use super::hard_links::{FileId, HardLinks};
use super::layer::{Index, Part, Xattrs, parts, xattrs};
use super::limits::{PIECE_BYTES, TREE_DEPTH_MAX};
use super::names::Names;
use super::refusal::{quoted, refused, refused_io, refused_unlinked, unfit};
use super::work::{Next, Producer, send};
use super::{info, path};
use crate::config::Layer;
use crate::flow::Outlet;
use crate::lookup::{self, DIRECTORY, DIRECTORY_TO_READ, Refused, Unfit, Way};
use crate::task::blocking;

#[cfg(test)]
mod tests;

/// Answers when the first entry is found; the archive then flows into `outlet`.
pub async fn tar_get(ask: TarGet, outlet: Outlet) -> Result<Reply, Fault> {
    let archiver = blocking(move || Archiver::open(ask)).await?;
    send(Box::new(archiver), outlet);
    Ok(Reply::Done {})
}

/// Answers with the sandbox's variables; the archive of its writable layer then flows into `outlet`.
pub async fn layer_get(
    layer: Option<Layer>,
    env: Vec<(Text, Text)>,
    outlet: Outlet,
) -> Result<Reply, Fault> {
    let Some(layer) = layer else {
        let message = "this sandbox has no writable layer that could be read";
        return Err(Fault::new(FaultCode::Unsupported, message));
    };
    let archiver = blocking(move || Ok(Archiver::of_layer(parts(&layer)?))).await?;
    send(Box::new(archiver), outlet);
    Ok(Reply::Layer { env })
}

struct Archiver {
    /// The path that the root's name in the archive stands for, for faults.
    above: PathBuf,
    /// Headers that are made and not sent, among them those of the root from the beginning.
    headers: Vec<u8>,
    /// The directories that the walk is in, the innermost last.
    levels: Vec<Level>,
    /// The file whose content is being sent.
    content: Option<Content>,
    hard_links: HardLinks,
    is_complete: bool,
    /// Of a writable layer: the parts that are still to come, the next one last.
    parts: Option<Vec<Part>>,
}

struct Level {
    /// Shared with the task that adds an entry of it, which may change the walk.
    directory: Arc<OwnedFd>,
    /// In a writable layer: the same directory as it is there, whose names are those that have changed.
    index: Option<Index>,
    /// In the archive.
    path: Vec<u8>,
    names: Names,
}

struct Content {
    file: File,
    path: Vec<u8>,
    size: u64,
    left: u64,
    /// It has become shorter than its header says.
    has_ended: bool,
}

/// Why an entry cannot be read, if the archive can do without it.
enum Missing {
    Gone,
    KernelFileSystem,
}

impl Archiver {
    fn open(ask: TarGet) -> Result<Self, Fault> {
        let path = path::absolute(ask.path)?;
        // A path without a name, above all the root, is archived as `.`, from within.
        let (parent, name) = path::split(&path)
            .map_or((path.as_path(), b".".as_slice()), |(parent, name)| (parent, name.as_bytes()));
        let way = if ask.follow { Way::Follow } else { Way::Unlinked };
        let directory = lookup::open(parent, DIRECTORY, way).map_err(|why| {
            if ask.follow {
                refused("open", parent, why)
            } else {
                refused_unlinked("archive", path.as_path(), why)
            }
        })?;
        let mut archiver = Self {
            above: parent.to_path_buf(),
            headers: Vec::new(),
            levels: Vec::new(),
            content: None,
            hard_links: HardLinks::default(),
            is_complete: false,
            parts: None,
        };
        let way = if ask.follow { Way::Follow } else { Way::KeepLast };
        let status = lookup::open_at(&directory, name, OFlag::O_PATH, way)
            .and_then(|found| Ok(fstat(found)?))
            .map_err(|why| refused("archive", path.as_path(), why))?;
        if info::kind(&status) == FileKind::Socket {
            return Err(unfit(FaultCode::Invalid, path.as_path(), "is a socket"));
        }
        archiver.add(&directory, name, name.to_vec(), &status, ask.follow)?;
        Ok(archiver)
    }

    /// Archives the parts of a writable layer.
    fn of_layer(parts: Vec<Part>) -> Self {
        Self {
            above: "/".into(),
            headers: Vec::new(),
            levels: Vec::new(),
            content: None,
            hard_links: HardLinks::default(),
            is_complete: false,
            parts: Some(parts),
        }
    }

    /// Only the first entry may be a link that is followed. What is mounted over a layer is not of it.
    fn way(&self, follow: bool) -> Way {
        match &self.parts {
            Some(_) => Way::BeneathOnMount,
            None if follow => Way::Follow,
            None => Way::Beneath,
        }
    }

    /// Adds the next entry, or the end.
    fn advance(&mut self) -> Result<(), Fault> {
        if self.levels.is_empty()
            && let Some(part) = self.parts.as_mut().and_then(Vec::pop)
        {
            let Part { directory, index, path } = part;
            let (directory, names) = (Arc::new(directory), Names::default());
            self.levels.push(Level { directory, index: Some(index), path, names });
            return Ok(());
        }
        let Some(level) = self.levels.last_mut() else {
            self.headers.extend_from_slice(END_OF_ARCHIVE);
            self.is_complete = true;
            return Ok(());
        };
        let directory = level.directory.clone();
        let listed = level.index.as_ref().map_or(directory.as_fd(), Index::listed);
        let name = match level.names.next(listed) {
            Ok(Some(name)) => name.bytes,
            Ok(None) => {
                self.levels.pop();
                return Ok(());
            }
            Err(errno) => {
                let path = level.path.clone();
                return Err(refused("archive", self.seen_at(&path).as_path(), errno));
            }
        };
        let path = path::join(&level.path, &name);
        if level.index.is_some() && Index::leaves_out(&path) {
            return Ok(());
        }
        let is_layer = level.index.is_some();
        match info::status(&directory, name.as_slice(), false) {
            // It covers something of the layer, or is of no use on its file systems, which have no devices.
            Ok(status) if is_layer && is_device(&status) => Ok(()),
            Ok(status) => self.add(&directory, &name, path, &status, false),
            Err(Errno::ENOENT) if is_layer => self.add_removal(path),
            // Removed since its name was read.
            Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(refused("archive", self.seen_at(&path).as_path(), errno)),
        }
    }

    /// Adds the entry `name` of `directory` under `path`.
    fn add(
        &mut self,
        directory: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        status: &FileStat,
        follow: bool,
    ) -> Result<(), Fault> {
        match info::kind(status) {
            // The listener behind a socket cannot be archived, and the name alone is useless.
            FileKind::Socket => Ok(()),
            FileKind::Directory => self.add_directory(directory, name, path, status, follow),
            FileKind::File => self.add_file(directory, name, path, follow),
            FileKind::Symlink => match readlinkat(directory, name) {
                Ok(target) => {
                    self.add_header(path, Kind::Symlink { target: target.into_vec() }, status, &[])
                }
                Err(Errno::ENOENT) => Ok(()),
                Err(errno) => Err(refused("archive", self.seen_at(&path).as_path(), errno)),
            },
            FileKind::Fifo => self.add_header(path, Kind::Fifo, status, &[]),
            FileKind::CharDevice => {
                let (major, minor) = device_numbers(status);
                self.add_header(path, Kind::CharDevice { major, minor }, status, &[])
            }
            FileKind::BlockDevice => {
                let (major, minor) = device_numbers(status);
                self.add_header(path, Kind::BlockDevice { major, minor }, status, &[])
            }
        }
    }

    fn add_directory(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        status: &FileStat,
        follow: bool,
    ) -> Result<(), Fault> {
        // The kernel refuses anything else before it opens it.
        let way = self.way(follow);
        let opened = lookup::open_at(parent, name, DIRECTORY_TO_READ, way)
            .and_then(|directory| Ok((fstat(&directory)?, directory)));
        let (status, directory) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                return match self.refuse_entry(&path, why)? {
                    // A kernel file system has no content of its own. Its files are generated as they are
                    // read, and some never end: within a tree it becomes an empty directory.
                    Missing::KernelFileSystem => {
                        self.add_header(path, Kind::Directory, status, &[])
                    }
                    Missing::Gone => Ok(()),
                };
            }
        };
        if self.levels.len() == TREE_DEPTH_MAX {
            let why = format!("lies deeper than {TREE_DEPTH_MAX} directories");
            return Err(unfit(FaultCode::Limit, self.seen_at(&path).as_path(), &why));
        }
        let index = match self.levels.last().and_then(|level| level.index.as_ref()) {
            None => None,
            Some(index) => match index.enter(name) {
                Ok(index) => Some(index),
                // Something is mounted here.
                Err(_) => return Ok(()),
            },
        };
        if let Some(index) = &index
            && index.replaces(&directory).map_err(|errno| self.refuse(&path, errno))?
        {
            self.add_removal(path.clone())?;
        }
        let xattrs = self.xattrs(&directory, &path)?;
        self.add_header(path.clone(), Kind::Directory, &status, &xattrs)?;
        let directory = Arc::new(directory);
        self.levels.push(Level { directory, index, path, names: Names::default() });
        Ok(())
    }

    fn add_file(
        &mut self,
        directory: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        follow: bool,
    ) -> Result<(), Fault> {
        let name = OsStr::from_bytes(name);
        let opened = lookup::open_regular(directory, name, OFlag::O_RDONLY, self.way(follow));
        let (file, status) = match opened {
            Ok(opened) => opened,
            Err(Unfit::Kind(_)) => {
                let why = "was exchanged while it was archived";
                return Err(unfit(FaultCode::Conflict, self.seen_at(&path).as_path(), why));
            }
            Err(Unfit::Refused(why)) => {
                return self.refuse_entry(&path, why).map(drop);
            }
        };
        let id = FileId { device: status.st_dev, inode: status.st_ino };
        #[allow(clippy::unnecessary_cast)] // 32 bits wide on some machines.
        let names = status.st_nlink as u64;
        if let Some(target) = self.hard_links.meet(id, names, &path) {
            return self.add_header(path, Kind::HardLink { target }, &status, &[]);
        }
        let size = status.st_size.max(0) as u64;
        let xattrs = self.xattrs(&file, &path)?;
        self.add_header(path.clone(), Kind::File { size }, &status, &xattrs)?;
        self.content = Some(Content { file, path, size, left: size, has_ended: false });
        Ok(())
    }

    /// Judges the error of opening an entry: a fault, unless the archive can do without it.
    fn refuse_entry(&self, path: &[u8], why: Refused) -> Result<Missing, Fault> {
        match why {
            Refused::Errno(Errno::ENOENT) => Ok(Missing::Gone),
            why if self.parts.is_some() && why.errno() == Errno::EXDEV => Ok(Missing::Gone),
            Refused::KernelFileSystem(_) if !self.levels.is_empty() => {
                Ok(Missing::KernelFileSystem)
            }
            why => Err(refused("archive", self.seen_at(path).as_path(), why)),
        }
    }

    /// Says that there is nothing at this path any more; what follows may put something there.
    fn add_removal(&mut self, path: Vec<u8>) -> Result<(), Fault> {
        let kind = Kind::CharDevice { major: 0, minor: 0 };
        let entry = Entry { path, kind, mode: 0, uid: 0, gid: 0, mtime_s: 0, mtime_ns: 0 };
        self.add_entry(&entry, &[])
    }

    /// The extended attributes of a file or directory, which only layers have with them.
    fn xattrs(&self, file: impl AsFd, path: &[u8]) -> Result<Xattrs, Fault> {
        match &self.parts {
            None => Ok(Vec::new()),
            Some(_) => xattrs(file.as_fd()).map_err(|errno| self.refuse(path, errno)),
        }
    }

    fn refuse(&self, path: &[u8], errno: Errno) -> Fault {
        refused("archive", self.seen_at(path).as_path(), errno)
    }

    fn add_header(
        &mut self,
        path: Vec<u8>,
        kind: Kind,
        status: &FileStat,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), Fault> {
        let entry = Entry {
            path,
            kind,
            mode: status.st_mode,
            uid: status.st_uid,
            gid: status.st_gid,
            mtime_s: status.st_mtime,
            mtime_ns: status.st_mtime_nsec as u32,
        };
        self.add_entry(&entry, xattrs)
    }

    fn add_entry(&mut self, entry: &Entry, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Fault> {
        encode_entry_with(entry, xattrs, &mut self.headers).map_err(|error| {
            let path = quoted(self.seen_at(&entry.path).as_path());
            Fault::new(FaultCode::Unsupported, format!("cannot archive {path}: {error}"))
        })
    }

    /// The path of an archive's entry in the sandbox.
    fn seen_at(&self, path: &[u8]) -> PathBuf {
        let path = path.strip_prefix(b"./").unwrap_or(path);
        if path == b"." {
            return self.above.clone();
        }
        self.above.join(Path::new(OsStr::from_bytes(path)))
    }
}

impl Producer for Archiver {
    fn produce(&mut self, piece: &mut Vec<u8>) -> Result<Next, Fault> {
        while piece.len() < PIECE_BYTES {
            // In this order: an entry's header is made before its content is opened to view.
            if !self.headers.is_empty() {
                piece.append(&mut self.headers);
            } else if let Some(content) = &mut self.content {
                if let Err(error) = content.read(piece) {
                    let path = content.path.clone();
                    return Err(refused_io("archive", self.seen_at(&path).as_path(), &error));
                }
                if content.left == 0 {
                    piece.extend_from_slice(padding(content.size));
                    self.content = None;
                }
            } else if self.is_complete {
                return Ok(Next::End);
            } else {
                self.advance()?;
            }
        }
        Ok(Next::Piece)
    }
}

impl Content {
    /// Appends the next bytes, or zeros once there are no more.
    fn read(&mut self, piece: &mut Vec<u8>) -> io::Result<()> {
        let start = piece.len();
        let room = PIECE_BYTES - start;
        let wanted = self.left.min(room as u64) as usize;
        piece.resize(start + wanted, 0);
        let mut count = wanted;
        if !self.has_ended && wanted > 0 {
            count = loop {
                match self.file.read(&mut piece[start..]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => break other?,
                }
            };
            self.has_ended = count == 0;
        }
        piece.truncate(start + count);
        self.left -= count as u64;
        Ok(())
    }
}

fn is_device(status: &FileStat) -> bool {
    matches!(info::kind(status), FileKind::CharDevice | FileKind::BlockDevice)
}

fn device_numbers(status: &FileStat) -> (u32, u32) {
    (major(status.st_rdev) as u32, minor(status.st_rdev) as u32)
}
