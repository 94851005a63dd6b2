//! Copies of disks: shared with the original where the file system can, and in any case without
//! writing the holes of a file that is mostly empty.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone, seek};
use rustix::io::Errno;

use host::paths::PRIVATE_FILE;

/// Makes `to` a copy of `from`, on disk when this returns. `to` must not be there.
pub fn sparse(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let copy = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(to)?;
    // Where blocks can be shared nothing is copied at all.
    if ioctl_ficlone(&copy, &source).is_err() {
        copy.set_len(source.metadata()?.len())?;
        copy_data(&source, &copy)?;
    }
    copy.sync_all()
}

fn copy_data(source: &File, copy: &File) -> io::Result<()> {
    let mut at = 0;
    loop {
        let from = match seek(source, SeekFrom::Data(at)) {
            Ok(from) => from,
            // Nothing but a hole is left.
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
