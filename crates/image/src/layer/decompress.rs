//! Decompresses a stored layer into its archive, and bounds how far it may expand.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::LayerError;
use super::limits::{BUFFER_BYTES, RATIO_FREE_BYTES, RATIO_MAX};
use crate::digest::{Digest, Digester};
use crate::document;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The upper bits of the magic of a frame that decoders skip.
const SKIPPED_MAGIC: u32 = 0x184d_2a50;
const SKIPPED_MASK: u32 = 0xffff_fff0;

/// Counts what is read through it, for another thread.
struct CountingReader<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R> CountingReader<R> {
    fn new(inner: R) -> (Self, Rc<Cell<u64>>) {
        let count = Rc::new(Cell::new(0));
        (Self { inner, count: Rc::clone(&count) }, count)
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

/// A reader that decompresses another, chosen by its first bytes: an untrusted media type may be
/// wrong, and a wrong guess is found by the digest of the output.
pub enum Compressed<R: Read> {
    Plain(BufReader<R>),
    Gzip(MultiGzDecoder<BufReader<R>>),
    Zstd(Frames<BufReader<R>>),
}

impl<R: Read> Compressed<R> {
    pub fn open(inner: R) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, inner);
        let first = reader.fill_buf()?;
        if first.starts_with(&GZIP_MAGIC) {
            Ok(Self::Gzip(MultiGzDecoder::new(reader)))
        } else if first.starts_with(&ZSTD_MAGIC) {
            Ok(Self::Zstd(Frames::Between(Some(reader))))
        } else {
            Ok(Self::Plain(reader))
        }
    }

    /// The media type of a layer with this compression.
    pub fn media_type(&self) -> &'static str {
        match self {
            Self::Plain(_) => document::LAYER,
            Self::Gzip(_) => document::LAYER_GZIP,
            Self::Zstd(_) => document::LAYER_ZSTD,
        }
    }
}

impl<R: Read> Read for Compressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(buffer),
            Self::Gzip(reader) => reader.read(buffer),
            Self::Zstd(reader) => reader.read(buffer),
        }
    }
}

/// An archive on its way out of its compressed form: hashed, and ended where it becomes more than it
/// may.
pub struct Bounded<R: Read> {
    inner: Compressed<CountingReader<R>>,
    /// How much of the compressed form was read.
    read: Rc<Cell<u64>>,
    digester: Digester,
    bytes_max: u64,
    exceeded: Option<LayerError>,
}

impl<R: Read> Bounded<R> {
    pub fn open(inner: R, bytes_max: u64) -> io::Result<Self> {
        let (counted, read) = CountingReader::new(inner);
        let inner = Compressed::open(counted)?;
        Ok(Self { inner, read, digester: Digester::default(), bytes_max, exceeded: None })
    }

    /// Why it was ended, if it was.
    pub fn exceeded(&mut self) -> Option<LayerError> {
        self.exceeded.take()
    }

    /// The digest of the output.
    pub fn finish(self) -> Digest {
        self.digester.finish()
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.digester.update(&buffer[..read]);
        let bytes = self.digester.bytes();
        let usual = self.read.get().saturating_mul(RATIO_MAX).max(RATIO_FREE_BYTES);
        if bytes > self.bytes_max {
            self.exceeded = Some(LayerError::TooLarge { max: self.bytes_max });
        } else if bytes > usual {
            self.exceeded = Some(LayerError::Ratio { max: RATIO_MAX });
        }
        if self.exceeded.is_some() { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(read) }
    }
}

/// The magic of a frame was read to identify it, and is put back.
type Frame<R> = io::Chain<Cursor<[u8; 4]>, R>;

/// Consecutive zstd frames; some writers make several, or add skippable ones.
pub enum Frames<R: Read> {
    Between(Option<R>),
    Within(Box<StreamingDecoder<Frame<R>, FrameDecoder>>),
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self {
                Self::Within(decoder) => {
                    let read = decoder.read(buffer)?;
                    if read > 0 || buffer.is_empty() {
                        return Ok(read);
                    }
                    let Self::Within(decoder) = std::mem::replace(self, Self::Between(None)) else {
                        return Err(io::ErrorKind::InvalidData.into());
                    };
                    *self = Self::Between(Some(decoder.into_inner().into_inner().1));
                }
                Self::Between(rest) => {
                    let mut reader = rest.take().ok_or(io::ErrorKind::InvalidData)?;
                    let Some(magic) = next_frame(&mut reader)? else {
                        *self = Self::Between(Some(reader));
                        return Ok(0);
                    };
                    let decoder = StreamingDecoder::new(Cursor::new(magic).chain(reader));
                    let invalid = |error: ruzstd::decoding::errors::FrameDecoderError| {
                        io::Error::new(io::ErrorKind::InvalidData, error.to_string())
                    };
                    *self = Self::Within(Box::new(decoder.map_err(invalid)?));
                }
            }
        }
    }
}

/// The magic of the next frame that has content; nothing at the end.
fn next_frame(reader: &mut impl BufRead) -> io::Result<Option<[u8; 4]>> {
    while !reader.fill_buf()?.is_empty() {
        let mut magic = [0; 4];
        reader.read_exact(&mut magic)?;
        if u32::from_le_bytes(magic) & SKIPPED_MASK != SKIPPED_MAGIC {
            return Ok(Some(magic));
        }
        let mut length = [0; 4];
        reader.read_exact(&mut length)?;
        let length = u64::from(u32::from_le_bytes(length));
        if io::copy(&mut reader.take(length), &mut io::sink())? < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(None)
}
