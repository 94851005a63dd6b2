//! The names of images: one table, which is replaced as a whole.

use std::io;

use serde::{Deserialize, Serialize};

use super::limits::NAMES_MAX;
use super::{ImageError, Images, LOCKS, read_bounded};
use crate::digest::Digest;
use crate::reference::Reference;
use host::instant;
use host::paths::{PRIVATE_FILE, write_durably};

const TABLE: &str = "names.json";
/// The lock of whoever changes the table, among those who share the store.
const TABLE_LOCK: &str = "names";

/// One name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRecord {
    /// The whole name, with its registry.
    pub name: String,
    pub digest: Digest,
    /// Where the image came from.
    pub source: String,
    pub at_ms: u64,
}

impl Images {
    /// All names, sorted.
    pub fn names(&self) -> Result<Vec<NameRecord>, ImageError> {
        let path = self.0.root.join(TABLE);
        match read_bounded(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| ImageError::files("read", &path)(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(ImageError::files("read", &path)(error)),
        }
    }

    /// The digest that a name means.
    pub(super) fn named(&self, name: &Reference) -> Result<Option<Digest>, ImageError> {
        let text = key(name);
        let names = self.names()?;
        Ok(names.into_iter().find(|named| named.name == text).map(|named| named.digest))
    }

    /// Lets a name mean an image, whatever it has meant before.
    pub(super) fn give_name(
        &self,
        name: &Reference,
        digest: Digest,
        source: &str,
    ) -> Result<(), ImageError> {
        let name = key(name);
        let source = source.to_owned();
        self.change_names(|names| {
            names.retain(|named| named.name != name);
            names.push(NameRecord { name, digest, source, at_ms: instant::now_ms() });
        })
    }

    pub(super) fn change_names(
        &self,
        change: impl FnOnce(&mut Vec<NameRecord>),
    ) -> Result<(), ImageError> {
        let path = self.path(LOCKS, TABLE_LOCK);
        let failed = ImageError::files("lock", &path);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(false);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, PRIVATE_FILE);
        let lock = options.open(&path).map_err(&failed)?;
        let locked = rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive);
        locked.map_err(|errno| failed(errno.into()))?;
        let mut names = self.names()?;
        change(&mut names);
        if names.len() > NAMES_MAX {
            return Err(ImageError::TooManyNames { max: NAMES_MAX });
        }
        names.sort_by(|one, other| one.name.cmp(&other.name));
        let bytes = serde_json::to_vec_pretty(&names).map_err(io::Error::from);
        let written = bytes.and_then(|bytes| write_durably(&self.0.root, TABLE, &bytes));
        written.map_err(ImageError::files("write", &self.0.root.join(TABLE)))
    }
}

/// What a name is kept as. With a tag beside it, a digest only says what was wanted at the time.
pub(super) fn key(name: &Reference) -> String {
    let tagged = Reference { digest: name.digest.filter(|_| name.tag.is_none()), ..name.clone() };
    tagged.to_string()
}
