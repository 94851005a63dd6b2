//! One layer of an image: from the archive of a stranger to a directory of this store.
//!
//! A layer is unpacked once, however many images have it, into `tree/`: its final files, and nothing from
//! lower layers. Its removals in lower layers are recorded beside it in `marks`. [`super::compose`] puts
//! layers on top of each other.

mod decompress;
mod directory;
pub mod limits;
mod marks;
mod unpack;

use std::io;

use archive::TarError;
use host::excerpt::path_excerpt;
use rustix::io::Errno;

pub use decompress::{Bounded, Compressed};
pub(super) use directory::{hold, open_at, remove_tree};
pub use marks::Marks;
pub use unpack::{Bounds, SkippedMetadata, UnpackedLayer, unpack, unpack_files};
pub(crate) use unpack::{CAPABILITY, kept_xattrs};

/// Why a layer was refused or could not be unpacked. Paths are the layer's own.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("its archive is malformed: {0}")]
    Archive(#[from] TarError),
    #[error("it cannot be decompressed: {0}")]
    Compression(io::Error),
    #[error("the path {path:?} leads through a symbolic link")]
    ThroughSymlink { path: String },
    #[error("{path:?} is a device; images may not have devices")]
    Device { path: String },
    #[error("{path:?} is more than {max} directories deep")]
    TooDeep { path: String, max: usize },
    #[error("{path:?} has a name of more than {max} bytes")]
    NameTooLong { path: String, max: usize },
    #[error("{path:?} is not a valid whiteout: {why}")]
    Whiteout { path: String, why: &'static str },
    #[error("{path:?} appears twice, once as a directory")]
    Collision { path: String },
    #[error("{path:?} is a hard link to {target:?}, which is not a file")]
    BadLink { path: String, target: String },
    #[error("{path:?} has the attribute {name:?}, which is reserved for overlayfs")]
    OverlayAttribute { path: String, name: String },
    #[error("its files have more than {max} bytes")]
    TooLarge { max: u64 },
    #[error("it has more than {max} entries")]
    TooMany { max: u64 },
    #[error("the paths of its directories and whiteouts have more than {max} bytes in total")]
    TooMuchNoted { max: usize },
    #[error("it decompresses to more than {max} times its compressed size")]
    Ratio { max: u64 },
    #[error("{path:?} cannot be written: {source}")]
    Write { path: String, source: io::Error },
    #[error("its archive cannot be read: {0}")]
    Read(#[source] io::Error),
}

impl LayerError {
    /// The kernel's error for a path of the layer.
    fn at(path: &[u8], errno: Errno) -> Self {
        let path = path_excerpt(path);
        match errno {
            Errno::LOOP | Errno::XDEV | Errno::NOTDIR => Self::ThroughSymlink { path },
            Errno::ISDIR | Errno::EXIST => Self::Collision { path },
            errno => Self::Write { path, source: errno.into() },
        }
    }
}
