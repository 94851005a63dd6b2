//! The legacy form of LZ4, which kernels alone still use: a magic number, then blocks with their
//! sizes before them. Forty lines, so no crate.

use std::io;

/// The first bytes of a stream.
pub(super) const MAGIC: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];

/// How many bytes one block may unpack to.
const BLOCK_BYTES_MAX: usize = 8 << 20;

/// Unpacks a whole stream.
pub(super) fn decompress(stream: &[u8], bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut rest = stream.strip_prefix(&MAGIC).ok_or_else(broken)?;
    let mut out = Vec::new();
    while let Some((size, later)) = rest.split_first_chunk::<4>() {
        let size = u32::from_le_bytes(*size) as usize;
        if later.len() < size {
            return Err(broken());
        }
        let (block, later) = later.split_at(size);
        decompress_block(block, &mut out)?;
        if out.len() as u64 > bytes_max {
            return Err(broken());
        }
        rest = later;
    }
    Ok(out)
}

/// A block is a row of sequences: a token, literal bytes, and where to copy from how many.
fn decompress_block(mut block: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    loop {
        let token = usize::from(take(&mut block, 1)?[0]);
        let literals = length(token >> 4, &mut block)?;
        out.extend_from_slice(take(&mut block, literals)?);
        if block.is_empty() {
            return Ok(());
        }
        let back = take(&mut block, 2)?;
        let back = usize::from(u16::from_le_bytes([back[0], back[1]]));
        let copied = length(token & 15, &mut block)? + 4;
        let from = out.len().checked_sub(back).filter(|&from| from >= start && back > 0);
        let from = from.ok_or_else(broken)?;
        if out.len() - start + copied > BLOCK_BYTES_MAX {
            return Err(broken());
        }
        // The source may overlap the bytes that this copy writes.
        let mut left = copied;
        while left > 0 {
            let step = left.min(out.len() - from);
            out.extend_from_within(from..from + step);
            left -= step;
        }
    }
}

/// A length of four bits, which continues in bytes if they are all set.
fn length(nibble: usize, block: &mut &[u8]) -> io::Result<usize> {
    let mut length = nibble;
    if nibble == 15 {
        loop {
            let more = take(block, 1)?[0];
            length += usize::from(more);
            if more != 255 {
                break;
            }
        }
    }
    Ok(length)
}

fn take<'a>(block: &mut &'a [u8], bytes: usize) -> io::Result<&'a [u8]> {
    let (taken, rest) = block.split_at_checked(bytes).ok_or_else(broken)?;
    *block = rest;
    Ok(taken)
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed LZ4 stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(block: &[u8]) -> Vec<u8> {
        [&MAGIC[..], &(block.len() as u32).to_le_bytes(), block].concat()
    }

    #[test]
    fn literals_and_copies_that_overlap_themselves_come_out() {
        // "ab", then ten bytes from two back, then "c".
        let packed = stream(&[0x26, b'a', b'b', 2, 0, 0x10, b'c']);
        assert_eq!(decompress(&packed, 100).expect("a stream"), b"ababababababc");
        // Twenty literals: fifteen, and five more in a byte of their own.
        let long = [&[0xf0, 5][..], &[b'x'; 20]].concat();
        assert_eq!(decompress(&stream(&long), 100).expect("a stream"), [b'x'; 20]);
    }

    #[test]
    fn broken_streams_are_refused() {
        for block in [&[0x26, b'a'][..], &[0x20, b'a', b'b', 3, 0, 0], &[0xf0, 255]] {
            assert!(decompress(&stream(block), 100).is_err(), "{block:?}");
        }
        assert!(decompress(b"other", 100).is_err());
        assert!(decompress(&stream(&[0x20, b'a', b'b']), 1).is_err());
    }
}
