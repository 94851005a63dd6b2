//! One notebook's saved variables: a directory of sealed files.
//!
//! A state is a manifest and the files that it names. A new state is valid when its manifest has been renamed
//! into place; files that only the old one names are removed after that. A bridge that is killed at any
//! moment leaves one of the two, and unreferenced files, which the next state removes.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::limits::MANIFEST_BYTES_MAX;
use super::manifest::is_digest;
use super::seal::{Opening, SealError, SealKey, Sealing};
use host::paths::{PRIVATE_FILE, Paths, make_private_directory};
use sandbox::Name;

const MANIFEST: &str = "manifest";
const NEW: &str = "new";
const LOCK: &str = "lock";

/// See the module's description. Clones are the same directory.
#[derive(Clone)]
pub struct Vault {
    directory: PathBuf,
    key: SealKey,
    /// Its owner, sealed with each file.
    whose: String,
    /// Held by whatever works on it, until its last write.
    lock: Option<Arc<Flock<File>>>,
}

/// The header before the guest's manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Counted by the bridge, and kept elsewhere too: an older state put back in its place is found
    /// out.
    pub version: u64,
    /// The last run whose variables are in it.
    pub run: u64,
}

impl Vault {
    pub fn new(paths: &Paths, key: SealKey, namespace: &Name, id: &Name) -> Self {
        let directory = paths.notebooks().join(namespace.as_str()).join(id.as_str());
        Self { directory, key, whose: format!("{namespace}/{id}"), lock: None }
    }

    /// Locks it while a clone of the lock lives, against other tasks and other bridges on these directories;
    /// `None` if it is locked.
    pub fn lock(&self) -> Result<Option<Self>, SealError> {
        make_private_directory(&self.directory)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        match Flock::lock(file.open(self.directory.join(LOCK))?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(Self { lock: Some(Arc::new(lock)), ..self.clone() })),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(io::Error::from(errno).into()),
        }
    }

    pub fn has(&self, digest: &str) -> bool {
        self.directory.join(digest).exists()
    }

    /// Begins to keep a file, which is there under its name once it is finished.
    pub fn begin(&self, digest: &str) -> Result<Keeping, SealError> {
        make_private_directory(&self.directory)?;
        let new = self.directory.join(NEW);
        let sealing = Sealing::begin(&self.key, &new, &self.place(digest))?;
        let path = self.directory.join(digest);
        Ok(Keeping { sealing, new, path, is_placed: false, _lock: self.lock.clone() })
    }

    pub fn open(&self, digest: &str) -> Result<Opening, SealError> {
        Opening::begin(&self.key, &self.directory.join(digest), &self.place(digest))
    }

    /// Makes a state of a manifest whose files are all there, and removes those of no state.
    pub fn commit(
        &self,
        stamp: Stamp,
        manifest: &[u8],
        digests: &HashSet<String>,
    ) -> Result<(), SealError> {
        let mut keeping = self.begin(MANIFEST)?;
        let head = serde_json::to_vec(&stamp).map_err(io::Error::from)?;
        keeping.write(&head)?;
        keeping.write(b"\n")?;
        keeping.write(manifest)?;
        keeping.finish()?;
        File::open(&self.directory)?.sync_all()?;
        for entry in fs::read_dir(&self.directory)?.flatten() {
            let name = entry.file_name();
            let is_old =
                name.to_str().is_some_and(|name| is_digest(name) && !digests.contains(name));
            if is_old {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// The newest state, if there is one.
    pub fn state(&self) -> Result<Option<(Stamp, Vec<u8>)>, SealError> {
        let opening = match self.open(MANIFEST) {
            Err(SealError::Io(error)) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opening => opening?,
        };
        let mut whole = opening.whole(2 * MANIFEST_BYTES_MAX)?;
        let end = whole.iter().position(|byte| *byte == b'\n').ok_or(SealError::Broken)?;
        let manifest = whole.split_off(end + 1);
        let stamp = serde_json::from_slice(&whole).map_err(|_| SealError::Broken)?;
        Ok(Some((stamp, manifest)))
    }

    /// Forgets one file, so that it is fetched again if it is made again.
    pub fn forget(&self, digest: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(digest))
    }

    /// Forgets the state, and stays locked.
    pub fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)?.flatten() {
            if entry.file_name() != LOCK {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Forgets all of it.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.whose)
    }
}

