//! Imports images from files of this host: an OCI layout or its archive, the output of `docker
//! save`, the archive of a root, or a directory with one.
//!
//! An archive is unpacked like a layer, with the same bounds and refusals, and examined then.
//! Everything that is taken from it is verified against its digest.

mod archive;
mod commit;
mod step;

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ::archive::TarError;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use tokio::runtime::Handle;

use super::blobs::{BlobError, BlobState};
use super::digest::{Digest, Digester};
use super::document::{
    self, Config, Descriptor, DockerImage, DocumentError, Manifest, ManifestOrIndex,
    NAME_ANNOTATIONS, Platform, RootFs, choose,
};
use super::layer::limits::{BUFFER_BYTES, HEADER_BYTES, LAYER_ENTRIES_MAX, LAYERS_MAX};
use super::layer::{Bounds, Compressed, LayerError, hold};
use super::reference::Reference;
use super::store::limits::{
    CONFIG_BYTES_MAX, IMPORT_BYTES_MAX, INDEX_DEPTH_MAX, MANIFEST_BYTES_MAX, MANIFESTS_MAX,
};
use super::store::{Draft, Image, ImageError, Images, SharedLock, unpack_compressed};

pub(super) const LAYOUT: &str = "oci-layout";
pub(super) const INDEX: &str = "index.json";
pub(super) const DOCKER: &str = "manifest.json";

/// An image that was found, and its name there.
struct SourceEntry {
    digest: Digest,
    names: Vec<Reference>,
}

impl Images {
    /// Imports a file or directory. A name is given to its only image; without one, images keep the
    /// names that they have there. Blocks, within a runtime.
    pub fn import(&self, path: &Path, name: Option<&Reference>) -> Result<Vec<Image>, ImageError> {
        let shared = self.share()?;
        let imported = self.import_shared(&shared, path, name);
        drop(shared);
        if imported.is_err() {
            self.discard()?;
        }
        imported
    }

    fn import_shared(
        &self,
        shared: &SharedLock,
        path: &Path,
        name: Option<&Reference>,
    ) -> Result<Vec<Image>, ImageError> {
        let source = path.display().to_string();
        let import = Import { images: self, path };
        let metadata = fs::metadata(path).map_err(ImageError::files("read", path))?;
        let draft = self.draft_import()?;
        let copy = draft.path().join("archive");
        let found = if metadata.is_dir() {
            if let Some(found) = import.look(&held(path)?)? {
                found
            } else {
                let file = draft.path().join("root.tar");
                archive::write(path, &file)?;
                vec![import.root(&file)?]
            }
        } else {
            let tree = draft.path().join("tree");
            fs::create_dir(&tree).map_err(ImageError::files("make", &tree))?;
            let bounds = Bounds { bytes_max: IMPORT_BYTES_MAX, entries_max: LAYER_ENTRIES_MAX };
            let mut file = File::open(path).map_err(ImageError::files("read", path))?;
            // A stream can be read only once, but it is read twice.
            let is_once = !metadata.is_file();
            if is_once {
                file = spool(path, file, &copy)?;
            }
            let (_, diff_id) = match unpack_compressed(file, &tree, bounds) {
                Err(LayerError::Archive(error)) if is_no_archive(&error) => {
                    return Err(ImageError::NoForm { path: path.to_owned() });
                }
                unpacked => unpacked
                    .map_err(|source| ImageError::Archive { path: path.to_owned(), source })?,
            };
            match import.look(&held(&tree)?)? {
                Some(found) => found,
                None => vec![import.root_of(if is_once { &copy } else { path }, diff_id)?],
            }
        };
        let found = import.named(found, name)?;
        let mut images = Vec::new();
        for SourceEntry { digest, names } in found {
            images.push(self.add_named(shared, digest, &names, &source)?);
        }
        Ok(images)
    }

    fn draft_import(&self) -> Result<Draft, ImageError> {
        let mut bytes = [0; 8];
        getrandom(&mut bytes)?;
        let name = format!("{:016x}", u64::from_le_bytes(bytes));
        Draft::begin(&self.imports(), &name)
    }
}

