//! Copies from the host into a sandbox.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use protocol::FaultCode;
use protocol::message::FileKind;
use protocol::requests::WriteMode;
use tokio::sync::{mpsc, oneshot};

use super::super::exit::Exit;
use super::super::failure::CliError;
use super::super::output::{self, printable};
use super::Cp;
use super::endpoint::{self, GuestPath};
use super::pack::{PackError, Packed, pack};
use super::progress::Progress;
use agent_client::guest::{FileTarget, Guest, Upload};

/// How much is read from a file at once.
const READ_BYTES: usize = 256 * 1024;
/// Pieces buffered between the disk and the link.
const PIECES_WAITING_MAX: usize = 4;
/// Mode bits that a copy keeps: a file that is set-id here must not be set-id there.
const MODE_KEPT: u32 = 0o777;
/// The mode of a new file from stdin: the agent's default.
const MODE_OF_STDIN: Option<u32> = None;

impl Cp {
    /// Copies a file or directory of the host.
    pub(super) async fn send(&self, guest: &Guest, from: &Path, to: &GuestPath) -> Result<Exit> {
        let unreadable = |source| CliError::Unreadable { path: from.to_path_buf(), source };
        let metadata = std::fs::metadata(from).map_err(unreadable)?;
        if metadata.is_dir() {
            return self.send_tree(guest, from, to).await;
        }
        if !metadata.is_file() {
            let path = from.display().to_string();
            return Err(CliError::NotCopyable { path, kind: "device, pipe or socket" }.into());
        }
        let name = from.file_name().map(|name| name.to_string_lossy().into_owned());
        let path = match (is_directory(guest, to).await?, name) {
            (true, Some(name)) => to.join(&name),
            (false, _) if to.wants_directory() && !self.parents => {
                return Err(CliError::NoGuestDirectory(to.path.clone()).into());
            }
            (false, Some(name)) if to.wants_directory() => to.join(&name),
            _ => to.path.clone(),
        };
        let owners = self.archive.then_some((metadata.uid(), metadata.gid()));
        let upload = guest.write_file(FileTarget {
            path: path.as_str().into(),
            mode: WriteMode::Replace {},
            permissions: Some(metadata.permissions().mode() & MODE_KEPT),
            uid: owners.map(|(uid, _)| uid),
            gid: owners.map(|(_, gid)| gid),
            parents: self.parents,
        })?;
        let mut progress = Progress::new(&path, Some(metadata.len()), self.quiet);
        let file = File::open(from).map_err(unreadable)?;
        let (pieces, reading) = read_pieces(file);
        carry(upload, pieces, &mut progress).await.with_context(|| path.clone())?;
        reading.await?.map_err(unreadable)?;
        Ok(Exit::SUCCESS)
    }

    async fn send_tree(&self, guest: &Guest, from: &Path, to: &GuestPath) -> Result<Exit> {
        let exists = is_directory(guest, to).await?;
        let contents = endpoint::wants_contents(&from.to_string_lossy());
        // `src` into an existing directory keeps its name; otherwise it gets the one it is sent to.
        let (base, name) = if contents {
            (to.path.clone(), None)
        } else if exists {
            let real = from.canonicalize()?;
            let name = real.file_name().ok_or(CliError::RootHasNoName)?;
            (to.path.clone(), Some(name.as_bytes().to_vec()))
        } else {
            let name = endpoint::base_name(&to.path).ok_or(CliError::RootHasNoName)?;
            (endpoint::parent(&to.path).to_owned(), Some(name.as_bytes().to_vec()))
        };
        let upload = guest.tar_put(base.as_str(), self.archive, self.parents || contents)?;
        let mut progress = Progress::new(&to.path, None, self.quiet);
        let (pieces, packing) = pack_pieces(from.to_path_buf(), name);
        let carried = carry(upload, pieces, &mut progress).await;
        // A disk error explains why the archive arrived incomplete.
        let packed = match packing.await? {
            Err(PackError::Unwanted) => Packed::default(),
            packed => packed?,
        };
        carried.with_context(|| to.path.clone())?;
        for left_out in &packed.left_out {
            output::note(&format!(
                "{}: skipped, because it is neither a file nor a directory",
                left_out.display()
            ));
        }
        Ok(Exit::SUCCESS)
    }

    /// Copies our stdin.
    pub(super) async fn store(&self, guest: &Guest, to: &GuestPath) -> Result<Exit> {
        let upload = if self.tar || to.wants_directory() || is_directory(guest, to).await? {
            guest.tar_put(to.path.as_str(), self.archive, self.parents)?
        } else {
            guest.write_file(FileTarget {
                path: to.path.as_str().into(),
                mode: WriteMode::Replace {},
                permissions: MODE_OF_STDIN,
                uid: None,
                gid: None,
                parents: self.parents,
            })?
        };
        let mut progress = Progress::new(&to.path, None, self.quiet);
        let (pieces, reading) = read_pieces(std::io::stdin());
        carry(upload, pieces, &mut progress).await.with_context(|| to.path.clone())?;
        let unreadable = |source| CliError::Unreadable { path: "stdin".into(), source };
        reading.await?.map_err(unreadable)?;
        Ok(Exit::SUCCESS)
    }
}

/// A thread's result, and its pieces until then. An empty piece marks the end; a channel that
/// closes without one means that the thread failed.
type Pieces<T, E> = (mpsc::Receiver<Vec<u8>>, oneshot::Receiver<Result<T, E>>);

fn read_pieces(mut source: impl Read + Send + 'static) -> Pieces<(), std::io::Error> {
    let (pieces, receiver) = mpsc::channel(PIECES_WAITING_MAX);
    let (outcome, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let mut read = || {
            loop {
                let mut piece = Vec::with_capacity(READ_BYTES);
                source.by_ref().take(READ_BYTES as u64).read_to_end(&mut piece)?;
                let last = piece.is_empty();
                if pieces.blocking_send(piece).is_err() || last {
                    return Ok(());
                }
            }
        };
        let _ = outcome.send(read());
    });
    (receiver, ended)
}

fn pack_pieces(root: PathBuf, name: Option<Vec<u8>>) -> Pieces<Packed, PackError> {
    let (pieces, receiver) = mpsc::channel(PIECES_WAITING_MAX);
    let (outcome, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let packed = pack(&root, name.as_deref(), |piece| pieces.blocking_send(piece).is_ok());
        if packed.is_ok() {
            let _ = pieces.blocking_send(Vec::new());
        }
        let _ = outcome.send(packed);
    });
    (receiver, ended)
}

/// Copies pieces into an upload. Without the final piece it is not finished, and the sandbox keeps its old
/// file.
async fn carry(
    mut upload: Upload,
    mut pieces: mpsc::Receiver<Vec<u8>>,
    progress: &mut Progress,
) -> Result<()> {
    while let Some(piece) = pieces.recv().await {
        if piece.is_empty() {
            upload.finish().await?;
            return Ok(());
        }
        upload.write(&piece).await?;
        progress.add(piece.len() as u64);
    }
    Ok(())
}

async fn is_directory(guest: &Guest, to: &GuestPath) -> Result<bool> {
    match guest.stat(to.path.as_str(), true).await {
        Ok(info) => Ok(info.kind == FileKind::Directory),
        Err(error) if error.fault_code() == Some(FaultCode::NotFound) => Ok(false),
        Err(error) => Err(error).with_context(|| printable(&to.path)),
    }
}
