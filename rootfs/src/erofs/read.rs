//! The reader: an image becomes a tree again, whose contents point into the image.
//!
//! `verify` reads what was built with it. It trusts nothing: a position outside the image, a directory that
//! is its own parent, a name out of order, or a contradicting number is an error. The cost of reading is
//! limited by the image's size and by [`PATHS_BYTES_MAX`]. Contents that share bytes would be read
//! repeatedly; their sum is larger than the image, so they are refused.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::directory::DirectoryError;
use super::inode::{Inode, InodeFormat, Layout, type_bits, type_of, unpack_device};
use super::plan::whole_blocks;
use super::superblock::{Superblock, SuperblockError};
use super::xattr::XattrError;
use super::{
    BLOCK_BYTES, INODES_MAX, PATH_BYTES_MAX, PATHS_BYTES_MAX, SLOT_BYTES, directory, number, xattr,
};
use crate::tree::{Content, Kind, MODE_MASK, Metadata, Node, Piece, Tree, TreeError, join, shown};

/// The largest directory that is read: a hundred thousand long names.
const DIRECTORY_BYTES_MAX: u64 = 32 << 20;

/// The largest target of a link, which is the kernel's `PATH_MAX`.
const TARGET_BYTES_MAX: u64 = 4096;

/// Why a file is no image that is read here.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    #[error("{path}: {source}")]
    Inode { path: String, source: InodeFormat },
    #[error("{path}: {source}")]
    Directory { path: String, source: DirectoryError },
    #[error("{path}: {source}")]
    Xattr { path: String, source: XattrError },
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("{path}: {what}")]
    Malformed { path: String, what: &'static str },
    #[error("{path}: bytes {from} to {to} are outside of the image, which has {bytes}")]
    Outside { path: String, from: u64, to: u64, bytes: u64 },
    #[error("more than {INODES_MAX} files")]
    TooMany,
    #[error("the paths have too many bytes in total")]
    TooManyPaths,
}

/// How much more of an image may be read.
struct Budget {
    paths_bytes: usize,
    content_bytes: u64,
}

impl Budget {
    /// Counts a name; `walked` is its size in the tree.
    fn name(&mut self, path: &[u8], walked: usize) -> Result<(), ReadError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(malformed(path, "a path that is too long"));
        }
        let left = self.paths_bytes.checked_sub(path.len() + walked);
        self.paths_bytes = left.ok_or(ReadError::TooManyPaths)?;
        Ok(())
    }

    /// Counts the content of a file or of a directory.
    fn content(&mut self, path: &[u8], bytes: u64) -> Result<(), ReadError> {
        let left = self.content_bytes.checked_sub(bytes);
        self.content_bytes =
            left.ok_or_else(|| malformed(path, "the files have more bytes than the image"))?;
        Ok(())
    }
}

/// Opens an image and reads its whole tree; contents are left where they are.
pub fn read(path: &Path) -> Result<Tree, ReadError> {
    read_within(path, PATHS_BYTES_MAX)
}

/// Changes the limit of all paths together.
pub(super) fn read_within(path: &Path, paths_bytes_max: usize) -> Result<Tree, ReadError> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut image = Image { file, path: path.into(), bytes, superblock: None };
    let superblock = Superblock::decode(&image.bytes_at(b"", 0, BLOCK_BYTES)?)?;
    if u64::from(superblock.blocks) * BLOCK_BYTES > bytes {
        return Err(malformed(b"", "the image is cut short"));
    }
    image.superblock = Some(superblock);
    image.tree(&superblock, Budget { paths_bytes: paths_bytes_max, content_bytes: bytes })
}

fn malformed(path: &[u8], what: &'static str) -> ReadError {
    ReadError::Malformed { path: shown(path), what }
}

struct Image {
    file: File,
    path: Arc<Path>,
    bytes: u64,
    superblock: Option<Superblock>,
}

