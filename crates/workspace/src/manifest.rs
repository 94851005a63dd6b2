//! What both sides had at the last exchange, by path, and the journal of what has been written since: a
//! bridge that takes over a sandbox continues from them, and recognises the files of an exchange that was
//! killed half-way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::limits::MANIFEST_BYTES_MAX;
use host::paths::{PRIVATE_FILE, write_durably};

const MANIFEST_FILE: &str = "workspace.manifest";
const JOURNAL_FILE: &str = "workspace.journal";

/// The SHA-256 of a file's content, or of a link's text.
pub type Digest = [u8; 32];

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Directory,
    File,
    Link,
}

/// The guest's view of it: if this is the same, it was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestStamp {
    pub bytes: u64,
    pub mode: u32,
    pub modified_ms: i64,
    /// The text of a link.
    pub target: Vec<u8>,
}

/// The view of the host's file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStamp {
    pub inode: u64,
    pub bytes: u64,
    pub modified: (i64, u32),
    pub changed: (i64, u32),
}

/// One path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPath {
    pub kind: Kind,
    pub guest: GuestStamp,
    /// False if it may have been changed again within the same stamp.
    pub settled: bool,
    /// What the host has of it from us; absent if nothing.
    pub host: Option<(HostStamp, Digest)>,
}

/// Everything, by path.
#[derive(Debug, Default)]
pub struct Manifest {
    pub known: BTreeMap<Vec<u8>, KnownPath>,
    /// Paths that were reported as not copied; each bridge reports them once.
    pub left_out: BTreeSet<Vec<u8>>,
    /// Copies of conflicts that were kept on the host, with their bytes: they count for the limits.
    pub copies: BTreeMap<Vec<u8>, u64>,
    /// Contents that an interrupted exchange may have written.
    ours: BTreeMap<Vec<u8>, Vec<Digest>>,
    directory: Option<PathBuf>,
    journal: Option<File>,
}

impl Manifest {
    /// An empty one that is kept in `directory`, or in memory alone.
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, ..Self::default() }
    }

    /// Reads what an earlier bridge recorded.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let manifest = read_file(&directory.join(MANIFEST_FILE))?;
        let mut rest = manifest.as_slice();
        let known = rmp_serde::from_read(&mut rest).map_err(io::Error::other)?;
        // Bridges that did not count copies have put down none.
        let copies = match rest {
            [] => BTreeMap::new(),
            rest => rmp_serde::from_slice(rest).map_err(io::Error::other)?,
        };
        let mut ours = BTreeMap::<Vec<u8>, Vec<Digest>>::new();
        let journal = match read_file(&directory.join(JOURNAL_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let mut rest = journal.as_slice();
        // The last line may be torn: then its write was not begun.
        while let Ok((path, digest)) = rmp_serde::from_read::<_, (Vec<u8>, Digest)>(&mut rest) {
            ours.entry(path).or_default().push(digest);
        }
        let directory = Some(directory.to_owned());
        Ok(Self { known, copies, ours, directory, ..Self::default() })
    }

    /// Says that the host is about to get this content under this path.
    pub fn intend(&mut self, path: &[u8], digest: Digest) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        if self.journal.is_none() {
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(PRIVATE_FILE);
            self.journal = Some(options.open(directory.join(JOURNAL_FILE))?);
        }
        let line = rmp_serde::to_vec(&(path, digest)).map_err(io::Error::other)?;
        self.journal.as_mut().map_or(Ok(()), |journal| journal.write_all(&line))
    }

    /// Whether the host has this content under this path from us.
    pub fn is_ours(&self, path: &[u8], digest: &Digest) -> bool {
        let known = self.known.get(path).and_then(|known| known.host.as_ref());
        known.is_some_and(|(_, ours)| ours == digest)
            || self.ours.get(path).is_some_and(|ours| ours.contains(digest))
    }

    /// Paths that an interrupted exchange may have written, and about which nothing else is known.
    pub fn unfinished(&self) -> Vec<Vec<u8>> {
        self.ours.keys().filter(|path| !self.known.contains_key(*path)).cloned().collect()
    }

    /// Puts it down for the next bridge.
    pub fn save(&mut self) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let mut bytes = rmp_serde::to_vec(&self.known).map_err(io::Error::other)?;
        bytes.extend(rmp_serde::to_vec(&self.copies).map_err(io::Error::other)?);
        write_durably(directory, MANIFEST_FILE, &bytes)?;
        self.ours.clear();
        self.journal = None;
        match fs::remove_file(directory.join(JOURNAL_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
