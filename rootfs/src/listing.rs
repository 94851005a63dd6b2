//! A tree's content line by line: for `ls`, and as a digest for manifests.

use std::io;

use crate::digest::{Hasher, Sha256};
use crate::tree::{ContentReader, Kind, Tree, shown};

/// One line for each name: type, mode, owner, bytes, path, and its target or digest.
pub fn lines(
    tree: &Tree,
    with_digests: bool,
    line: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    let mut contents = ContentReader::new();
    for (path, id) in tree.walk_all() {
        let node = tree.node(id);
        let (letter, bytes, detail) = match &node.kind {
            Kind::Directory(_) => ('d', 0, String::new()),
            Kind::File(content) if with_digests => {
                ('-', content.bytes(), format!(" {}", contents.sha256(content)?))
            }
            Kind::File(content) => ('-', content.bytes(), String::new()),
            Kind::Symlink(target) => ('l', target.len() as u64, format!(" -> {}", shown(target))),
            Kind::CharDevice(device) => ('c', 0, format!(" {}:{}", device.major, device.minor)),
            Kind::BlockDevice(device) => ('b', 0, format!(" {}:{}", device.major, device.minor)),
            Kind::Fifo => ('p', 0, String::new()),
            Kind::Socket => ('s', 0, String::new()),
        };
        let metadata = node.metadata;
        let mut text = format!(
            "{letter}{:04o} {}:{} {bytes:>9} /{}{detail}",
            metadata.mode,
            metadata.uid,
            metadata.gid,
            shown(&path)
        );
        for (name, value) in &node.xattrs {
            text.extend([" [", &shown(name), "=", &shown(value), "]"]);
        }
        line(&text)?;
    }
    Ok(())
}

/// The number of names, and the digest of all lines with their digests.
pub fn digest(tree: &Tree) -> io::Result<(u64, Sha256)> {
    let mut hasher = Hasher::new();
    let mut names = 0;
    lines(tree, true, &mut |line| {
        hasher.part(line.as_bytes());
        names += 1;
        Ok(())
    })?;
    Ok((names, hasher.finish()))
}
