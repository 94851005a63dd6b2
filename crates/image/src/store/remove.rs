//! Removes images on request, images without a name or user, and files of interrupted builds.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::lock::ExclusiveLock;
use super::{EROFS, IMPORTS, Image, ImageError, Images, KNOWN, LAYERS, LOCKS, NEW, ROOTS, STEPS};
use crate::digest::Digest;
use crate::layer;
use crate::reference::Reference;

/// A user of an image as its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub digest: Digest,
    /// Its name, for people.
    pub name: String,
}

/// The result of a removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    pub digest: Digest,
    /// The names that are gone.
    pub names: Vec<String>,
    /// Whether the image went with them; it stays while it has another name.
    pub image: bool,
}

/// The unused images that were removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneResult {
    pub images: Vec<Digest>,
    pub layers: u64,
    pub blobs: u64,
    /// The size of the removed contents; unpacked layers are not counted.
    pub bytes: u64,
}

impl Images {
    /// Removes a name, and the image if it has no other; or an image with all names, by its digest.
    /// Refused while it is in use as a root. `users` is called when nobody can start from the store
    /// any more.
    pub fn remove(
        &self,
        text: &str,
        users: impl FnOnce() -> Vec<User>,
    ) -> Result<Removed, ImageError> {
        let alone = self.alone()?;
        let image = self.find(text)?;
        let names = self.names()?;
        let mut own: Vec<_> =
            names.into_iter().filter(|named| named.digest == image.digest).collect();
        let all = own.len();
        if let Ok(Reference { digest: None, .. }) = text.parse::<Reference>()
            && let Some(wanted) = text.parse().ok().map(|name| super::names::key(&name))
            && own.iter().any(|named| named.name == wanted)
        {
            own.retain(|named| named.name == wanted);
        }
        let gone: Vec<String> = own.into_iter().map(|named| named.name).collect();
        let goes = gone.len() == all;
        if goes {
            self.refuse_used(text, &image.digest, &users())?;
        }
        self.change_names(|names| names.retain(|named| !gone.contains(&named.name)))?;
        if goes {
            self.forget(&alone, &image)?;
            self.collect(&alone)?;
        }
        Ok(Removed { digest: image.digest, names: gone, image: goes })
    }

    /// Removes all unused images without a name, and all layers and contents without an image.
    pub fn prune(&self, users: impl FnOnce() -> Vec<User>) -> Result<PruneResult, ImageError> {
        let alone = self.alone()?;
        let users = users();
        let named: BTreeSet<Digest> = self.names()?.iter().map(|named| named.digest).collect();
        let mut gone = Vec::new();
        for image in self.all()? {
            let is_used = self.refuse_used("", &image.digest, &users).is_err();
            if !named.contains(&image.digest) && !is_used {
                self.forget(&alone, &image)?;
                gone.push(image.digest);
            }
        }
        Ok(PruneResult { images: gone, ..self.collect(&alone)? })
    }

    /// Removes the remains of a failed import, unless somebody uses the store; then the next removal does.
    pub fn discard(&self) -> Result<(), ImageError> {
        match self.alone_now()? {
            Some(alone) => self.collect(&alone).map(drop),
            None => Ok(()),
        }
    }

    fn refuse_used(&self, text: &str, digest: &Digest, users: &[User]) -> Result<(), ImageError> {
        let own = users.iter().filter(|user| user.digest == *digest);
        let mut users: Vec<String> = own.map(|user| user.name.clone()).collect();
        let root = self.path(ROOTS, digest.hex());
        // One-shots have no record; they hold the root itself.
        let is_held = File::open(&root)
            .is_ok_and(|held| flock(&held, FlockOperation::NonBlockingLockExclusive).is_err());
        if is_held && users.is_empty() {
            users.push("a sandbox without a name".to_owned());
        }
        if users.is_empty() {
            return Ok(());
        }
        Err(ImageError::InUse { image: text.to_owned(), users })
    }

    /// Removes an image: its record first, so that no record lacks its contents.
    fn forget(&self, _: &ExclusiveLock, image: &Image) -> Result<(), ImageError> {
        let known = self.path(KNOWN, format!("{}.json", image.digest.hex()));
        fs::remove_file(&known).map_err(ImageError::files("remove", &known))?;
        for kind in [ROOTS, EROFS] {
            remove_directory(&self.0.root.join(kind), &image.digest.hex())?;
        }
        Ok(())
    }

    /// Removes everything without an image.
    fn collect(&self, _: &ExclusiveLock) -> Result<PruneResult, ImageError> {
        let mut roots = BTreeSet::new();
        let mut layers = BTreeSet::new();
        let mut blobs = BTreeSet::new();
        for image in self.all()? {
            roots.insert(image.digest.hex());
            blobs.extend([image.digest, image.config]);
            for layer in image.layers {
                layers.insert(layer.diff_id.hex());
                blobs.insert(layer.digest);
            }
        }
        let mut pruned = PruneResult::default();
        for (kind, used) in [(ROOTS, &roots), (EROFS, &roots), (LAYERS, &layers)] {
            for name in entries(&self.0.root.join(kind))? {
                if !used.contains(&name) {
                    remove_directory(&self.0.root.join(kind), &name)?;
                    pruned.layers += u64::from(kind == LAYERS);
                }
            }
        }
        for digest in self.0.blobs.list()? {
            if !blobs.contains(&digest) {
                pruned.bytes += self.0.blobs.size(&digest)?;
                self.0.blobs.remove(&digest)?;
                pruned.blobs += 1;
            }
        }
        for name in entries(&self.steps())? {
            let path = self.path(STEPS, &name);
            let failed = ImageError::files("remove", &path);
            let digest = fs::read_to_string(&path).map_err(&failed)?;
            let known = digest.trim().parse::<Digest>().ok().map(|digest| self.get(&digest));
            if !matches!(known, Some(Ok(Some(_)))) {
                fs::remove_file(&path).map_err(failed)?;
            }
        }
        // Nobody waits for these locks, because nobody shares the store.
        for name in entries(&self.0.root.join(LOCKS))? {
            let path = self.path(LOCKS, name);
            fs::remove_file(&path).map_err(ImageError::files("remove", &path))?;
        }
        Ok(pruned)
    }

    /// Removes half-made entries, unless somebody is making something.
    pub(super) fn sweep(&self) -> Result<(), ImageError> {
        let Some(_alone) = self.alone_now()? else { return Ok(()) };
        for kind in ["", KNOWN, LAYERS, ROOTS, EROFS, IMPORTS, STEPS] {
            let directory = self.0.root.join(kind);
            for name in entries(&directory)?.iter().filter(|name| name.ends_with(NEW)) {
                remove_directory(&directory, name)?;
            }
        }
        Ok(())
    }
}

fn entries(directory: &Path) -> Result<Vec<String>, ImageError> {
    let listed = fs::read_dir(directory).map_err(ImageError::files("read", directory))?;
    Ok(listed.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Removes a directory of the store. It is renamed first, so that a crash leaves something that the next
/// opening removes, and nothing that looks complete.
fn remove_directory(parent: &Path, name: &str) -> Result<(), ImageError> {
    let path = parent.join(name);
    let failed = ImageError::files("remove", &path);
    let going = if name.ends_with(NEW) { name.to_owned() } else { format!("{name}{NEW}") };
    if going != name {
        match fs::rename(&path, parent.join(&going)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed.map_err(&failed)?,
        }
    }
    let held = layer::hold(parent).map_err(|errno| failed(errno.into()))?;
    layer::remove_tree(&held, going.as_bytes()).map_err(failed)
}
