//! What a node keeps of itself in its state directory: which installation it is, the key that it signs with, and
//! whether it takes sandboxes.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fleet::records::Readiness;
use host::id::random_bytes;
use host::paths::{Paths, make_private_directory, write_durably};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};

const KEY: &str = "key.pk8";
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
    pub key: Ed25519KeyPair,
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
        let make = || {
            let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
            let made = made.map_err(|_| io::Error::other("the kernel gives no random numbers"))?;
            Ok(made.as_ref().to_vec())
        };
        let bytes = read_or_make(&directory, KEY, make).map_err(failed(&path))?;
        let key = Ed25519KeyPair::from_pkcs8(&bytes).map_err(|_| IdentityError::Key { path })?;
        let path = directory.join(INSTALLATION);
        let make = || Ok(host::hex::digits(&random_bytes::<16>()?).into_bytes());
        let installation = read_or_make(&directory, INSTALLATION, make).map_err(failed(&path))?;
        let installation = String::from_utf8_lossy(&installation).into_owned().into();
        let readiness = fs::read(directory.join(READINESS)).ok();
        let readiness = readiness.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let readiness = readiness.unwrap_or_default();
        Ok(Self { directory, installation, key, readiness })
    }

    /// The public half of the key, as other nodes read it.
    pub(crate) fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.key.public_key().as_ref())
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
