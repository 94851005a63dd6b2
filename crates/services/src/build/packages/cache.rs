//! The directories of installed packages in this user's cache: finding one that is there, keeping a new one,
//! and removing those that nobody uses.
//!
//! Who uses a directory holds a shared lock on it, or has it in the record of a sandbox. A process that removes one
//! takes the lock alone, gives the directory another name and then removes it, so that a half-removed one is
//! never found. A process that is killed leaves its directory without a lock, and the next prune removes it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use host::id::RandomId;
use host::paths::{Paths, PathsError, cache_directory};
use rustix::fs::{FlockOperation, flock};
use sandbox::host_packages;

use super::rights::take_rights_away;

/// The directory in the cache.
const PACKAGES: &str = "packages";
/// The prefix of a directory that is being filled or removed.
const UNFINISHED: &str = ".";
/// Every user of a sandbox can read it.
const DIRECTORY_MODE: u32 = 0o755;
/// Until it is filled, and nothing in it gives anybody rights, nobody else on the host can enter it.
const DRAFT_MODE: u32 = 0o700;
/// What all may take together when one is added. Scientific Python takes 250 MB.
pub const CACHE_BYTES_MAX: u64 = 8 << 30;
/// How long one stays that nobody uses when another is added: who comes back after a holiday finds it.
pub const CACHE_UNUSED_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The file with the state directories whose sandboxes use the cache, one a line.
const STATES: &str = "states";
/// A person's bridge has one, and tests of it some more.
const STATES_MAX: usize = 64;
/// What the kernel counts blocks in.
const BLOCK_BYTES: u64 = 512;

/// See the module's description.
pub struct PackageCache {
    place: PathBuf,
}

/// A directory of installed packages, which is not removed while this is held.
#[derive(Debug)]
pub struct HostPackages {
    pub(super) directory: PathBuf,
    _lock: File,
}

/// A directory that is being filled. It is removed unless it is kept.
pub(super) struct Draft {
    pub(super) directory: PathBuf,
    /// So that nobody takes it for one that a killed process has left.
    lock: File,
}

/// What to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// All that nobody uses.
    Unused,
    /// What is over the bounds, the longest unused first.
    OverBounds { bytes_max: u64, unused_max: Duration },
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackagesPruned {
    pub sets: u64,
    pub bytes: u64,
}

/// A directory that could be removed.
struct Found {
    used_at: SystemTime,
    bytes: u64,
    path: PathBuf,
}

impl PackageCache {
    /// The cache of this user. It may not exist yet.
    pub fn of_user() -> Result<Self, PathsError> {
        Ok(Self { place: cache_directory()?.join(PACKAGES) })
    }

    pub fn place(&self) -> &Path {
        &self.place
    }

    /// How many sets of packages there are, and how many bytes they take.
    pub fn size(&self) -> io::Result<(usize, u64)> {
        let found = self.found()?;
        Ok((found.len(), found.iter().map(|one| one.bytes).sum()))
    }

