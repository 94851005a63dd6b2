//! New files without their zeros: whole blocks of them become holes, so that a sparse file of the host takes
//! no more room here than there.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use nix::unistd::{Whence, ftruncate, lseek};

/// The block size of common file systems.
const BLOCK_BYTES: usize = 4096;

/// Writes at the end of a file that was empty before the first piece. [`finish_sparse`] sets its
/// final length.
pub fn write_sparse(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    let is_hole = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    while let Some(first) = bytes.chunks(BLOCK_BYTES).next() {
        let skips = is_hole(first);
        let alike = bytes.chunks(BLOCK_BYTES).take_while(|block| is_hole(block) == skips);
        let (run, rest) = bytes.split_at(alike.map(<[u8]>::len).sum());
        if skips {
            file.seek(SeekFrom::Current(run.len() as i64))?;
        } else {
            file.write_all(run)?;
        }
        bytes = rest;
    }
    Ok(())
}

/// Ends the file where writing has ended, even after a hole.
pub fn finish_sparse(file: &File) -> nix::Result<()> {
    let end = lseek(file, 0, Whence::SeekCur)?;
    ftruncate(file, end)
}
