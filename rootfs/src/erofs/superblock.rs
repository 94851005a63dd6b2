//! The superblock: 128 bytes at byte 1024, with a checksum of the rest of its block.

use super::checksum::crc32c;
use super::{BLOCK_BYTES, number};

const MAGIC: u32 = 0xe0f5_e1e2;
const START: usize = 1024;
const CHECKSUM_AT: usize = START + 4;

/// Block size as a power of two.
const BLOCK_BITS: u8 = BLOCK_BYTES.trailing_zeros() as u8;

/// The checksum counts, and times are those of modification.
const COMPATIBLE_FEATURES: u32 = 0x1 | 0x2;

/// Properties of the whole image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) root: u16,
    pub(super) inodes: u64,
    /// The time of every inode in the compact form.
    pub(super) time_s: u64,
    pub(super) blocks: u32,
    pub(super) uuid: [u8; 16],
    pub(super) label: [u8; 16],
}

/// Why a block is no superblock of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    #[error("not an erofs image: the magic number is {0:#x}")]
    Magic(u32),
    #[error("the superblock's checksum is {stored:#x}, but its bytes give {computed:#x}")]
    Checksum { stored: u32, computed: u32 },
    #[error("blocks of 2^{0} bytes are not supported")]
    BlockSize(u8),
    #[error("the image needs features that are not supported: {0:#x}")]
    Features(u32),
    #[error("the inodes start in block {0}, which is not supported")]
    Layout(u32),
}

impl Superblock {
    /// The first block of an image.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        let mut put = |at: usize, bytes: &[u8]| {
            block[START + at..START + at + bytes.len()].copy_from_slice(bytes);
        };
        put(0, &MAGIC.to_le_bytes());
        put(8, &COMPATIBLE_FEATURES.to_le_bytes());
        put(12, &[BLOCK_BITS]);
        put(14, &self.root.to_le_bytes());
        put(16, &self.inodes.to_le_bytes());
        put(24, &self.time_s.to_le_bytes());
        put(36, &self.blocks.to_le_bytes());
        put(48, &self.uuid);
        put(64, &self.label);
        let checksum = crc32c(&block[START..]);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Reads the first block of an image, which the caller has read whole.
    pub(super) fn decode(block: &[u8]) -> Result<Self, SuperblockError> {
        let bytes = &block[START..];
        let magic = number::<4>(bytes, 0) as u32;
        if magic != MAGIC {
            return Err(SuperblockError::Magic(magic));
        }
        let stored = number::<4>(bytes, 4) as u32;
        let mut blank = bytes.to_vec();
        blank[4..8].fill(0);
        let computed = crc32c(&blank);
        if stored != computed {
            return Err(SuperblockError::Checksum { stored, computed });
        }
        if bytes[12] != BLOCK_BITS {
            return Err(SuperblockError::BlockSize(bytes[12]));
        }
        match (number::<4>(bytes, 80) as u32, number::<4>(bytes, 40) as u32) {
            (0, 0) => {}
            (0, inodes_block) => return Err(SuperblockError::Layout(inodes_block)),
            (features, _) => return Err(SuperblockError::Features(features)),
        }
        Ok(Self {
            root: number::<2>(bytes, 14) as u16,
            inodes: number::<8>(bytes, 16),
            time_s: number::<8>(bytes, 24),
            blocks: number::<4>(bytes, 36) as u32,
            uuid: bytes[48..64].try_into().expect("sixteen bytes"),
            label: bytes[64..80].try_into().expect("sixteen bytes"),
        })
    }
}
