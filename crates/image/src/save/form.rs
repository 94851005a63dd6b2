//! Lists the members of an archive of images in their order. Documents come first, so that the reader of a
//! stream knows what follows. Only documents are read here.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::Serialize;

use super::NamedImage;
use crate::blobs::Blobs;
use crate::digest::Digest;
use crate::document::{
    Descriptor, DockerImage, DocumentError, INDEX, Index, MANIFEST, ManifestOrIndex,
    NAME_ANNOTATIONS,
};
use crate::import;
use crate::reference::{Reference, Tag};
use crate::store::ImageError;

/// The version of a layout.
const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
const SCHEMA: u32 = 2;

/// The formats of an archive of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// An OCI layout.
    #[default]
    Oci,
    /// The format of `docker save`.
    Docker,
}

/// No form of archives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an archive format; use oci or docker")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "oci" => Ok(Self::Oci),
            "docker" => Ok(Self::Docker),
            other => Err(UnknownFormat(other.to_owned())),
        }
    }
}

/// One member of an archive.
pub struct Member {
    pub name: String,
    pub content: Content,
}

/// The content of a member.
pub enum Content {
    Directory,
    Text(Vec<u8>),
    /// As it is stored.
    Kept {
        digest: Digest,
        size: u64,
    },
    /// The archive that is in a kept layer.
    Unpacked {
        digest: Digest,
        size: u64,
        diff_id: Digest,
    },
}

impl Content {
    /// What is read from the store for it.
    pub fn read_bytes(&self) -> u64 {
        match self {
            Self::Directory | Self::Text(_) => 0,
            Self::Kept { size, .. } => *size,
            Self::Unpacked { size, .. } => 2 * size,
        }
    }
}

/// The members, each once.
#[derive(Default)]
struct Members {
    all: Vec<Member>,
    known: BTreeSet<String>,
}

impl Members {
    fn put(&mut self, name: String, content: Content) {
        if self.known.insert(name.clone()) {
            self.all.push(Member { name, content });
        }
    }
}

pub fn members(
    blobs: &Blobs,
    format: Format,
    chosen: &[NamedImage],
) -> Result<Vec<Member>, ImageError> {
    let mut members = Members::default();
    match format {
        Format::Oci => layout(blobs, chosen, &mut members)?,
        Format::Docker => docker(blobs, chosen, &mut members)?,
    }
    Ok(members.all)
}

fn layout(blobs: &Blobs, chosen: &[NamedImage], members: &mut Members) -> Result<(), ImageError> {
    let mut manifests = Vec::new();
    let mut contents = Vec::new();
    for NamedImage { lease, names } in chosen {
        let bytes = blobs.read(&lease.image.digest)?;
        let manifest = ManifestOrIndex::parse(&bytes)?;
        let digest = lease.image.digest;
        let config = manifest.config.ok_or(ImageError::NoManifest { digest })?;
        let kind = manifest.media_type.unwrap_or_else(|| MANIFEST.to_owned());
        let own = Descriptor::new(&kind, digest, bytes.len() as u64);
        manifests.extend(names.iter().map(|name| named(own.clone(), name)));
        if names.is_empty() {
            manifests.push(own.clone());
        }
        contents.extend([own, config]);
        contents.extend(manifest.layers);
    }
    members.put(import::LAYOUT.to_owned(), Content::Text(LAYOUT.to_vec()));
    let index = Index { schema_version: SCHEMA, media_type: INDEX, manifests: &manifests };
    members.put(import::INDEX.to_owned(), Content::Text(json("index", &index)?));
    for directory in ["blobs", "blobs/sha256"] {
        members.put(directory.to_owned(), Content::Directory);
    }
    for Descriptor { digest, size, .. } in contents {
        members.put(import::blob_name(&digest), Content::Kept { digest, size });
    }
    Ok(())
}

/// The whole name for those who keep it, and the tag for those who look one up in a layout.
fn named(mut descriptor: Descriptor, name: &Reference) -> Descriptor {
    let [whole, tag] = NAME_ANNOTATIONS.map(str::to_owned);
    descriptor.annotations.insert(whole, name.to_string());
    if let Some(own) = &name.tag {
        descriptor.annotations.insert(tag, Tag::as_str(own).to_owned());
    }
    descriptor
}

fn docker(blobs: &Blobs, chosen: &[NamedImage], members: &mut Members) -> Result<(), ImageError> {
    let mut list = Vec::new();
    let mut contents = Vec::new();
    for NamedImage { lease, names } in chosen {
        let image = &lease.image;
        let manifest = ManifestOrIndex::parse(&blobs.read(&image.digest)?)?;
        let config = format!("{}.json", image.config.hex());
        let size = blobs.size(&image.config)?;
        contents.push((config.clone(), Content::Kept { digest: image.config, size }));
        let mut layers = Vec::new();
        for (layer, described) in image.layers.iter().zip(&manifest.layers) {
            let name = format!("{}.tar", layer.diff_id.hex());
            let (digest, diff_id, size) = (layer.digest, layer.diff_id, described.size);
            contents.push((name.clone(), Content::Unpacked { digest, size, diff_id }));
            layers.push(name);
        }
        // Docker has no place for the name of a content.
        let tagged = names.iter().filter(|name| name.tag.is_some());
        let tags: Vec<_> = tagged.map(Reference::short).collect();
        list.push(DockerImage { config, repo_tags: (!tags.is_empty()).then_some(tags), layers });
    }
    members.put(import::DOCKER.to_owned(), Content::Text(json("list of images", &list)?));
    for (name, content) in contents {
        members.put(name, content);
    }
    Ok(())
}

fn json(what: &'static str, value: &impl Serialize) -> Result<Vec<u8>, ImageError> {
    Ok(serde_json::to_vec(value).map_err(|source| DocumentError::Json { what, source })?)
}
