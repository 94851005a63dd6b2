//! The workspace's directory on the host, opened by its descriptor. No path leads through a symbolic link
//! or out of the directory. A file is written under a temporary name and renamed when it is complete.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use ring::digest::{Context, SHA256};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps,
};
use rustix::io::Errno;

use super::limits::{DEPTH_MAX, LEFTOVER_AGE, LINK_BYTES_MAX, PIECE_BYTES};
use super::manifest::{Digest, HostStamp, Kind};
use host::byte_path::{join, split};

/// File systems that the kernel makes up, by their numbers in `linux/magic.h`: proc, sysfs, both kinds of
/// control groups, debugfs, tracefs, securityfs, bpf, configfs, pstore and efivarfs.
const KERNELS: [u64; 11] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xcafe_4a11,
    0x6265_6570,
    0x6165_676c,
    0xde5e_81e4,
];
const NOWHERE_ELSE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// The prefix of temporary files' names; the owner and a number follow.
const TEMPORARY: &[u8] = b".burrow-";
const TEMPORARY_END: &[u8] = b".part";
/// Bits of a mode that a guest may set.
pub const MODE_KEPT: u32 = 0o777;
const NEW_DIRECTORY: u32 = 0o755;

/// Whether a name is that of a file which is being written.
pub fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(TEMPORARY) && name.ends_with(TEMPORARY_END)
}

/// What a name refers to.
#[derive(Clone, Debug)]
pub struct TreeEntry {
    pub name: Vec<u8>,
    /// `None` for devices, pipes and sockets.
    pub kind: Option<Kind>,
    pub stamp: HostStamp,
    /// When it was read last: seconds and nanoseconds.
    pub accessed: (i64, u32),
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// The directory, and whose changes are made in it.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    owner: String,
}

/// A file that has no name of its own yet; removed if it gets none.
pub struct Temporary {
    pub parent: OwnedFd,
    name: Vec<u8>,
    is_placed: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = rustix::fs::unlinkat(&self.parent, name_of(&self.name), AtFlags::empty());
        }
    }
}

impl Temporary {
    /// Places it on a file system that cannot rename without replacing, as network ones: a hard
    /// link cannot replace anything either. Without hard links, the name is checked first.
    fn place_beside(&self, name: &[u8]) -> Result<(), Errno> {
        let (from, to) = (name_of(&self.name), name_of(name));
        match rustix::fs::linkat(&self.parent, from, &self.parent, to, AtFlags::empty()) {
            Ok(()) => rustix::fs::unlinkat(&self.parent, from, AtFlags::empty()),
            Err(Errno::EXIST) => Err(Errno::EXIST),
            Err(_) if look_in(&self.parent, name)?.is_some() => Err(Errno::EXIST),
            Err(_) => rustix::fs::renameat(&self.parent, from, &self.parent, to),
        }
    }

    /// How much of the disk it uses.
    pub fn bytes(&self) -> Result<u64, Errno> {
        Ok(look_in(&self.parent, &self.name)?.map_or(0, |found| found.stamp.bytes))
    }

    /// Gives it a name in another directory of its file system, in the place of a file that has the name, durably.
    pub fn place_in(&mut self, parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        rustix::fs::renameat(&self.parent, name_of(&self.name), parent, name_of(name))?;
        self.is_placed = true;
        sync(parent)
    }

    /// Gives it its name, durably. With `new`, only if the name is free.
    pub fn place(&mut self, name: &[u8], new: bool) -> Result<(), Errno> {
        let flags = if new { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        let (from, to) = (name_of(&self.name), name_of(name));
        match rustix::fs::renameat_with(&self.parent, from, &self.parent, to, flags) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if new => self.place_beside(name)?,
            renamed => renamed?,
        }
        self.is_placed = true;
        sync(&self.parent)
    }
}

impl Tree {
    /// Opens a user's directory, through no link: anyone who can write above it could redirect that. `owner`
    /// is part of the names of temporary files.
    pub fn open(path: &Path, owner: &str) -> Result<Self, Errno> {
        Self::open_by(path, owner, ResolveFlags::NO_SYMLINKS)
    }

    /// One of the bridge's own.
    pub fn open_own(path: &Path, owner: &str) -> Result<Self, Errno> {
        Self::open_by(path, owner, ResolveFlags::empty())
    }

    /// Whether it is on a kernel file system, such as `/proc`, which contains no user's files.
    pub fn is_kernels(&self) -> Result<bool, Errno> {
        Ok(KERNELS.contains(&(rustix::fs::fstatfs(&self.root)?.f_type as u64)))
    }

