//! Changes at a path, from inotify.
//!
//! The kernel watches single directories. A recursive watch puts one on every directory of the
//! tree, and on new ones as they appear; entries that were added to them before that are found by
//! listing.
//!
//! ```text
//!            ┌── events ──► records
//!  queue ────┤── overflow ──► all watches again ──► Overflow
//!            └── the path itself is gone ──┬─ something else is there ──► all watches again
//!                                          └─ nothing is ──► Removed, end
//! ```

mod emitted;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::stat::fstat;
use protocol::message::{Change, FileKind};
use protocol::{Fault, FaultCode};

use self::emitted::Emitted;
use super::limits::{WATCH_READS_PER_TURN, WATCHES_MAX};
use super::names::{Hint, Name, Names};
use super::refusal::{quoted, refused, unfit};
use super::{info, path};
use crate::lookup::{self, DIRECTORY_TO_READ, Refused, Way};

/// The kernel's events for the path itself.
const ROOT: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF)
    // Nothing of files that have lost their names; nix does not know this one.
    .union(AddWatchFlags::from_bits_retain(libc::IN_EXCL_UNLINK));

/// The events for directories within it. Their parents report what happens to these themselves.
const INNER: AddWatchFlags = ROOT.union(AddWatchFlags::IN_ONLYDIR);

/// The path itself, seen from itself.
const ITSELF: &[u8] = b"";

/// See the module's description.
pub struct Watcher {
    root: PathBuf,
    recursive: bool,
    queue: Inotify,
    root_watch: WatchDescriptor,
    /// The root's identity, to notice when its name refers to another file.
    root_file: (u64, u64),
    /// The path of each watched directory, relative to the root.
    directories: HashMap<WatchDescriptor, Vec<u8>>,
    moving: Option<Moving>,
    emitted: Emitted,
}

/// The first half of a move.
struct Moving {
    cookie: u32,
    path: Vec<u8>,
    is_directory: bool,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The queue is empty.
    Drained,
    MoreLater,
    /// Everything is watched again, by another queue.
    NewQueue,
    /// The path is gone, and that was reported.
    Ended,
}

/// What an event means, beyond its record.
enum Meaning {
    Ordinary,
    Overflow,
    RootGone,
}

impl Watcher {
    pub fn begin(root: PathBuf, recursive: bool) -> Result<Self, Fault> {
        let (queue, root_watch, root_file) = new_queue(&root)?;
        let mut watcher = Self {
            root,
            recursive,
            queue,
            root_watch,
            root_file,
            directories: HashMap::new(),
            moving: None,
            emitted: Emitted::default(),
        };
        watcher.watch_all(false)?;
        Ok(watcher)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The queue for the event loop to wait for.
    pub fn queue(&self) -> io::Result<OwnedFd> {
        self.queue.as_fd().try_clone_to_owned()
    }

    /// Whether the first half of a move waits for the second.
    pub fn awaits_move(&self) -> bool {
        self.moving.is_some()
    }

    /// Reads the queue, and appends its meaning to `records`.
    pub fn turn(&mut self, records: &mut Vec<u8>) -> Result<Turn, Fault> {
        let turn = self.take_events();
        self.emitted.take(records);
        turn
    }

    /// The other half of a move will not come: it went out of the watched tree.
    pub fn give_up_move(&mut self, records: &mut Vec<u8>) -> Turn {
        self.end_move();
        self.emitted.take(records);
        Turn::MoreLater
    }

    fn take_events(&mut self) -> Result<Turn, Fault> {
        for _ in 0..WATCH_READS_PER_TURN {
            let events = match self.queue.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => {
                    self.emitted.forget_found();
                    return Ok(Turn::Drained);
                }
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(refused_watch(self.root.as_path(), errno)),
            };
            for event in events {
                match self.on_event(event)? {
                    Meaning::Ordinary => {}
                    Meaning::Overflow => return self.on_overflow(),
                    Meaning::RootGone => return self.on_root_gone(),
                }
            }
        }
        Ok(Turn::MoreLater)
    }

