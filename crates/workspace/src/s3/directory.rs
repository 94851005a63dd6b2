//! The directory with a bucket's files for one sandbox, locked so that one process at a time uses it. A
//! named sandbox has it beside its record. A run has a temporary one, which is kept after the run only if
//! the bucket still lacks some of its files.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::limits::{HOLD_DEADLINE, HOLD_LOOK};

const KEPT: &str = "workspace.files";
const TEMPORARY_PREFIX: &str = "burrow-";
const TEMPORARY_SUFFIX: &str = "-bucket";
const FILES: &str = "files";
/// A mark beside a run's files that the bucket does not have: they are never swept.
const UNSENT: &str = "unsent";
const PRIVATE: u32 = 0o700;

/// The locked directory of a bucket's files. Dropping it releases the lock.
#[derive(Debug)]
pub struct StagingDirectory {
    pub root: PathBuf,
    temporary: Option<PathBuf>,
    is_behind: AtomicBool,
    /// Locked, for as long as it is open.
    _hold: File,
}

impl Drop for StagingDirectory {
    fn drop(&mut self) {
        let is_done = !self.is_behind.load(Ordering::Relaxed);
        if let Some(outer) = self.temporary.as_ref().filter(|_| is_done) {
            // A later run sweeps what cannot be removed.
            let _ = fs::remove_dir_all(outer);
        }
    }
}

impl StagingDirectory {
    /// A new one: with the record of a sandbox, or a temporary one of this sandbox's id.
    pub fn make(state: Option<&Path>, owner: &str) -> io::Result<Self> {
        let make = |path: &Path| DirBuilder::new().mode(PRIVATE).create(path);
        let is_behind = AtomicBool::new(false);
        let Some(state) = state else {
            sweep(&std::env::temp_dir());
            let name = format!("{TEMPORARY_PREFIX}{owner}{TEMPORARY_SUFFIX}");
            let outer = std::env::temp_dir().join(name);
            // An existing directory belongs to somebody else.
            make(&outer)?;
            let (root, hold) = (outer.join(FILES), hold(&outer)?);
            make(&root)?;
            return Ok(Self { root, temporary: Some(outer), is_behind, _hold: hold });
        };
        let root = state.join(KEPT);
        make(&root)?;
        Ok(Self { _hold: hold(&root)?, root, temporary: None, is_behind })
    }

    /// The one that an earlier bridge has made with this record.
    pub fn find(state: &Path) -> io::Result<Self> {
        let root = state.join(KEPT);
        let is_behind = AtomicBool::new(false);
        Ok(Self { _hold: hold(&root)?, root, temporary: None, is_behind })
    }

    /// Says whether the bucket lacks something of it, or may: then it stays, also when this process is killed.
    pub fn set_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::Relaxed);
        let Some(outer) = &self.temporary else { return };
        let mark = outer.join(UNSENT);
        // Without the mark a killed run's files may be swept; nothing else depends on it.
        let _ = if is_behind { File::create(mark).map(drop) } else { fs::remove_file(mark) };
    }

    /// The directory of a run's files, which no record names.
    pub fn unrecorded(&self) -> Option<&Path> {
        self.temporary.as_ref().map(|_| self.root.as_path())
    }
}

/// Waits until the previous holder releases the lock.
fn hold(path: &Path) -> io::Result<File> {
    let (file, began) = (File::open(path)?, Instant::now());
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if began.elapsed() < HOLD_DEADLINE => sleep(HOLD_LOOK),
            Err(Errno::WOULDBLOCK) => return Err(ErrorKind::ResourceBusy.into()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Removes the remains of killed runs, except for files that the bucket still lacks. Best effort.
fn sweep(directory: &Path) {
    let own = |name: &str| name.starts_with(TEMPORARY_PREFIX) && name.ends_with(TEMPORARY_SUFFIX);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().to_str().is_some_and(own) || path.join(UNSENT).exists() {
            continue;
        }
        let Ok(file) = rustix::fs::open(
            &path,
            rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::DIRECTORY
                | rustix::fs::OFlags::NOFOLLOW
                | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        ) else {
            continue;
        };
        // Other users' directories cannot be removed, and those in use are locked.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let name = format!("burrow-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_home_is_one_processs_at_a_time_and_what_was_not_sent_outlives_it() {
        let state = scratch("state");
        let first = StagingDirectory::make(Some(&state), "b1").unwrap();
        let root = first.root.clone();
        // Another descriptor of the same file is another holder.
        let other = File::open(&root).unwrap();
        assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
        drop(first);
        let second = StagingDirectory::find(&state).unwrap();
        assert_eq!(second.unrecorded(), None);
        drop(second);
        assert!(root.exists());
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn remains_of_a_killed_run_are_swept_except_unsent_files() {
        let temp = scratch("sweep");
        let path = |name: &str| temp.join(name);
        for name in ["burrow-a-bucket", "burrow-b-bucket", "burrow-c-bucket", "other"] {
            fs::create_dir(path(name)).unwrap();
        }
        File::create(path("burrow-b-bucket").join(UNSENT)).unwrap();
        std::os::unix::fs::symlink(path("other"), path("burrow-d-bucket")).unwrap();
        let held = hold(&path("burrow-c-bucket")).unwrap();
        sweep(&temp);
        let left = |name: &str| path(name).exists();
        assert!(!left("burrow-a-bucket"));
        assert!(left("burrow-b-bucket") && left("burrow-c-bucket") && left("other"));
        drop(held);
        fs::remove_dir_all(temp).unwrap();
    }
}
