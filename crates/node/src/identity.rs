//! What a node keeps of itself in its state directory: which installation it is, the key that its marks are made with,
//! and whether it takes sandboxes.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use fleet::records::Readiness;
use host::id::random_bytes;
use host::paths::{Paths, make_private_directory, write_durably};

use crate::keys::{NodeKey, SECRET_BYTES};

const KEY: &str = "key";
const INSTALLATION: &str = "installation";
const READINESS: &str = "readiness.json";

/// Why a node cannot say who it is.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot read or write {path:?}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path:?} is not a key of a node; remove it, and the node makes another")]
    Key { path: PathBuf },
}

pub(crate) struct Identity {
    directory: PathBuf,
    /// No other state directory has it.
    pub installation: Arc<str>,
    pub key: NodeKey,
    pub readiness: Readiness,
}

impl Identity {
    /// Reads it; what is not there yet is made.
    pub(crate) fn open(paths: &Paths) -> Result<Self, IdentityError> {
        let directory = paths.state.join("fleet");
        let failed = |path: &PathBuf| {
            let path = path.clone();
            move |source| IdentityError::File { path, source }
        };
        make_private_directory(&directory).map_err(failed(&directory))?;
        let path = directory.join(KEY);
        let make = || Ok(random_bytes::<SECRET_BYTES>()?.to_vec());
        let bytes = read_or_make(&directory, KEY, make).map_err(failed(&path))?;
        let secret = bytes.try_into().map_err(|_| IdentityError::Key { path })?;
        let key = NodeKey::new(secret);
        let path = directory.join(INSTALLATION);
        let make = || Ok(host::hex::digits(&random_bytes::<16>()?).into_bytes());
        let installation = read_or_make(&directory, INSTALLATION, make).map_err(failed(&path))?;
        let installation = String::from_utf8_lossy(&installation).into_owned().into();
        let readiness = fs::read(directory.join(READINESS)).ok();
        let readiness = readiness.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let readiness = readiness.unwrap_or_default();
        Ok(Self { directory, installation, key, readiness })
    }

    /// Keeps whether the node takes sandboxes, for its next bridge.
    pub(crate) fn keep(&self, readiness: Readiness) {
        let written = serde_json::to_vec(&readiness).map_err(io::Error::from);
        let written = written.and_then(|bytes| write_durably(&self.directory, READINESS, &bytes));
        if let Err(error) = written {
            tracing::warn!(%error, "whether this node takes sandboxes could not be kept");
        }
    }
}

fn read_or_make(
    directory: &std::path::Path,
    name: &str,
    make: impl FnOnce() -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    match fs::read(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = make()?;
            write_durably(directory, name, &made)?;
            Ok(made)
        }
        read => read,
    }
}
