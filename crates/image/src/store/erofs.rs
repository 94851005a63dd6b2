//! Writes the root of an image as a disk for virtual machines, once for each image, when the first machine
//! needs it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rootfs::erofs::{Options, WriteError, write};
use rootfs::tree::{Content, Kind, MODE_MASK, Metadata, Node, NodeId, Tree, TreeError};
use rustix::fs::{Mode, OFlags};

use super::{Draft, EROFS, ImageError, Images, Lease};
use crate::compose::xattrs;
use crate::digest::Digest;

/// The file in the directory that is made.
const FILE: &str = "root.erofs";
/// Bytes of the digest in the UUID, so that the same image has the same identity.
const UUID_BYTES: usize = 16;

/// Why a root is no disk.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{path:?}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
}

impl Images {
    /// The file of an image's root, written if it is not there.
    pub fn erofs(&self, lease: &Lease) -> Result<PathBuf, ImageError> {
        let digest = lease.image.digest;
        let name = digest.hex();
        let done = self.path(EROFS, &name);
        let file = done.join(FILE);
        let shared = self.share()?;
        let _making = self.making(&shared, &digest)?;
        if done.is_dir() {
            return Ok(file);
        }
        let draft = Draft::begin(&self.0.root.join(EROFS), &name)?;
        let disk = |source| ImageError::Disk { digest, source };
        let tree = read(&lease.root).map_err(disk)?;
        let path = draft.path().join(FILE);
        let out = File::create(&path).map_err(ImageError::files("write", &path))?;
        let options = Options { time_s: 0, uuid: uuid(&digest), label: "burrow" };
        write(&tree, &options, std::io::BufWriter::new(out))
            .map_err(|source| disk(source.into()))?;
        draft.finish()?;
        Ok(file)
    }
}

fn uuid(digest: &Digest) -> [u8; UUID_BYTES] {
    let hex = digest.hex();
    let mut uuid = [0; UUID_BYTES];
    uuid.copy_from_slice(&hex.as_bytes()[..UUID_BYTES]);
    uuid
}

/// A root as a tree whose contents stay where they are.
fn read(root: &Path) -> Result<Tree, DiskError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DiskError::Read { path, source }
    };
    let mut tree = Tree::new(describe(&fs::symlink_metadata(root).map_err(failed(root))?));
    let mut linked: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    let mut waiting = vec![(root.to_owned(), Vec::new())];
    while let Some((path, name)) = waiting.pop() {
        let found = fs::symlink_metadata(&path).map_err(failed(&path))?;
        let kind = found.file_type();
        let node = if kind.is_dir() {
            for entry in fs::read_dir(&path).map_err(failed(&path))? {
                let file = entry.map_err(failed(&path))?.file_name();
                let below = rootfs::tree::join(&name, file.as_bytes());
                waiting.push((path.join(file), below));
            }
            Kind::Directory(std::collections::BTreeMap::new())
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(failed(&path))?;
            Kind::Symlink(target.as_os_str().as_bytes().to_vec())
        } else if kind.is_fifo() {
            Kind::Fifo
        } else {
            // Hard links within the root stay links; those to other roots do not count.
            if found.nlink() > 1 {
                let inode = (found.dev(), found.ino());
                if let Some(first) = linked.get(&inode) {
                    tree.link(&name, &first.clone())?;
                    continue;
                }
                linked.insert(inode, name.clone());
            }
            Kind::File(Content::from_file(&path).map_err(failed(&path))?)
        };
        let mut node = Node::new(describe(&found), node);
        if kind.is_dir() || kind.is_file() {
            let held = open(&path).map_err(|errno| failed(&path)(errno.into()))?;
            let found = xattrs(&held).map_err(|errno| failed(&path)(errno.into()))?;
            node.xattrs = found.into_iter().collect();
        }
        if name.is_empty() {
            tree.node_mut(NodeId::ROOT).xattrs = node.xattrs;
        } else {
            tree.insert(&name, node)?;
        }
    }
    Ok(tree)
}

fn open(path: &Path) -> Result<OwnedFd, rustix::io::Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(
        rustix::fs::CWD,
        OsStr::from_bytes(path.as_os_str().as_bytes()),
        flags,
        Mode::empty(),
    )
}

fn describe(found: &fs::Metadata) -> Metadata {
    Metadata {
        mode: found.mode() as u16 & MODE_MASK,
        uid: found.uid(),
        gid: found.gid(),
        mtime_s: u64::try_from(found.mtime()).unwrap_or(0),
    }
}