    /// The directory of this name, if it is there.
    pub(super) fn find(&self, key: &str) -> io::Result<Option<HostPackages>> {
        let directory = self.place.join(key);
        let lock = match File::open(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        flock(&lock, FlockOperation::LockShared)?;
        // It may have been removed while this waited for the lock.
        let (held, named) = (lock.metadata()?.ino(), fs::metadata(&directory).ok());
        if named.is_none_or(|named| named.ino() != held) {
            return Ok(None);
        }
        // It is as old as its last use.
        lock.set_modified(SystemTime::now())?;
        Ok(Some(HostPackages { directory, _lock: lock }))
    }

    /// A new directory to be filled.
    pub(super) fn draft(&self) -> io::Result<Draft> {
        make_directory(&self.place)?;
        let directory = self.place.join(format!("{UNFINISHED}{}", RandomId::draw()?));
        DirBuilder::new().mode(DRAFT_MODE).create(&directory)?;
        let lock = File::open(&directory)?;
        flock(&lock, FlockOperation::LockShared)?;
        Ok(Draft { directory, lock })
    }

    /// Gives a filled directory its name, or takes the one that another process has filled meanwhile.
    pub(super) fn keep(&self, draft: &Draft, key: &str) -> io::Result<HostPackages> {
        let directory = self.place.join(key);
        take_rights_away(&draft.directory)?;
        fs::set_permissions(&draft.directory, Permissions::from_mode(DIRECTORY_MODE))?;
        match fs::rename(&draft.directory, &directory) {
            Ok(()) => {
                let lock = draft.lock.try_clone()?;
                lock.set_modified(SystemTime::now())?;
                Ok(HostPackages { directory, _lock: lock })
            }
            Err(error) => self.find(key)?.ok_or(error),
        }
    }

    /// Notes that sandboxes of this state directory use the cache: pruning looks at their records.
    pub(super) fn note_user(&self, state: &Path) -> io::Result<()> {
        // Of two processes that add themselves at once, neither is forgotten.
        let lock = File::open(&self.place)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let mut states = self.states();
        if states.iter().any(|known| known == state) {
            return Ok(());
        }
        if states.len() >= STATES_MAX {
            states.retain(|known| known.is_dir());
        }
        states.push(state.to_owned());
        let lines: Vec<_> = states.iter().map(|state| state.display().to_string()).collect();
        let new = self.place.join(format!("{UNFINISHED}{}", RandomId::draw()?));
        fs::write(&new, lines.join("\n"))?;
        fs::rename(new, self.place.join(STATES))
    }

    fn states(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string(self.place.join(STATES)).unwrap_or_default();
        text.lines().map(PathBuf::from).collect()
    }

    /// Removes directories that nobody uses: no process holds it, and no record of a sandbox names it, of this
    /// bridge or of another that uses the cache. One that cannot be removed does not keep the others.
    pub fn prune(&self, paths: &Paths, what: Prune) -> io::Result<PackagesPruned> {
        let mut users = host_packages::users(paths);
        for state in self.states() {
            users.extend(host_packages::users(&Paths { state, ..paths.clone() }));
        }
        self.prune_all_but(&users, what)
    }

    fn prune_all_but(&self, users: &BTreeSet<PathBuf>, what: Prune) -> io::Result<PackagesPruned> {
        let mut pruned = PackagesPruned::default();
        let mut failed = None;
        for unfinished in self.entries(true)? {
            if let Err(error) = remove_unused(&unfinished, &self.place) {
                failed = Some(error);
            }
        }
        let mut found = self.found()?;
        found.sort_by_key(|one| one.used_at);
        let mut bytes: u64 = found.iter().map(|one| one.bytes).sum();
        for one in found.into_iter().filter(|one| !users.contains(&one.path)) {
            let goes = match what {
                Prune::Unused => true,
                Prune::OverBounds { bytes_max, unused_max } => {
                    bytes > bytes_max || one.used_at.elapsed().is_ok_and(|age| age > unused_max)
                }
            };
            if !goes {
                continue;
            }
            match remove_unused(&one.path, &self.place) {
                Ok(false) => {}
                Ok(true) => {
                    bytes -= one.bytes;
                    pruned.sets += 1;
                    pruned.bytes += one.bytes;
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(pruned), Err)
    }

    fn found(&self) -> io::Result<Vec<Found>> {
        let mut all = Vec::new();
        for path in self.entries(false)? {
            // Another process may remove it meanwhile.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            all.push(Found { used_at: metadata.modified()?, bytes: bytes_of(&path), path });
        }
        Ok(all)
    }

    /// The directories that are complete, or the others.
    fn entries(&self, unfinished: bool) -> io::Result<Vec<PathBuf>> {
        let listed = match fs::read_dir(&self.place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed?,
        };
        let mut paths = Vec::new();
        for entry in listed {
            let entry = entry?;
            let is_unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
            if is_unfinished == unfinished && entry.file_type()?.is_dir() {
                paths.push(entry.path());
            }
        }
        Ok(paths)
    }
}

impl HostPackages {
    /// Keeps the directory until this process ends: its sandboxes are in no record that others read.
    pub fn hold_until_exit(self) {
        static HELD: Mutex<Vec<HostPackages>> = Mutex::new(Vec::new());
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if held.iter().all(|one| one.directory != self.directory) {
            held.push(self);
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes a directory unless somebody holds it, and says whether it did.
fn remove_unused(path: &Path, place: &Path) -> io::Result<bool> {
    let lock = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    let removed = place.join(format!("{UNFINISHED}{}", RandomId::draw()?));
    fs::rename(path, &removed)?;
    fs::remove_dir_all(&removed)?;
    Ok(true)
}

/// Creates a directory that sandboxes can read, or accepts one of this user's.
fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    if fs::metadata(path)?.uid() == nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"))
}

/// What a tree takes on the disk, as far as it can be read.
fn bytes_of(directory: &Path) -> u64 {
    let mut bytes = 0;
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += metadata.blocks() * BLOCK_BYTES;
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_BYTES: usize = 1 << 20;

    struct TestCache(PackageCache);

    impl TestCache {
        fn new(name: &str) -> Self {
            let name = format!("burrow-packages-{name}-{}", std::process::id());
            let place = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&place);
            Self(PackageCache { place })
        }

        /// A set that was used so many days ago.
        fn add(&self, key: &str, days: u64) -> HostPackages {
            let draft = self.0.draft().unwrap();
            fs::write(draft.directory.join("file"), vec![1; FILE_BYTES]).unwrap();
            let kept = self.0.keep(&draft, key).unwrap();
            let age = Duration::from_secs(days * 24 * 60 * 60);
            File::open(&kept.directory).unwrap().set_modified(SystemTime::now() - age).unwrap();
            kept
        }

        fn names(&self) -> Vec<String> {
            let listed = fs::read_dir(&self.0.place).unwrap();
            let mut names: Vec<_> =
                listed.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for TestCache {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.place);
        }
    }

    fn nobody() -> BTreeSet<PathBuf> {
        BTreeSet::new()
    }

    #[test]
    fn what_somebody_uses_stays_and_all_else_is_removed() {
        let place = TestCache::new("used");
        let held = place.add("held", 90);
        let recorded = place.add("recorded", 90).directory;
        drop(place.add("unused", 0));
        let pruned = place.0.prune_all_but(&BTreeSet::from([recorded]), Prune::Unused).unwrap();
        assert_eq!((pruned.sets, pruned.bytes), (1, FILE_BYTES as u64));
        assert_eq!(place.names(), ["held", "recorded"]);
        drop(held);
        assert_eq!(place.0.prune_all_but(&nobody(), Prune::Unused).unwrap().sets, 2);
        assert!(place.0.find("held").unwrap().is_none());
    }

    #[test]
    fn the_longest_unused_go_first_when_there_are_too_many_or_they_are_too_old() {
        let place = TestCache::new("bounds");
        for (key, days) in [("a", 3), ("b", 2), ("c", 1), ("d", 40)] {
            drop(place.add(key, days));
        }
        let unused_max = CACHE_UNUSED_MAX;
        let (two, three) = (2 * FILE_BYTES as u64 + 4096, 3 * FILE_BYTES as u64 + 4096);
        let bounds = |bytes_max| Prune::OverBounds { bytes_max, unused_max };
        place.0.prune_all_but(&nobody(), bounds(4 * three)).unwrap();
        assert_eq!(place.names(), ["a", "b", "c"]);
        place.0.prune_all_but(&nobody(), bounds(three)).unwrap();
        assert_eq!(place.names(), ["a", "b", "c"]);
        // A use makes it young.
        drop(place.0.find("a").unwrap());
        place.0.prune_all_but(&nobody(), bounds(two)).unwrap();
        assert_eq!(place.names(), ["a", "c"]);
    }

    #[test]
    fn nobody_else_enters_a_directory_before_it_is_harmless() {
        let place = TestCache::new("rights");
        let draft = place.0.draft().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&draft.directory), DRAFT_MODE);
        let program = draft.directory.join("program");
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
        let kept = place.0.keep(&draft, "a").unwrap();
        assert_eq!(mode(&kept.directory), DIRECTORY_MODE);
        assert_eq!(mode(&kept.directory.join("program")), 0o755);
    }

    #[test]
    fn state_directories_are_noted_once_and_those_that_are_gone_make_room() {
        let place = TestCache::new("states");
        drop(place.add("a", 0));
        let here = std::env::temp_dir();
        for _ in 0..2 {
            place.0.note_user(&here).unwrap();
        }
        assert_eq!(place.0.states(), std::slice::from_ref(&here));
        for number in 0..STATES_MAX {
            place.0.note_user(&here.join(format!("gone-{number}"))).unwrap();
        }
        let last = here.join(format!("gone-{}", STATES_MAX - 1));
        assert_eq!(place.0.states(), [here, last]);
    }

    #[test]
    fn what_a_killed_process_has_left_is_removed_and_what_another_fills_is_not() {
        let place = TestCache::new("left");
        let filling = place.0.draft().unwrap();
        fs::create_dir(place.0.place.join(".left")).unwrap();
        place.0.prune_all_but(&nobody(), Prune::Unused).unwrap();
        let filling_name = filling.directory.file_name().unwrap().to_str().unwrap();
        assert_eq!(place.names(), [filling_name]);
        drop(filling);
        assert_eq!(place.names(), Vec::<String>::new());
    }
}
