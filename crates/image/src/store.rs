//! The images that this host has: their names, their layers, and the roots that sandboxes have.
//!
//! ```text
//!   <state>/images/
//!     sha256/, partial/       contents, see `blobs`
//!     layers/<diff id>/       tree/, marks, layer.json       each once, whatever images have it
//!     roots/<digest>/tree/    layers on top of each other, read only, for all sandboxes of the image
//!     erofs/<digest>/         the same as the disk of virtual machines, once one has asked
//!     known/<digest>.json     what an image is
//!     names.json              what people call it
//!     steps/<key>             the image that a step of a build has made
//!     lock, locks/            who is building, and who removes
//! ```
//!
//! Everything is made under a temporary name and renamed when all of it is on disk, so a crash leaves the old
//! state or the new, and opening the store removes what is half-made. Builds and starts share the store's
//! lock; a removal has it alone. The functions here block: call them from a blocking thread.

mod build;
mod erofs;
mod error;
pub mod limits;
mod lock;
mod names;
mod remove;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::blobs::Blobs;
use super::digest::Digest;
use super::document::{Config, ManifestOrIndex, Process};
use super::layer::SkippedMetadata;
use super::reference::Reference;
pub use build::Lease;
pub(crate) use build::{Draft, unpack_compressed};
pub use erofs::DiskError;
pub use error::ImageError;
use host::instant;
use host::paths::{Paths, make_private_directory, write_durably};
use limits::{RECORD_BYTES_MAX, REPOSITORIES_MAX};
pub use lock::SharedLock;
pub use names::NameRecord;
pub use remove::{PruneResult, Removed, User};

const LAYERS: &str = "layers";
const ROOTS: &str = "roots";
const KNOWN: &str = "known";
const LOCKS: &str = "locks";
const IMPORTS: &str = "imports";
const EROFS: &str = "erofs";
const STEPS: &str = "steps";
/// The suffix of incomplete entries.
const NEW: &str = ".new";
/// The directory of a layer or root that has its files.
const TREE: &str = "tree";

/// An image of which everything is here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The digest of its manifest.
    pub digest: Digest,
    pub config: Digest,
    pub layers: Vec<ImageLayer>,
    /// The size of its stored layers, which are usually compressed.
    pub size_bytes: u64,
    pub process: Process,
    pub added_at_ms: u64,
    /// All repositories that it came from, as `docker.io/library/python`: a name with a digest
    /// means this image only there, whatever the names mean by now.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub repositories: BTreeSet<String>,
}

/// A layer of an image, the lowest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageLayer {
    /// The digest of the stored content.
    pub digest: Digest,
    /// The digest of the archive in it.
    pub diff_id: Digest,
}

/// An image with its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedImage {
    #[serde(flatten)]
    pub image: Image,
    pub names: Vec<NameRecord>,
}

/// All images of this host. Clones are the same store. The second field is the namespace that names are given
/// for; without one they are given for all.
#[derive(Clone, Debug)]
pub struct Images(Arc<Inner>, Option<Arc<str>>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    blobs: Blobs,
}

impl Images {
    /// Opens the store, and removes half-made entries if nobody else uses it.
    pub fn open(paths: &Paths) -> Result<Self, ImageError> {
        let root = paths.images();
        for name in ["", LAYERS, ROOTS, KNOWN, LOCKS, IMPORTS, EROFS, STEPS] {
            let path = root.join(name);
            make_private_directory(&path).map_err(ImageError::files("make", &path))?;
        }
        let blobs = Blobs::open(&root)?;
        let images = Self(Arc::new(Inner { root, blobs }), None);
        images.sweep()?;
        Ok(images)
    }

    /// The same store, with names for one namespace: others do not see them. `None` gives them to all, as an
    /// operator does.
    #[must_use]
    pub fn of_namespace(&self, namespace: Option<&str>) -> Self {
        Self(Arc::clone(&self.0), namespace.map(Arc::from))
    }

