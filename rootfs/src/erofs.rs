//! The read-only file system that images are: a writer and a reader of erofs, uncompressed.
//!
//! The builder writes a [`Tree`](crate::tree::Tree) with [`write`]; `verify` and `ls` open images with
//! [`read`]. The same tree and options give the same bytes. Only features that Linux 5.4 and later read are
//! written; nothing here mounts anything.
//!
//! ```text
//! block 0      zeros, the superblock at 1024, zeros
//! blocks 1..m  inodes in slots of 32 bytes; behind an inode the tail of what it holds, if it fits
//! blocks m..   the whole blocks of directories and files, each in a row
//! ```
//!
//! An inode's number is its place: the byte where it starts, divided by 32. Names in a directory are
//! in the order of their bytes, `.` and `..` among them, because the kernel searches by halves.

mod checksum;
mod directory;
mod error;
mod inode;
mod plan;
mod read;
mod superblock;
mod write;
mod xattr;

#[cfg(test)]
mod tests;

pub use error::WriteError;
pub use read::{ReadError, read};
pub use superblock::SuperblockError;
pub use write::{ImageSummary, Options, write};

/// One block, as the superblock states it; the page size of every machine that we boot.
pub const BLOCK_BYTES: u64 = 4096;

/// One slot of the area where inodes are.
const SLOT_BYTES: u64 = 32;

/// Where the inodes start; only the superblock precedes them.
const INODES_START: u64 = BLOCK_BYTES;

/// How many files an image may have: four times what a full desktop has, and a limit for readers of
/// forged images.
pub const INODES_MAX: usize = 4 << 20;

/// How long a path in an image may be, which also limits its depth: the kernel's `PATH_MAX`.
pub const PATH_BYTES_MAX: usize = 4096;

/// The size of all paths of an image together, since each of its names has one: 128 bytes for each
/// of [`INODES_MAX`] files.
pub const PATHS_BYTES_MAX: usize = 512 << 20;

/// The kinds of files as directories state them.
mod file_type {
    pub(super) const FILE: u8 = 1;
    pub(super) const DIRECTORY: u8 = 2;
    pub(super) const CHAR_DEVICE: u8 = 3;
    pub(super) const BLOCK_DEVICE: u8 = 4;
    pub(super) const FIFO: u8 = 5;
    pub(super) const SOCKET: u8 = 6;
    pub(super) const SYMLINK: u8 = 7;
}

/// A little-endian number out of bytes that hold it, which is for the caller to see to.
fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + BYTES].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}
