//! Pulling images from registries, as the distribution specification of OCI and docker's own before it
//! have them. Callers use [`pull`]; everything it brings is in [`Blobs`] afterwards.
//!
//! ```text
//!   options ─▶ places (mirrors, then the registry)        the first that has it whole is taken
//!                │
//!                ▼            auth ◀── credentials          who we are, when somebody asks
//!   source: manifest ─▶ index ─▶ manifest ─▶ config ─▶ layers ─▶ fetch ─▶ Blobs
//!                │                                  (several at once, each resumable)
//!                └─▶ transport ─▶ dial                       HTTP, TLS, deadlines
//! ```
//!
//! The registry is hostile. Each document is bounded before it is read, everything is checked against a
//! digest that was known before, unencrypted connections go only to this host and to registries that the
//! configuration names, and credentials go only to the registry and its token server. A pull that is dropped
//! stops at once and leaves only partial blobs, for the next attempt.
//!
//! This module decides neither when to pull nor what may be pulled, and unpacks nothing.

mod auth;
mod challenge;
mod credentials;
mod error;
mod fetch;
mod limits;
mod manifest;
mod options;
mod platform;
mod progress;
mod retries;
mod secret;
mod source;
mod transport;
mod url;

use std::collections::BTreeSet;

use futures_util::stream::{self, TryStreamExt as _};
use tokio::sync::watch;

pub use credentials::{CredentialsError, auth_files};
pub use error::{PullError, PullStep, RegistryMessage, UnsupportedImage};
pub use manifest::{Compression, Config, Document, Layer, Manifest, check_config, parse_document};
pub use options::{Bounds, InvalidOptions, Mirror, Options, Registry, RegistrySettings, Times};
pub use platform::{InvalidPlatform, Platform};
pub use progress::{LayerProgress, Progress};
pub use url::{Scheme, Url};

use super::blobs::Blobs;
use super::digest::Digest;
use super::reference::Reference;
use fetch::fetch;
use limits::INDEX_DEPTH_MAX;
use options::Endpoint;
use progress::ProgressSender;
use retries::Retries;
use source::{FetchedDocument, Source};

/// An image whose every part is in the blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledImage {
    /// The requested name.
    pub name: Reference,
    /// The manifest of the image for one platform; its bytes are a blob, too.
    pub manifest: Digest,
    /// The index that contained it, if there was one; then the tag refers to the index.
    pub index: Option<Digest>,
    pub config: Digest,
    /// From the lowest to the topmost.
    pub layers: Vec<Layer>,
    pub platform: Platform,
    /// The origin it came from.
    pub source: String,
    /// Bytes that were transferred this time.
    pub fetched_bytes: u64,
}

/// Pulls an image into the blobs. Existing blobs are not fetched; a blob that two pulls want at
/// once is fetched once.
pub async fn pull(
    reference: &Reference,
    options: &Options,
    blobs: &Blobs,
    progress: &watch::Sender<Progress>,
) -> Result<PulledImage, PullError> {
    let mut reasons = Vec::new();
    let places = options.places(reference)?;
    let is_only = places.len() == 1;
    for place in places {
        let at = place.origin.to_string();
        match pull_from(place, reference, options, blobs, ProgressSender(progress)).await {
            Err(error) if !is_only && !error.is_ours() => reasons.push((at, error)),
            pulled => return pulled,
        }
    }
    Err(PullError::Everywhere { reference: Box::new(reference.clone()), reasons })
}

async fn pull_from(
    place: Endpoint,
    reference: &Reference,
    options: &Options,
    blobs: &Blobs,
    teller: ProgressSender<'_>,
) -> Result<PulledImage, PullError> {
    let source = Source::new(place, options);
    teller.source(source.at());
    let found = find(&source, reference, teller).await?;
    let Manifest { config, layers } = &found.image;
    check_bounds(layers, &options.bounds)?;
    // Small, and it may say that all the rest is for another machine.
    fetch(&source, blobs, config.digest, config.bytes, teller).await?;
    check_config(&blobs.read(&config.digest)?, &options.platform)?;
    let mut known = BTreeSet::new();
    let once: Vec<Layer> =
        layers.iter().filter(|layer| known.insert(layer.digest)).copied().collect();
    teller.layers(&once);
    let source_of_all = &source;
    stream::iter(once.into_iter().map(Ok))
        .try_for_each_concurrent(options.bounds.layers_at_once, |layer: Layer| {
            fetch(source_of_all, blobs, layer.digest, layer.bytes, teller)
        })
        .await?;
    // The manifest comes last, so that everything that it names exists.
    let manifest = found.manifest.digest;
    let index = found.index.as_ref().map(|index| index.digest);
    blobs.put(found.manifest.bytes).await?;
    if let Some(index) = found.index {
        blobs.put(index.bytes).await?;
    }
    Ok(PulledImage {
        name: reference.clone(),
        manifest,
        index,
        config: config.digest,
        layers: layers.clone(),
        platform: options.platform.clone(),
        source: source.at(),
        fetched_bytes: source.fetched(),
    })
}

/// The manifest that a name resolved to.
struct ResolvedManifest {
    image: Manifest,
    manifest: FetchedDocument,
    /// The outermost.
    index: Option<FetchedDocument>,
}

/// From a name through indexes to the image for the wanted platform.
async fn find(
    source: &Source<'_>,
    reference: &Reference,
    teller: ProgressSender<'_>,
) -> Result<ResolvedManifest, PullError> {
    let tag = reference.tag.as_ref().map(|tag| tag.as_str().to_owned());
    let mut wanted = reference.digest;
    let mut name = wanted.map(|digest| digest.to_string()).or(tag).unwrap_or_default();
    let mut index = None;
    for _ in 0..=INDEX_DEPTH_MAX {
        let fetched = document(source, &name, wanted, teller).await?;
        let content_type = fetched.content_type.as_deref();
        match parse_document(&fetched.bytes, content_type, &source.options.platform)? {
            Document::Manifest(image) => {
                return Ok(ResolvedManifest { image, manifest: fetched, index });
            }
            Document::Index(chosen) => {
                (name, wanted) = (chosen.digest.to_string(), Some(chosen.digest));
                index.get_or_insert(fetched);
            }
        }
    }
    Err(UnsupportedImage::Depth { depth_max: INDEX_DEPTH_MAX }.into())
}

async fn document(
    source: &Source<'_>,
    name: &str,
    wanted: Option<Digest>,
    teller: ProgressSender<'_>,
) -> Result<FetchedDocument, PullError> {
    let mut retries = Retries::new(source.options.times.retry_pause, teller);
    loop {
        match source.manifest(name, wanted).await {
            Err(error) => retries.after(error).await?,
            fetched => return fetched,
        }
    }
}

fn check_bounds(layers: &[Layer], bounds: &Bounds) -> Result<(), UnsupportedImage> {
    let largest = layers.iter().map(|layer| layer.bytes).max().unwrap_or_default();
    let total = layers.iter().fold(0_u64, |total, layer| total.saturating_add(layer.bytes));
    for (bytes, bytes_max) in [(largest, bounds.layer_bytes_max), (total, bounds.image_bytes_max)] {
        if bytes > bytes_max {
            return Err(UnsupportedImage::Bytes { bytes, bytes_max });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