    /// The contents, for who fetches some. Hold [`Images::share`] meanwhile, or they may be taken
    /// for garbage.
    pub fn blobs(&self) -> &Blobs {
        &self.0.blobs
    }

    pub(crate) fn imports(&self) -> PathBuf {
        self.0.root.join(IMPORTS)
    }

    pub(crate) fn steps(&self) -> PathBuf {
        self.0.root.join(STEPS)
    }

    fn path(&self, kind: &str, name: impl AsRef<Path>) -> PathBuf {
        self.0.root.join(kind).join(name)
    }

    /// Adds an image whose manifest, configuration and layers are here, optionally with a name. Its
    /// root is made at once, so that later users need not wait.
    pub fn add(
        &self,
        shared: &SharedLock,
        digest: Digest,
        name: Option<&Reference>,
        source: &str,
    ) -> Result<Image, ImageError> {
        let manifest = ManifestOrIndex::parse(&self.0.blobs.read(&digest)?)?;
        let config = manifest.config.ok_or(ImageError::NoManifest { digest })?;
        let document = Config::parse(&self.0.blobs.read(&config.digest)?, manifest.layers.len())?;
        let pairs = manifest.layers.iter().zip(&document.rootfs.diff_ids);
        let layers =
            pairs.map(|(layer, diff_id)| ImageLayer { digest: layer.digest, diff_id: *diff_id });
        let layers: Vec<_> = layers.collect();
        let mut size_bytes = 0_u64;
        for layer in &layers {
            size_bytes = size_bytes.saturating_add(self.0.blobs.size(&layer.digest)?);
        }
        let image = Image {
            digest,
            config: config.digest,
            layers,
            size_bytes,
            process: document.process()?,
            added_at_ms: instant::now_ms(),
            repositories: BTreeSet::new(),
        };
        self.build(shared, &image)?;
        // Two who bring the same image at once would write the same file.
        let _making = self.making(shared, &digest)?;
        let known = self.get(&digest)?;
        let is_new = known.is_none();
        // It may exist already; then it keeps its creation time.
        let mut image = known.unwrap_or(image);
        let from = name.filter(|_| image.repositories.len() < REPOSITORIES_MAX);
        if from.is_some_and(|name| image.repositories.insert(name.place())) || is_new {
            let bytes = serde_json::to_vec_pretty(&image).map_err(io::Error::from);
            let (known, file) = (self.0.root.join(KNOWN), format!("{}.json", digest.hex()));
            let written = bytes.and_then(|bytes| write_durably(&known, &file, &bytes));
            written.map_err(ImageError::files("write", &known.join(file)))?;
        }
        if let Some(name) = name {
            self.give_name(name, digest, source)?;
        }
        Ok(image)
    }

    /// Adds an image with any number of names.
    pub fn add_named(
        &self,
        shared: &SharedLock,
        digest: Digest,
        names: &[Reference],
        source: &str,
    ) -> Result<Image, ImageError> {
        let mut image = self.add(shared, digest, names.first(), source)?;
        for name in names.iter().skip(1) {
            image = self.add(shared, digest, Some(name), source)?;
        }
        Ok(image)
    }

