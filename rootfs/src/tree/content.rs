//! The bytes of a file, where they are: in memory, or a slice of a file of the host.
//!
//! Writers read them through [`ContentReader`], which keeps the file it read last open, because
//! thousands of files of one package are slices of one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::digest::{Hasher, Sha256};

/// A file's content as pieces in a row.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pieces: Vec<Piece>,
    /// The digest of the whole, if it is known already.
    sha256: Option<Sha256>,
}

/// Some bytes in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Bytes(Arc<[u8]>),
    Slice { file: Arc<Path>, offset: u64, bytes: u64 },
}

impl Piece {
    fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Slice { bytes, .. } => *bytes,
        }
    }
}

impl Content {
    pub fn from_pieces(pieces: Vec<Piece>) -> Self {
        Self { pieces, sha256: None }
    }

    /// Bytes held in memory: for the small files that rules make.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::from_pieces(vec![Piece::Bytes(bytes.into().into())])
    }

    /// A part of a file of the host, with its digest if that is known.
    pub fn from_slice(file: Arc<Path>, offset: u64, bytes: u64, sha256: Option<Sha256>) -> Self {
        Self { pieces: vec![Piece::Slice { file, offset, bytes }], sha256 }
    }

    /// The whole of a file of the host, as long as it is now.
    pub fn from_file(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::metadata(path)?.len();
        Ok(Self::from_slice(path.into(), 0, bytes, None))
    }

    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The digest of the whole, if it is known already.
    pub fn known_sha256(&self) -> Option<Sha256> {
        self.sha256
    }

    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(Piece::bytes).sum()
    }
}

/// Contents are equal when they point at the same bytes; their known digests don't matter.
impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.pieces == other.pieces
    }
}

impl Eq for Content {}

/// How much is read at once.
const BUFFER_BYTES: usize = 128 * 1024;

/// Reads contents, one file of the host open at a time.
#[derive(Default)]
pub struct ContentReader {
    open: Option<(Arc<Path>, File)>,
    buffer: Vec<u8>,
}

impl ContentReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the bytes from `from` up to `to` of a content to a sink, in pieces.
    pub fn copy<E: From<io::Error>>(
        &mut self,
        content: &Content,
        from: u64,
        to: u64,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut start = 0;
        for piece in &content.pieces {
            let end = start + piece.bytes();
            let (first, last) = (from.max(start), to.min(end));
            if first < last {
                match piece {
                    Piece::Bytes(bytes) => {
                        sink(&bytes[(first - start) as usize..(last - start) as usize])?;
                    }
                    Piece::Slice { file, offset, .. } => {
                        self.copy_slice(file, offset + first - start, last - first, sink)?;
                    }
                }
            }
            start = end;
        }
        Ok(())
    }

    /// All of a content in memory.
    pub fn read(&mut self, content: &Content) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        self.copy(content, 0, content.bytes(), &mut |bytes| {
            all.extend_from_slice(bytes);
            Ok::<_, io::Error>(())
        })?;
        Ok(all)
    }

    /// The digest of a content: as known, or else by reading it.
    pub fn sha256(&mut self, content: &Content) -> io::Result<Sha256> {
        if let Some(known) = content.sha256 {
            return Ok(known);
        }
        let mut hasher = Hasher::new();
        self.copy(content, 0, content.bytes(), &mut |bytes| {
            hasher.update(bytes);
            Ok::<_, io::Error>(())
        })?;
        Ok(hasher.finish())
    }

    fn copy_slice<E: From<io::Error>>(
        &mut self,
        path: &Arc<Path>,
        mut offset: u64,
        mut left: u64,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.open.as_ref().is_none_or(|(open, _)| open != path) {
            self.open = Some((path.clone(), File::open(path)?));
        }
        let (_, file) = self.open.as_ref().expect("opened above");
        self.buffer.resize(BUFFER_BYTES, 0);
        while left > 0 {
            let want = left.min(BUFFER_BYTES as u64) as usize;
            file.read_exact_at(&mut self.buffer[..want], offset)?;
            sink(&self.buffer[..want])?;
            offset += want as u64;
            left -= want as u64;
        }
        Ok(())
    }
}
