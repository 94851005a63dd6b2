//! Directories: blocks of entries of 12 bytes, each block's names after its entries.

use super::{BLOCK_BYTES, number};

const ENTRY_BYTES: usize = 12;
const BLOCK: usize = BLOCK_BYTES as usize;

/// A name, its inode and its file type.
pub(super) type Entry<'a> = (&'a [u8], u64, u8);

/// Why bytes are no directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    #[error("an entry's name lies outside of its block")]
    NamePlace,
    #[error("an entry has an invalid file name")]
    Name,
    #[error("names are out of order or repeated")]
    Order,
}

/// The size of a directory with these names; they are sorted, including `.` and `..`.
pub(super) fn encoded_bytes<'a>(names: impl Iterator<Item = &'a [u8]>) -> u64 {
    let (mut blocks, mut used) = (0, 0);
    for name in names {
        let cost = ENTRY_BYTES + name.len();
        if used + cost > BLOCK {
            blocks += 1;
            used = 0;
        }
        used += cost;
    }
    blocks * BLOCK_BYTES + used as u64
}

/// The bytes of a directory whose entries are in order.
pub(super) fn encode(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = entries;
    while !rest.is_empty() {
        out.resize(out.len().next_multiple_of(BLOCK), 0);
        let mut used = 0;
        let fitting = rest.iter().take_while(|(name, ..)| {
            used += ENTRY_BYTES + name.len();
            used <= BLOCK
        });
        let (block, later) = rest.split_at(fitting.count());
        let mut name_at = block.len() * ENTRY_BYTES;
        for (name, inode, file_type) in block {
            out.extend(inode.to_le_bytes());
            out.extend((name_at as u16).to_le_bytes());
            out.extend([*file_type, 0]);
            name_at += name.len();
        }
        for (name, ..) in block {
            out.extend_from_slice(name);
        }
        rest = later;
    }
    out
}

/// The entries of a directory; `.` and `..` are checked like all and left to the caller.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Entry<'_>>, DirectoryError> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for block in bytes.chunks(BLOCK) {
        if block.len() < ENTRY_BYTES {
            return Err(DirectoryError::NamePlace);
        }
        let names_start = number::<2>(block, 8) as usize;
        if !names_start.is_multiple_of(ENTRY_BYTES) || names_start == 0 || names_start > block.len()
        {
            return Err(DirectoryError::NamePlace);
        }
        let starts: Vec<usize> = (0..names_start / ENTRY_BYTES)
            .map(|entry| number::<2>(block, entry * ENTRY_BYTES + 8) as usize)
            .collect();
        for (entry, &start) in starts.iter().enumerate() {
            let end = starts.get(entry + 1).copied().unwrap_or(block.len());
            let mut name = block.get(start..end).ok_or(DirectoryError::NamePlace)?;
            if entry + 1 == starts.len()
                && let Some(zero) = name.iter().position(|&byte| byte == 0)
            {
                name = &name[..zero];
            }
            if name.is_empty() || name.len() > 255 || name.contains(&0) || name.contains(&b'/') {
                return Err(DirectoryError::Name);
            }
            if entries.last().is_some_and(|(last, ..)| *last >= name) {
                return Err(DirectoryError::Order);
            }
            let at = entry * ENTRY_BYTES;
            entries.push((name, number::<8>(block, at), block[at + 10]));
        }
    }
    Ok(entries)
}
