//! The errors of the blob store.

use std::io;
use std::path::{Path, PathBuf};

use crate::digest::Digest;

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("there is no blob {digest}")]
    Missing { digest: Digest },
    #[error("{path:?}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("the disk is full: no room for {digest} beyond its first {bytes} bytes")]
    Full { digest: Digest, bytes: u64 },
    #[error("{digest} has {bytes} bytes; the limit is {bytes_max}")]
    TooLarge { digest: Digest, bytes: u64, bytes_max: u64 },
    #[error("{digest} has {wanted} bytes, but {found} arrived")]
    Length { digest: Digest, wanted: u64, found: u64 },
    #[error("the content of {wanted} is wrong: its digest is {found}")]
    Digest { wanted: Digest, found: Digest },
}

impl BlobError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    /// The error for a content that should exist.
    pub(super) fn of(digest: &Digest, path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::NotFound {
            return Self::Missing { digest: *digest };
        }
        Self::io(path, source)
    }

    /// The error for a content that is being written and has this many bytes.
    pub(super) fn writing(digest: &Digest, bytes: u64, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { digest: *digest, bytes }
            }
            _ => Self::io(path, source),
        }
    }
}
