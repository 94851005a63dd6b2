//! Writes a snapshot as an archive. Its files are open from the beginning, so that a removal meanwhile takes
//! nothing away from it.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ::archive::{END_OF_ARCHIVE, padding};
use bytes::Bytes;
use image::digest::{Digest, Digester};
use tokio::sync::mpsc;

use super::archive::{
    ArchiveError, ArchiveManifest, DIGEST, FORMAT, MANIFEST, Part, PartName, header, require_export,
};
use super::{Hold, Snapshot};
use crate::limits::{SNAPSHOT_HOLE_BYTES_MIN, SNAPSHOT_PIECE_BYTES, SNAPSHOT_PIECES_WAITING_MAX};
use host::sparse::data_extents;
use machine::vmm::Manifest;

/// A snapshot that is about to be written. The policy does not remove the snapshot while this is held.
#[derive(Debug)]
pub struct Export {
    bytes: u64,
    members: Vec<Member>,
    _hold: Hold,
}

#[derive(Debug)]
struct Member {
    header: Vec<u8>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Text(Vec<u8>),
    Part(File, Part),
}

impl Content {
    fn bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Part(_, part) => part.data_bytes(),
        }
    }
}

impl Export {
    /// Opens the files in the directory of a snapshot and computes their digests. Blocks.
    pub(super) fn open(
        snapshot: Snapshot,
        directory: &Path,
        hold: Hold,
    ) -> Result<Self, ArchiveError> {
        // Before the digests, which take long.
        require_export(snapshot.machine)?;
        let machine = Manifest::read(&directory.join(super::MACHINE))
            .map_err(io::Error::other)
            .map_err(ArchiveError::files("read"))?;
        let mut files = Vec::new();
        for name in [PartName::Memory, PartName::Scratch, PartName::Names] {
            match File::open(directory.join(name.file())) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if name == PartName::Memory {
                        return Err(ArchiveError::files("open")(error));
                    }
                }
                opened => files.push((name, opened.map_err(ArchiveError::files("open"))?)),
            }
        }
        let describe = |(name, file): &(PartName, File)| describe(*name, file);
        let parts: Vec<_> = files
            .iter()
            .map(describe)
            .collect::<io::Result<_>>()
            .map_err(ArchiveError::files("read"))?;
        let manifest = ArchiveManifest { format: FORMAT, snapshot, machine, parts };
        let text = serde_json::to_vec(&manifest)?;
        // One that its reader would refuse is not written.
        ArchiveManifest::parse(&text)?;
        let digest = format!("{}\n", Digest::of(&text)).into_bytes();
        let documents = [(MANIFEST, Content::Text(text)), (DIGEST, Content::Text(digest))];
        let parts = files.into_iter().zip(manifest.parts);
        let parts = parts.map(|((name, file), part)| (name.member(), Content::Part(file, part)));
        let members = documents
            .into_iter()
            .chain(parts)
            .map(|(name, content)| Ok(Member { header: header(name, content.bytes())?, content }));
        let members: Vec<_> = members.collect::<Result<_, ArchiveError>>()?;
        let sizes = members.iter().map(|Member { header, content }| {
            let bytes = content.bytes();
            header.len() as u64 + bytes + padding(bytes).len() as u64
        });
        let bytes = super::sum(sizes).saturating_add(END_OF_ARCHIVE.len() as u64);
        Ok(Self { bytes, members, _hold: hold })
    }

    /// The length of the archive.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the archive. Blocks.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut buffer = vec![0; SNAPSHOT_PIECE_BYTES];
        for Member { header, content } in &self.members {
            out.write_all(header)?;
            match content {
                Content::Text(text) => out.write_all(text)?,
                Content::Part(file, part) => {
                    read_extents(file, &part.extents, &mut buffer, |bytes| out.write_all(bytes))?;
                }
            }
            out.write_all(padding(content.bytes()))?;
        }
        out.write_all(END_OF_ARCHIVE)?;
        out.flush()
    }

    /// The archive in pieces. Without an error at the end it is whole.
    pub fn pieces(self) -> mpsc::Receiver<io::Result<Bytes>> {
        let (send, pieces) = mpsc::channel(SNAPSHOT_PIECES_WAITING_MAX);
        tokio::task::spawn_blocking(move || {
            let mut out = io::BufWriter::with_capacity(SNAPSHOT_PIECE_BYTES, Pieces(&send));
            if let Err(error) = self.write(&mut out) {
                // A reader who has gone does not want to know.
                let _ = send.blocking_send(Err(error));
            }
        });
        pieces
    }
}

struct Pieces<'a>(&'a mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn describe(name: PartName, file: &File) -> io::Result<Part> {
    let bytes = file.metadata()?.len();
    let extents = data_extents(file, SNAPSHOT_HOLE_BYTES_MIN)?;
    let (mut digester, mut buffer) = (Digester::default(), vec![0; SNAPSHOT_PIECE_BYTES]);
    read_extents(file, &extents, &mut buffer, |bytes| {
        digester.update(bytes);
        Ok(())
    })?;
    Ok(Part { name, bytes, digest: digester.finish(), extents })
}

fn read_extents(
    file: &File,
    extents: &[(u64, u64)],
    buffer: &mut [u8],
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    for (offset, length) in extents {
        let (mut at, end) = (*offset, offset + length);
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            file.read_exact_at(&mut buffer[..wanted], at)?;
            take(&buffer[..wanted])?;
            at += wanted as u64;
        }
    }
    Ok(())
}
