//! The ELF file inside a `bzImage`: Firecracker boots it, and QEMU boots it faster.

use std::io::{self, Cursor};

use super::lz4;
use crate::debian::decompress::{self, WholeError};

/// Where the boot protocol of x86 (2.08 and later) has the position of the compressed kernel.
const SETUP_SECTORS_AT: usize = 0x1f1;
const MAGIC_AT: usize = 0x202;
const VERSION_AT: usize = 0x206;
const PAYLOAD_OFFSET_AT: usize = 0x248;
const PAYLOAD_BYTES_AT: usize = 0x24c;
const VERSION_MIN: u16 = 0x0208;
const SECTOR_BYTES: usize = 512;

/// The first bytes of a gzip stream.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// How many bytes a kernel may unpack to.
const KERNEL_BYTES_MAX: u64 = 512 << 20;

/// Why a kernel cannot be taken out.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("not a bzImage of boot protocol 2.08 or later")]
    NotAnImage,
    #[error("the kernel's compression is not supported; its payload begins with {0}")]
    Compression(String),
    #[error("cannot decompress the kernel: {0}")]
    Decompress(#[from] io::Error),
    #[error("the image says that its kernel has {claimed} bytes; the limit is {max}")]
    TooLarge { claimed: u64, max: u64 },
    #[error("the image says that its kernel has {0} bytes, but its size differs")]
    OtherSize(u64),
    #[error("the image's content is not an ELF file")]
    NotElf,
}

/// The kernel that an image decompresses when it starts.
pub fn extract(image: &[u8]) -> Result<Vec<u8>, ImageError> {
    let number = |at: usize, bytes: usize| {
        let slice = image.get(at..at + bytes).ok_or(ImageError::NotAnImage)?;
        Ok::<_, ImageError>(slice.iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte)))
    };
    let version = number(VERSION_AT, 2)?;
    if image.get(MAGIC_AT..MAGIC_AT + 4) != Some(b"HdrS") || version < usize::from(VERSION_MIN) {
        return Err(ImageError::NotAnImage);
    }
    let setup_sectors = match number(SETUP_SECTORS_AT, 1)? {
        0 => 4, // What very old images mean.
        sectors => sectors,
    };
    let start = (setup_sectors + 1) * SECTOR_BYTES + number(PAYLOAD_OFFSET_AT, 4)?;
    let payload = image.get(start..).ok_or(ImageError::NotAnImage)?;
    let payload = payload.get(..number(PAYLOAD_BYTES_AT, 4)?).ok_or(ImageError::NotAnImage)?;
    let (stream, size) =
        payload.split_at_checked(payload.len().wrapping_sub(4)).ok_or(ImageError::NotAnImage)?;
    // Behind the stream stands its unpacked size, for the code that unpacks it when it boots; gzip's
    // own last field is that size.
    let claimed = u64::from(u32::from_le_bytes(size.try_into().expect("four bytes")));
    if claimed > KERNEL_BYTES_MAX {
        return Err(ImageError::TooLarge { claimed, max: KERNEL_BYTES_MAX });
    }
    let stream = if payload.starts_with(&GZIP) { payload } else { stream };
    let kernel = decompressed(stream, claimed)?;
    if kernel.len() as u64 != claimed {
        return Err(ImageError::OtherSize(claimed));
    }
    if !kernel.starts_with(b"\x7fELF") {
        return Err(ImageError::NotElf);
    }
    Ok(kernel)
}

/// Decompresses a stream, by its first bytes.
fn decompressed(stream: &[u8], bytes_max: u64) -> Result<Vec<u8>, ImageError> {
    let form = match stream {
        [0xfd, b'7', b'z', ..] => ".xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ".zst",
        stream if stream.starts_with(&GZIP) => ".gz",
        stream if stream.starts_with(&lz4::MAGIC) => {
            return Ok(lz4::decompress(stream, bytes_max)?);
        }
        stream => {
            let start = &stream[..stream.len().min(6)];
            return Err(ImageError::Compression(start.escape_ascii().to_string()));
        }
    };
    let reader = decompress::reader(form, Cursor::new(stream)).expect("a form that is known");
    decompress::read_whole(reader, bytes_max).map_err(|error| match error {
        WholeError::Io(error) => error.into(),
        WholeError::TooLarge(bytes) => ImageError::OtherSize(bytes),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn image(kernel: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(kernel).expect("a vector takes all");
        packed_image(packed.finish().expect("a vector takes all"))
    }

    fn packed_image(payload: Vec<u8>) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR_BYTES + 16];
        image[SETUP_SECTORS_AT] = 1;
        image[MAGIC_AT..MAGIC_AT + 4].copy_from_slice(b"HdrS");
        image[VERSION_AT..VERSION_AT + 2].copy_from_slice(&0x20f_u16.to_le_bytes());
        image[PAYLOAD_OFFSET_AT] = 16;
        image[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4]
            .copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend(payload);
        image
    }

    #[test]
    fn the_kernel_in_an_image_is_found_by_its_header() {
        let kernel = b"\x7fELF and the rest of it".repeat(100);
        assert_eq!(extract(&image(&kernel)).expect("a kernel"), kernel);
    }

    #[test]
    fn a_kernel_that_is_larger_or_smaller_than_the_image_says_is_refused() {
        let kernel = b"\x7fELF and the rest of it";
        // A legacy LZ4 stream of one block of literals, followed by the size.
        let block = [&[0xf0, (kernel.len() - 15) as u8][..], kernel].concat();
        let lz4 = [&lz4::MAGIC[..], &(block.len() as u32).to_le_bytes(), &block].concat();
        let of_said =
            |size: usize| extract(&packed_image([&lz4[..], &(size as u32).to_le_bytes()].concat()));
        assert_eq!(of_said(kernel.len()).expect("a kernel"), kernel);
        assert!(matches!(of_said(kernel.len() + 1), Err(ImageError::OtherSize(_))));
        assert!(of_said(kernel.len() - 1).is_err());
        let huge = KERNEL_BYTES_MAX as usize + 1;
        assert!(matches!(of_said(huge), Err(ImageError::TooLarge { .. })));
        // gzip checks its own size field when everything was read.
        let mut image = image(kernel);
        let last = image.len() - 4;
        image[last] -= 1;
        assert!(extract(&image).is_err());
    }

    #[test]
    fn images_without_a_kernel_are_refused() {
        assert!(matches!(extract(b"short"), Err(ImageError::NotAnImage)));
        assert!(matches!(extract(&image(b"not an ELF file")), Err(ImageError::NotElf)));
        let mut unknown = image(b"\x7fELF");
        unknown[2 * SECTOR_BYTES + 16] = 0;
        assert!(matches!(extract(&unknown), Err(ImageError::Compression(_))));
        let whole = image(b"\x7fELF");
        assert!(matches!(extract(&whole[..whole.len() - 1]), Err(ImageError::NotAnImage)));
    }
}
