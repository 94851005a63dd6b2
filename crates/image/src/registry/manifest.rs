//! Manifests and indexes of OCI and docker, as registries send them. Pure; every byte is untrusted.

use serde::Deserialize;

use super::error::UnsupportedImage;
use super::limits::{LAYERS_MAX, PLATFORMS_SHOWN_MAX};
use super::platform::Platform;
use crate::digest::Digest;
use crate::limits::{BLOB_BYTES_MAX, DOCUMENT_BYTES_MAX};
use host::excerpt::excerpt;

const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's first format, plain and signed.
const SCHEMA1: [&str; 2] = [
    "application/vnd.docker.distribution.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
];
const CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
/// The accepted types, as an `Accept` header.
pub const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v2+json";
/// How much of an untrusted type an error shows.
const CHARS_SHOWN_MAX: usize = 200;

/// The compression of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

/// One layer, as it travels and is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    pub digest: Digest,
    pub bytes: u64,
    pub compression: Compression,
}

/// The configuration's blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub digest: Digest,
    pub bytes: u64,
}

/// One image: its layers from the lowest to the topmost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub config: Config,
    pub layers: Vec<Layer>,
}

/// A manifest that an index names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    pub digest: Digest,
    pub bytes: u64,
}

/// What a name in a registry refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    Manifest(Manifest),
    /// The entry for the wanted platform.
    Index(IndexEntry),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    schema_version: Option<u32>,
    media_type: Option<String>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    urls: Option<Vec<String>>,
    platform: Option<RawPlatform>,
}

#[derive(Deserialize)]
struct RawPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    variant: Option<String>,
}

/// Parses a manifest or an index. `content_type` is the registry's type, if it sent one; if the
/// document states its own type, the two must agree, so that nobody sees another image in the same
/// bytes.
pub fn parse_document(
    bytes: &[u8],
    content_type: Option<&str>,
    wanted: &Platform,
) -> Result<Document, UnsupportedImage> {
    let raw: Raw = serde_json::from_slice(bytes).map_err(|error| unclear(error.to_string()))?;
    let outside = content_type.map(|value| value.split(';').next().unwrap_or_default().trim());
    let outside = outside.filter(|value| is_known(value));
    let inside = raw.media_type.as_deref();
    let is_schema1 = |value: Option<&str>| value.is_some_and(|value| SCHEMA1.contains(&value));
    if is_schema1(inside) || is_schema1(outside) || raw.schema_version == Some(1) {
        return Err(UnsupportedImage::Schema1);
    }
    if let (Some(inside), Some(outside)) = (inside, outside)
        && inside != outside
    {
        return Err(unclear(format!(
            "it calls itself {:?}, but its content type is {outside:?}",
            excerpt(inside, CHARS_SHOWN_MAX)
        )));
    }
    let is_index = match inside.or(outside) {
        Some(OCI_INDEX | DOCKER_INDEX) => true,
        Some(OCI_MANIFEST | DOCKER_MANIFEST) => false,
        Some(other) => {
            return Err(UnsupportedImage::NotAnImage {
                media_type: excerpt(other, CHARS_SHOWN_MAX),
            });
        }
        None => raw.manifests.is_some(),
    };
    match (is_index, raw) {
        (true, Raw { manifests: Some(manifests), config: None, layers: None, .. }) => {
            choose(manifests, wanted).map(Document::Index)
        }
        (false, Raw { config: Some(config), layers: Some(layers), manifests: None, .. }) => {
            manifest(&config, &layers).map(Document::Manifest)
        }
        (true, _) => {
            Err(unclear("an index must have manifests, and no config or layers".to_owned()))
        }
        (false, _) => {
            Err(unclear("an image must have config and layers, and no manifests".to_owned()))
        }
    }
}

fn is_known(media_type: &str) -> bool {
    [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX].contains(&media_type)
        || SCHEMA1.contains(&media_type)
}

fn unclear(why: String) -> UnsupportedImage {
    UnsupportedImage::Manifest(why)
}