    fn on_event(&mut self, event: InotifyEvent) -> Result<Meaning, Fault> {
        let InotifyEvent { wd, mask, cookie, name } = event;
        if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            return Ok(Meaning::Overflow);
        }
        let is_second_half = mask.contains(AddWatchFlags::IN_MOVED_TO)
            && self.moving.as_ref().is_some_and(|moving| moving.cookie == cookie);
        if !is_second_half {
            self.end_move();
        }
        if mask.contains(AddWatchFlags::IN_IGNORED) {
            self.directories.remove(&wd);
            return Ok(if wd == self.root_watch { Meaning::RootGone } else { Meaning::Ordinary });
        }
        let Some(name) = name else { return Ok(self.on_self_event(wd, mask)) };
        let Some(directory) = self.directories.get(&wd) else { return Ok(Meaning::Ordinary) };
        let path = path::join(directory, &name.into_vec());
        let is_directory = mask.contains(AddWatchFlags::IN_ISDIR);
        if is_second_half {
            self.on_moved_within(path);
        } else if mask.intersects(AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO) {
            if self.emitted.event_created(&path) && is_directory && self.recursive {
                self.watch_found(vec![path], true)?;
            }
        } else if mask.contains(AddWatchFlags::IN_MOVED_FROM) {
            self.moving = Some(Moving { cookie, path, is_directory });
        } else if mask.contains(AddWatchFlags::IN_DELETE) {
            self.emitted.removed(path);
        } else if mask.contains(AddWatchFlags::IN_CLOSE_WRITE) {
            self.emitted.emit(Change::Modified, path);
        } else if mask.contains(AddWatchFlags::IN_ATTRIB) {
            self.emitted.emit(Change::Attributes, path);
        }
        Ok(Meaning::Ordinary)
    }

    /// An event of a watched file or directory itself. For inner directories, their parents report
    /// it.
    fn on_self_event(&mut self, wd: WatchDescriptor, mask: AddWatchFlags) -> Meaning {
        const GONE: AddWatchFlags = AddWatchFlags::IN_DELETE_SELF
            .union(AddWatchFlags::IN_MOVE_SELF)
            .union(AddWatchFlags::IN_UNMOUNT);
        if wd != self.root_watch {
            return Meaning::Ordinary;
        }
        if mask.intersects(GONE) {
            return Meaning::RootGone;
        }
        if mask.contains(AddWatchFlags::IN_CLOSE_WRITE) {
            self.emitted.emit(Change::Modified, ITSELF.to_vec());
        } else if mask.contains(AddWatchFlags::IN_ATTRIB) {
            // A file that is still open is not "deleted" when its name is.
            if identity(&self.root) != Some(self.root_file) {
                return Meaning::RootGone;
            }
            self.emitted.emit(Change::Attributes, ITSELF.to_vec());
        }
        Meaning::Ordinary
    }

    fn on_moved_within(&mut self, to: Vec<u8>) {
        let Some(Moving { path: from, is_directory, .. }) = self.moving.take() else { return };
        if is_directory {
            for path in self.directories.values_mut() {
                if let Some(rest) = below(path, &from) {
                    *path = [to.as_slice(), rest].concat();
                }
            }
        }
        self.emitted.moved(from, to);
    }

    /// It was moved out of the tree, and its directories are no longer watched.
    fn end_move(&mut self) {
        let Some(Moving { path: from, is_directory, .. }) = self.moving.take() else { return };
        if is_directory {
            self.directories.retain(|wd, path| {
                let is_gone = below(path, &from).is_some();
                if is_gone {
                    // It may have been removed already, and its watch with it.
                    self.queue.rm_watch(*wd).ok();
                }
                !is_gone
            });
        }
        self.emitted.removed(from);
    }

    fn on_overflow(&mut self) -> Result<Turn, Fault> {
        match self.start_again(false) {
            Ok(()) => {
                self.emitted.overflow();
                Ok(Turn::NewQueue)
            }
            Err(fault) if fault.code == FaultCode::NotFound => self.on_root_gone(),
            Err(fault) => Err(fault),
        }
    }

    /// The watched file is no longer where it was. Many programs replace files by renaming, so
    /// that another may well be there.
    fn on_root_gone(&mut self) -> Result<Turn, Fault> {
        self.end_move();
        match self.start_again(true) {
            Ok(()) => Ok(Turn::NewQueue),
            Err(fault) if fault.code == FaultCode::NotFound => {
                self.emitted.removed(ITSELF.to_vec());
                Ok(Turn::Ended)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Drops the queue and everything in it, and watches what exists now.
    fn start_again(&mut self, announce: bool) -> Result<(), Fault> {
        (self.queue, self.root_watch, self.root_file) = new_queue(&self.root)?;
        self.directories.clear();
        self.moving = None;
        self.emitted.forget_found();
        if announce {
            self.emitted.emit(Change::Created, ITSELF.to_vec());
        }
        self.watch_all(announce)
    }

    /// Completes the watch of the root, which has begun.
    fn watch_all(&mut self, announce: bool) -> Result<(), Fault> {
        self.directories.insert(self.root_watch, ITSELF.to_vec());
        let mut found = Vec::new();
        if (self.recursive || announce)
            && let Some(root) = self.open_root()?
        {
            self.look_into(ITSELF, &root, announce, &mut found)?;
        }
        self.watch_found(found, announce)
    }

    /// Watches new directories and everything in them. Each is watched before it is listed, so that
    /// nothing is missed; what is seen twice is reported once.
    fn watch_found(&mut self, mut found: Vec<Vec<u8>>, announce: bool) -> Result<(), Fault> {
        if found.is_empty() {
            return Ok(());
        }
        // No descriptor is kept: an open directory would not disappear when it is removed.
        let Some(root) = self.open_root()? else { return Ok(()) };
        while let Some(path) = found.pop() {
            let full = self.full_path(&path);
            let opened = lookup::open_at(&root, path.as_slice(), DIRECTORY_TO_READ, Way::Beneath);
            let Some(directory) = if_there(opened, &full)? else { continue };
            match self.queue.add_watch(&lookup::name_of(&directory, &full), INNER) {
                Ok(wd) => {
                    self.directories.insert(wd, path.clone());
                    self.look_into(&path, &directory, announce, &mut found)?;
                }
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(errno) => return Err(refused_watch(full.as_path(), errno)),
            }
        }
        Ok(())
    }

    /// The root to find its directories from, unless it is gone or is a file.
    fn open_root(&self) -> Result<Option<OwnedFd>, Fault> {
        let opened = lookup::open(self.root.as_path(), DIRECTORY_TO_READ, Way::Follow);
        if_there(opened, &self.root)
    }

    /// Reads a directory that is watched already, and adds the directories in it to `found`.
    fn look_into(
        &mut self,
        path: &[u8],
        directory: &OwnedFd,
        announce: bool,
        found: &mut Vec<Vec<u8>>,
    ) -> Result<(), Fault> {
        let mut names = Names::default();
        loop {
            let next = names.next(directory);
            let next =
                next.map_err(|errno| refused_watch(self.full_path(path).as_path(), errno))?;
            let Some(name) = next else { return Ok(()) };
            let inner = path::join(path, &name.bytes);
            if announce {
                self.emitted.found(inner.clone());
            }
            if !self.recursive || !is_directory(directory, &name) {
                continue;
            }
            if self.directories.len() + found.len() >= WATCHES_MAX {
                let why = format!("has more than {WATCHES_MAX} directories, too many to watch");
                return Err(unfit(FaultCode::Limit, self.root.as_path(), &why));
            }
            found.push(inner);
        }
    }

    fn full_path(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() {
            return self.root.clone();
        }
        self.root.join(std::ffi::OsStr::from_bytes(path))
    }
}

/// A new queue with a watch of the root, and which file that is.
fn new_queue(root: &Path) -> Result<(Inotify, WatchDescriptor, (u64, u64)), Fault> {
    let refuse = |errno| refused_watch(root, errno);
    let queue = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(refuse)?;
    let found =
        lookup::open(root, OFlag::O_PATH, Way::Follow).map_err(|why| refused_watch(root, why))?;
    let watch = queue.add_watch(&lookup::name_of(&found, root), ROOT).map_err(refuse)?;
    let status = fstat(&found).map_err(refuse)?;
    Ok((queue, watch, (status.st_dev, status.st_ino)))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = lookup::open(path, OFlag::O_PATH, Way::Follow).ok()?;
    fstat(found).ok().map(|status| (status.st_dev, status.st_ino))
}

/// `None` for what is gone again, or is something else by now; an event reports either. Within a
/// tree, kernel file systems are not watched.
fn if_there(opened: Result<OwnedFd, Refused>, path: &Path) -> Result<Option<OwnedFd>, Fault> {
    match opened {
        Ok(directory) => Ok(Some(directory)),
        Err(
            Refused::Errno(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP)
            | Refused::KernelFileSystem(_),
        ) => Ok(None),
        Err(why) => Err(refused_watch(path, why)),
    }
}

fn is_directory(directory: &OwnedFd, name: &Name) -> bool {
    match name.hint {
        Hint::Directory => true,
        Hint::Other => false,
        Hint::Unknown => info::status(directory, name.bytes.as_slice(), false)
            .is_ok_and(|status| info::kind(&status) == FileKind::Directory),
    }
}

/// What follows `directory` in a path that is equal to it or below it.
fn below<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(directory).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The kernel's refusal to watch a path. Its numbers for "too many" mean something else everywhere
/// else.
fn refused_watch(path: &Path, why: impl Into<Refused>) -> Fault {
    let (errno, limit) = match why.into() {
        Refused::Errno(Errno::ENOSPC) => (Errno::ENOSPC, "fs.inotify.max_user_watches"),
        Refused::Errno(Errno::EMFILE) => (Errno::EMFILE, "fs.inotify.max_user_instances"),
        why => return refused("watch", path, why),
    };
    let path = quoted(path);
    let message = format!("cannot watch {path}: the kernel's limit {limit} is reached");
    Fault { errno: Some(errno as i32), ..Fault::new(FaultCode::Limit, message) }
}
