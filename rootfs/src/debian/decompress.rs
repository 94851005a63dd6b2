//! Compressed bytes by the name of their form: `.xz`, `.zst`, `.gz`, or none.

use std::io::{self, Read};

/// How much memory an .xz stream may need: four times what `xz -9` does.
const XZ_MEMORY_KIB_MAX: u32 = 256 * 1024;

/// Why bytes are not decompressed here.
#[derive(Debug, thiserror::Error)]
#[error("the compression of {0} is not supported")]
pub struct UnknownCompression(String);

/// A reader that decompresses `reader`, by the suffix of `name`.
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

/// Why a reader was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum WholeError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has more than {0} bytes")]
    TooLarge(u64),
}

/// Reads everything, up to a limit.
pub fn read_whole(reader: impl Read, bytes_max: u64) -> Result<Vec<u8>, WholeError> {
    let mut all = Vec::new();
    // One byte more shows whether it was cut.
    reader.take(bytes_max.saturating_add(1)).read_to_end(&mut all)?;
    if all.len() as u64 > bytes_max { Err(WholeError::TooLarge(bytes_max)) } else { Ok(all) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gives_all_or_nothing() {
        assert_eq!(read_whole(&b"four"[..], 4).expect("all"), b"four");
        assert!(matches!(read_whole(&b"four"[..], 3), Err(WholeError::TooLarge(3))));
        assert_eq!(read_whole(io::empty(), 0).expect("all"), b"");
    }
}
