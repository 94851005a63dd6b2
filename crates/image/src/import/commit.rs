//! Saves the files of a sandbox as an image: the difference to its base image becomes one layer on
//! top of that image.
//!
//! The sandbox sends its whole root as an archive. It is untrusted: the archive is unpacked like a layer,
//! with the same bounds and refusals. Then unchanged files are removed, missing ones become whiteouts, and
//! the rest is the layer.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde_json::{Value, json};

use super::{Import, archive};
use crate::digest::Digest;
use crate::document::{DocumentError, ManifestOrIndex};
use crate::layer::limits::{BUFFER_BYTES, IMAGE_BYTES_MAX, IMAGE_ENTRIES_MAX, LAYERS_MAX};
use crate::layer::{Bounds, hold, open_at, remove_tree, unpack_files};
use crate::reference::Reference;
use crate::store::{Image, ImageError, Images, Lease};

/// Mount points that a machine adds; they are not part of the image.
const MOUNTED: [&str; 3] = ["dev", "proc", "sys"];
/// Directories that a machine makes in a root without them. They become part of the image once they contain
/// something.
const MADE: [&str; 3] = ["run", "tmp", "sandbox"];
/// Files that a machine writes into a root to configure its programs.
const TOLD: [&str; 4] =
    ["etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/ssl/burrow-authorities.pem"];
/// The prefix of a removed file's name in a layer.
const WHITEOUT: &str = ".wh.";

impl Images {
    /// Saves a sandbox of the image `base` as an image with a name. `root` is the archive of all its files.
    /// Blocks, within a runtime.
    pub fn commit(
        &self,
        base: &Image,
        root: impl Read,
        name: &Reference,
        source: &str,
    ) -> Result<Image, ImageError> {
        let shared = self.share()?;
        let lease = self.lease(base)?;
        let made = (|| {
            let import = Import { images: self, path: Path::new(source) };
            let draft = self.draft_import()?;
            let file = layer_of(draft.path(), &lease, root, source)?;
            import.on_top(base, &file)
        })();
        let image = made.and_then(|digest| self.add(&shared, digest, Some(name), source));
        drop((lease, shared));
        if image.is_err() {
            self.discard()?;
        }
        image
    }
}

/// The difference between a root and its image, as a layer's archive in a directory.
pub(super) fn layer_of(
    directory: &Path,
    base: &Lease,
    root: impl Read,
    source: &str,
) -> Result<PathBuf, ImageError> {
    let tree = directory.join("tree");
    fs::create_dir(&tree).map_err(ImageError::files("make", &tree))?;
    let bounds = Bounds { bytes_max: IMAGE_BYTES_MAX, entries_max: IMAGE_ENTRIES_MAX };
    let refused = |error| ImageError::Archive { path: source.into(), source: error };
    unpack_files(&MOUNTED, root, &tree, bounds).map_err(refused)?;
    keep_difference(&base.root, &tree)?;
    let file = directory.join("layer.tar");
    archive::write(&tree, &file)?;
    Ok(file)
}

impl Import<'_> {
    /// The manifest of an image with one layer more.
    fn on_top(&self, base: &Image, layer: &Path) -> Result<Digest, ImageError> {
        let blobs = self.images.blobs();
        let layer = self.layer_at(layer)?;
        // The new layer is not compressed.
        let digest = layer.digest;
        let mut layers = ManifestOrIndex::parse(&blobs.read(&base.digest)?)?.layers;
        layers.push(layer);
        if layers.len() > LAYERS_MAX {
            let (count, max) = (layers.len(), LAYERS_MAX);
            return Err(DocumentError::TooManyLayers { count, max }.into());
        }
        let broken = |source| DocumentError::Json { what: "configuration", source };
        // Unknown fields are preserved.
        let mut config: Value =
            serde_json::from_slice(&blobs.read(&base.config)?).map_err(broken)?;
        if let Some(Value::Array(diff_ids)) = config.pointer_mut("/rootfs/diff_ids") {
            diff_ids.push(json!(digest));
        }
        if let Some(Value::Array(history)) = config.get_mut("history") {
            history.push(json!({ "created_by": self.path.to_string_lossy() }));
        }
        self.describe(&serde_json::to_vec(&config).map_err(broken)?, &layers)
    }
}

