//! Writes a tree as an image in one pass from its first byte to its last, so that it can go to any
//! writer, and is hashed on the way. Contents are never held in memory.

use std::io::{self, Write};

use super::error::WriteError;
use super::inode::{Layout, type_of};
use super::plan::{Plan, PlannedInode, whole_blocks};
use super::superblock::Superblock;
use super::{BLOCK_BYTES, SLOT_BYTES, directory};
use crate::digest::{HashingWriter, Sha256};
use crate::tree::{Content, ContentReader, Kind, NodeId, Tree};

/// The options of an image besides its tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Seconds since 1970. Files of this time have smaller inodes.
    pub time_s: u64,
    /// The image's UUID; derive it from its input.
    pub uuid: [u8; 16],
    /// At most sixteen bytes of it are kept.
    pub label: &'a str,
}

/// The result of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSummary {
    pub bytes: u64,
    pub sha256: Sha256,
    pub inodes: u64,
}

/// Writes a tree as an image; see the module for its form.
pub fn write(
    tree: &Tree,
    options: &Options<'_>,
    out: impl Write,
) -> Result<ImageSummary, WriteError> {
    let plan = Plan::new(tree, options.time_s)?;
    let mut label = [0; 16];
    let label_bytes = options.label.len().min(label.len());
    label[..label_bytes].copy_from_slice(&options.label.as_bytes()[..label_bytes]);
    let superblock = Superblock {
        root: u16::try_from(plan.number(NodeId::ROOT)).expect("the root comes first"),
        inodes: plan.inodes.len() as u64,
        time_s: options.time_s,
        blocks: plan.blocks as u32,
        uuid: options.uuid,
        label,
    };
    let mut writer = Writer {
        tree,
        plan: &plan,
        time_s: options.time_s,
        contents: ContentReader::new(),
        out: HashingWriter::new(out),
        position: 0,
    };
    writer.put(&superblock.encode())?;
    for planned in &plan.inodes {
        writer.put_inode(planned)?;
    }
    writer.pad_to(plan.first_content_block * BLOCK_BYTES)?;
    for planned in &plan.inodes {
        writer.put_blocks(planned)?;
    }
    debug_assert_eq!(writer.position, plan.blocks * BLOCK_BYTES, "as planned");
    let (mut out, sha256, bytes) = writer.out.finish();
    out.flush()?;
    Ok(ImageSummary { bytes, sha256, inodes: superblock.inodes })
}

struct Writer<'a, W> {
    tree: &'a Tree,
    plan: &'a Plan,
    time_s: u64,
    contents: ContentReader,
    out: HashingWriter<W>,
    position: u64,
}

impl<W: Write> Writer<'_, W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad_to(&mut self, position: u64) -> io::Result<()> {
        const ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
        debug_assert!(position - self.position <= BLOCK_BYTES, "less than a block is ever skipped");
        self.put(&ZEROS[..(position - self.position) as usize])
    }

    fn put_inode(&mut self, planned: &PlannedInode) -> io::Result<()> {
        self.pad_to(planned.offset)?;
        self.put(&planned.inode.encode(self.time_s))?;
        self.put(&planned.xattrs)?;
        if planned.inode.layout == Layout::Inline {
            let whole = whole_blocks(&planned.inode) * BLOCK_BYTES;
            self.put_content(planned, whole, planned.inode.bytes)?;
        }
        Ok(())
    }

    fn put_blocks(&mut self, planned: &PlannedInode) -> io::Result<()> {
        let whole = whole_blocks(&planned.inode);
        if whole == 0 {
            return Ok(());
        }
        let start = u64::from(planned.inode.place) * BLOCK_BYTES;
        debug_assert_eq!(self.position, start, "contents are in the order of inodes");
        self.put_content(planned, 0, planned.inode.bytes.min(whole * BLOCK_BYTES))?;
        self.pad_to(start + whole * BLOCK_BYTES)
    }

    /// Any part of an inode's content.
    fn put_content(&mut self, planned: &PlannedInode, from: u64, to: u64) -> io::Result<()> {
        let made;
        let content = match &self.tree.node(planned.node).kind {
            Kind::File(content) => content,
            Kind::Symlink(target) => {
                made = Content::from_bytes(target.clone());
                &made
            }
            Kind::Directory(names) => {
                let file_type = |id| type_of(&self.tree.node(id).kind).1;
                let mut entries: Vec<directory::Entry<'_>> = names
                    .iter()
                    .map(|(name, &id)| (name.as_slice(), self.plan.number(id), file_type(id)))
                    .collect();
                for (name, id) in [(&b"."[..], planned.node), (b"..", planned.parent)] {
                    entries.push((name, self.plan.number(id), file_type(id)));
                }
                entries.sort_unstable();
                made = Content::from_bytes(directory::encode(&entries));
                &made
            }
            _ => return Ok(()),
        };
        let (position, out) = (&mut self.position, &mut self.out);
        self.contents.copy(content, from, to, &mut |bytes| {
            *position += bytes.len() as u64;
            out.write_all(bytes)
        })
    }
}

/// Slots must tile blocks, or inodes would lie across them.
const _: () = assert!(BLOCK_BYTES.is_multiple_of(SLOT_BYTES));
