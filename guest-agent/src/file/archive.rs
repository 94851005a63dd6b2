//! A tree on its way out, as a tar archive.
//!
//! The archive is made piece by piece while it is sent. What changes meanwhile is archived as it
//! is found; a file keeps the size that its header says, cut or filled up with zeros, because a
//! header cannot be taken back.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use archive::{END_OF_ARCHIVE, Entry, Kind, encode_entry, padding};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, major, minor};
use nix::sys::statfs::fstatfs;
use protocol::message::{FileKind, Reply};
use protocol::requests::TarGet;
use protocol::{Fault, FaultCode};

use super::hard_links::{FileId, HardLinks};
use super::limits::{PIECE_BYTES, TREE_DEPTH_MAX};
use super::names::Names;
use super::refusal::{quoted, refused, refused_io, unfit};
use super::work::{Next, Producer, send};
use super::{beneath, info, path};
use crate::flow::Outlet;
use crate::task::blocking;

/// Answers when the first entry is found; the archive then flows into `outlet`.
pub async fn tar_get(ask: TarGet, outlet: Outlet) -> Result<Reply, Fault> {
    let archiver = blocking(move || Archiver::open(ask)).await?;
    send(Box::new(archiver), outlet);
    Ok(Reply::Done {})
}

struct Archiver {
    /// What the root's name in the archive stands for, for faults.
    above: PathBuf,
    /// Headers that are made and not sent, among them those of the root from the beginning.
    headers: Vec<u8>,
    /// The directories that the walk is in, the innermost last.
    levels: Vec<Level>,
    /// The file whose content is being sent.
    content: Option<Content>,
    hard_links: HardLinks,
    is_complete: bool,
}

struct Level {
    /// Shared with whoever adds an entry of it, which may change the walk.
    directory: Arc<OwnedFd>,
    /// In the archive.
    path: Vec<u8>,
    names: Names,
    device: u64,
}

struct Content {
    file: File,
    path: Vec<u8>,
    size: u64,
    left: u64,
    /// It has become shorter than its header says.
    has_ended: bool,
}

impl Archiver {
    fn open(ask: TarGet) -> Result<Self, Fault> {
        let path = path::absolute(ask.path)?;
        // What has no name of its own, the root above all, is archived as `.`, from within.
        let (parent, name) = path::split(&path)
            .map_or((path.as_path(), b".".as_slice()), |(parent, name)| (parent, name.as_bytes()));
        let directory = if ask.follow {
            info::open_directory(parent)?
        } else {
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
            beneath::open_unlinked(parent, flags)
                .map_err(|errno| beneath::refused_beneath("archive", path.as_path(), errno))?
        };
        let mut archiver = Self {
            above: parent.to_path_buf(),
            headers: Vec::new(),
            levels: Vec::new(),
            content: None,
            hard_links: HardLinks::default(),
            is_complete: false,
        };
        let status = info::status(&directory, name, ask.follow)
            .map_err(|errno| refused("archive", path.as_path(), errno))?;
        if info::kind(&status) == FileKind::Socket {
            return Err(unfit(FaultCode::Invalid, path.as_path(), "is a socket"));
        }
        archiver.add(&directory, name, name.to_vec(), &status, ask.follow)?;
        Ok(archiver)
    }

