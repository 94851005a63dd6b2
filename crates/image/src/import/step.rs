//! One step of a build: an image with one more layer, or with changed settings; and a cache of the images
//! that steps have produced.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Import, commit};
use crate::digest::Digest;
use crate::document::{DocumentError, ManifestOrIndex};
use crate::layer::limits::LAYERS_MAX;
use crate::reference::Reference;
use crate::store::{Draft, Image, ImageError, Images, Lease, SharedLock};

/// A place to write a layer in. What is there goes with it.
pub struct Workbench {
    draft: Draft,
    shared: SharedLock,
}

impl Workbench {
    pub fn path(&self) -> &Path {
        self.draft.path()
    }
}

impl Images {
    /// Begins a layer. Nobody takes it for garbage while this is held.
    pub fn workbench(&self) -> Result<Workbench, ImageError> {
        let shared = self.share()?;
        Ok(Workbench { draft: self.draft_import()?, shared })
    }

    /// The configuration of an image as it was written, with unknown fields.
    pub fn document(&self, image: &Image) -> Result<Value, ImageError> {
        let broken = |source| DocumentError::Json { what: "configuration", source };
        Ok(serde_json::from_slice(&self.blobs().read(&image.config)?).map_err(broken)?)
    }

    /// The changes of a sandbox to its image, as a layer. Blocks.
    pub fn difference(
        &self,
        bench: &Workbench,
        base: &Lease,
        root: impl Read,
        source: &str,
    ) -> Result<PathBuf, ImageError> {
        commit::layer_of(bench.path(), base, root, source)
    }

    /// Adds the result of a step: the layers of `base`, `layer` on top, and the settings in `document`, whose
    /// list of layers is corrected here. Blocks, within a runtime.
    pub fn put_on(
        &self,
        bench: &Workbench,
        base: Option<&Image>,
        layer: Option<&Path>,
        mut document: Value,
        names: &[Reference],
        source: &str,
    ) -> Result<Lease, ImageError> {
        let import = Import { images: self, path: Path::new(source) };
        let (mut layers, mut diff_ids) = match base {
            Some(base) => {
                let diff_ids = base.layers.iter().map(|layer| json!(layer.diff_id)).collect();
                (ManifestOrIndex::parse(&self.blobs().read(&base.digest)?)?.layers, diff_ids)
            }
            None => (Vec::new(), Vec::new()),
        };
        if let Some(layer) = layer {
            let layer = import.layer_at(layer)?;
            diff_ids.push(json!(layer.digest));
            layers.push(layer);
        }
        if layers.len() > LAYERS_MAX {
            let (count, max) = (layers.len(), LAYERS_MAX);
            return Err(DocumentError::TooManyLayers { count, max }.into());
        }
        document["rootfs"] = json!({ "type": "layers", "diff_ids": diff_ids });
        let broken = |source| DocumentError::Json { what: "configuration", source };
        let digest = import.describe(&serde_json::to_vec(&document).map_err(broken)?, &layers)?;
        let image = self.add_named(&bench.shared, digest, names, source)?;
        self.lease(&image)
    }

    /// The cached result of a step, if it still exists.
    pub fn step_done(&self, step: &Digest) -> Result<Option<Lease>, ImageError> {
        let shared = self.share()?;
        let digest = match fs::read_to_string(self.steps().join(step.hex())) {
            Ok(text) => text.trim().parse::<Digest>().ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(ImageError::files("read", &self.steps())(error)),
        };
        let image = digest.map(|digest| self.get(&digest)).transpose()?.flatten();
        let lease = image.map(|image| self.lease(&image)).transpose();
        drop(shared);
        lease
    }

    /// Caches the result of a step, as long as that exists.
    pub fn step_is(&self, step: &Digest, image: &Image) -> Result<(), ImageError> {
        let (steps, name) = (self.steps(), step.hex());
        let written =
            host::paths::write_durably(&steps, &name, image.digest.to_string().as_bytes());
        written.map_err(ImageError::files("write", &steps.join(name)))
    }
}