/// Removes from `tree` what it shares with `base`.
fn keep_difference(base: &Path, tree: &Path) -> Result<(), ImageError> {
    let mut both = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    // Directories that are in both; the rest is new as a whole.
    while let Some(place) = waiting.pop() {
        for name in names(&base.join(&place))? {
            let (below, path) = (base.join(&place).join(&name), tree.join(&place).join(&name));
            let failed = ImageError::files("compare", &path);
            if is_machines(&place.join(&name)) {
                continue;
            }
            let old = fs::symlink_metadata(&below).map_err(&failed)?;
            match fs::symlink_metadata(&path) {
                Ok(new) if old.is_dir() && new.is_dir() => waiting.push(place.join(&name)),
                Ok(new) => {
                    if is_same(&below, &old, &path, &new).map_err(&failed)? {
                        fs::remove_file(&path).map_err(failed)?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let mut gone = std::ffi::OsString::from(WHITEOUT);
                    gone.push(&name);
                    File::create(tree.join(&place).join(gone)).map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        both.push(place);
    }
    let root = hold(tree).map_err(|errno| ImageError::files("open", tree)(errno.into()))?;
    for machines in MOUNTED.iter().chain(&TOLD) {
        let (parent, name) = machines.rsplit_once('/').unwrap_or(("", machines));
        let failed = ImageError::files("remove", &tree.join(machines));
        match open_at(&root, parent.as_bytes()) {
            Ok(parent) => remove_tree(&parent, name.as_bytes()).map_err(failed)?,
            // The base has no such directory, or a link in its place, which leads nowhere in it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
    }
    for made in MADE {
        let path = tree.join(made);
        // A directory that is not empty, or no directory, stays.
        if fs::symlink_metadata(base.join(made)).is_err() {
            fs::remove_dir(&path).ok();
        }
    }
    // The last ones are the deepest.
    for place in both.iter().rev() {
        let (below, path) = (base.join(place), tree.join(place));
        let failed = ImageError::files("compare", &path);
        let old = fs::metadata(&below).map_err(&failed)?;
        let new = fs::symlink_metadata(&path).map_err(&failed)?;
        if place.as_os_str().is_empty() {
            // The root's own attributes are not the sandbox's to change.
            fs::set_permissions(&path, old.permissions()).map_err(failed)?;
        } else if looks(&old) == looks(&new)
            && fs::read_dir(&path).map_err(&failed)?.next().is_none()
        {
            fs::remove_dir(&path).map_err(failed)?;
        }
    }
    Ok(())
}

/// Whether the machine adds this path to a root.
fn is_machines(path: &Path) -> bool {
    MOUNTED.iter().chain(&TOLD).any(|own| path == Path::new(own))
}

fn names(directory: &Path) -> Result<Vec<std::ffi::OsString>, ImageError> {
    let listed = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let listed = listed.map_err(ImageError::files("read", directory))?;
    Ok(listed.iter().map(fs::DirEntry::file_name).collect())
}

fn looks(found: &Metadata) -> (u32, u32, u32) {
    (found.mode(), found.uid(), found.gid())
}

/// Whether two entries that are not both directories say the same.
fn is_same(below: &Path, old: &Metadata, path: &Path, new: &Metadata) -> io::Result<bool> {
    if looks(old) != looks(new) || old.mtime() != new.mtime() || old.len() != new.len() {
        return Ok(false);
    }
    if old.is_symlink() {
        return Ok(fs::read_link(below)? == fs::read_link(path)?);
    }
    Ok(!old.is_file() || has_same_bytes(File::open(below)?, File::open(path)?)?)
}

fn has_same_bytes(mut one: File, mut other: File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        let count = one.read(&mut left)?;
        if count == 0 {
            return Ok(other.read(&mut right[..1])? == 0);
        }
        match other.read_exact(&mut right[..count]) {
            Ok(()) if left[..count] == right[..count] => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => return Ok(false),
        }
    }
}
