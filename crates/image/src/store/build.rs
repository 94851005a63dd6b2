//! Builds layers and roots. Each is built once, under a temporary name, and renamed when it is on disk.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{
    Image, ImageError, ImageLayer, Images, LAYERS, NEW, ROOTS, SharedLock, TREE, read_bounded,
};
use crate::compose::{Layer, compose};
use crate::digest::Digest;
use crate::layer::limits::{
    IMAGE_BYTES_MAX, IMAGE_ENTRIES_MAX, LAYER_BYTES_MAX, LAYER_ENTRIES_MAX,
    LAYER_OVERHEAD_BYTES_MAX,
};
use crate::layer::{
    self, Bounded, Bounds, LayerError, Marks, SkippedMetadata, UnpackedLayer, unpack,
};
use host::paths::{make_private_directory, write_durably};

const MARKS: &str = "marks";
const LAYER: &str = "layer.json";
const ROOT: &str = "root.json";

/// The metadata of a layer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct LayerRecord {
    entries: u64,
    bytes: u64,
    lost: SkippedMetadata,
}

/// The metadata of a root.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct RootRecord {
    lost: SkippedMetadata,
}

/// An image in use: its root cannot be removed while this is held.
#[derive(Debug)]
pub struct Lease {
    pub image: Image,
    /// The directory that is the root.
    pub root: PathBuf,
    pub lost: SkippedMetadata,
    _held: File,
}

/// A directory that is being made, and goes unless it is finished.
pub(crate) struct Draft {
    path: PathBuf,
    parent: PathBuf,
    name: String,
    finished: bool,
}

impl Draft {
    /// Makes an empty directory beside the final path.
    pub(crate) fn begin(parent: &Path, name: &str) -> Result<Self, ImageError> {
        let path = parent.join(format!("{name}{NEW}"));
        let draft = Self {
            path: path.clone(),
            parent: parent.to_owned(),
            name: name.to_owned(),
            finished: false,
        };
        // The remains of an earlier bridge are useless.
        draft.remove().map_err(ImageError::files("remove", &path))?;
        make_private_directory(&path).map_err(ImageError::files("make", &path))?;
        Ok(draft)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the thing its name, once all of it is on disk.
    pub(super) fn finish(mut self) -> Result<(), ImageError> {
        let renamed = (|| {
            let held = File::open(&self.path)?;
            nix::unistd::syncfs(&held)?;
            fs::rename(&self.path, self.parent.join(&self.name))?;
            File::open(&self.parent)?.sync_all()
        })();
        renamed.map_err(ImageError::files("finish", &self.path))?;
        self.finished = true;
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        let parent = layer::hold(&self.parent)?;
        let name = format!("{}{NEW}", self.name);
        layer::remove_tree(&parent, name.as_bytes())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.finished {
            // If this fails, the next opening of the store removes it.
            let _ = self.remove();
        }
    }
}

impl Images {
    /// The root of an image, made if it is not there. It stays while the lease is held.
    pub fn lease(&self, image: &Image) -> Result<Lease, ImageError> {
        let shared = self.share()?;
        self.build(&shared, image)?;
        let path = self.path(ROOTS, image.digest.hex());
        let failed = ImageError::files("hold", &path);
        let held = File::open(&path).map_err(&failed)?;
        let locked = flock(&held, FlockOperation::NonBlockingLockShared);
        locked.map_err(|errno| failed(errno.into()))?;
        let bytes = read_bounded(&path.join(ROOT)).map_err(&failed)?;
        let record: RootRecord =
            serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?;
        Ok(Lease { image: image.clone(), root: path.join(TREE), lost: record.lost, _held: held })
    }

