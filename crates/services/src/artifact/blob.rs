//! The bytes of artifacts on the host's disk: each content once, in a file named by its SHA-256.
//! Nothing from a guest is ever part of a path here.
//!
//! A content is written beside, synced and renamed, so that under a digest there is all of it or
//! nothing. What a dead bridge has left beside is removed by the next one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ring::digest::{Context, SHA256};

use super::id::ArtifactId;
use super::limits::HEAD_BYTES;
use host::hex;
use host::paths::{PRIVATE_FILE, make_private_directory};

/// The directory of contents without a name yet.
const BEGUN: &str = "new";
/// Hexadecimal digits of a digest, and how many of them name a directory.
const DIGEST_DIGITS: usize = 64;
const FAN_OUT_DIGITS: usize = 2;

/// The SHA-256 of a content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Digest(String);

/// It is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a SHA-256 digest in hexadecimal")]
pub struct InvalidDigest(pub String);

impl Digest {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == DIGEST_DIGITS && text.bytes().all(is_digit) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidDigest(text.chars().take(DIGEST_DIGITS).collect()))
    }
}

/// The directory of all contents.
#[derive(Clone, Debug)]
pub struct Blobs {
    root: PathBuf,
}

/// A content that is being written. Dropped before it is put in its place, nothing of it stays.
pub struct BlobWriter {
    file: File,
    path: PathBuf,
    context: Context,
    bytes: u64,
    head: Vec<u8>,
}

/// A content that is complete and on disk, and has no name yet. The same holds for it.
#[derive(Debug)]
pub struct WrittenBlob {
    path: PathBuf,
    pub digest: Digest,
    pub bytes: u64,
    /// Its first bytes.
    pub head: Vec<u8>,
}

impl Blobs {
    /// Makes the directory if needed, and removes unfinished contents.
    pub fn open(root: &Path) -> io::Result<Self> {
        let blobs = Self { root: root.to_owned() };
        make_private_directory(root)?;
        let begun = root.join(BEGUN);
        match fs::remove_dir_all(&begun) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        make_private_directory(&begun)?;
        Ok(blobs)
    }

    /// The directory as it is, for those who only read.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub fn begin(&self) -> io::Result<BlobWriter> {
        let path = self.root.join(BEGUN).join(ArtifactId::draw()?.as_str());
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(PRIVATE_FILE).open(&path)?;
        Ok(BlobWriter { file, path, context: Context::new(&SHA256), bytes: 0, head: Vec::new() })
    }

    /// Gives a content its name. One that is there already stays, and this one goes.
    pub fn put(&self, whole: &WrittenBlob) -> io::Result<()> {
        let place = self.path(&whole.digest);
        if place.exists() {
            return Ok(());
        }
        let directory = self.directory(&whole.digest);
        make_private_directory(&directory)?;
        fs::rename(&whole.path, &place)?;
        File::open(&directory)?.sync_all()?;
        File::open(&self.root)?.sync_all()
    }

    pub fn open_blob(&self, digest: &Digest) -> io::Result<File> {
        File::open(self.path(digest))
    }

    /// Removes a content, if it is there.
    pub fn remove(&self, digest: &Digest) -> io::Result<()> {
        match fs::remove_file(self.path(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All contents that there are.
    pub fn digests(&self) -> io::Result<impl Iterator<Item = Digest> + use<>> {
        let directories = fs::read_dir(&self.root)?.flatten();
        let files = directories.filter_map(|entry| fs::read_dir(entry.path()).ok()).flatten();
        Ok(files.flatten().filter_map(|file| file.file_name().to_str()?.parse().ok()))
    }

    fn directory(&self, digest: &Digest) -> PathBuf {
        self.root.join(&digest.0[..FAN_OUT_DIGITS])
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.directory(digest).join(&digest.0)
    }
}

impl BlobWriter {
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.context.update(bytes);
        self.bytes += bytes.len() as u64;
        let room = HEAD_BYTES.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..room.min(bytes.len())]);
        Ok(())
    }

    /// Waits until all of it is on disk.
    pub fn finish(mut self) -> io::Result<WrittenBlob> {
        self.file.sync_all()?;
        let digest = self.context.clone().finish();
        let digits = hex::digits(digest.as_ref());
        let path = std::mem::take(&mut self.path);
        let head = std::mem::take(&mut self.head);
        Ok(WrittenBlob { path, digest: Digest(digits), bytes: self.bytes, head })
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        remove_begun(&self.path);
    }
}

impl Drop for WrittenBlob {
    fn drop(&mut self) {
        remove_begun(&self.path);
    }
}

/// A file that was renamed or handed on no longer exists; the next bridge removes what cannot be removed now.
fn remove_begun(path: &Path) {
    if !path.as_os_str().is_empty() {
        let _ = fs::remove_file(path);
    }
}