    /// Removes what a killed bridge left.
    pub fn sweep_all(&self) {
        self.sweep(b"", 0);
    }

    fn open_by(path: &Path, owner: &str, how: ResolveFlags) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), how)?;
        Ok(Self { root, owner: owner.to_owned() })
    }

    pub fn directory(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open_beneath(&self.root, path, flags)
    }

    /// The directory that a path is in, made if it is not there.
    pub fn parent(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let (parent, _) = split(path);
        match self.directory(parent) {
            Err(Errno::NOENT) => {
                self.make_directory(parent)?;
                self.directory(parent)
            }
            opened => opened,
        }
    }

    /// Makes a directory and those above it, or is content with one that is there.
    pub fn make_directory(&self, path: &[u8]) -> Result<(), Errno> {
        let parent = self.parent(path)?;
        let mode = Mode::from_raw_mode(NEW_DIRECTORY);
        match rustix::fs::mkdirat(&parent, name_of(split(path).1), mode) {
            Err(Errno::EXIST) => self.directory(path).map(drop),
            made => {
                made?;
                self.give_away(&parent, split(path).1);
                sync(&parent)
            }
        }
    }

    /// What a path refers to; `None` if nothing is there, or it is reached through a link.
    pub fn look(&self, path: &[u8]) -> Result<Option<TreeEntry>, Errno> {
        let (parent, name) = split(path);
        let parent = match self.directory(parent) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            opened => opened?,
        };
        look_in(&parent, name)
    }

    /// The entries of a directory, by name.
    pub fn list(&self, path: &[u8]) -> Result<Vec<TreeEntry>, Errno> {
        self.list_up_to(path, usize::MAX)
    }

    /// Some of them, if there are more than this.
    pub fn list_up_to(&self, path: &[u8], max: usize) -> Result<Vec<TreeEntry>, Errno> {
        let directory = self.directory(path)?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let entry = entry?;
            if found.len() >= max {
                break;
            }
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                // It may be gone since.
                found.extend(look_in(&directory, name)?);
            }
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// What a path refers to, without opening it.
    pub fn locate(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        open_beneath(&self.root, path, flags)
    }

    pub fn open_file(&self, path: &[u8]) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open_beneath(&self.root, path, flags)?;
        Ok(File::from(file))
    }

    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let (parent, name) = split(path);
        let parent = self.directory(parent)?;
        let target =
            rustix::fs::readlinkat(&parent, name_of(name), Vec::with_capacity(LINK_BYTES_MAX))?;
        Ok(target.into_bytes())
    }

    /// The digest of a path's content; `None` for a directory and what has no content.
    pub fn digest(&self, path: &[u8], kind: Option<Kind>) -> std::io::Result<Option<Digest>> {
        match kind {
            Some(Kind::File) => {
                let mut file = self.open_file(path)?;
                let (mut context, mut piece) = (Context::new(&SHA256), vec![0; PIECE_BYTES]);
                loop {
                    match file.read(&mut piece)? {
                        0 => return Ok(Some(digest_of(context))),
                        count => context.update(&piece[..count]),
                    }
                }
            }
            Some(Kind::Link) => Ok(Some(digest_of_link(&self.read_link(path)?))),
            Some(Kind::Directory) | None => Ok(None),
        }
    }

    /// A new file beside the place of `path`.
    pub fn temporary(&self, path: &[u8], number: u64) -> Result<(Temporary, File), Errno> {
        let parent = self.parent(path)?;
        let name = self.temporary_name(number);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // One of ours that was left by a bridge which is gone.
        let _ = rustix::fs::unlinkat(&parent, name_of(&name), AtFlags::empty());
        let file = rustix::fs::openat2(
            &parent,
            name_of(&name),
            flags,
            Mode::from_raw_mode(0o600),
            NOWHERE_ELSE,
        )?;
        self.give_away(&parent, &name);
        Ok((Temporary { parent, name, is_placed: false }, File::from(file)))
    }

    /// Makes a temporary link.
    pub fn temporary_link(
        &self,
        path: &[u8],
        number: u64,
        target: &[u8],
    ) -> Result<Temporary, Errno> {
        let parent = self.parent(path)?;
        let name = self.temporary_name(number);
        let _ = rustix::fs::unlinkat(&parent, name_of(&name), AtFlags::empty());
        rustix::fs::symlinkat(name_of(target), &parent, name_of(&name))?;
        self.give_away(&parent, &name);
        Ok(Temporary { parent, name, is_placed: false })
    }

    pub fn remove(&self, path: &[u8], kind: Kind) -> Result<(), Errno> {
        let (parent, name) = split(path);
        let parent = self.directory(parent)?;
        let flags = if kind == Kind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(&parent, name_of(name), flags)?;
        sync(&parent)
    }

    fn temporary_name(&self, number: u64) -> Vec<u8> {
        let number = format!("-{number}");
        [TEMPORARY, self.owner.as_bytes(), number.as_bytes(), TEMPORARY_END].concat()
    }

    /// What root writes in another user's directory is given to that user, who can change it then.
    fn give_away(&self, parent: &OwnedFd, name: &[u8]) {
        let _ = rustix::fs::fstat(&self.root).and_then(|root| {
            let uid = rustix::fs::Uid::from_raw(root.st_uid);
            let gid = rustix::fs::Gid::from_raw(root.st_gid);
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(parent, name_of(name), Some(uid), Some(gid), flags)
        });
    }

    /// Removes this owner's temporary files; without an owner, those that are too old to be in use are
    /// removed whenever the tree is sent.
    fn sweep(&self, path: &[u8], depth: usize) {
        let Ok(found) = self.list(path) else { return };
        let own = [TEMPORARY, self.owner.as_bytes(), b"-"].concat();
        for found in found {
            let path = join(path, &found.name);
            if found.kind == Some(Kind::Directory) && depth < DEPTH_MAX {
                self.sweep(&path, depth + 1);
            } else if is_temporary(&found.name) && found.name.starts_with(&own) {
                let _ = self.remove(&path, Kind::File);
            }
        }
    }
}

