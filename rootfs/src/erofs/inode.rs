//! Inodes: 32 bytes in the compact form, 64 where an owner, a size, a time or a count of links does
//! not fit it.

use super::{file_type, number};
use crate::tree::{Device, Kind};

pub(super) const COMPACT_BYTES: u64 = 32;
pub(super) const EXTENDED_BYTES: u64 = 64;

/// The file type bits of a mode.
const TYPE_MASK: u16 = 0o170_000;

/// How an inode's content is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// In whole blocks alone.
    Plain,
    /// In whole blocks, and the rest after the inode.
    Inline,
}

/// One inode, extended attributes and content aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) layout: Layout,
    /// With the type bits.
    pub(super) mode: u16,
    pub(super) links: u32,
    pub(super) bytes: u64,
    /// The first whole block of the content, or the numbers of a device.
    pub(super) place: u32,
    /// The inode number for 32-bit programs.
    pub(super) serial: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime_s: u64,
    /// The size of the attributes, in the format's unit.
    pub(super) xattr_count: u16,
}

/// Why bytes are no inode that is read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the inode format {0:#x} is not supported")]
pub struct InodeFormat(u16);

impl Inode {
    /// Whether 32 bytes are enough, in an image with that time.
    pub(super) fn is_compact(&self, time_s: u64) -> bool {
        let small = |number: u32| u16::try_from(number).is_ok();
        small(self.links)
            && small(self.uid)
            && small(self.gid)
            && u32::try_from(self.bytes).is_ok()
            && self.mtime_s == time_s
    }

    pub(super) fn encode(&self, time_s: u64) -> Vec<u8> {
        let compact = self.is_compact(time_s);
        let layout = if self.layout == Layout::Inline { 2 } else { 0 };
        let format: u16 = layout << 1 | u16::from(!compact);
        let mut out = Vec::with_capacity(EXTENDED_BYTES as usize);
        out.extend(format.to_le_bytes());
        out.extend(self.xattr_count.to_le_bytes());
        out.extend(self.mode.to_le_bytes());
        if compact {
            out.extend((self.links as u16).to_le_bytes());
            out.extend((self.bytes as u32).to_le_bytes());
            out.extend([0; 4]);
            out.extend(self.place.to_le_bytes());
            out.extend(self.serial.to_le_bytes());
            out.extend((self.uid as u16).to_le_bytes());
            out.extend((self.gid as u16).to_le_bytes());
            out.extend([0; 4]);
        } else {
            out.extend([0; 2]);
            out.extend(self.bytes.to_le_bytes());
            out.extend(self.place.to_le_bytes());
            out.extend(self.serial.to_le_bytes());
            out.extend(self.uid.to_le_bytes());
            out.extend(self.gid.to_le_bytes());
            out.extend(self.mtime_s.to_le_bytes());
            out.extend([0; 4]);
            out.extend(self.links.to_le_bytes());
            out.extend([0; 16]);
        }
        out
    }

    /// The size of the inode that begins with these two bytes.
    pub(super) fn header_bytes(format: u16) -> u64 {
        if format & 1 == 0 { COMPACT_BYTES } else { EXTENDED_BYTES }
    }

    /// Reads an inode out of as many bytes as its format says that it has.
    pub(super) fn decode(bytes: &[u8], time_s: u64) -> Result<Self, InodeFormat> {
        let format = number::<2>(bytes, 0) as u16;
        let layout = match format >> 1 {
            0 => Layout::Plain,
            2 => Layout::Inline,
            _ => return Err(InodeFormat(format)),
        };
        let common = Self {
            layout,
            xattr_count: number::<2>(bytes, 2) as u16,
            mode: number::<2>(bytes, 4) as u16,
            links: number::<2>(bytes, 6) as u32,
            bytes: number::<4>(bytes, 8),
            place: number::<4>(bytes, 16) as u32,
            serial: number::<4>(bytes, 20) as u32,
            uid: number::<2>(bytes, 24) as u32,
            gid: number::<2>(bytes, 26) as u32,
            mtime_s: time_s,
        };
        if format & 1 == 0 {
            return Ok(common);
        }
        Ok(Self {
            links: number::<4>(bytes, 44) as u32,
            bytes: number::<8>(bytes, 8),
            uid: number::<4>(bytes, 24) as u32,
            gid: number::<4>(bytes, 28) as u32,
            mtime_s: number::<8>(bytes, 32),
            ..common
        })
    }
}

/// The type bits, and the number that directories use for them.
pub(super) fn type_of(kind: &Kind) -> (u16, u8) {
    match kind {
        Kind::Fifo => (0o010_000, file_type::FIFO),
        Kind::CharDevice(_) => (0o020_000, file_type::CHAR_DEVICE),
        Kind::Directory(_) => (0o040_000, file_type::DIRECTORY),
        Kind::BlockDevice(_) => (0o060_000, file_type::BLOCK_DEVICE),
        Kind::File(_) => (0o100_000, file_type::FILE),
        Kind::Symlink(_) => (0o120_000, file_type::SYMLINK),
        Kind::Socket => (0o140_000, file_type::SOCKET),
    }
}

/// The bits of the type in a mode.
pub(super) fn type_bits(mode: u16) -> u16 {
    mode & TYPE_MASK
}

/// Device numbers as the kernel packs them.
pub(super) fn pack_device(device: Device) -> u32 {
    device.minor & 0xff | device.major << 8 | (device.minor & !0xff) << 12
}

pub(super) fn unpack_device(packed: u32) -> Device {
    Device { major: packed >> 8 & 0xfff, minor: packed & 0xff | packed >> 12 & 0xf_ff00 }
}
