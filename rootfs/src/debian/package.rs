//! A package unpacked: a list of its content, and one file with all contents in a row.
//!
//! The list is cached, so that a package is decompressed and hashed once. No file is ever written
//! under a name from a package, so a hostile one cannot escape; paths are checked anyway, because
//! they would end up in an image.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use archive::{self as tar, Decoder, Event, TarError};
use serde::{Deserialize, Serialize};

use super::ar::{self, ArError};
use super::decompress::{self, UnknownCompression};
use crate::digest::{Hasher, Sha256};

/// How many entries a package may have; the largest of Debian have a tenth.
const ENTRIES_MAX: usize = 500_000;

/// How many bytes a package may unpack to, which limits what a small hostile one costs.
const UNPACKED_BYTES_MAX: u64 = 4 << 30;

/// How much is decompressed at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// Something in a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Components below the root, joined by slashes.
    pub path: String,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    #[serde(flatten)]
    pub kind: Kind,
}

/// The type of the entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    Directory,
    /// The content is in the file of contents, from `offset` on.
    File {
        offset: u64,
        bytes: u64,
        sha256: Sha256,
    },
    Symlink {
        target: String,
    },
    HardLink {
        target: String,
    },
}

/// Why a package cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Ar(#[from] ArError),
    #[error(transparent)]
    Compression(#[from] UnknownCompression),
    #[error(transparent)]
    Tar(#[from] TarError),
    #[error("the package has no data member")]
    NoData,
    #[error("the name {0} is not UTF-8")]
    NotUtf8(String),
    #[error("{path}: packages may not have {what}")]
    Unexpected { path: String, what: &'static str },
    #[error("the package unpacks to more than {UNPACKED_BYTES_MAX} bytes or {ENTRIES_MAX} files")]
    TooLarge,
}

/// Unpacks the package `deb`: contents go into `contents`, everything else is the result.
pub fn unpack(deb: &Path, contents: impl Write) -> Result<Vec<Entry>, PackageError> {
    let mut file = File::open(deb)?;
    let members = ar::members(&mut file)?;
    let is_data = |member: &&ar::Member| member.name.starts_with("data.tar");
    let data = members.iter().find(is_data).ok_or(PackageError::NoData)?;
    file.seek(SeekFrom::Start(data.offset))?;
    let mut reader = decompress::reader(&data.name, file.take(data.bytes))?;
    let mut unpacker = Unpacker {
        contents: BufWriter::new(contents),
        entries: Vec::new(),
        position: 0,
        hasher: Hasher::new(),
    };
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        let mut input = &buffer[..read];
        while let Some(event) = decoder.next_event(&mut input)? {
            unpacker.take(event)?;
        }
    }
    decoder.finish()?;
    unpacker.contents.flush()?;
    Ok(unpacker.entries)
}

struct Unpacker<W: Write> {
    contents: BufWriter<W>,
    entries: Vec<Entry>,
    position: u64,
    hasher: Hasher,
}

impl<W: Write> Unpacker<W> {
    fn take(&mut self, event: Event<'_>) -> Result<(), PackageError> {
        match event {
            Event::Entry(entry) => {
                if self.entries.len() == ENTRIES_MAX {
                    return Err(PackageError::TooLarge);
                }
                self.hasher = Hasher::new();
                self.entries.push(judge(entry, self.position)?);
            }
            Event::Content(bytes) => {
                self.position += bytes.len() as u64;
                if self.position > UNPACKED_BYTES_MAX {
                    return Err(PackageError::TooLarge);
                }
                self.hasher.update(bytes);
                self.contents.write_all(bytes)?;
            }
            Event::EndOfEntry => {
                if let Some(Entry { kind: Kind::File { sha256, .. }, .. }) = self.entries.last_mut()
                {
                    *sha256 = std::mem::take(&mut self.hasher).finish();
                }
            }
            Event::EndOfArchive => {}
        }
        Ok(())
    }
}

/// An entry as it may land in an image.
fn judge(entry: tar::Entry, position: u64) -> Result<Entry, PackageError> {
    let path = clean(&entry.path)?;
    let unexpected = |what| PackageError::Unexpected { path: path.clone(), what };
    let kind = match entry.kind {
        tar::Kind::Directory => Kind::Directory,
        tar::Kind::File { size } => {
            Kind::File { offset: position, bytes: size, sha256: Sha256([0; 32]) }
        }
        tar::Kind::Symlink { target } => Kind::Symlink { target: utf8(target)? },
        tar::Kind::HardLink { target } => Kind::HardLink { target: clean(&target)? },
        tar::Kind::Fifo => return Err(unexpected("pipes")),
        tar::Kind::CharDevice { .. } | tar::Kind::BlockDevice { .. } => {
            return Err(unexpected("devices"));
        }
    };
    Ok(Entry { path, mode: entry.mode as u16, uid: entry.uid, gid: entry.gid, kind })
}

fn clean(path: &[u8]) -> Result<String, PackageError> {
    utf8(tar::safe_relative(path)?.join(&b'/'))
}

fn utf8(bytes: Vec<u8>) -> Result<String, PackageError> {
    String::from_utf8(bytes)
        .map_err(|error| PackageError::NotUtf8(error.as_bytes().escape_ascii().to_string()))
}

#[cfg(test)]
mod tests;