/// An inode as it was found.
struct ReadInode {
    inode: Inode,
    node: Node,
    /// A directory's names, inodes and types.
    names: Vec<(Vec<u8>, u64, u8)>,
}

impl Image {
    fn tree(&self, superblock: &Superblock, mut budget: Budget) -> Result<Tree, ReadError> {
        let root = u64::from(superblock.root);
        let found = self.find(b"", root, root, &mut budget)?;
        if found.node.names().is_none() {
            return Err(malformed(b"", "the root is not a directory"));
        }
        let mut tree = Tree::new(found.node.metadata);
        tree.insert(b"", found.node)?;
        // Where a file was seen first, and how many names it has had since.
        let mut seen: HashMap<u64, (Vec<u8>, u32, u32)> = HashMap::new();
        seen.insert(root, (Vec::new(), 0, 0));
        let mut todo = vec![(Vec::new(), root, found.names)];
        while let Some((parent, parent_number, names)) = todo.pop() {
            for (name, number, file_type) in names {
                let path = join(&parent, &name);
                if let Some((first, names, _)) = seen.get_mut(&number) {
                    budget.name(&path, first.len())?;
                    *names += 1;
                    tree.link(&path, first)?;
                    continue;
                }
                if seen.len() == INODES_MAX {
                    return Err(ReadError::TooMany);
                }
                budget.name(&path, 0)?;
                let found = self.find(&path, number, parent_number, &mut budget)?;
                if type_of(&found.node.kind).1 != file_type {
                    return Err(malformed(&path, "its type differs from its directory entry's"));
                }
                let is_directory = found.node.names().is_some();
                let expected = if is_directory { 0 } else { found.inode.links };
                seen.insert(number, (path.clone(), 1, expected));
                tree.insert(&path, found.node)?;
                if is_directory {
                    todo.push((path, number, found.names));
                }
            }
        }
        for (path, names, expected) in seen.values() {
            if *expected != 0 && names != expected {
                return Err(malformed(path, "its link count differs from the number of its names"));
            }
        }
        if seen.len() as u64 != superblock.inodes {
            return Err(malformed(b"", "the inode count differs from the number of files"));
        }
        Ok(tree)
    }

    fn find(
        &self,
        path: &[u8],
        inode_number: u64,
        parent: u64,
        budget: &mut Budget,
    ) -> Result<ReadInode, ReadError> {
        let time_s = self.superblock.map_or(0, |superblock| superblock.time_s);
        let start = inode_number
            .checked_mul(SLOT_BYTES)
            .ok_or_else(|| malformed(path, "an inode's number is out of range"))?;
        let format = number::<2>(&self.bytes_at(path, start, 2)?, 0) as u16;
        let header = Inode::header_bytes(format);
        let inode = Inode::decode(&self.bytes_at(path, start, header)?, time_s)
            .map_err(|source| ReadError::Inode { path: shown(path), source })?;
        let area_bytes = xattr::area_bytes(inode.xattr_count) as u64;
        let area = self.bytes_at(path, start + header, area_bytes)?;
        let xattrs = xattr::decode(&area)
            .map_err(|source| ReadError::Xattr { path: shown(path), source })?;
        let tail = start + header + area_bytes;
        let mut names = Vec::new();
        let type_bits = type_bits(inode.mode);
        // For devices the field means something else, or nothing.
        let content_bytes =
            if matches!(type_bits, 0o040_000 | 0o100_000 | 0o120_000) { inode.bytes } else { 0 };
        budget.content(path, area_bytes.saturating_add(content_bytes))?;
        let kind = match type_bits {
            0o010_000 => Kind::Fifo,
            0o020_000 => Kind::CharDevice(unpack_device(inode.place)),
            0o040_000 => {
                let bytes = self.content(path, &inode, tail, DIRECTORY_BYTES_MAX)?;
                names = read_names(path, &bytes, inode_number, parent)?;
                Kind::Directory(std::collections::BTreeMap::new())
            }
            0o060_000 => Kind::BlockDevice(unpack_device(inode.place)),
            0o100_000 => Kind::File(Content::from_pieces(self.pieces(path, &inode, tail)?)),
            0o120_000 => Kind::Symlink(self.content(path, &inode, tail, TARGET_BYTES_MAX)?),
            0o140_000 => Kind::Socket,
            _ => return Err(malformed(path, "unknown file type")),
        };
        let metadata = Metadata {
            mode: inode.mode & MODE_MASK,
            uid: inode.uid,
            gid: inode.gid,
            mtime_s: inode.mtime_s,
        };
        Ok(ReadInode { inode, node: Node { metadata, kind, xattrs }, names })
    }

