//! The key by which clients know this host. Blocking.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom as _, SystemRandom};
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;

use host::paths::{make_private_directory, write_durably};

/// A file of a key has some hundred bytes.
const FILE_BYTES_MAX: u64 = 16 * 1024;
/// The permissions that make a file readable by others.
const EXPOSING: u32 = 0o077;

/// Why there is no key of the host.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    #[error("could not {action} the SSH host key {path:?}: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the SSH host key {path:?} can be read by others (mode {mode:o}); make it private with `chmod 600`"
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "{path:?} is not the private key of an SSH host: {reason}; `ssh-keygen -t ed25519 -N ''` makes one"
    )]
    Invalid { path: PathBuf, reason: String },
    #[error("cannot get random numbers from the host")]
    NoRandomness,
}

/// Reads a key that is there.
pub fn read(path: &Path) -> Result<PrivateKey, HostKeyError> {
    let failed = failed("read", path);
    let file = File::open(path).map_err(&failed)?;
    let mode = file.metadata().map_err(&failed)?.mode() & 0o777;
    if mode & EXPOSING != 0 {
        return Err(HostKeyError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(&failed)?;
    let invalid = |reason: String| HostKeyError::Invalid { path: path.to_owned(), reason };
    let key = PrivateKey::from_openssh(text).map_err(|error| invalid(error.to_string()))?;
    if key.is_encrypted() { Err(invalid("it has a passphrase".to_owned())) } else { Ok(key) }
}

/// Reads the key at `path`, and makes it first if there is none.
pub fn read_or_make(path: &Path) -> Result<PrivateKey, HostKeyError> {
    if fs::symlink_metadata(path).is_err() {
        make(path)?;
    }
    read(path)
}

fn make(path: &Path) -> Result<(), HostKeyError> {
    let failed = failed("make", path);
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).map_err(|_| HostKeyError::NoRandomness)?;
    let invalid = |error: russh::keys::ssh_key::Error| HostKeyError::Invalid {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let key =
        PrivateKey::new(Ed25519Keypair::from_seed(&seed).into(), "burrow").map_err(invalid)?;
    let secret = key.to_openssh(LineEnding::LF).map_err(invalid)?;
    let public = key.public_key().to_openssh().map_err(invalid)? + "\n";
    let directory = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    make_private_directory(directory)
        .and_then(|()| write_durably(directory, &format!("{name}.pub"), public.as_bytes()))
        .and_then(|()| write_durably(directory, name, secret.as_bytes()))
        .map_err(&failed)
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> HostKeyError {
    let path = path.to_owned();
    move |source| HostKeyError::File { action, path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_this_user_alone() {
        let directory = std::env::temp_dir().join(format!("burrow-ssh-{}", std::process::id()));
        let path = directory.join("host_key");
        let made = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap().public_key(), made.public_key());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let public = fs::read_to_string(directory.join("host_key.pub")).unwrap();
        assert!(public.starts_with("ssh-ed25519 "), "{public}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read(&path), Err(HostKeyError::Exposed { mode: 0o644, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "no key").unwrap();
        assert!(matches!(read(&path), Err(HostKeyError::Invalid { .. })));
        fs::remove_dir_all(&directory).unwrap();
    }
}
