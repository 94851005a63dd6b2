//! Files without their zeros: whole blocks of them become holes, so that a sparse file of a sandbox
//! takes no more room here than there.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

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
}
