//! Archives a directory of this host as a layer. Symbolic links stay links, and so do hard links. Sockets,
//! devices and pipes have no place in an image, and are skipped.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use archive::{END_OF_ARCHIVE, Entry, Kind, encode_entry_with, padding};

use crate::compose::{Xattr, xattrs};
use crate::layer::limits::LAYER_ENTRIES_MAX;
use crate::store::ImageError;

/// Writes the archive of a directory.
pub fn write(root: &Path, to: &Path) -> Result<(), ImageError> {
    let failed = ImageError::files("write", to);
    let file = File::create(to).map_err(&failed)?;
    let mut writer = Writer { out: BufWriter::new(file), linked: HashMap::new() };
    let mut entries = 0;
    // Directories wait here, so that depth costs memory in the heap and not on the stack.
    let mut waiting = vec![(root.to_owned(), b".".to_vec())];
    while let Some((path, name)) = waiting.pop() {
        let failed = ImageError::files("archive", &path);
        entries += 1;
        if entries > LAYER_ENTRIES_MAX {
            return Err(ImageError::TooMany { max: LAYER_ENTRIES_MAX });
        }
        // The root itself is followed, because the person named it.
        let metadata = if path == root { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let metadata = metadata.map_err(&failed)?;
        writer.entry(&path, &name, &metadata).map_err(&failed)?;
        if metadata.is_dir() {
            let names = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let mut names: Vec<_> =
                names.map_err(&failed)?.iter().map(fs::DirEntry::file_name).collect();
            names.sort_unstable_by(|one, other| other.cmp(one));
            waiting.extend(names.into_iter().map(|file| {
                let below = [name.as_slice(), file.as_bytes()].join(&b'/');
                (path.join(file), below)
            }));
        }
    }
    writer.out.write_all(END_OF_ARCHIVE).and_then(|()| writer.out.flush()).map_err(failed)
}

struct Writer {
    out: BufWriter<File>,
    /// The first name of each file that has several.
    linked: HashMap<(u64, u64), Vec<u8>>,
}

impl Writer {
    fn entry(&mut self, path: &Path, name: &[u8], metadata: &Metadata) -> io::Result<()> {
        let kind = metadata.file_type();
        if kind.is_dir() {
            let attributes = xattrs(File::open(path)?)?;
            return self.header(name, metadata, Kind::Directory, &attributes);
        }
        if kind.is_symlink() {
            let target = fs::read_link(path)?.as_os_str().as_bytes().to_vec();
            return self.header(name, metadata, Kind::Symlink { target }, &[]);
        }
        if !kind.is_file() {
            return Ok(());
        }
        if metadata.nlink() > 1 {
            let inode = (metadata.dev(), metadata.ino());
            if let Some(first) = self.linked.get(&inode) {
                let target = first.clone();
                return self.header(name, metadata, Kind::HardLink { target }, &[]);
            }
            self.linked.insert(inode, name.to_vec());
        }
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        self.header(name, metadata, Kind::File { size }, &xattrs(&file)?)?;
        if io::copy(&mut file.take(size), &mut self.out)? < size {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it became shorter while it was read",
            ));
        }
        self.out.write_all(padding(size))
    }

    fn header(
        &mut self,
        name: &[u8],
        metadata: &Metadata,
        kind: Kind,
        attributes: &[Xattr],
    ) -> io::Result<()> {
        let entry = Entry {
            path: name.to_vec(),
            kind,
            mode: metadata.mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            mtime_s: metadata.mtime(),
            mtime_ns: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        };
        let mut header = Vec::new();
        encode_entry_with(&entry, attributes, &mut header).map_err(io::Error::other)?;
        self.out.write_all(&header)
    }
}
