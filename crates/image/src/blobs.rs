//! The contents of images on the host's disk. Each content is stored once, in a file named by its digest,
//! for all images that use it.
//!
//! ```text
//!   <dir>/sha256/<hex>     whole and verified; never written again
//!   <dir>/partial/<hex>    what is there of a content, from its first byte on; locked while written
//! ```
//!
//! [`Blobs::begin`] returns a [`Partial`], which continues an earlier attempt. [`Partial::finish`] verifies
//! length and digest before it gives the content its name, so a digest names complete contents only. Two who
//! want the same content at once, in one program or two, meet at the lock of the partial file: the second
//! waits, and then finds it complete. A dropped `Partial` stays for the next attempt; one that was wrong or
//! did not fit on the disk is removed.
//!
//! [`Blobs::put`] and [`Blobs::read`] are for contents that fit in memory. This module knows no
//! formats and uses no network; `registry` and imports write here, and unpacking reads.

mod error;
mod partial;
mod sweep;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use error::BlobError;
pub use partial::{BlobState, Partial};

use super::digest::Digest;
use super::limits::{BLOB_BYTES_MAX, DOCUMENT_BYTES_MAX};
use host::paths::make_private_directory;

/// Subdirectories for complete and partial contents.
const WHOLE: &str = "sha256";
const PARTIAL: &str = "partial";

/// The directory of all contents. Clones are the same directory.
#[derive(Clone, Debug)]
pub struct Blobs {
    root: PathBuf,
}

impl Blobs {
    /// Makes the directories if needed, and removes abandoned partial contents. Reads no content.
    pub fn open(root: &Path) -> Result<Self, BlobError> {
        let blobs = Self { root: root.to_owned() };
        for directory in [root.to_owned(), blobs.whole(), blobs.partial()] {
            make_private_directory(&directory).map_err(|error| BlobError::io(&directory, error))?;
        }
        sweep::sweep(&blobs)?;
        Ok(blobs)
    }

    pub fn has(&self, digest: &Digest) -> bool {
        self.path(digest).is_file()
    }

    /// The path of the content, whether it exists or not: to mount or map it.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.whole().join(digest.hex())
    }

    pub fn open_blob(&self, digest: &Digest) -> Result<File, BlobError> {
        let path = self.path(digest);
        File::open(&path).map_err(|error| BlobError::of(digest, &path, error))
    }

    pub fn size(&self, digest: &Digest) -> Result<u64, BlobError> {
        let path = self.path(digest);
        let metadata = fs::metadata(&path).map_err(|error| BlobError::of(digest, &path, error))?;
        Ok(metadata.len())
    }

    /// A small content whole, checked against its digest: disks forget.
    pub fn read(&self, digest: &Digest) -> Result<Vec<u8>, BlobError> {
        let path = self.path(digest);
        let mut bytes = Vec::new();
        let file = self.open_blob(digest)?;
        let mut bounded = file.take(DOCUMENT_BYTES_MAX + 1);
        bounded.read_to_end(&mut bytes).map_err(|error| BlobError::io(&path, error))?;
        if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
            let bytes = self.size(digest)?;
            return Err(BlobError::TooLarge {
                digest: *digest,
                bytes,
                bytes_max: DOCUMENT_BYTES_MAX,
            });
        }
        match Digest::of(&bytes) {
            found if found == *digest => Ok(bytes),
            found => Err(BlobError::Digest { wanted: *digest, found }),
        }
    }

    /// Stores a small content and returns its digest.
    pub async fn put(&self, bytes: Vec<u8>) -> Result<Digest, BlobError> {
        let digest = Digest::of(&bytes);
        if let BlobState::Partial(mut partial) = self.begin(digest, bytes.len() as u64).await? {
            let writing = move || {
                let from = partial.offset() as usize;
                partial.write(&bytes[from..])?;
                partial.finish()
            };
            tokio::task::spawn_blocking(writing).await.expect("writing does not panic")?;
        }
        Ok(digest)
    }

    /// Continues a content that may be here partially. Waits while somebody else writes it.
    pub async fn begin(&self, digest: Digest, size: u64) -> Result<BlobState, BlobError> {
        if size > BLOB_BYTES_MAX {
            return Err(BlobError::TooLarge { digest, bytes: size, bytes_max: BLOB_BYTES_MAX });
        }
        partial::begin(self.clone(), digest, size).await
    }

    /// All contents that there are, in no order.
    pub fn list(&self) -> Result<Vec<Digest>, BlobError> {
        let whole = self.whole();
        let listed = fs::read_dir(&whole).map_err(|error| BlobError::io(&whole, error))?;
        let digest = |entry: fs::DirEntry| Digest::from_hex(entry.file_name().to_str()?).ok();
        Ok(listed.flatten().filter_map(digest).collect())
    }

    /// Removes a content and its partial form, unless somebody is writing it; returns whether it
    /// was complete.
    pub fn remove(&self, digest: &Digest) -> Result<bool, BlobError> {
        sweep::remove_partial(&self.partial().join(digest.hex()))?;
        let path = self.path(digest);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(BlobError::io(&path, error)),
        }
    }

    fn whole(&self) -> PathBuf {
        self.root.join(WHOLE)
    }

    fn partial(&self) -> PathBuf {
        self.root.join(PARTIAL)
    }
}

#[cfg(test)]
mod tests;
