//! Sends the host's tree as a tar archive into an empty `/workspace`. A blocking thread reads the tree,
//! and the archive is sent while it is read.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use archive::{END_OF_ARCHIVE, Entry, Kind as Archived, encode_entry, padding};
use protocol::requests::{MakeDirectory, Remove};
use ring::digest::{Context, SHA256};
use tokio::sync::mpsc;

use super::error::shown;
use super::guest::{is_gone, walk};
use super::limits::{DEPTH_MAX, PIECE_BYTES, PIECES_WAITING_MAX};
use super::manifest::{Digest, HostStamp, Kind, KnownPath, Manifest};
use super::policy::Count;
use super::report::Report;
use super::tree::{self, Tree, TreeEntry, digest_of, digest_of_link, is_leftover, is_temporary};
use super::{Policy, TransferCounter, WORKSPACE, WorkspaceError};
use agent_client::guest::Guest;
use host::byte_path::join;

const DIRECTORY_MODE: u32 = 0o755;

/// The content of the archive.
#[derive(Default)]
struct PackedTree {
    host: BTreeMap<Vec<u8>, (Kind, HostStamp, Digest)>,
    /// Bytes of files.
    bytes: u64,
    report: Report,
}

/// Makes an empty directory for the workspace. Only for a guest that has none yet: it would delete the files
/// of a mounted one.
pub async fn clear(guest: &Guest) -> Result<(), WorkspaceError> {
    // What an image or a snapshot has there does not come from the host.
    match guest.remove(Remove { path: WORKSPACE.into(), recursive: true }).await {
        Err(error) if !is_gone(&error) => return Err(error.into()),
        _ => {}
    }
    let (path, permissions) = (WORKSPACE.into(), Some(DIRECTORY_MODE));
    guest.make_directory(MakeDirectory { path, permissions, parents: true }).await?;
    Ok(())
}

/// Fills the guest's workspace, and records what both sides have.
pub async fn send(
    guest: &Guest,
    tree: &Arc<Tree>,
    policy: &Policy,
    manifest: &mut Manifest,
    carried: &TransferCounter,
) -> Result<Report, WorkspaceError> {
    clear(guest).await?;
    let (pieces, mut waiting) = mpsc::channel::<Vec<u8>>(PIECES_WAITING_MAX);
    let (packing, bounds) = (Arc::clone(tree), policy.clone());
    let packed = tokio::task::spawn_blocking(move || {
        let take = |piece| pieces.blocking_send(piece).is_ok();
        let count = Count::new(bounds.entries_max);
        Packer { tree: &packing, policy: &bounds, take, piece: Vec::new(), total: 0, count }.pack()
    });
    let mut upload = guest.tar_put(WORKSPACE, false, true)?.of_the_bridge();
    let mut sent = Ok(());
    while let Some(piece) = waiting.recv().await {
        sent = upload.write(&piece).await;
        if sent.is_err() {
            break;
        }
    }
    drop(waiting);
    let packed = packed.await.map_err(|error| WorkspaceError::Manifest(error.into()))?;
    // A guest that stopped reading is why the archive was not packed to its end.
    sent?;
    let packed = packed?;
    upload.finish().await?;
    carried.send(packed.bytes);
    let seens = walk(guest, policy.entries_max).await?;
    let host = packed.host.into_iter();
    manifest.known = host
        .filter_map(|(path, (kind, stamp, digest))| {
            let seen = seens.get(&path).filter(|seen| seen.kind == Some(kind))?;
            let host = Some((stamp, digest));
            Some((path, KnownPath { kind, guest: seen.stamp.clone(), settled: true, host }))
        })
        .collect();
    Ok(packed.report)
}

struct Packer<'a, T> {
    tree: &'a Tree,
    policy: &'a Policy,
    take: T,
    piece: Vec<u8>,
    total: u64,
    count: Count,
}

