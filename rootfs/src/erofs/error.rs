//! Why a tree cannot become an image: the plan finds some reasons, the writer the others.

use std::io;

use super::xattr::XattrError;

/// Why a tree cannot become an image.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{path}: {source}")]
    Xattr { path: String, source: XattrError },
    #[error("more files or bytes than an image can hold")]
    TooLarge,
}