fn getrandom(bytes: &mut [u8]) -> Result<(), ImageError> {
    let path = Path::new("/dev/urandom");
    let drawn = File::open(path).and_then(|mut file| file.read_exact(bytes));
    drawn.map_err(ImageError::files("read", path))
}

/// Copies a stream that can be read only once.
fn spool(path: &Path, from: File, to: &Path) -> Result<File, ImageError> {
    let failed = ImageError::files("write", to);
    let mut options = File::options();
    let mut copy = options.read(true).write(true).create_new(true).open(to).map_err(&failed)?;
    let mut bounded = from.take(IMPORT_BYTES_MAX + 1);
    io::copy(&mut bounded, &mut copy).map_err(&failed)?;
    if bounded.limit() == 0 {
        let (path, source) = (path.to_owned(), LayerError::TooLarge { max: IMPORT_BYTES_MAX });
        return Err(ImageError::Archive { path, source });
    }
    copy.rewind().map_err(failed)?;
    Ok(copy)
}

/// Whether the file does not begin like an archive.
fn is_no_archive(error: &TarError) -> bool {
    match error {
        TarError::Checksum { offset, .. } => *offset == 0,
        TarError::Truncated { offset } => *offset < HEADER_BYTES,
        _ => false,
    }
}

struct Import<'a> {
    images: &'a Images,
    /// The imported source, for errors.
    path: &'a Path,
}

