//! Copies of disks. They share blocks with the original where the file system can, and never write out the
//! holes of a sparse file.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone, seek};
use rustix::io::Errno;

use host::paths::PRIVATE_FILE;

/// Copies `from` to `to`, which must not exist. The copy is on disk when this returns.
pub fn sparse(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let copy = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(to)?;
    into(&source, &copy)?;
    copy.sync_all()
}

/// Gives an empty file the bytes of another.
pub fn into(source: &File, copy: &File) -> io::Result<()> {
    // A file system that can share blocks copies nothing.
    if ioctl_ficlone(copy, source).is_err() {
        copy.set_len(source.metadata()?.len())?;
        copy_data(source, copy)?;
    }
    Ok(())
}

fn copy_data(source: &File, copy: &File) -> io::Result<()> {
    let mut at = 0;
    loop {
        let from = match seek(source, SeekFrom::Data(at)) {
            Ok(from) => from,
            // The rest is a hole.
            Err(Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let to = seek(source, SeekFrom::Hole(from))?;
        let (mut read, mut written) = (from, from);
        while read < to {
            let length = usize::try_from(to - read).unwrap_or(usize::MAX);
            let count = copy_file_range(source, Some(&mut read), copy, Some(&mut written), length)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        at = to;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn a_copy_has_the_bytes_and_not_the_holes() {
        let directory = std::env::temp_dir().join(format!("burrow-copy-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (from, to) = (directory.join("a"), directory.join("b"));
        let file = File::create(&from).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"here", 32 << 20).unwrap();
        sparse(&from, &to).unwrap();
        let copy = File::open(&to).unwrap();
        let mut bytes = [0; 4];
        copy.read_exact_at(&mut bytes, 32 << 20).unwrap();
        assert_eq!((&bytes, copy.metadata().unwrap().len()), (b"here", 64 << 20));
        assert!(copy.metadata().unwrap().blocks() * 512 < 1 << 20);
        assert!(sparse(&from, &to).is_err(), "what is there is not overwritten");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
