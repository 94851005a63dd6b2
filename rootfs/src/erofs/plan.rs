//! Plans the position of everything before a byte is written, because directories name later inodes.

use std::collections::HashMap;

use super::error::WriteError;
use super::inode::{COMPACT_BYTES, EXTENDED_BYTES, Inode, Layout, pack_device, type_of};
use super::{BLOCK_BYTES, INODES_MAX, INODES_START, SLOT_BYTES, directory, xattr};
use crate::tree::{Kind, NodeId, Tree, shown};

/// A tail that does not fit in the rest of a block starts the next block if it has at most this many bytes;
/// otherwise it gets a block of its own. Either wastes some room; this wastes less.
const MOVED_TAIL_BYTES_MAX: u64 = 1024;

/// One inode and where it goes.
pub(super) struct PlannedInode {
    pub(super) node: NodeId,
    /// For a directory, the target of its `..`.
    pub(super) parent: NodeId,
    /// The byte of the image where the inode starts.
    pub(super) offset: u64,
    /// Its `place` counts from the first block of contents until [`Plan::new`] is done.
    pub(super) inode: Inode,
    pub(super) xattrs: Vec<u8>,
}

/// All inodes in the order of the tree, which is also the order of their contents.
pub(super) struct Plan {
    pub(super) inodes: Vec<PlannedInode>,
    /// The index of a node in `inodes`.
    index: HashMap<NodeId, usize>,
    pub(super) first_content_block: u64,
    pub(super) blocks: u64,
}

impl Plan {
    pub(super) fn new(tree: &Tree, time_s: u64) -> Result<Self, WriteError> {
        let mut plan =
            Self { inodes: Vec::new(), index: HashMap::new(), first_content_block: 0, blocks: 0 };
        plan.collect(tree)?;
        let (mut offset, mut block) = (INODES_START, 0);
        for planned in &mut plan.inodes {
            let compact = planned.inode.is_compact(time_s);
            let header = if compact { COMPACT_BYTES } else { EXTENDED_BYTES };
            let header = header + planned.xattrs.len() as u64;
            let tail = planned.inode.bytes % BLOCK_BYTES;
            let left = BLOCK_BYTES - offset % BLOCK_BYTES;
            let moved = tail <= MOVED_TAIL_BYTES_MAX && header + tail <= BLOCK_BYTES;
            let inline = tail > 0 && (header + tail <= left || moved);
            let taken = if inline { header + tail } else { header };
            if taken > left {
                offset = offset.next_multiple_of(BLOCK_BYTES);
            }
            planned.offset = offset;
            offset = (offset + taken).next_multiple_of(SLOT_BYTES);
            planned.inode.layout = if inline { Layout::Inline } else { Layout::Plain };
            let whole = whole_blocks(&planned.inode);
            if whole > 0 {
                planned.inode.place = u32::try_from(block).map_err(|_| WriteError::TooLarge)?;
                block += whole;
            }
        }
        plan.first_content_block = offset.div_ceil(BLOCK_BYTES);
        plan.blocks = plan.first_content_block + block;
        if u32::try_from(plan.blocks).is_err() {
            return Err(WriteError::TooLarge);
        }
        for planned in &mut plan.inodes {
            if whole_blocks(&planned.inode) > 0 {
                planned.inode.place += plan.first_content_block as u32;
            }
        }
        Ok(plan)
    }

    /// The number of an inode, by which directories name it.
    pub(super) fn number(&self, node: NodeId) -> u64 {
        self.inodes[self.index[&node]].offset / SLOT_BYTES
    }

    /// Every node once, its names counted.
    fn collect(&mut self, tree: &Tree) -> Result<(), WriteError> {
        let mut todo = vec![(NodeId::ROOT, NodeId::ROOT, Vec::new())];
        while let Some((id, parent, path)) = todo.pop() {
            if let Some(&known) = self.index.get(&id) {
                self.inodes[known].inode.links += 1;
                continue;
            }
            if self.inodes.len() == INODES_MAX {
                return Err(WriteError::TooLarge);
            }
            let node = tree.node(id);
            let (type_bits, _) = type_of(&node.kind);
            let mut links = 1;
            let mut place = 0;
            let bytes = match &node.kind {
                Kind::Directory(names) => {
                    links = 2;
                    for (name, &child) in names.iter().rev() {
                        links += u32::from(tree.node(child).names().is_some());
                        todo.push((child, id, crate::tree::join(&path, name)));
                    }
                    let mut all: Vec<&[u8]> = names.keys().map(Vec::as_slice).collect();
                    all.extend([&b"."[..], b".."]);
                    all.sort_unstable();
                    directory::encoded_bytes(all.into_iter())
                }
                Kind::File(content) => content.bytes(),
                Kind::Symlink(target) => target.len() as u64,
                Kind::CharDevice(device) | Kind::BlockDevice(device) => {
                    place = pack_device(*device);
                    0
                }
                Kind::Fifo | Kind::Socket => 0,
            };
            let named = |source| WriteError::Xattr { path: shown(&path), source };
            let xattrs = xattr::encode(&node.xattrs).map_err(named)?;
            if xattrs.len() as u64 + EXTENDED_BYTES > BLOCK_BYTES {
                return Err(named(xattr::XattrError::TooLarge(xattrs.len())));
            }
            let metadata = node.metadata;
            let inode = Inode {
                layout: Layout::Plain,
                mode: type_bits | metadata.mode & crate::tree::MODE_MASK,
                links,
                bytes,
                place,
                serial: self.inodes.len() as u32 + 1,
                uid: metadata.uid,
                gid: metadata.gid,
                mtime_s: metadata.mtime_s,
                xattr_count: xattr::count_of(xattrs.len()),
            };
            self.index.insert(id, self.inodes.len());
            self.inodes.push(PlannedInode { node: id, parent, offset: 0, inode, xattrs });
        }
        Ok(())
    }
}

/// How many blocks of a content are not after its inode.
pub(super) fn whole_blocks(inode: &Inode) -> u64 {
    match inode.layout {
        Layout::Inline => inode.bytes / BLOCK_BYTES,
        Layout::Plain => inode.bytes.div_ceil(BLOCK_BYTES),
    }
}
