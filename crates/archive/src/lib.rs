//! Tar archives as a pure codec, for moving directory trees between host and guest over one byte
//! stream: entries become header blocks, and bytes in any pieces become [`Event`]s.
//!
//! The agent's `file` module encodes trees and decodes uploads with it; the bridge decodes a
//! hostile guest's archives. Nothing here opens a file or reads a clock, and nothing here decides
//! where an entry may go: the extractor does, which uses the pure check [`safe_relative`] and
//! guards against races of symbolic links itself.
//!
//! It writes ustar headers, and pax records for what ustar cannot express. It reads v7, ustar, pax
//! and GNU archives. An archive, and the events of one entry in it:
//!
//! ```text
//! archive := entry* zero-block zero-block anything*
//! entry   := extension* header [content padding]      extension := x | g | L | K, with its body
//!
//! Entry ──► Content ──► … ──► EndOfEntry        every kind; only files have content
//!   └──────────────────────────▲
//! ```

#![forbid(unsafe_code)]

mod decode;
mod encode;
mod header;
mod path;
mod pax;
mod record;
mod xattr;

#[cfg(test)]
mod tests;

pub use decode::{Decoder, Event};
pub use encode::encode_entry_with;
pub use encode::{END_OF_ARCHIVE, encode_entry, padding};
pub use path::safe_relative;

/// The longest path of an entry: Linux's `PATH_MAX`.
pub const PATH_BYTES_MAX: usize = 4096;

/// The largest body of a pax extended header. Ours stay below 9 KiB; the rest is for other
/// programs' extended attributes, which are read past.
pub const PAX_BYTES_MAX: usize = 64 * 1024;

/// The largest size of a file. A kernel's `off_t` is signed, and so all arithmetic on sizes fits.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// The largest major or minor number: seven octal digits. Linux itself uses 12 and 20 bits.
pub const DEVICE_NUMBER_MAX: u32 = 0o777_7777;

/// The mode bits in an archive: permissions, set-id and sticky. [`Kind`] has the file type.
pub const MODE_MASK: u32 = 0o7777;

/// One member of an archive, its content aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As in the archive, without a directory's final slash. Never empty, no NUL, at most
    /// `PATH_BYTES_MAX` bytes; otherwise unchecked: see [`safe_relative`].
    pub path: Vec<u8>,
    pub kind: Kind,
    /// Only the bits of [`MODE_MASK`] are written or read.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Whole seconds since 1970, rounded down, so that `mtime_ns` always counts forwards.
    pub mtime_s: i64,
    /// Below 1,000,000,000.
    pub mtime_ns: u32,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file; exactly `size` bytes of content follow the header.
    File {
        size: u64,
    },
    Directory,
    /// The target is free text, as it is for the kernel: it may well point outside the tree.
    Symlink {
        target: Vec<u8>,
    },
    /// The target is the path of an earlier entry, and so subject to [`safe_relative`].
    HardLink {
        target: Vec<u8>,
    },
    Fifo,
    CharDevice {
        major: u32,
        minor: u32,
    },
    BlockDevice {
        major: u32,
        minor: u32,
    },
}

impl Kind {
    /// How many bytes of content follow the header, not counting padding.
    pub fn content_bytes(&self) -> u64 {
        match self {
            Self::File { size } => *size,
            _ => 0,
        }
    }
}

/// Why an entry cannot be written, an archive cannot be read on, or a path must not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TarError {
    #[error("header at byte {offset} has checksum {stored}, but its bytes add up to {computed}")]
    Checksum { offset: u64, stored: i128, computed: u32 },
    #[error("{field} is not a number")]
    NotANumber { field: &'static str },
    #[error("{field} is out of range")]
    OutOfRange { field: &'static str },
    #[error("{field} has {bytes} bytes, more than {limit}")]
    TooLong { field: &'static str, bytes: u64, limit: usize },
    #[error("{field} is empty")]
    Empty { field: &'static str },
    #[error("{field} contains a NUL byte")]
    Nul { field: &'static str },
    #[error("malformed pax record at byte {at} of its header")]
    PaxRecord { at: usize },
    #[error("sparse files are not supported")]
    Sparse,
    #[error("entries of type {:?} are not supported", char::from(*flag))]
    UnknownType { flag: u8 },
    #[error("extended header before byte {offset} has no entry after it")]
    OrphanedExtension { offset: u64 },
    #[error("only one zero block before byte {offset}; an archive ends with two")]
    LoneZeroBlock { offset: u64 },
    #[error("archive cut off at byte {offset}")]
    Truncated { offset: u64 },
    #[error("absolute path \"{path}\"")]
    AbsolutePath { path: String },
    #[error("path \"{path}\" leaves the archive through \"..\"")]
    ParentComponent { path: String },
}
