//! The state of the bucket at the last exchange, by path, and what was about to be written to it: a bridge
//! that takes over a sandbox continues from there, and knows what it has written itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::limits::INTENDED_MAX;
use crate::limits::MANIFEST_BYTES_MAX;
use crate::manifest::{Digest, HostStamp};
use host::paths::write_durably;

const FILE: &str = "workspace.bucket";

/// One path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// The tag of the object that we got or have written; none where the bucket has nothing of it.
    pub etag: Option<String>,
    /// The file, as it was when that was done.
    pub stamp: HostStamp,
    pub mode: u32,
    pub digest: Digest,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ledger {
    pub known: BTreeMap<String, Object>,
    /// Contents that may have been written, without an answer.
    pub intended: BTreeMap<String, Vec<(Digest, u64)>>,
    #[serde(skip)]
    directory: Option<PathBuf>,
}

impl Ledger {
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, ..Self::default() }
    }

    /// Reads what an earlier bridge recorded.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::open(directory.join(FILE))?.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes)?;
        let ledger: Self = rmp_serde::from_slice(&bytes).map_err(io::Error::other)?;
        Ok(Self { directory: Some(directory.to_owned()), ..ledger })
    }

    pub fn save(&self) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let bytes = rmp_serde::to_vec(self).map_err(io::Error::other)?;
        write_durably(directory, FILE, &bytes)
    }

    /// Says that the bucket is about to get this content.
    pub fn intend(&mut self, path: &str, digest: Digest, bytes: u64) {
        let contents = self.intended.entry(path.to_owned()).or_default();
        if !contents.contains(&(digest, bytes)) {
            contents.push((digest, bytes));
            contents.drain(..contents.len().saturating_sub(INTENDED_MAX));
        }
    }

    /// Whether an object of so many bytes can have a content of ours.
    pub fn may_be_ours(&self, path: &str, bytes: u64) -> bool {
        self.known.get(path).is_some_and(|object| object.stamp.bytes == bytes)
            || self.intended.get(path).is_some_and(|all| all.iter().any(|(_, one)| *one == bytes))
    }

    /// Whether this content may be in the bucket from us.
    pub fn is_ours(&self, path: &str, digest: &Digest) -> bool {
        let known = self.known.get(path).filter(|object| object.etag.is_some());
        known.is_some_and(|object| object.digest == *digest)
            || self.intended.get(path).is_some_and(|all| all.iter().any(|(one, _)| one == digest))
    }

    /// The outcome for a path is known.
    pub fn settle(&mut self, path: &str, object: Object) {
        self.intended.remove(path);
        self.known.insert(path.to_owned(), object);
    }

    pub fn forget(&mut self, path: &str) {
        self.intended.remove(path);
        self.known.remove(path);
    }
}
