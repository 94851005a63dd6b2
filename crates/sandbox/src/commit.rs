//! Saves a sandbox's files as an image. Its programs are frozen while the files are read, so that these are
//! consistent. They are thawed afterwards, and by themselves if this bridge is gone.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use protocol::FaultCode;
use protocol::limits::FREEZE_WATCHDOG_MAX;

use super::{SandboxError, SandboxRef};
use agent_client::guest::{Guest, GuestError, Output, Piece};
use image::reference::Reference;
use image::{Image, Images};

/// Pieces of the archive that wait between the link and the disk.
const PIECES_WAITING_MAX: usize = 4;

/// Why a sandbox was not saved as an image, besides errors of the image itself.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("its files cannot be read: {0}")]
    Read(GuestError),
    #[error("its programs cannot be paused: {0}")]
    Freeze(GuestError),
    #[error("its files cannot be written: {0}")]
    Write(GuestError),
    #[error("its files cannot be kept on the way: {0}")]
    Disk(#[source] io::Error),
    #[error("reading its files took longer than {} s, so its programs were resumed", FREEZE_WATCHDOG_MAX.as_secs())]
    Slow,
}

/// Saves the files of a sandbox of `base` as an image.
pub(super) async fn commit(
    guest: Guest,
    images: Images,
    base: Image,
    which: &SandboxRef,
    name: Reference,
) -> Result<Image, SandboxError> {
    let source = format!("commit of {which}");
    let taken = move |archive| images.commit(&base, archive, &name, &source);
    Ok(files(&guest, which, taken).await??)
}

/// Passes the archive of a sandbox's files to `take`, all from one moment.
pub(super) async fn files<T: Send + 'static>(
    guest: &Guest,
    which: &SandboxRef,
    take: impl FnOnce(Archive) -> T + Send + 'static,
) -> Result<T, SandboxError> {
    let reading = async {
        let output = guest.tar_get("/", false).await.map_err(CommitError::Read)?;
        read_frozen(guest, output, true, take).await
    };
    let read = reading.await;
    read.map(|(taken, _)| taken)
        .map_err(|source| SandboxError::Commit { which: which.clone(), source: Box::new(source) })
}

/// Passes an archive that is on its way to `take`, with the programs frozen meanwhile, and says whether they
/// were. Where nothing can be frozen, it fails if they `must` be.
pub(super) async fn read_frozen<T: Send + 'static>(
    guest: &Guest,
    output: Output,
    must: bool,
    take: impl FnOnce(Archive) -> T + Send + 'static,
) -> Result<(T, bool), CommitError> {
    // An open reading continues in a frozen sandbox; a new one would be refused.
    let is_frozen = match guest.freeze(FREEZE_WATCHDOG_MAX).await {
        Ok(_) => true,
        Err(error) if !must && error.fault_code() == Some(FaultCode::Unsupported) => false,
        Err(error) => return Err(CommitError::Freeze(error)),
    };
    let (pieces, taken) = sync_channel(PIECES_WAITING_MAX);
    let writing =
        tokio::task::spawn_blocking(move || take(Archive { taken, piece: Vec::new(), at: 0 }));
    let read = tokio::time::timeout(FREEZE_WATCHDOG_MAX, hand_on(output, pieces)).await;
    if is_frozen {
        // It may have thawed by itself, or be gone.
        let _ = tokio::time::timeout(FREEZE_WATCHDOG_MAX, guest.thaw()).await;
    }
    let written = writing.await.map_err(|error| CommitError::Disk(io::Error::other(error)))?;
    read.map_err(|_| CommitError::Slow)?.map_err(CommitError::Read)?;
    Ok((written, is_frozen))
}

/// Passes the pieces of an archive to its reader, until the end or until the reader stops.
async fn hand_on(
    mut output: Output,
    pieces: SyncSender<io::Result<Vec<u8>>>,
) -> Result<(), GuestError> {
    loop {
        let (piece, failed) = match output.next().await {
            Piece::Bytes { bytes, .. } => (Ok(bytes), None),
            Piece::End => return Ok(()),
            Piece::Gap { .. } => {
                let error = GuestError::Malformed { what: "a gap in an archive" };
                (Err(io::ErrorKind::UnexpectedEof.into()), Some(error))
            }
            Piece::Failed(error) => (Err(io::ErrorKind::UnexpectedEof.into()), Some(error)),
        };
        let pieces = pieces.clone();
        // Unpacking waits for a disk, and this thread must not wait for that.
        let sent = tokio::task::spawn_blocking(move || pieces.send(piece).is_ok()).await;
        if let Some(error) = failed {
            return Err(error);
        }
        if !sent.unwrap_or(false) {
            return Ok(());
        }
    }
}

/// The archive as it comes.
pub struct Archive {
    taken: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.taken.recv() {
                Ok(piece) => (self.piece, self.at) = (piece?, 0),
                // The archive contains its end, so its reader notices a truncated one.
                Err(_) => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