impl<T: FnMut(Vec<u8>) -> bool> Packer<'_, T> {
    fn pack(mut self) -> Result<PackedTree, WorkspaceError> {
        let mut packed = PackedTree::default();
        let mut waiting = vec![(Vec::new(), 0_usize)];
        while let Some((directory, depth)) = waiting.pop() {
            let list = self.tree.list(&directory);
            for found in list.map_err(|errno| WorkspaceError::file(&directory, errno))? {
                let path = join(&directory, &found.name);
                if is_temporary(&found.name) {
                    if is_leftover(&found) {
                        let _ = self.tree.remove(&path, Kind::File);
                    }
                    continue;
                }
                let Some(kind) = found.kind else {
                    packed.report.refuse(&path, "devices, pipes and sockets are not copied");
                    continue;
                };
                let digest = self.entry(&path, kind, &found)?;
                if kind == Kind::Directory {
                    if depth + 1 >= DEPTH_MAX {
                        let path = shown(&path);
                        return Err(WorkspaceError::TooDeep { path, depth_max: DEPTH_MAX });
                    }
                    waiting.push((path.clone(), depth + 1));
                }
                packed.host.insert(path, (kind, found.stamp, digest));
            }
        }
        self.append(END_OF_ARCHIVE)?;
        self.flush()?;
        packed.bytes = self.total;
        Ok(packed)
    }

    fn entry(
        &mut self,
        path: &[u8],
        kind: Kind,
        found: &TreeEntry,
    ) -> Result<Digest, WorkspaceError> {
        match kind {
            Kind::Directory => {
                self.count.add(path, b"")?;
                self.header(path, found, Archived::Directory)?;
                Ok(Digest::default())
            }
            Kind::Link => {
                let target = self.tree.read_link(path);
                let target = target.map_err(|errno| WorkspaceError::file(path, errno))?;
                self.count.add(path, &target)?;
                let digest = digest_of_link(&target);
                self.header(path, found, Archived::Symlink { target })?;
                Ok(digest)
            }
            Kind::File => {
                self.count.add(path, b"")?;
                self.file(path, found)
            }
        }
    }

    fn file(&mut self, path: &[u8], found: &TreeEntry) -> Result<Digest, WorkspaceError> {
        let failed = |source: std::io::Error| WorkspaceError::file(path, source);
        let file = self.tree.open_file(path).map_err(|errno| failed(errno.into()))?;
        // The size of the opened file: the name may mean another one by now.
        let size = file.metadata().map_err(failed)?.len();
        let Policy { file_bytes_max, total_bytes_max, .. } = *self.policy;
        if size > file_bytes_max {
            let path = shown(path);
            return Err(WorkspaceError::FileTooLarge {
                path,
                bytes: size,
                bytes_max: file_bytes_max,
            });
        }
        self.total = self.total.saturating_add(size);
        if self.total > total_bytes_max {
            return Err(WorkspaceError::TooLarge { bytes_max: total_bytes_max });
        }
        self.header(path, found, Archived::File { size })?;
        let (mut file, mut left) = (file.take(size), size);
        let mut context = Context::new(&SHA256);
        while left > 0 {
            let room = PIECE_BYTES.saturating_sub(self.piece.len());
            if room == 0 {
                self.flush()?;
                continue;
            }
            let begin = self.piece.len();
            let read = (&mut file).take(room as u64).read_to_end(&mut self.piece);
            let count = read.map_err(failed)?;
            if count == 0 {
                return Err(WorkspaceError::Shrunk { path: shown(path) });
            }
            context.update(&self.piece[begin..]);
            left -= count as u64;
        }
        self.append(padding(size))?;
        Ok(digest_of(context))
    }

    fn header(
        &mut self,
        path: &[u8],
        found: &TreeEntry,
        kind: Archived,
    ) -> Result<(), WorkspaceError> {
        let (mtime_s, mtime_ns) = found.stamp.modified;
        let entry = Entry {
            path: path.to_vec(),
            kind,
            mode: found.mode & tree::MODE_KEPT,
            uid: found.uid,
            gid: found.gid,
            mtime_s,
            mtime_ns,
        };
        let mut header = Vec::new();
        encode_entry(&entry, &mut header)
            .map_err(|error| WorkspaceError::file(path, std::io::Error::other(error)))?;
        self.append(&header)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), WorkspaceError> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), WorkspaceError> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        // The reader reports why it takes no more.
        if piece.is_empty() || (self.take)(piece) { Ok(()) } else { Err(WorkspaceError::Ended) }
    }
}
