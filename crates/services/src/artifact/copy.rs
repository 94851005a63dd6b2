//! One file on its way from a hostile guest to a content on the host's disk.
//!
//! A file is requested as an archive of itself, because an agent opens that path without following any
//! symlink, in the last component or before it: whatever is replaced between the listing and this, nothing
//! else is read. The archive's head says what was opened. The agent pads a file that became shorter, so it is
//! checked once more after the copy.

use archive::{Decoder, Entry, Event, Kind};
use protocol::Text;
use protocol::message::FileKind;
use tokio::sync::mpsc;

use super::blob::{Blobs, WrittenBlob};
use super::left_out::Reason;
use super::limits::PIECES_WAITING_MAX;
use agent_client::guest::{Guest, Output, Piece};

/// Copies the file at `path`, if it has no more than `bytes_max`.
pub async fn copy(
    guest: &Guest,
    path: &Text,
    blobs: &Blobs,
    bytes_max: impl FnOnce(u64) -> Result<(), Reason>,
) -> Result<WrittenBlob, Reason> {
    let mut reader = Reader {
        output: guest.tar_get(path.clone(), false).await?,
        decoder: Decoder::new(),
        piece: Vec::new(),
        at: 0,
    };
    let entry = reader.entry().await?;
    let Kind::File { size } = entry.kind else { return Err(kind(&entry)) };
    bytes_max(size)?;
    let whole = carry(&mut reader, blobs).await?;
    drop(reader);
    if whole.bytes != size {
        return Err(Reason::Changed { before: size, after: whole.bytes });
    }
    let now = guest.stat(path.clone(), false).await?;
    if now.kind != FileKind::File {
        return Err(Reason::of_kind(now.kind));
    }
    if now.bytes != size || now.modified_ms != modified_ms(&entry) {
        return Err(Reason::Changed { before: size, after: now.bytes });
    }
    Ok(whole)
}

/// Keeps bytes that are here already.
pub async fn store(bytes: Vec<u8>, blobs: &Blobs) -> Result<WrittenBlob, Reason> {
    let blobs = blobs.clone();
    let written = tokio::task::spawn_blocking(move || {
        let mut begun = blobs.begin()?;
        begun.write(&bytes)?;
        begun.finish()
    });
    written.await.map_err(|error| Reason::host(&error))?.map_err(|error| Reason::host(&error))
}

fn kind(entry: &Entry) -> Reason {
    Reason::of_kind(match entry.kind {
        Kind::Directory => FileKind::Directory,
        Kind::Symlink { .. } => FileKind::Symlink,
        Kind::Fifo => FileKind::Fifo,
        Kind::CharDevice { .. } | Kind::BlockDevice { .. } => FileKind::CharDevice,
        Kind::File { .. } | Kind::HardLink { .. } => FileKind::File,
    })
}

fn modified_ms(entry: &Entry) -> i64 {
    entry.mtime_s.saturating_mul(1000).saturating_add(i64::from(entry.mtime_ns / 1_000_000))
}

/// Takes the content to a thread that may wait for the disk.
async fn carry(reader: &mut Reader, blobs: &Blobs) -> Result<WrittenBlob, Reason> {
    let (pieces, mut waiting) = mpsc::channel::<Vec<u8>>(PIECES_WAITING_MAX);
    let blobs = blobs.clone();
    let writing = tokio::task::spawn_blocking(move || {
        let mut begun = blobs.begin()?;
        while let Some(piece) = waiting.blocking_recv() {
            // A content that ends early was abandoned.
            if piece.is_empty() {
                return begun.finish();
            }
            begun.write(&piece)?;
        }
        Err(std::io::ErrorKind::UnexpectedEof.into())
    });
    let mut read = Ok(());
    loop {
        let piece = match reader.content().await {
            Ok(piece) => piece,
            Err(reason) => {
                read = Err(reason);
                break;
            }
        };
        let is_last = piece.is_empty();
        // A writer that has given up says why below.
        if pieces.send(piece).await.is_err() || is_last {
            break;
        }
    }
    drop(pieces);
    let written = writing.await.map_err(|error| Reason::host(&error))?;
    read?;
    written.map_err(|error| Reason::host(&error))
}

/// An archive of one file, event by event.
struct Reader {
    output: Output,
    decoder: Decoder,
    piece: Vec<u8>,
    at: usize,
}

enum CopyEvent {
    Entry(Entry),
    Content(Vec<u8>),
    End,
}

impl Reader {
    async fn entry(&mut self) -> Result<Entry, Reason> {
        match self.next().await? {
            CopyEvent::Entry(entry) => Ok(entry),
            CopyEvent::Content(_) | CopyEvent::End => {
                Err(Reason::Malformed { what: "no file".to_owned() })
            }
        }
    }

    /// The next bytes of the content; none at its end.
    async fn content(&mut self) -> Result<Vec<u8>, Reason> {
        match self.next().await? {
            CopyEvent::Content(bytes) => Ok(bytes),
            CopyEvent::End => Ok(Vec::new()),
            CopyEvent::Entry(_) => Err(Reason::Malformed { what: "two files".to_owned() }),
        }
    }

    async fn next(&mut self) -> Result<CopyEvent, Reason> {
        loop {
            let mut input = &self.piece[self.at..];
            let event = self.decoder.next_event(&mut input);
            let event = event.map_err(|error| Reason::Malformed { what: error.to_string() })?;
            let next = match event {
                Some(Event::Entry(entry)) => Some(CopyEvent::Entry(entry)),
                Some(Event::Content(bytes)) => Some(CopyEvent::Content(bytes.to_vec())),
                Some(Event::EndOfEntry | Event::EndOfArchive) => Some(CopyEvent::End),
                None => None,
            };
            self.at = self.piece.len() - input.len();
            if let Some(next) = next {
                return Ok(next);
            }
            self.at = 0;
            self.piece = match self.output.next().await {
                Piece::Bytes { bytes, .. } => bytes,
                Piece::Gap { .. } => {
                    return Err(Reason::Malformed { what: "a gap".to_owned() });
                }
                Piece::End => {
                    return Err(Reason::Malformed { what: "a part of it".to_owned() });
                }
                Piece::Failed(error) => return Err(error.into()),
            };
        }
    }
}
