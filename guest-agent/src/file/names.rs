//! The names in a directory, read piece by piece: a directory of any size costs one buffer.

use std::os::fd::AsFd;

use nix::unistd::{Whence, lseek};

use super::limits::NAMES_BYTES;
use crate::sys::dirent::read_entries;

/// Offsets of the fields of a `linux_dirent64`: inode, position, the record's length, the kind.
const LENGTH_AT: usize = 16;
const KIND_AT: usize = 18;
const NAME_AT: usize = 19;

/// Entries that were read and not returned yet.
#[derive(Default)]
pub struct Names {
    buffer: Vec<u8>,
    filled: usize,
    at: usize,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub bytes: Vec<u8>,
    pub hint: Hint,
}

/// The file type in the directory. Not every file system has it, and it may have changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    Directory,
    Other,
    Unknown,
}

impl Names {
    /// The next name, `.` and `..` left out. To be called with the same directory every time.
    pub fn next(&mut self, directory: impl AsFd) -> nix::Result<Option<Name>> {
        loop {
            if self.at == self.filled {
                self.buffer.resize(NAMES_BYTES, 0);
                self.at = 0;
                self.filled = read_entries(directory.as_fd(), &mut self.buffer)?;
                if self.filled == 0 {
                    return Ok(None);
                }
            }
            let Some((record, name)) = parse_entry(&self.buffer[self.at..self.filled]) else {
                // The kernel never hands out half an entry; if it did, there is no going on.
                self.at = self.filled;
                return Err(nix::errno::Errno::EIO);
            };
            self.at += record;
            if !matches!(name.bytes.as_slice(), b"." | b"..") {
                return Ok(Some(name));
            }
        }
    }

    /// Begins again.
    pub fn rewind(&mut self, directory: impl AsFd) -> nix::Result<()> {
        (self.at, self.filled) = (0, 0);
        lseek(directory, 0, Whence::SeekSet).map(drop)
    }
}

/// The first entry of `bytes`, and how many bytes it takes.
fn parse_entry(bytes: &[u8]) -> Option<(usize, Name)> {
    let length = usize::from(u16::from_ne_bytes(*bytes.get(LENGTH_AT..)?.first_chunk()?));
    let name = bytes.get(NAME_AT..length)?;
    let name = name.split(|&byte| byte == 0).next()?;
    let hint = match bytes[KIND_AT] {
        libc::DT_DIR => Hint::Directory,
        libc::DT_UNKNOWN => Hint::Unknown,
        _ => Hint::Other,
    };
    Some((length, Name { bytes: name.to_vec(), hint }))
}
