//! Which of some names exist below a directory, for code that asks the same of the same directories with
//! each new sandbox: dozens of names that are hardly ever there, in each home.
//!
//! Absent names are remembered for as long as their directory stays as it is: a name that appears changes
//! the directory's time of change, which nobody can set. A directory that was changed a moment ago is asked
//! again, because file systems keep that time coarsely, and after a while every one is, because some keep
//! none. Nothing here follows a link in the last component of a name, or changes anything.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A directory that was changed this recently may be changed again without another time of change.
const UNSETTLED_S: i64 = 2;
/// For how long absent names are remembered at most.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How many directories are remembered: the homes of a host with many people.
const DIRECTORIES_MAX: usize = 4096;

/// What tells two states of a directory apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    changed_s: i64,
    changed_ns: i64,
}

/// What a directory did not have when it was looked at.
#[derive(Clone, Debug)]
struct Absences {
    stamp: Stamp,
    at: Instant,
    /// Direct entries.
    names: Vec<PathBuf>,
}

/// The paths below `directory` that exist, of these. Symlinks count as they are.
pub fn existing_below(directory: &Path, names: &[&str]) -> Vec<PathBuf> {
    // Without its state nothing is known of it, and each name is looked at.
    let now = fs::metadata(directory).ok().as_ref().and_then(Stamp::of_settled);
    let remembered = now.and_then(|stamp| recall(directory, stamp));
    let (mut absent, at) = remembered.unwrap_or_else(|| (Vec::new(), Instant::now()));
    let absent_before = absent.len();
    let (mut found, mut present) = (Vec::new(), Vec::new());
    for name in names {
        let Some(Component::Normal(first)) = Path::new(name).components().next() else { continue };
        if absent.iter().any(|known| known == first) {
            continue;
        }
        let path = directory.join(name);
        if path.symlink_metadata().is_ok() {
            found.push(path);
        } else if first == *name || is_absent(&mut present, directory, first) {
            absent.push(first.into());
        }
    }
    if let Some(stamp) = now.filter(|_| absent.len() > absent_before) {
        remember(directory, Absences { stamp, at, names: absent });
    }
    found
}

/// Whether a directory lacks this entry. What is `present` was found before, and is not looked at again.
fn is_absent<'a>(present: &mut Vec<&'a OsStr>, directory: &Path, entry: &'a OsStr) -> bool {
    if present.contains(&entry) {
        return false;
    }
    let exists = directory.join(entry).symlink_metadata().is_ok();
    if exists {
        present.push(entry);
    }
    !exists
}

/// The names that a directory did not have, and since when that is known.
fn recall(directory: &Path, stamp: Stamp) -> Option<(Vec<PathBuf>, Instant)> {
    let known = known();
    let absences = known.get(directory)?;
    let is_current = absences.stamp == stamp && absences.at.elapsed() < REMEMBERED;
    is_current.then(|| (absences.names.clone(), absences.at))
}

fn remember(directory: &Path, absences: Absences) {
    let mut known = known();
    if known.len() >= DIRECTORIES_MAX {
        known.clear();
    }
    known.insert(directory.to_owned(), absences);
}

fn known() -> MutexGuard<'static, HashMap<PathBuf, Absences>> {
    static KNOWN: LazyLock<Mutex<HashMap<PathBuf, Absences>>> = LazyLock::new(Mutex::default);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stamp {
    /// `None` of a directory that was changed a moment ago, or in the future.
    fn of_settled(found: &Metadata) -> Option<Self> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs() as i64;
        (found.ctime() < now_s - UNSETTLED_S).then(|| Self {
            device: found.dev(),
            inode: found.ino(),
            changed_s: found.ctime(),
            changed_ns: found.ctime_nsec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = [".ssh", ".config/gh", ".config/op", ".netrc"];

    fn home(name: &str) -> PathBuf {
        let home = std::env::temp_dir().join(format!("burrow-names-{name}-{}", std::process::id()));
        fs::create_dir_all(&home).unwrap();
        home
    }

    /// Waits until the directory is one whose state is remembered.
    fn settle(home: &Path) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Stamp::of_settled(&fs::metadata(home).unwrap()).is_none() {
            assert!(Instant::now() < deadline, "the clock does not move");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn a_name_that_appears_is_found_at_once() {
        let home = home("appears");
        settle(&home);
        for _ in 0..2 {
            assert!(existing_below(&home, &NAMES).is_empty());
        }
        assert!(known().contains_key(&home), "nothing is remembered");
        // Another list of names adds to what is known.
        assert!(existing_below(&home, &[".burrow"]).is_empty());
        let absent = known()[&home].names.clone();
        assert!([".ssh", ".burrow"].iter().all(|name| absent.contains(&(*name).into())));
        fs::create_dir(home.join(".config")).unwrap();
        assert!(existing_below(&home, &NAMES).is_empty());
        fs::write(home.join(".netrc"), "").unwrap();
        assert_eq!(existing_below(&home, &NAMES), [home.join(".netrc")]);
        settle(&home);
        // What appears below an entry that is there does not change the home itself.
        assert_eq!(existing_below(&home, &NAMES), [home.join(".netrc")]);
        fs::write(home.join(".config/gh"), "").unwrap();
        assert_eq!(existing_below(&home, &NAMES), [home.join(".config/gh"), home.join(".netrc")]);
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn a_link_that_leads_nowhere_exists() {
        let home = home("link");
        std::os::unix::fs::symlink("/nowhere/at/all", home.join(".ssh")).unwrap();
        assert_eq!(existing_below(&home, &NAMES), [home.join(".ssh")]);
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn a_home_that_is_replaced_by_an_older_one_is_asked_again() {
        let (one, other) = (home("one"), home("other"));
        fs::write(other.join(".netrc"), "").unwrap();
        settle(&other);
        assert!(existing_below(&one, &NAMES).is_empty());
        fs::remove_dir(&one).unwrap();
        fs::rename(&other, &one).unwrap();
        assert_eq!(existing_below(&one, &NAMES), [one.join(".netrc")]);
        fs::remove_dir_all(one).unwrap();
    }
}