/// A file on its way into the vault. An unfinished one leaves nothing: a full disk has no room for
/// it.
pub struct Keeping {
    sealing: Sealing,
    new: PathBuf,
    path: PathBuf,
    is_placed: bool,
    _lock: Option<Arc<Flock<File>>>,
}

impl Keeping {
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SealError> {
        self.sealing.write(bytes)
    }

    pub fn finish(mut self) -> Result<(), SealError> {
        self.sealing.finish()?;
        fs::rename(&self.new, &self.path)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = fs::remove_file(&self.new);
        }
    }
}

/// The key of all vaults below a state directory.
pub fn key_path(state: &Path) -> PathBuf {
    state.join("notebooks.key")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "1111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222";

    struct TestDirectory(PathBuf);

    impl TestDirectory {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("burrow-vault-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn vault(&self, id: &str) -> Vault {
            let paths = Paths { runtime: self.0.clone(), state: self.0.clone() };
            let key = SealKey::open(&key_path(&self.0)).unwrap();
            Vault::new(&paths, key, &"team".parse().unwrap(), &id.parse().unwrap())
        }
    }

    impl Drop for TestDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn keep(vault: &Vault, digest: &str, content: &[u8]) {
        let mut keeping = vault.begin(digest).unwrap();
        keeping.write(content).unwrap();
        keeping.finish().unwrap();
    }

    fn digests(all: &[&str]) -> HashSet<String> {
        all.iter().map(|digest| (*digest).to_owned()).collect()
    }

    #[test]
    fn a_new_state_takes_the_place_of_the_old_and_of_its_files() {
        let place = TestDirectory::new("states");
        let vault = place.vault("a");
        assert!(vault.state().unwrap().is_none());
        keep(&vault, ONE, b"one");
        let stamp = Stamp { version: 1, run: 3 };
        vault.commit(stamp, b"{\n}", &digests(&[ONE])).unwrap();
        assert_eq!(vault.state().unwrap(), Some((stamp, b"{\n}".to_vec())));
        keep(&vault, TWO, b"two");
        let stamp = Stamp { version: 2, run: 4 };
        vault.commit(stamp, b"{}", &digests(&[TWO])).unwrap();
        let lock = vault.lock().unwrap();
        assert!(lock.is_some() && vault.lock().unwrap().is_none(), "there is one of it");
        assert!(!vault.has(ONE));
        assert_eq!(vault.open(TWO).unwrap().whole(10).unwrap(), b"two");
        vault.clear().unwrap();
        assert!(vault.state().unwrap().is_none() && vault.lock().unwrap().is_none());
        vault.remove().unwrap();
        vault.remove().unwrap();
        assert!(vault.state().unwrap().is_none());
    }

    #[test]
    fn a_file_of_another_notebook_or_another_name_does_not_open() {
        let place = TestDirectory::new("swapped");
        let (a, b) = (place.vault("a"), place.vault("b"));
        keep(&a, ONE, b"one");
        keep(&b, TWO, b"two");
        fs::copy(a.directory.join(ONE), a.directory.join(TWO)).unwrap();
        fs::copy(a.directory.join(ONE), b.directory.join(ONE)).unwrap();
        for (vault, digest) in [(&a, TWO), (&b, ONE)] {
            let opened = vault.open(digest).unwrap().whole(10);
            assert!(matches!(opened, Err(SealError::Broken)), "{digest}");
        }
    }
}
