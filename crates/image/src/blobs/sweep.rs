//! Removes partial contents that are not locked.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::partial::{is_locked_by_us, remove_locked};
use super::{BlobError, Blobs};
use crate::digest::Digest;
use crate::limits::{PARTIAL_AGE_MAX, PARTIALS_MAX};

/// Keeps the newest partial contents, which a pull may continue.
pub(super) fn sweep(blobs: &Blobs) -> Result<(), BlobError> {
    let directory = blobs.partial();
    let listed = fs::read_dir(&directory).map_err(|error| BlobError::io(&directory, error))?;
    let mut unused: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in listed.flatten() {
        let name = entry.file_name();
        let digest = name.to_str().and_then(|name| Digest::from_hex(name).ok());
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        match (digest, changed) {
            (Some(digest), Ok(changed)) if is_young(changed) && !blobs.has(&digest) => {
                unused.push((changed, entry.path()));
            }
            _ => remove_partial(&entry.path())?,
        }
    }
    unused.sort_unstable_by_key(|(changed, _)| std::cmp::Reverse(*changed));
    unused.iter().skip(PARTIALS_MAX).try_for_each(|(_, path)| remove_partial(path))
}

/// A clock that was set back makes nothing old.
fn is_young(changed: SystemTime) -> bool {
    changed.elapsed().is_ok_and(|age| age < PARTIAL_AGE_MAX) || changed > SystemTime::now()
}

/// Removes a partial content, if it exists and is not locked.
pub(super) fn remove_partial(path: &Path) -> Result<(), BlobError> {
    let failed = |error| BlobError::io(path, error);
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(failed)?,
    };
    if is_locked_by_us(&file).map_err(failed)? {
        remove_locked(path, &file);
    }
    Ok(())
}
