//! Packs a directory tree of the host as a tar archive, in pieces. Runs on its own thread and knows
//! no sandbox. Symbolic links below the root are archived as links.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use archive::{END_OF_ARCHIVE, Entry, Kind, TarError, encode_entry, padding};

/// One piece of the archive: a few chunks of the wire, so that hand-over costs little.
const PIECE_BYTES: usize = 256 * 1024;

/// Why packing failed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Encode { path: PathBuf, source: TarError },
    #[error("{path}: the file shrank while it was copied")]
    Shrunk { path: PathBuf },
    /// The consumer stopped; its error is reported elsewhere.
    #[error("nobody reads the archive")]
    Unwanted,
}

/// The result of packing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Packed {
    pub entries: u64,
    /// Sockets, devices and pipes, which have no content to copy.
    pub left_out: Vec<PathBuf>,
}

/// Archives `root`, whose entries are named from `name` on; with no name they are named from the
/// root's contents on. `take` gets the pieces in order, and says false to stop.
pub fn pack(
    root: &Path,
    name: Option<&[u8]>,
    take: impl FnMut(Vec<u8>) -> bool,
) -> Result<Packed, PackError> {
    let mut packer =
        Packer { take, piece: Vec::with_capacity(PIECE_BYTES), packed: Packed::default() };
    // Directories wait here, so that depth costs memory in the heap and not on the stack.
    let mut waiting = vec![(root.to_path_buf(), name.unwrap_or(b".").to_vec())];
    while let Some((path, name)) = waiting.pop() {
        // The root itself is followed, since the person named it.
        let metadata = if path == root { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let metadata = metadata.map_err(|source| PackError::Read { path: path.clone(), source })?;
        packer.entry(&path, &name, &metadata)?;
        if metadata.is_dir() {
            let mut names = list(&path)?;
            names.sort_unstable_by(|a, b| b.cmp(a));
            waiting.extend(names.into_iter().map(|file| {
                let mut below = name.clone();
                below.push(b'/');
                below.extend_from_slice(file.as_bytes());
                (path.join(file), below)
            }));
        }
    }
    packer.append(END_OF_ARCHIVE)?;
    packer.flush()?;
    Ok(packer.packed)
}

fn list(path: &Path) -> Result<Vec<std::ffi::OsString>, PackError> {
    fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect())
        .map_err(|source| PackError::Read { path: path.to_path_buf(), source })
}

struct Packer<T> {
    take: T,
    piece: Vec<u8>,
    packed: Packed,
}

impl<T: FnMut(Vec<u8>) -> bool> Packer<T> {
    fn entry(&mut self, path: &Path, name: &[u8], metadata: &Metadata) -> Result<(), PackError> {
        let failed = |source| PackError::Read { path: path.to_path_buf(), source };
        let kind = metadata.file_type();
        if kind.is_file() {
            let file = File::open(path).map_err(failed)?;
            // The size of the opened file: the name may mean another one by now.
            let size = file.metadata().map_err(failed)?.len();
            self.header(path, name, metadata, Kind::File { size })?;
            return self.content(path, file, size);
        }
        if kind.is_dir() {
            return self.header(path, name, metadata, Kind::Directory);
        }
        if kind.is_symlink() {
            let target = fs::read_link(path).map_err(failed)?;
            let target = target.as_os_str().as_bytes().to_vec();
            return self.header(path, name, metadata, Kind::Symlink { target });
        }
        debug_assert!(
            kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device()
        );
        self.packed.left_out.push(path.to_path_buf());
        Ok(())
    }

    fn header(
        &mut self,
        path: &Path,
        name: &[u8],
        metadata: &Metadata,
        kind: Kind,
    ) -> Result<(), PackError> {
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
        encode_entry(&entry, &mut header)
            .map_err(|source| PackError::Encode { path: path.to_path_buf(), source })?;
        self.packed.entries += 1;
        self.append(&header)
    }

    fn content(&mut self, path: &Path, file: File, size: u64) -> Result<(), PackError> {
        let mut left = size;
        let mut file = file.take(size);
        while left > 0 {
            let room = PIECE_BYTES.saturating_sub(self.piece.len());
            if room == 0 {
                self.flush()?;
                continue;
            }
            let count = (&mut file)
                .take(room as u64)
                .read_to_end(&mut self.piece)
                .map_err(|source| PackError::Read { path: path.to_path_buf(), source })?;
            if count == 0 {
                return Err(PackError::Shrunk { path: path.to_path_buf() });
            }
            left -= count as u64;
        }
        self.append(padding(size))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), PackError> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), PackError> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        if piece.is_empty() || (self.take)(piece) { Ok(()) } else { Err(PackError::Unwanted) }
    }
}
