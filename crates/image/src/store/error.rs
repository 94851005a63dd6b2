//! The errors of images.

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

/// Why an image, or its root, is not available.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("there is no image {image:?} on this host")]
    NotFound { image: String },
    #[error("more than one image has a digest that begins with {image:?}")]
    Ambiguous { image: String },
    #[error(transparent)]
    Name(#[from] InvalidReference),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error("{digest} is not an image manifest")]
    NoManifest { digest: Digest },
    #[error("layer {diff_id}: {source}")]
    Layer { diff_id: Digest, source: LayerError },
    #[error(
        "layer {digest} does not match the configuration: its content has the digest {found}, not {diff_id}"
    )]
    DiffId { digest: Digest, diff_id: Digest, found: Digest },
    #[error("the image's files have more than {max} bytes")]
    TooLarge { max: u64 },
    #[error("the image's layers have more than {max} entries")]
    TooMany { max: u64 },
    #[error("its layers cannot be combined into a root: {0}")]
    Compose(#[from] ComposeError),
    #[error("cannot make a disk from {digest}: {source}")]
    Disk { digest: Digest, source: DiskError },
    #[error("{image} is in use by {}", .users.join(", "))]
    InUse { image: String, users: Vec<String> },
    #[error("other processes are using the images; try again")]
    Busy,
    #[error("there are {max} image names, which is the limit; remove some")]
    TooManyNames { max: usize },
    #[error(
        "{path:?} is not an image: it must be an OCI layout, an archive that `docker save` wrote, or an archive of a root file system"
    )]
    NoForm { path: PathBuf },
    #[error("{path:?}: {source}")]
    Archive { path: PathBuf, source: LayerError },
    #[error("{path:?} has several images, but one name can only name one of them: {}", .names.join(", "))]
    Several { path: PathBuf, names: Vec<String> },
    #[error("the image in {path:?} has no name; give it one with --name")]
    Nameless { path: PathBuf },
    #[error("indexes are nested more than {max} deep")]
    IndexDepth { max: usize },
    #[error("the image {image:?} could not be pulled: {source}")]
    Pull { image: String, source: Box<PullError> },
    #[error("the image {image:?} was not pulled within {} minutes", .limit.as_secs() / 60)]
    PullTook { image: String, limit: Duration },
    #[error("{max} images are being pulled, which is the limit; try again later")]
    TooManyPulls { max: usize },
    /// The result of a shared operation.
    #[error(transparent)]
    Shared(Arc<ImageError>),
    #[error("the image {image:?} is not allowed: {rule}")]
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