    /// Adds the next entry, or the end.
    fn advance(&mut self) -> Result<(), Fault> {
        let Some(level) = self.levels.last_mut() else {
            self.headers.extend_from_slice(END_OF_ARCHIVE);
            self.is_complete = true;
            return Ok(());
        };
        let directory = level.directory.clone();
        let name = match level.names.next(&directory) {
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
        match info::status(&directory, name.as_slice(), false) {
            Ok(status) => self.add(&directory, &name, path, &status, false),
            // Removed since its name was read.
            Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(refused("archive", self.seen_at(&path).as_path(), errno)),
        }
    }

    /// Adds what is `name` in `directory` under `path`.
    fn add(
        &mut self,
        directory: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        status: &FileStat,
        follow: bool,
    ) -> Result<(), Fault> {
        match info::kind(status) {
            // What listens behind a socket cannot be archived, and nobody misses the name.
            FileKind::Socket => Ok(()),
            FileKind::Directory => self.add_directory(directory, name, path, follow),
            FileKind::File => self.add_file(directory, name, path, follow),
            FileKind::Symlink => match readlinkat(directory, name) {
                Ok(target) => {
                    self.add_header(path, Kind::Symlink { target: target.into_vec() }, status)
                }
                Err(Errno::ENOENT) => Ok(()),
                Err(errno) => Err(refused("archive", self.seen_at(&path).as_path(), errno)),
            },
            FileKind::Fifo => self.add_header(path, Kind::Fifo, status),
            FileKind::CharDevice => {
                let (major, minor) = device_numbers(status);
                self.add_header(path, Kind::CharDevice { major, minor }, status)
            }
            FileKind::BlockDevice => {
                let (major, minor) = device_numbers(status);
                self.add_header(path, Kind::BlockDevice { major, minor }, status)
            }
        }
    }

    fn add_directory(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        follow: bool,
    ) -> Result<(), Fault> {
        let Some((directory, status)) =
            self.open_entry(parent, name, &path, OFlag::O_DIRECTORY, follow)?
        else {
            return Ok(());
        };
        if self.levels.len() == TREE_DEPTH_MAX {
            let why = format!("lies deeper than {TREE_DEPTH_MAX} directories");
            return Err(unfit(FaultCode::Limit, self.seen_at(&path).as_path(), &why));
        }
        self.add_header(path.clone(), Kind::Directory, &status)?;
        let is_mount = self.levels.last().is_some_and(|level| level.device != status.st_dev);
        if is_mount && is_made_up(&directory) {
            return Ok(());
        }
        let device = status.st_dev;
        let directory = Arc::new(directory);
        self.levels.push(Level { directory, path, names: Names::default(), device });
        Ok(())
    }

    fn add_file(
        &mut self,
        directory: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        follow: bool,
    ) -> Result<(), Fault> {
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let Some((file, status)) = self.open_entry(directory, name, &path, flags, follow)? else {
            return Ok(());
        };
        if info::kind(&status) != FileKind::File {
            let why = "was exchanged while it was archived";
            return Err(unfit(FaultCode::Conflict, self.seen_at(&path).as_path(), why));
        }
        let id = FileId { device: status.st_dev, inode: status.st_ino };
        #[allow(clippy::unnecessary_cast)] // 32 bits wide on some machines.
        let names = status.st_nlink as u64;
        if let Some(target) = self.hard_links.meet(id, names, &path) {
            return self.add_header(path, Kind::HardLink { target }, &status);
        }
        let size = status.st_size.max(0) as u64;
        self.add_header(path.clone(), Kind::File { size }, &status)?;
        let file = File::from(file);
        self.content = Some(Content { file, path, size, left: size, has_ended: false });
        Ok(())
    }

    /// Opens an entry to read it; none when it is gone.
    fn open_entry(
        &self,
        directory: &OwnedFd,
        name: &[u8],
        path: &[u8],
        flags: OFlag,
        follow: bool,
    ) -> Result<Option<(OwnedFd, FileStat)>, Fault> {
        let link = if follow { OFlag::empty() } else { OFlag::O_NOFOLLOW };
        let flags = flags | link | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let opened = openat(directory, name, flags, Mode::empty())
            .and_then(|file| fstat(&file).map(|status| (file, status)));
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(refused("archive", self.seen_at(path).as_path(), errno)),
        }
    }

    fn add_header(&mut self, path: Vec<u8>, kind: Kind, status: &FileStat) -> Result<(), Fault> {
        let entry = Entry {
            path,
            kind,
            mode: status.st_mode,
            uid: status.st_uid,
            gid: status.st_gid,
            mtime_s: status.st_mtime,
            mtime_ns: status.st_mtime_nsec as u32,
        };
        encode_entry(&entry, &mut self.headers).map_err(|error| {
            let path = quoted(self.seen_at(&entry.path).as_path());
            Fault::new(FaultCode::Unsupported, format!("cannot archive {path}: {error}"))
        })
    }

    /// Where an entry of the archive is in the sandbox.
    fn seen_at(&self, path: &[u8]) -> PathBuf {
        let path = path.strip_prefix(b"./").unwrap_or(path);
        if path == b"." {
            return self.above.clone();
        }
        self.above.join(Path::new(std::ffi::OsStr::from_bytes(path)))
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
    /// Appends the next bytes, zeros once there are no more.
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

fn device_numbers(status: &FileStat) -> (u32, u32) {
    (major(status.st_rdev) as u32, minor(status.st_rdev) as u32)
}

/// Whether a file system has nothing of its own: the kernel makes up its files as they are read,
/// with sizes that mean nothing, and some of them without end. Mounted within an archived tree it
/// is an empty directory.
fn is_made_up(directory: impl AsFd) -> bool {
    // Signed in one C library and unsigned in another; both fit here.
    fstatfs(directory).is_ok_and(|system| MADE_UP.contains(&i128::from(system.filesystem_type().0)))
}

/// The magic numbers of such file systems, from `linux/magic.h`.
const MADE_UP: [i128; 16] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x1cd1,      // devpts
    0x1980_0202, // mqueue
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
    0x6265_6570, // configfs
    0xde5e_81e4, // efivarfs
    0x4249_4e4d, // binfmt_misc
    0x6165_676c, // pstore
    0x6573_5543, // fusectl
    0x0187,      // autofs
];