/// Removes what a killed bridge of this owner left. Best effort, because a workspace that is gone contains
/// nothing.
pub fn sweep(path: &Path, owner: &str) {
    if let Ok(tree) = Tree::open(path, owner) {
        tree.sweep_all();
    }
}

/// Whether a temporary file is no longer in use.
pub fn is_leftover(found: &TreeEntry) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Not when it was modified: that may be the guest's word already.
    let age_s = (now.as_secs() as i64).saturating_sub(found.stamp.changed.0);
    age_s > LEFTOVER_AGE.as_secs() as i64
}

fn look_in(directory: &OwnedFd, name: &[u8]) -> Result<Option<TreeEntry>, Errno> {
    let status = match rustix::fs::statat(directory, name_of(name), AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        status => status?,
    };
    let kind = match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Directory),
        FileType::Symlink => Some(Kind::Link),
        _ => None,
    };
    let time = |s: i64, ns: u64| (s, u32::try_from(ns).unwrap_or(0));
    let stamp = HostStamp {
        inode: status.st_ino,
        bytes: status.st_size as u64,
        modified: time(status.st_mtime, status.st_mtime_nsec),
        changed: time(status.st_ctime, status.st_ctime_nsec),
    };
    let (mode, uid, gid) = (status.st_mode & 0o7777, status.st_uid, status.st_gid);
    let accessed = time(status.st_atime, status.st_atime_nsec);
    Ok(Some(TreeEntry { name: name.to_vec(), kind, stamp, accessed, mode, uid, gid }))
}

/// Gives a file that has been written its mode and time, and waits for the disk.
pub fn settle(file: &File, mode: u32, modified_ms: i64) -> std::io::Result<()> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode & MODE_KEPT))?;
    let nanoseconds = modified_ms.rem_euclid(1000) * 1_000_000;
    let time = Timespec { tv_sec: modified_ms.div_euclid(1000), tv_nsec: nanoseconds };
    // A time that a file system cannot hold is no reason to lose the file.
    let _ = rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time });
    file.sync_all()
}

pub fn digest_of(context: Context) -> Digest {
    let mut digest = Digest::default();
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// Cannot equal a file's: its content would have to be a link's text.
pub fn digest_of_link(target: &[u8]) -> Digest {
    let mut context = Context::new(&SHA256);
    context.update(b"link\0");
    context.update(target);
    digest_of(context)
}

pub fn name_of(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// Opens what is beneath a directory, through no link.
pub fn open_beneath(directory: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(directory, name_of(path), flags, Mode::empty(), NOWHERE_ELSE)
}

pub fn sync(directory: &OwnedFd) -> Result<(), Errno> {
    match rustix::fs::fsync(directory) {
        // Not every file system can.
        Err(Errno::INVAL) => Ok(()),
        synced => synced,
    }
}