    /// The image of a digest, if it is here.
    pub fn get(&self, digest: &Digest) -> Result<Option<Image>, ImageError> {
        let path = self.path(KNOWN, format!("{}.json", digest.hex()));
        match read_bounded(&path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).map_err(|error| {
                ImageError::Files { action: "read", path, source: error.into() }
            })?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ImageError::files("read", &path)(error)),
        }
    }

    /// Finds an image by a name, a digest, or the first digits of one.
    pub fn find(&self, text: &str) -> Result<Image, ImageError> {
        let none = || ImageError::NotFound { image: text.to_owned() };
        if let Some(digest) = self.digest_like(text)? {
            return self.get(&digest)?.ok_or_else(none);
        }
        let name: Reference = text.parse()?;
        self.find_name(&name)?.ok_or_else(none)
    }

    /// Finds the image of a name. A name with a digest means that content, whatever the name means now, if it
    /// ever came from that repository: permission for one name must not give access to everything else.
    pub fn find_name(&self, name: &Reference) -> Result<Option<Image>, ImageError> {
        if let Some(digest) = name.digest
            && let Some(image) = self.get(&digest)?
            && self.is_from(&image, name)?
        {
            return Ok(Some(image));
        }
        // The digest of an index is a name for the manifest that was chosen from it.
        let tag = name.tag.clone().filter(|_| name.digest.is_none());
        match self.named(&Reference { tag, ..name.clone() })? {
            Some(digest) => self.get(&digest),
            None => Ok(None),
        }
    }

    fn is_from(&self, image: &Image, name: &Reference) -> Result<bool, ImageError> {
        let place = name.place();
        // Images that an earlier bridge added have only names.
        let own = |named: &NameRecord| {
            let parsed = named.name.parse::<Reference>();
            named.digest == image.digest && parsed.is_ok_and(|known| known.place() == place)
        };
        Ok(image.repositories.contains(&place) || self.names()?.iter().any(own))
    }

    /// A digest by its digits, of which some suffice where they are those of one image.
    fn digest_like(&self, text: &str) -> Result<Option<Digest>, ImageError> {
        /// Fewer digits could be a name.
        const DIGITS_MIN: usize = 12;
        let (digits, is_digest) = match text.strip_prefix("sha256:") {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        let is_hex =
            !digits.is_empty() && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !is_hex || !(is_digest || digits.len() >= DIGITS_MIN) {
            return Ok(None);
        }
        let mut found = self.all()?.into_iter().filter(|one| one.digest.hex().starts_with(digits));
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(ImageError::Ambiguous { image: text.to_owned() }),
            (Some(one), None) => Ok(Some(one.digest)),
            (None, _) if is_digest => Err(ImageError::NotFound { image: text.to_owned() }),
            (None, _) => Ok(None),
        }
    }

    fn all(&self) -> Result<Vec<Image>, ImageError> {
        let known = self.0.root.join(KNOWN);
        let mut images = Vec::new();
        for entry in fs::read_dir(&known).map_err(ImageError::files("read", &known))?.flatten() {
            let name = entry.file_name();
            let digits = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let digest = digits.and_then(|digits| Digest::from_hex(digits).ok());
            if let Some(digest) = digest
                && let Some(image) = self.get(&digest)?
            {
                images.push(image);
            }
        }
        images.sort_by_key(|image| (std::cmp::Reverse(image.added_at_ms), image.digest));
        Ok(images)
    }

    /// All images with their names, the newest first.
    pub fn list(&self) -> Result<Vec<ListedImage>, ImageError> {
        let names = self.names()?;
        let listed = self.all()?.into_iter().map(|image| {
            let own = names.iter().filter(|named| named.digest == image.digest).cloned();
            ListedImage { names: own.collect(), image }
        });
        Ok(listed.collect())
    }

    /// One image with its names.
    pub fn inspect(&self, text: &str) -> Result<ListedImage, ImageError> {
        let image = self.find(text)?;
        let names = self.names()?.into_iter().filter(|named| named.digest == image.digest);
        Ok(ListedImage { names: names.collect(), image })
    }
}

impl ListedImage {
    /// The image as a namespace sees it, with its names there; `None` if it has none.
    pub fn seen_by(mut self, namespace: &str) -> Option<Self> {
        self.names.retain(|named| named.is_seen_by(namespace));
        (!self.names.is_empty()).then_some(self)
    }
}

/// Reads a document of the store, which a disk error may have changed.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    use io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(RECORD_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A message about attributes of files that could not be kept.
pub fn describe_lost(lost: SkippedMetadata) -> Option<String> {
    let mut parts = Vec::new();
    if lost.owners > 0 {
        parts.push(format!("the owners of {} files", lost.owners));
    }
    if lost.attributes > 0 {
        parts.push(format!("{} extended attributes", lost.attributes));
    }
    (!parts.is_empty())
        .then(|| format!("{} of the image could not be kept on this host", parts.join(" and ")))
}
