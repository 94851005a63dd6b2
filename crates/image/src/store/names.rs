//! The names of images: one table, which is replaced as a whole.

use std::collections::BTreeSet;
use std::io;

use serde::{Deserialize, Serialize};

use super::limits::NAMES_MAX;
use super::{ImageError, Images, LOCKS, read_bounded};
use crate::digest::Digest;
use crate::reference::Reference;
use host::instant;
use host::paths::{PRIVATE_FILE, write_durably};

const TABLE: &str = "names.json";
/// The lock for changes to the table, among those who share the store.
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
    /// The namespaces that have brought it in or made it; all see it when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<BTreeSet<String>>,
}

impl NameRecord {
    pub fn is_seen_by(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|those| those.contains(namespace))
    }

    /// Shows it to one more namespace; to all without one.
    fn show_to(&mut self, namespace: Option<&str>) {
        match (namespace, &mut self.namespaces) {
            (Some(namespace), Some(those)) => drop(those.insert(namespace.to_owned())),
            _ => self.namespaces = None,
        }
    }
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

    /// Makes a name refer to an image, whatever it meant before.
    pub(super) fn give_name(
        &self,
        name: &Reference,
        digest: Digest,
        source: &str,
    ) -> Result<(), ImageError> {
        let name = key(name);
        let source = source.to_owned();
        let own = self.1.as_deref();
        self.change_names(|names| {
            let known = names.iter().position(|named| named.name == name);
            let known = known.map(|at| names.swap_remove(at));
            // Namespaces that could use the name can use its new meaning.
            let mut namespaces = own.map(|own| BTreeSet::from([own.to_owned()]));
            if let Some(mut known) = known {
                known.show_to(own);
                namespaces = known.namespaces;
            }
            names.push(NameRecord { name, digest, source, at_ms: instant::now_ms(), namespaces });
        })
    }

    /// Shows a name to this handle's namespace, which has asked for it and found it here.
    pub fn show(&self, name: &Reference) -> Result<(), ImageError> {
        let (name, own) = (key(name), self.1.as_deref());
        let is_hidden =
            |named: &NameRecord| named.name == name && own.is_none_or(|own| !named.is_seen_by(own));
        // The table is written only if that changes anything.
        if !self.names()?.iter().any(|named| is_hidden(named) && named.namespaces.is_some()) {
            return Ok(());
        }
        self.change_names(|names| {
            names.iter_mut().filter(|named| is_hidden(named)).for_each(|named| named.show_to(own));
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

/// The key of a name in the table. If there is also a tag, the digest only says what was wanted at
/// the time.
pub(super) fn key(name: &Reference) -> String {
    let tagged = Reference { digest: name.digest.filter(|_| name.tag.is_none()), ..name.clone() };
    tagged.to_string()
}