impl Import<'_> {
    /// The images in a directory, if it is of a form that has any.
    fn look(&self, directory: &OwnedFd) -> Result<Option<Vec<SourceEntry>>, ImageError> {
        if self.read(directory, LAYOUT, MANIFEST_BYTES_MAX)?.is_some() {
            let Some(index) = self.read(directory, INDEX, MANIFEST_BYTES_MAX)? else {
                return Err(ImageError::NoForm { path: self.path.to_owned() });
            };
            return self.layout(directory, &ManifestOrIndex::parse(&index)?).map(Some);
        }
        match self.read(directory, DOCKER, MANIFEST_BYTES_MAX)? {
            Some(saved) => self.saved(directory, &saved).map(Some),
            None => Ok(None),
        }
    }

    fn layout(
        &self,
        directory: &OwnedFd,
        index: &ManifestOrIndex,
    ) -> Result<Vec<SourceEntry>, ImageError> {
        let mut found: Vec<SourceEntry> = Vec::new();
        for descriptor in choose(&index.manifests)? {
            let names = NAME_ANNOTATIONS.iter().filter_map(|key| descriptor.annotations.get(*key));
            // A bare tag names nothing outside its layout.
            let is_whole = |name: &&String| name.contains([':', '/']);
            let names = names.filter(is_whole).filter_map(|name| name.parse().ok()).take(1);
            let names: Vec<Reference> = names.collect();
            let digest = self.manifest(directory, descriptor, INDEX_DEPTH_MAX)?;
            match found.iter_mut().find(|one| one.digest == digest) {
                Some(one) => one.names.extend(names),
                None => found.push(SourceEntry { digest, names }),
            }
        }
        Ok(found)
    }

    /// Takes a manifest with all that it names; of an index, the one for this host.
    fn manifest(
        &self,
        directory: &OwnedFd,
        descriptor: &Descriptor,
        depth: usize,
    ) -> Result<Digest, ImageError> {
        let bytes = self.document(directory, descriptor, MANIFEST_BYTES_MAX)?;
        let either = ManifestOrIndex::parse(&bytes)?;
        let Some(config) = &either.config else {
            if depth == 0 {
                return Err(ImageError::IndexDepth { max: INDEX_DEPTH_MAX });
            }
            let chosen = choose(&either.manifests)?;
            let first =
                chosen.first().ok_or(ImageError::NoManifest { digest: descriptor.digest })?;
            return self.manifest(directory, first, depth - 1);
        };
        let document = self.document(directory, config, CONFIG_BYTES_MAX)?;
        self.keep(&bytes)?;
        self.keep(&document)?;
        for layer in &either.layers {
            let name = blob_name(&layer.digest);
            let file = self.open(directory, &name)?;
            self.copy(file, layer.digest, layer.size)?;
        }
        Ok(descriptor.digest)
    }

    /// A small content of a layout, checked.
    fn document(
        &self,
        directory: &OwnedFd,
        descriptor: &Descriptor,
        max: u64,
    ) -> Result<Vec<u8>, ImageError> {
        let name = blob_name(&descriptor.digest);
        let bytes = self.read(directory, &name, max)?.ok_or_else(|| self.missing(&name))?;
        match Digest::of(&bytes) {
            found if found == descriptor.digest => Ok(bytes),
            found => Err(BlobError::Digest { wanted: descriptor.digest, found }.into()),
        }
    }

    fn saved(&self, directory: &OwnedFd, saved: &[u8]) -> Result<Vec<SourceEntry>, ImageError> {
        let json = |source| DocumentError::Json { what: "list of images", source };
        let saved: Vec<DockerImage> = serde_json::from_slice(saved).map_err(json)?;
        if saved.len() > MANIFESTS_MAX {
            let (count, max) = (saved.len(), MANIFESTS_MAX);
            return Err(DocumentError::TooManyManifests { count, max }.into());
        }
        saved.iter().map(|saved| self.saved_one(directory, saved)).collect()
    }

    /// Such an archive has no manifest, so one is written.
    fn saved_one(
        &self,
        directory: &OwnedFd,
        saved: &DockerImage,
    ) -> Result<SourceEntry, ImageError> {
        if saved.layers.len() > LAYERS_MAX {
            let (count, max) = (saved.layers.len(), LAYERS_MAX);
            return Err(DocumentError::TooManyLayers { count, max }.into());
        }
        let config = self.read(directory, &saved.config, CONFIG_BYTES_MAX)?;
        let config = config.ok_or_else(|| self.missing(&saved.config))?;
        let mut layers = Vec::with_capacity(saved.layers.len());
        for name in &saved.layers {
            layers.push(self.layer(&self.path.join(name), || self.open(directory, name))?);
        }
        let tags = saved.repo_tags.iter().flatten().take(MANIFESTS_MAX);
        let names = tags.filter_map(|tag| tag.parse().ok()).collect();
        Ok(SourceEntry { digest: self.describe(&config, &layers)?, names })
    }

    /// Takes a layer and returns its description.
    fn layer(
        &self,
        path: &Path,
        open: impl Fn() -> Result<File, ImageError>,
    ) -> Result<Descriptor, ImageError> {
        let failed = ImageError::files("read", path);
        let (digest, size) = hash(open()?).map_err(&failed)?;
        // By its content: a wrong media type would keep others from unpacking it.
        let kind = Compressed::open(open()?).map_err(&failed)?.media_type();
        self.copy(open()?, digest, size)?;
        Ok(Descriptor::new(kind, digest, size))
    }

    /// Takes a layer from a file that was made here.
    fn layer_at(&self, path: &Path) -> Result<Descriptor, ImageError> {
        self.layer(path, || File::open(path).map_err(ImageError::files("read", path)))
    }

    /// Writes the manifest of a configuration and its layers.
    fn describe(&self, config: &[u8], layers: &[Descriptor]) -> Result<Digest, ImageError> {
        let digest = self.keep(config)?;
        let config = Descriptor::new(document::CONFIG, digest, config.len() as u64);
        let (schema_version, media_type) = (2, document::MANIFEST);
        let manifest = Manifest { schema_version, media_type, config: &config, layers };
        let bytes = serde_json::to_vec(&manifest)
            .map_err(|source| DocumentError::Json { what: "manifest", source })?;
        self.keep(&bytes)
    }

    /// An image of one layer that says nothing of itself, from its archive.
    fn root(&self, archive: &Path) -> Result<SourceEntry, ImageError> {
        let failed = ImageError::files("read", archive);
        let file = File::open(archive).map_err(&failed)?;
        let (diff_id, _) = hash(file).map_err(&failed)?;
        self.root_of(archive, diff_id)
    }

    fn root_of(&self, archive: &Path, diff_id: Digest) -> Result<SourceEntry, ImageError> {
        let layer = self.layer_at(archive)?;
        let Platform { architecture, os } = Platform::host();
        let rootfs = RootFs { kind: "layers".to_owned(), diff_ids: vec![diff_id] };
        let config = Config { architecture, os, config: None, rootfs };
        let config = serde_json::to_vec(&config)
            .map_err(|source| DocumentError::Json { what: "configuration", source })?;
        Ok(SourceEntry { digest: self.describe(&config, &[layer])?, names: Vec::new() })
    }

    /// Gives the name that was asked for to the one image that there is.
    fn named(
        &self,
        mut found: Vec<SourceEntry>,
        name: Option<&Reference>,
    ) -> Result<Vec<SourceEntry>, ImageError> {
        let path = self.path.to_owned();
        let Some(name) = name else {
            let nameless = found.is_empty() || found.iter().any(|one| one.names.is_empty());
            return if nameless { Err(ImageError::Nameless { path }) } else { Ok(found) };
        };
        if found.len() > 1 {
            // If there are several, the one with this name is meant.
            let is_meant = |one: &SourceEntry| one.names.contains(name);
            let names = found.iter().flat_map(|one| &one.names).map(Reference::short).collect();
            found.retain(is_meant);
            if found.len() != 1 {
                return Err(ImageError::Several { path, names });
            }
        }
        for one in &mut found {
            one.names = vec![name.clone()];
        }
        Ok(found)
    }

    fn keep(&self, bytes: &[u8]) -> Result<Digest, ImageError> {
        Ok(Handle::current().block_on(self.images.blobs().put(bytes.to_vec()))?)
    }

    /// Takes a content; one with the wrong digest is refused and removed.
    fn copy(&self, mut file: File, digest: Digest, size: u64) -> Result<(), ImageError> {
        let begun = Handle::current().block_on(self.images.blobs().begin(digest, size))?;
        let BlobState::Partial(mut partial) = begun else { return Ok(()) };
        partial.start_again()?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match file.read(&mut buffer).map_err(ImageError::files("read", self.path))? {
                0 => return Ok(partial.finish()?),
                read => partial.write(&buffer[..read])?,
            }
        }
    }

    fn missing(&self, name: &str) -> ImageError {
        ImageError::files("read", &self.path.join(name))(io::ErrorKind::NotFound.into())
    }

    /// A small file of a directory, if it is there.
    fn read(
        &self,
        directory: &OwnedFd,
        name: &str,
        max: u64,
    ) -> Result<Option<Vec<u8>>, ImageError> {
        let failed = ImageError::files("read", &self.path.join(name));
        let file = match self.open(directory, name) {
            Err(ImageError::Files { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(max + 1).read_to_end(&mut bytes).map_err(&failed)?;
        if bytes.len() as u64 > max {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        Ok(Some(bytes))
    }

    /// A regular file below a directory; old archives of docker have links within themselves.
    fn open(&self, directory: &OwnedFd, name: &str) -> Result<File, ImageError> {
        let failed = ImageError::files("read", &self.path.join(name));
        // Opening a pipe must not block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let name = std::ffi::OsStr::from_bytes(name.as_bytes());
        let opened = rustix::fs::openat2(directory, name, flags, Mode::empty(), within);
        let file = File::from(opened.map_err(|errno| failed(errno.into()))?);
        if file.metadata().map_err(&failed)?.is_file() {
            Ok(file)
        } else {
            Err(failed(io::ErrorKind::InvalidInput.into()))
        }
    }
}

fn held(directory: &Path) -> Result<OwnedFd, ImageError> {
    hold(directory).map_err(|errno| ImageError::files("read", directory)(errno.into()))
}

pub(super) fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn hash(mut file: File) -> io::Result<(Digest, u64)> {
    let mut digester = Digester::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => {
                let size = digester.bytes();
                return Ok((digester.finish(), size));
            }
            read => digester.update(&buffer[..read]),
        }
    }
}