    /// Makes the missing layers and root of an image.
    pub(super) fn build(&self, shared: &SharedLock, image: &Image) -> Result<(), ImageError> {
        let name = image.digest.hex();
        if self.path(ROOTS, &name).is_dir() {
            return Ok(());
        }
        let _making = self.making(shared, &image.digest)?;
        if self.path(ROOTS, &name).is_dir() {
            return Ok(());
        }
        let mut spent = LayerRecord { entries: 0, bytes: 0, lost: SkippedMetadata::default() };
        let mut marks = Vec::with_capacity(image.layers.len());
        for layer in &image.layers {
            let record = self.build_layer(shared, layer, spent)?;
            spent.entries += record.entries;
            spent.bytes += record.bytes;
            spent.lost.owners += record.lost.owners;
            spent.lost.attributes += record.lost.attributes;
            if spent.bytes > IMAGE_BYTES_MAX {
                return Err(ImageError::TooLarge { max: IMAGE_BYTES_MAX });
            }
            if spent.entries > IMAGE_ENTRIES_MAX {
                return Err(ImageError::TooMany { max: IMAGE_ENTRIES_MAX });
            }
            marks.push(self.marks_of(&layer.diff_id)?);
        }
        let draft = Draft::begin(&self.0.root.join(ROOTS), &name)?;
        let tree = draft.path().join(TREE);
        make_private_directory(&tree).map_err(ImageError::files("make", &tree))?;
        let place = |layer: &ImageLayer| self.path(LAYERS, layer.diff_id.hex()).join(TREE);
        let trees: Vec<_> = image.layers.iter().map(place).collect();
        let layers = trees.iter().zip(&marks).map(|(tree, marks)| Layer { tree, marks });
        compose(&layers.collect::<Vec<_>>(), &tree)?;
        write_record(draft.path(), ROOT, &RootRecord { lost: spent.lost })?;
        draft.finish()
    }

    fn marks_of(&self, diff_id: &Digest) -> Result<Marks, ImageError> {
        let path = self.path(LAYERS, diff_id.hex()).join(MARKS);
        let bytes = fs::read(&path).map_err(ImageError::files("read", &path))?;
        Marks::parse(&bytes)
            .map_err(|error| ImageError::files("read", &path)(io::Error::other(error)))
    }

    /// Unpacks a layer unless it exists, within the bounds that the lower layers have left.
    fn build_layer(
        &self,
        shared: &SharedLock,
        layer: &ImageLayer,
        spent: LayerRecord,
    ) -> Result<LayerRecord, ImageError> {
        let name = layer.diff_id.hex();
        let done = self.path(LAYERS, &name);
        let _making = self.making(shared, &layer.diff_id)?;
        if done.is_dir() {
            let path = done.join(LAYER);
            let failed = ImageError::files("read", &path);
            let bytes = read_bounded(&path).map_err(&failed)?;
            return serde_json::from_slice(&bytes).map_err(|error| failed(error.into()));
        }
        let draft = Draft::begin(&self.0.root.join(LAYERS), &name)?;
        let tree = draft.path().join(TREE);
        make_private_directory(&tree).map_err(ImageError::files("make", &tree))?;
        let bounds = Bounds {
            bytes_max: LAYER_BYTES_MAX.min(IMAGE_BYTES_MAX.saturating_sub(spent.bytes)),
            entries_max: LAYER_ENTRIES_MAX.min(IMAGE_ENTRIES_MAX.saturating_sub(spent.entries)),
        };
        let file = self.0.blobs.open_blob(&layer.digest)?;
        let refused = |source| ImageError::Layer { diff_id: layer.diff_id, source };
        let (unpacked, found) = unpack_compressed(file, &tree, bounds).map_err(refused)?;
        if found != layer.diff_id {
            let (digest, diff_id) = (layer.digest, layer.diff_id);
            return Err(ImageError::DiffId { digest, diff_id, found });
        }
        let marks = draft.path().join(MARKS);
        fs::write(&marks, unpacked.marks.encode()).map_err(ImageError::files("write", &marks))?;
        let UnpackedLayer { entries, bytes, lost, .. } = unpacked;
        let record = LayerRecord { entries, bytes, lost };
        write_record(draft.path(), LAYER, &record)?;
        draft.finish()?;
        Ok(record)
    }
}

fn write_record(directory: &Path, name: &str, record: &impl Serialize) -> Result<(), ImageError> {
    let bytes = serde_json::to_vec(record).map_err(io::Error::from);
    let written = bytes.and_then(|bytes| write_durably(directory, name, &bytes));
    written.map_err(ImageError::files("write", &directory.join(name)))
}

/// Unpacks the stored bytes of a layer, and returns the digest of the archive in them.
pub(crate) fn unpack_compressed(
    file: impl Read,
    into: &Path,
    bounds: Bounds,
) -> Result<(UnpackedLayer, Digest), LayerError> {
    let bytes_max = bounds.bytes_max.saturating_add(LAYER_OVERHEAD_BYTES_MAX);
    let mut archive = Bounded::open(file, bytes_max).map_err(LayerError::Read)?;
    let unpacked = unpack(&mut archive, into, bounds);
    if let Some(exceeded) = archive.exceeded() {
        return Err(exceeded);
    }
    Ok((unpacked?, archive.finish()))
}
