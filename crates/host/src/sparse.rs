//! Files without their zeros: whole blocks of them become holes, so that a sparse file of a sandbox
//! takes no more room here than there.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

/// Where a file has bytes: the offset and the length of each run, in order. A hole that is shorter than
/// `hole_bytes_min` counts as bytes, so that the list stays short.
pub fn data_extents(file: &File, hole_bytes_min: u64) -> io::Result<Vec<(u64, u64)>> {
    let bytes = file.metadata()?.len();
    let seek = |at: u64, whence| {
        lseek(file, i64::try_from(at).unwrap_or(i64::MAX), whence).map(|found| found as u64)
    };
    let mut extents: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < bytes {
        let from = match seek(at, Whence::SeekData) {
            // The rest is a hole.
            Err(Errno::ENXIO) => break,
            found => found?,
        };
        let to = seek(from, Whence::SeekHole)?.min(bytes);
        match extents.last_mut() {
            Some((last, length)) if from - (*last + *length) < hole_bytes_min => {
                *length = to - *last;
            }
            _ => extents.push((from, to - from)),
        }
        at = to;
    }
    Ok(extents)
}

/// The block size of common file systems.
const BLOCK_BYTES: usize = 4096;

/// Writes at the end of a regular file that was empty before the first piece. [`finish_sparse`]
/// sets its final length.
pub fn write_sparse(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    let mut hole_bytes = 0;
    for block in bytes.chunks(BLOCK_BYTES) {
        if block.len() == BLOCK_BYTES && block.iter().all(|byte| *byte == 0) {
            hole_bytes += BLOCK_BYTES as i64;
            continue;
        }
        if hole_bytes > 0 {
            file.seek(SeekFrom::Current(hole_bytes))?;
            hole_bytes = 0;
        }
        file.write_all(block)?;
    }
    if hole_bytes > 0 {
        file.seek(SeekFrom::Current(hole_bytes))?;
    }
    Ok(())
}

/// Ends the file where writing has ended, even after a hole.
pub fn finish_sparse(mut file: &File) -> io::Result<()> {
    let end = file.stream_position()?;
    file.set_len(end)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn zeros_are_read_back_and_take_no_room() {
        let path = std::env::temp_dir().join(format!("burrow-sparse-{}", std::process::id()));
        let mut content = vec![0; 64 * BLOCK_BYTES];
        content[10 * BLOCK_BYTES + 5] = 1;
        content.extend([0; 100]);
        for piece_bytes in [1000, BLOCK_BYTES, 3 * BLOCK_BYTES, content.len()] {
            let file = File::create(&path).unwrap();
            for piece in content.chunks(piece_bytes) {
                write_sparse(&file, piece).unwrap();
            }
            finish_sparse(&file).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), content, "pieces of {piece_bytes}");
        }
        let stored = std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(stored < 16 * BLOCK_BYTES as u64, "{stored} bytes are stored");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn runs_of_bytes_are_found_and_short_holes_belong_to_them() {
        use std::os::unix::fs::FileExt as _;

        let path = std::env::temp_dir().join(format!("burrow-extents-{}", std::process::id()));
        let file = File::options().write(true).read(true).create(true).truncate(true).open(&path);
        let file = file.unwrap();
        assert_eq!(data_extents(&file, 1).unwrap(), []);
        file.set_len(64 << 20).unwrap();
        assert_eq!(data_extents(&file, 1).unwrap(), []);
        for at in [1 << 20, (1 << 20) + 65_536, 32 << 20] {
            file.write_all_at(&[7; BLOCK_BYTES], at).unwrap();
        }
        let block = BLOCK_BYTES as u64;
        let short = data_extents(&file, 1 << 20).unwrap();
        assert_eq!(short, [(1 << 20, 65_536 + block), (32 << 20, block)]);
        assert_eq!(data_extents(&file, 1).unwrap().len(), 3);
        std::fs::remove_file(path).unwrap();
    }
}
