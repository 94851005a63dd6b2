//! What may go wrong with images.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::DiskError;
use crate::blobs::BlobError;
use crate::compose::ComposeError;
use crate::digest::Digest;
use crate::document::DocumentError;
use crate::layer::LayerError;
use crate::reference::InvalidReference;
use crate::registry::PullError;

/// Why there is no such image, or no root of it.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("there is no image {image:?} here")]
    NotFound { image: String },
    #[error("more than one image has a digest that begins with {image:?}")]
    Ambiguous { image: String },
    #[error(transparent)]
    Name(#[from] InvalidReference),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error("{digest} is no manifest of an image")]
    NoManifest { digest: Digest },
    #[error("layer {diff_id}: {source}")]
    Layer { diff_id: Digest, source: LayerError },
    #[error(
        "layer {digest} is not what the configuration says: it holds {found} instead of {diff_id}"
    )]
    DiffId { digest: Digest, diff_id: Digest, found: Digest },
    #[error("the image has more than {max} bytes in its files")]
    TooLarge { max: u64 },
    #[error("the image has more than {max} entries in its layers")]
    TooMany { max: u64 },
    #[error("its layers do not make a root: {0}")]
    Compose(#[from] ComposeError),
    #[error("{digest} cannot be made a disk: {source}")]
    Disk { digest: Digest, source: DiskError },
    #[error("{image} is in use by {}", .users.join(", "))]
    InUse { image: String, users: Vec<String> },
    #[error("images are being used by others; try again")]
    Busy,
    #[error("{max} names of images are kept, which is the limit; remove some")]
    TooManyNames { max: usize },
    #[error(
        "{path:?} is no image: neither an OCI layout, nor what `docker save` writes, nor the archive of a root"
    )]
    NoForm { path: PathBuf },
    #[error("{path:?}: {source}")]
    Archive { path: PathBuf, source: LayerError },
    #[error("{path:?} has several images, and one name cannot be all of theirs: {}", .names.join(", "))]
    Several { path: PathBuf, names: Vec<String> },
    #[error("the image in {path:?} has no name; give it one with --name")]
    Nameless { path: PathBuf },
    #[error("indexes lead to each other more than {max} times")]
    IndexDepth { max: usize },
    #[error("the image {image:?} could not be pulled: {source}")]
    Pull { image: String, source: Box<PullError> },
    #[error("the image {image:?} was not pulled within {} minutes", .limit.as_secs() / 60)]
    PullTook { image: String, limit: Duration },
    #[error("{max} images are being pulled, which is the limit; try again later")]
    TooManyPulls { max: usize },
    /// What several have waited for.
    #[error(transparent)]
    Shared(Arc<ImageError>),
    #[error("the image {image:?} is not allowed here: {rule}")]
    NotAllowed { image: String, rule: &'static str },
    #[error("could not {action} {path:?}: {source}")]
    Files { action: &'static str, path: PathBuf, source: io::Error },
}

impl ImageError {
    /// The error itself, where several share it.
    pub fn inner(&self) -> &Self {
        match self {
            Self::Shared(shared) => shared.inner(),
            own => own,
        }
    }

    pub(crate) fn files(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Files { action, path: path.clone(), source }
    }
}
