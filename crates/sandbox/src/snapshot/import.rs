//! Reads an archive into a draft of a snapshot: member by member, in the one order that there is, each byte
//! compared with the manifest's digests before the snapshot gets its name.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use ::archive::{Decoder, Event, Kind};
use bytes::{Buf, Bytes};
use image::digest::{Digest, Digester};
use tokio::sync::mpsc;

use super::archive::{ArchiveError, ArchiveManifest, DIGEST, MANIFEST, Part};
use crate::limits::SNAPSHOT_MANIFEST_BYTES_MAX;
use host::paths::PRIVATE_FILE;

/// The unit in which zeros become holes again.
const BLOCK_BYTES: usize = 4096;
/// A digest as text, with the end of its line.
const DIGEST_BYTES_MAX: u64 = 128;

/// Reads one archive from pieces. Blocks while it waits for the next.
pub(crate) struct ArchiveReader {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
    decoder: Decoder,
}

impl ArchiveReader {
    pub(crate) fn new(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self { pieces, piece: Bytes::new(), decoder: Decoder::new() }
    }

    /// The manifest, after its digest was compared.
    pub(crate) fn manifest(&mut self) -> Result<ArchiveManifest, ArchiveError> {
        let text = self.text(MANIFEST, SNAPSHOT_MANIFEST_BYTES_MAX)?;
        let stated = self.text(DIGEST, DIGEST_BYTES_MAX)?;
        let wanted = String::from_utf8_lossy(&stated).trim_end().parse::<Digest>()?;
        let found = Digest::of(&text);
        if found != wanted {
            return Err(ArchiveError::Digest { what: MANIFEST, wanted, found });
        }
        ArchiveManifest::parse(&text)
    }

    /// Writes a part into the directory of a draft, durably.
    pub(super) fn part(&mut self, part: &Part, directory: &Path) -> Result<(), ArchiveError> {
        let what = part.name.member();
        let size = self.member(what)?;
        if size != part.data_bytes() {
            let why = "the size of a part in the archive is not that of its extents";
            return Err(ArchiveError::Contradiction { why });
        }
        let failed = || ArchiveError::files("write");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(PRIVATE_FILE);
        let file = options.open(directory.join(part.name.file())).map_err(failed())?;
        file.set_len(part.bytes).map_err(failed())?;
        let mut digester = Digester::default();
        let mut extents = part.extents.iter().copied();
        let (mut at, mut left) = (0, 0);
        self.content(|mut bytes| {
            digester.update(bytes);
            while !bytes.is_empty() {
                if left == 0 {
                    // As many bytes come as the extents have together.
                    (at, left) = extents.next().unwrap_or((part.bytes, u64::MAX));
                }
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                write_at(&file, &bytes[..count], at)?;
                bytes = &bytes[count..];
                (at, left) = (at + count as u64, left - count as u64);
            }
            Ok(())
        })?;
        let found = digester.finish();
        if found != part.digest {
            return Err(ArchiveError::Digest { what, wanted: part.digest, found });
        }
        file.sync_all().map_err(failed())
    }

    /// Makes sure that nothing follows.
    pub(super) fn end(&mut self) -> Result<(), ArchiveError> {
        let found = self.event(|event| match event {
            Event::EndOfArchive => None,
            Event::Entry(entry) => Some(shown(&entry.path)),
            Event::Content(_) | Event::EndOfEntry => Some("more".to_owned()),
        })?;
        match found {
            None => Ok(()),
            Some(found) => {
                Err(ArchiveError::Member { found, wanted: "the end of the archive".to_owned() })
            }
        }
    }

    /// A member that is a short text.
    fn text(&mut self, name: &'static str, bytes_max: u64) -> Result<Vec<u8>, ArchiveError> {
        let bytes = self.member(name)?;
        if bytes > bytes_max {
            return Err(ArchiveError::TooLarge { what: name, bytes, bytes_max });
        }
        let mut text = Vec::with_capacity(bytes as usize);
        self.content(|bytes| {
            text.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(text)
    }

    /// The beginning of the member that must come next, and its size.
    fn member(&mut self, wanted: &'static str) -> Result<u64, ArchiveError> {
        let found = self.event(|event| match event {
            Event::Entry(entry) => match entry.kind {
                Kind::File { size } if entry.path == wanted.as_bytes() => Ok(size),
                Kind::File { .. } => Err(shown(&entry.path)),
                _ => Err(format!("{}, which is no file,", shown(&entry.path))),
            },
            Event::EndOfArchive => Err("its end".to_owned()),
            Event::Content(_) | Event::EndOfEntry => Err("more".to_owned()),
        })?;
        found.map_err(|found| ArchiveError::Member { found, wanted: wanted.to_owned() })
    }

    fn content(
        &mut self,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), ArchiveError> {
        loop {
            let is_over = self.event(|event| match event {
                Event::Content(bytes) => take(bytes).map(|()| false),
                _ => Ok(true),
            })?;
            if is_over.map_err(ArchiveError::files("write"))? {
                return Ok(());
            }
        }
    }

    fn event<T>(&mut self, take: impl FnOnce(Event<'_>) -> T) -> Result<T, ArchiveError> {
        loop {
            let mut rest = &self.piece[..];
            let event = self.decoder.next_event(&mut rest)?;
            let used = self.piece.len() - rest.len();
            if let Some(event) = event {
                let taken = take(event);
                self.piece.advance(used);
                return Ok(taken);
            }
            self.piece = self.pieces.blocking_recv().ok_or(ArchiveError::Truncated)?;
        }
    }
}

/// Writes what is not zero, by blocks of the file; the rest of the file is a hole already.
fn write_at(file: &std::fs::File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let to_next = BLOCK_BYTES - (at % BLOCK_BYTES as u64) as usize;
        let (block, rest) = bytes.split_at(to_next.min(bytes.len()));
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, at)?;
        }
        (bytes, at) = (rest, at + block.len() as u64);
    }
    Ok(())
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).chars().take(NAME_CHARS_SHOWN).collect()
}

/// How much of a foreign member's name a refusal says.
const NAME_CHARS_SHOWN: usize = 80;