    /// Where a file's content is.
    fn pieces(&self, path: &[u8], inode: &Inode, tail: u64) -> Result<Vec<Piece>, ReadError> {
        let whole_bytes = match inode.layout {
            Layout::Plain => inode.bytes,
            Layout::Inline => whole_blocks(inode) * BLOCK_BYTES,
        };
        let mut pieces = Vec::new();
        if whole_bytes > 0 {
            let offset = u64::from(inode.place) * BLOCK_BYTES;
            self.check(path, offset, whole_bytes)?;
            pieces.push(Piece::Slice { file: self.path.clone(), offset, bytes: whole_bytes });
        }
        if whole_bytes < inode.bytes {
            let bytes = inode.bytes - whole_bytes;
            if tail % BLOCK_BYTES + bytes > BLOCK_BYTES {
                return Err(malformed(path, "the tail lies across two blocks"));
            }
            self.check(path, tail, bytes)?;
            pieces.push(Piece::Slice { file: self.path.clone(), offset: tail, bytes });
        }
        Ok(pieces)
    }

    fn content(
        &self,
        path: &[u8],
        inode: &Inode,
        tail: u64,
        bytes_max: u64,
    ) -> Result<Vec<u8>, ReadError> {
        if inode.bytes > bytes_max {
            return Err(malformed(path, "too large for what it is"));
        }
        let mut all = Vec::new();
        for piece in self.pieces(path, inode, tail)? {
            if let Piece::Slice { offset, bytes, .. } = piece {
                all.extend(self.bytes_at(path, offset, bytes)?);
            }
        }
        Ok(all)
    }

    fn check(&self, path: &[u8], from: u64, bytes: u64) -> Result<(), ReadError> {
        match from.checked_add(bytes) {
            Some(to) if to <= self.bytes => Ok(()),
            to => Err(ReadError::Outside {
                path: shown(path),
                from,
                to: to.unwrap_or(u64::MAX),
                bytes: self.bytes,
            }),
        }
    }

    fn bytes_at(&self, path: &[u8], from: u64, bytes: u64) -> Result<Vec<u8>, ReadError> {
        self.check(path, from, bytes)?;
        let mut buffer = vec![0; bytes as usize];
        self.file.read_exact_at(&mut buffer, from)?;
        Ok(buffer)
    }
}

/// The names in a directory without `.` and `..`, which must be correct.
fn read_names(
    path: &[u8],
    bytes: &[u8],
    own: u64,
    parent: u64,
) -> Result<Vec<(Vec<u8>, u64, u8)>, ReadError> {
    let entries = directory::decode(bytes)
        .map_err(|source| ReadError::Directory { path: shown(path), source })?;
    let mut names = Vec::with_capacity(entries.len());
    let mut dots = 0;
    for (name, number, file_type) in entries {
        match name {
            b"." if number == own => dots += 1,
            b".." if number == parent => dots += 1,
            b"." | b".." => {
                return Err(malformed(path, "\".\" or \"..\" leads to the wrong directory"));
            }
            _ => names.push((name.to_vec(), number, file_type)),
        }
    }
    if dots != 2 {
        return Err(malformed(path, "\".\" or \"..\" is missing"));
    }
    Ok(names)
}
