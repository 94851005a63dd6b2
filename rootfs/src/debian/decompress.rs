//! Compressed bytes by the name of their form: `.xz`, `.zst`, `.gz`, or none.

use std::io::{self, Read};

/// How much memory an .xz stream may ask for: four times what `xz -9` does.
const XZ_MEMORY_KIB_MAX: u32 = 256 * 1024;

/// Why bytes are not decompressed here.
#[derive(Debug, thiserror::Error)]
#[error("{0} is compressed in a way that is not read here")]
pub struct UnknownCompression(String);

/// A reader of what is in `reader`, whose form the end of `name` tells.
pub fn reader<'a>(
    name: &str,
    reader: impl Read + 'a,
) -> Result<Box<dyn Read + 'a>, UnknownCompression> {
    let extension = name.rsplit('.').next().unwrap_or_default();
    Ok(match extension {
        "xz" => Box::new(lzma_rust2::XzReader::new_mem_limit(reader, true, XZ_MEMORY_KIB_MAX)),
        "zst" => Box::new(LazyZstd::Waiting(Some(reader))),
        "gz" => Box::new(flate2::read::MultiGzDecoder::new(reader)),
        "tar" => Box::new(reader),
        _ => return Err(UnknownCompression(name.to_owned())),
    })
}

/// The decoder of zstd reads its first bytes when it is made, which must not fail before a read.
enum LazyZstd<R: Read> {
    Waiting(Option<R>),
    Open(Box<ruzstd::decoding::StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>),
}

impl<R: Read> Read for LazyZstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Self::Waiting(reader) = self {
            let reader = reader.take().ok_or(io::ErrorKind::InvalidData)?;
            let decoder = ruzstd::decoding::StreamingDecoder::new(reader)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            *self = Self::Open(Box::new(decoder));
        }
        match self {
            Self::Open(decoder) => decoder.read(buffer),
            Self::Waiting(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
