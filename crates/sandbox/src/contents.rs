//! The files of a sandbox on their way into its forks: read once from its agent into a file of this host,
//! and written from there into each fork before anything runs in it.
//!
//! The file has no name from its first byte on, so nothing of it is left, whatever happens. What is in it
//! comes from a guest, and only agents ever read it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::commit::{CommitError, read_frozen};
use crate::limits::{FORK_BLOCK_BYTES, FORK_MARGIN_BYTES, FORK_PIECE_BYTES};
use crate::snapshot::DRAFT_PREFIX;
use agent_client::guest::{Guest, Output, Written};
use archive::{Decoder, Entry, TarError};
use host::id::RandomId;
use host::paths::PRIVATE_FILE;
use image::digest::{Digest, Digester};

/// The files of a sandbox at one moment. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    file: Arc<File>,
    /// Of the archive.
    bytes: u64,
    pub tally: Tally,
}

/// What is in an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub entries: u64,
    /// Of the files.
    pub bytes: u64,
}

/// What was read of a sandbox for its forks.
#[derive(Debug)]
pub(crate) struct Reading {
    pub contents: Contents,
    /// Whether its programs were frozen meanwhile.
    pub is_frozen: bool,
}

/// Reads the layer that `output` brings into a file below `directory`. The files take at most `bytes_max` of
/// the disk, and something for their names.
pub(crate) async fn read(
    guest: &Guest,
    output: Output,
    directory: &Path,
    bytes_max: u64,
) -> Result<Reading, CommitError> {
    let file = unnamed(directory).map_err(CommitError::Disk)?;
    let max = bytes_max.saturating_add(FORK_MARGIN_BYTES);
    let (taken, is_frozen) =
        read_frozen(guest, output, false, move |archive| spool(archive, file, max)).await?;
    Ok(Reading { contents: taken.map_err(CommitError::Disk)?, is_frozen })
}

/// Reads an archive from a guest, and passes on each entry when all of its content was seen, with a digest of
/// that.
pub(crate) fn each_entry(
    mut archive: impl Read,
    mut take: impl FnMut(Entry, Digest),
) -> io::Result<()> {
    let (mut decoder, mut buffer) = (Decoder::new(), vec![0; FORK_PIECE_BYTES]);
    let mut open: Option<(Entry, Digester)> = None;
    loop {
        let count = archive.read(&mut buffer)?;
        if count == 0 {
            return decoder.finish().map_err(malformed);
        }
        let mut bytes = &buffer[..count];
        while let Some(event) = decoder.next_event(&mut bytes).map_err(malformed)? {
            match event {
                archive::Event::Entry(entry) => {
                    open = Some((entry, Digester::default()));
                }
                archive::Event::Content(content) => {
                    if let Some((_, digester)) = &mut open {
                        digester.update(content);
                    }
                }
                archive::Event::EndOfEntry => {
                    if let Some((entry, digester)) = open.take() {
                        take(entry, digester.finish());
                    }
                }
                archive::Event::EndOfArchive => {}
            }
        }
    }
}

fn malformed(error: TarError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A new file that has lost its name.
fn unnamed(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!("{DRAFT_PREFIX}{}", RandomId::draw()?));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(PRIVATE_FILE).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Writes an archive down and counts what is in it, with holes for its zeros: a sparse file takes no more here
/// than in the sandbox.
fn spool(mut archive: impl Read, mut file: File, bytes_max: u64) -> io::Result<Contents> {
    let (mut bytes, mut written) = (0_u64, 0_u64);
    let (mut decoder, mut tally) = (Decoder::new(), Tally::default());
    let mut block = vec![0; FORK_BLOCK_BYTES];
    loop {
        let count = fill(&mut archive, &mut block)?;
        let content = &block[..count];
        if content.iter().all(|byte| *byte == 0) {
            file.seek(SeekFrom::Current(count as i64))?;
        } else {
            written += count as u64;
            if written > bytes_max {
                let why =
                    format!("the sandbox sends more than the {bytes_max} bytes that it can have");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            file.write_all(content)?;
        }
        bytes += count as u64;
        tally.count(&mut decoder, content).map_err(malformed)?;
        if count < block.len() {
            decoder.finish().map_err(malformed)?;
            file.set_len(bytes)?;
            return Ok(Contents { file: Arc::new(file), bytes, tally });
        }
    }
}

/// Reads until the block is full, or to the end.
fn fill(from: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match from.read(&mut block[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

impl Tally {
    /// Counts what the next part of an archive begins.
    fn count(&mut self, decoder: &mut Decoder, mut part: &[u8]) -> Result<(), TarError> {
        while let Some(event) = decoder.next_event(&mut part)? {
            if let archive::Event::Entry(entry) = event {
                self.entries += 1;
                self.bytes += entry.kind.content_bytes();
            }
        }
        Ok(())
    }
}

impl Contents {
    /// Writes all of it into a sandbox.
    pub(crate) async fn put(&self, guest: &Guest) -> Result<Written, CommitError> {
        let mut upload = guest.layer_put().map_err(CommitError::Write)?;
        let mut at = 0;
        while at < self.bytes {
            let (file, left) = (Arc::clone(&self.file), self.bytes - at);
            let piece = tokio::task::spawn_blocking(move || {
                let mut piece =
                    vec![0; FORK_PIECE_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX))];
                file.read_exact_at(&mut piece, at).map(|()| piece)
            });
            let piece = piece.await.unwrap_or_else(|error| Err(io::Error::other(error)));
            let piece = piece.map_err(CommitError::Disk)?;
            at += piece.len() as u64;
            // The end says why it was refused.
            if upload.write(&piece).await.is_err() {
                break;
            }
        }
        upload.finish().await.map_err(CommitError::Write)
    }

    /// A reader of its own, from the beginning.
    pub(crate) fn reader(&self) -> impl Read + use<> {
        Reader { file: Arc::clone(&self.file), at: 0, end: self.bytes }
    }
}

struct Reader {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..wanted], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive with one file.
    fn archive_of(content: &[u8]) -> Vec<u8> {
        let size = content.len() as u64;
        let mut archive = Vec::new();
        let entry = Entry {
            path: b"data".to_vec(),
            kind: archive::Kind::File { size },
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime_s: 0,
            mtime_ns: 0,
        };
        archive::encode_entry(&entry, &mut archive).unwrap();
        archive.extend_from_slice(content);
        archive.extend_from_slice(archive::padding(size));
        archive.extend_from_slice(archive::END_OF_ARCHIVE);
        archive
    }

    #[test]
    fn zeros_take_no_room_and_what_is_too_much_is_refused() {
        let content = [vec![7; FORK_BLOCK_BYTES], vec![0; 1 << 20], vec![9; 100]].concat();
        let archive = archive_of(&content);
        let file = unnamed(&std::env::temp_dir()).unwrap();
        let bytes_max = 4 * FORK_BLOCK_BYTES as u64;
        let contents = spool(&archive[..], file, bytes_max).unwrap();
        let mut read = Vec::new();
        contents.reader().read_to_end(&mut read).unwrap();
        assert_eq!(read, archive);
        assert_eq!(contents.tally, Tally { entries: 1, bytes: content.len() as u64 });
        let file = unnamed(&std::env::temp_dir()).unwrap();
        let refused = spool(&archive[..], file, FORK_BLOCK_BYTES as u64).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn an_archive_that_is_cut_is_refused() {
        let archive = archive_of(&[7; 5000]);
        let file = unnamed(&std::env::temp_dir()).unwrap();
        let refused = spool(&archive[..4000], file, 1 << 20).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }
}