fn manifest(config: &Descriptor, layers: &[Descriptor]) -> Result<Manifest, UnsupportedImage> {
    if !CONFIGS.contains(&config.media_type.as_str()) {
        return Err(UnsupportedImage::NotAnImage {
            media_type: excerpt(&config.media_type, CHARS_SHOWN_MAX),
        });
    }
    if layers.len() > LAYERS_MAX {
        return Err(UnsupportedImage::Layers { count: layers.len(), count_max: LAYERS_MAX });
    }
    if config.size > DOCUMENT_BYTES_MAX {
        return Err(UnsupportedImage::Bytes { bytes: config.size, bytes_max: DOCUMENT_BYTES_MAX });
    }
    let layers = layers.iter().map(layer).collect::<Result<_, _>>()?;
    Ok(Manifest { config: Config { digest: config.digest.parse()?, bytes: config.size }, layers })
}

fn layer(descriptor: &Descriptor) -> Result<Layer, UnsupportedImage> {
    let digest = descriptor.digest.parse()?;
    let media_type = descriptor.media_type.as_str();
    let is_elsewhere = descriptor.urls.as_ref().is_some_and(|urls| !urls.is_empty());
    if is_elsewhere || media_type.contains(".foreign.") || media_type.contains(".nondistributable.")
    {
        return Err(UnsupportedImage::Foreign {
            digest,
            media_type: excerpt(media_type, CHARS_SHOWN_MAX),
        });
    }
    let compression = match media_type {
        "application/vnd.oci.image.layer.v1.tar"
        | "application/vnd.docker.image.rootfs.diff.tar" => Compression::None,
        "application/vnd.oci.image.layer.v1.tar+gzip"
        | "application/vnd.docker.image.rootfs.diff.tar.gzip" => Compression::Gzip,
        "application/vnd.oci.image.layer.v1.tar+zstd"
        | "application/vnd.docker.image.rootfs.diff.tar.zstd" => Compression::Zstd,
        other => {
            return Err(UnsupportedImage::Layer {
                digest,
                media_type: excerpt(other, CHARS_SHOWN_MAX),
            });
        }
    };
    if descriptor.size > BLOB_BYTES_MAX {
        return Err(UnsupportedImage::Bytes { bytes: descriptor.size, bytes_max: BLOB_BYTES_MAX });
    }
    Ok(Layer { digest, bytes: descriptor.size, compression })
}

/// The manifest that runs best here; of equals, the first.
fn choose(manifests: Vec<Descriptor>, wanted: &Platform) -> Result<IndexEntry, UnsupportedImage> {
    let is_only = manifests.len() == 1;
    let mut there = Vec::new();
    let mut best: Option<(u32, Descriptor)> = None;
    for descriptor in manifests {
        let platform = descriptor.platform.as_ref().map(RawPlatform::known);
        let rank = match &platform {
            Some(platform) => wanted.rank(platform),
            // The only entry has no platform: its configuration has one.
            None => is_only.then_some(0),
        };
        if let Some(platform) = platform.filter(|platform| platform.os != "unknown")
            && there.len() < PLATFORMS_SHOWN_MAX
        {
            there.push(excerpt(&platform.to_string(), CHARS_SHOWN_MAX));
        }
        if let Some(rank) = rank
            && best.as_ref().is_none_or(|(best, _)| rank > *best)
        {
            best = Some((rank, descriptor));
        }
    }
    let (_, chosen) =
        best.ok_or_else(|| UnsupportedImage::Platform { wanted: wanted.clone(), there })?;
    if chosen.size > DOCUMENT_BYTES_MAX {
        return Err(UnsupportedImage::Bytes { bytes: chosen.size, bytes_max: DOCUMENT_BYTES_MAX });
    }
    Ok(IndexEntry { digest: chosen.digest.parse()?, bytes: chosen.size })
}

impl RawPlatform {
    fn known(&self) -> Platform {
        let variant = self.variant.clone();
        Platform { os: self.os.clone(), architecture: self.architecture.clone(), variant }
    }
}

/// Whether an image's configuration says that it is for another platform. Who says nothing is
/// believed.
pub fn check_config(bytes: &[u8], wanted: &Platform) -> Result<(), UnsupportedImage> {
    let raw: RawPlatform =
        serde_json::from_slice(bytes).map_err(|error| unclear(error.to_string()))?;
    let found = raw.known();
    let is_silent = found.os.is_empty() || found.architecture.is_empty();
    if is_silent || wanted.rank(&found).is_some() {
        return Ok(());
    }
    Err(UnsupportedImage::Platform {
        wanted: wanted.clone(),
        there: vec![excerpt(&found.to_string(), CHARS_SHOWN_MAX)],
    })
}

#[cfg(test)]
mod tests;
