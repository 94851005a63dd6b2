//! Artifacts: results of runs that are kept on the host. They survive the sandbox that made them
//! and the bridge that stored them.
//!
//! ```text
//!  before ─▶ the run ─▶ after ─▶ listing ─▶ copy ─▶ blob (a content)  ─▶ row (what it is called)
//!                         offers (what it shows and names) ─┘
//! ```
//!
//! A row is in the [`Store`]; its bytes are a file named by their digest, so that equal contents are stored
//! once. The content is in its place before its row is written, and removed after the last row that refers to
//! it: a bridge that dies in between leaves an unreferenced content, which the next one removes. Everything
//! from a guest, including names and numbers, is hostile. This module knows nothing about callers; `api` and
//! `cli` do.

mod blob;
mod capture;
mod category;
mod copy;
mod glob;
mod id;
mod ignored;
mod left_out;
pub mod limits;
mod listing;
mod offers;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

pub use blob::{Digest, InvalidDigest};
pub use capture::{ARTIFACTS_DIR_VARIABLE, Before, Captured, Origin, Scene};
pub use category::{Category, UnknownCategory};
pub use id::{ArtifactId, InvalidArtifactId};
pub use ignored::{Ignored, ignored};
pub use left_out::{LeftOut, Reason};
pub use limits::Limits;
pub use offers::Offers;

use crate::store::artifacts::{ArtifactFilter, ArtifactInsert, ArtifactRow, Quota, Usage};
use crate::store::{Store, StoreError};
use blob::{Blobs, WrittenBlob};
use host::instant::now_ms;
use host::paths::Paths;
use limits::{READ_BYTES_MAX, SWEEP_AT_ONCE_MAX};

/// Why artifacts do not answer.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the directory of artifacts {path:?} cannot be used: {source}")]
    Directory { path: PathBuf, source: io::Error },
    #[error("there is no artifact {id}")]
    NotFound { id: ArtifactId },
    /// Something other than this bridge has changed the stored content.
    #[error("the content of the artifact {id} cannot be read: {source}")]
    Content { id: String, source: io::Error },
    #[error("the artifact {id} has {bytes} bytes on disk and {size} in the store")]
    Damaged { id: String, bytes: u64, size: u64 },
    #[error("the artifact {id} has an invalid digest: {source}")]
    Digest { id: String, source: InvalidDigest },
    #[error("a task on the host did not finish: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// What a clean-up has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupResult {
    pub count: u64,
    pub bytes: u64,
}

/// Totals of artifacts, and counts since this bridge began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArtifactFigures {
    pub count: u64,
    /// On the disk: equal contents once.
    pub bytes: u64,
    pub captured: u64,
    pub left_out: u64,
}

/// All artifacts of one bridge. Clones are the same.
#[derive(Clone)]
pub struct Artifacts(Arc<Inner>);

struct Inner {
    store: Store,
    blobs: Blobs,
    limits: Limits,
    captured: AtomicU64,
    left_out: AtomicU64,
    /// Held while a content and its row are added or removed, so that no new row refers to a
    /// content that is being removed.
    gate: Mutex<()>,
}

impl Artifacts {
    /// Opens the artifacts of a bridge, whose locks are held, and removes unreferenced contents.
    pub async fn open(paths: &Paths, store: Store, limits: Limits) -> Result<Self, ArtifactError> {
        let root = paths.artifacts();
        let unusable = |source| ArtifactError::Directory { path: paths.artifacts(), source };
        let opened = tokio::task::spawn_blocking(move || {
            let blobs = Blobs::open(&root)?;
            let digests: Vec<Digest> = blobs.digests()?.collect();
            Ok((blobs, digests))
        });
        let (blobs, digests) = opened.await?.map_err(unusable)?;
        let (captured, left_out) = (AtomicU64::default(), AtomicU64::default());
        let gate = Mutex::default();
        let artifacts = Self(Arc::new(Inner { store, blobs, limits, captured, left_out, gate }));
        for some in digests.chunks(SWEEP_AT_ONCE_MAX) {
            let some = some.iter().map(|digest| digest.as_str().to_owned()).collect();
            match artifacts.0.store.unused_digests(some).await {
                Ok(unused) => artifacts.forget(&unused),
                // Without its rows nobody knows which contents are referenced: all stay.
                Err(_) => break,
            }
        }
        Ok(artifacts)
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub async fn figures(&self) -> Result<ArtifactFigures, ArtifactError> {
        let (count, bytes) = self.0.store.artifact_totals().await?;
        let captured = self.0.captured.load(Ordering::Relaxed);
        Ok(ArtifactFigures {
            count,
            bytes,
            captured,
            left_out: self.0.left_out.load(Ordering::Relaxed),
        })
    }

    /// Counts the results of a run.
    fn count(&self, captured: &Captured) {
        self.0.captured.fetch_add(captured.artifacts.len() as u64, Ordering::Relaxed);
        self.0.left_out.fetch_add(captured.left_out.len() as u64, Ordering::Relaxed);
    }

    /// Artifacts, the newest first.
    pub async fn list(
        &self,
        which: ArtifactFilter,
        limit: u64,
    ) -> Result<Vec<ArtifactRow>, ArtifactError> {
        Ok(self.0.store.artifacts(which, limit).await?)
    }

    /// One artifact of any namespace; the caller checks access.
    pub async fn get(&self, id: &ArtifactId) -> Result<ArtifactRow, ArtifactError> {
        let which = ArtifactFilter { id: Some(id.to_string()), ..ArtifactFilter::default() };
        let found = self.0.store.artifacts(which, 1).await?.pop();
        found.ok_or_else(|| ArtifactError::NotFound { id: id.clone() })
    }

    /// How many artifacts a notebook has.
    pub async fn count_of_notebook(&self, namespace: &str, id: &str) -> Result<u64, ArtifactError> {
        Ok(self.0.store.count_artifacts(namespace, id).await?)
    }

    /// The usage of a namespace's artifacts.
    pub async fn usage(&self, namespace: &str) -> Result<Usage, ArtifactError> {
        Ok(self.0.store.artifact_usage(namespace).await?)
    }

    /// Opens the bytes of an artifact.
    pub async fn open_content(&self, row: &ArtifactRow) -> Result<File, ArtifactError> {
        let (blobs, row) = (self.0.blobs.clone(), row.clone());
        tokio::task::spawn_blocking(move || open_content(&blobs, &row)).await?
    }

    /// Some bytes of an artifact: fewer than requested at its end, and no more than
    /// [`READ_BYTES_MAX`] at once.
    pub async fn read_range(
        &self,
        row: &ArtifactRow,
        offset: u64,
        bytes_max: u64,
    ) -> Result<Vec<u8>, ArtifactError> {
        let (blobs, row) = (self.0.blobs.clone(), row.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let mut file = open_content(&blobs, &row)?;
            let failed = |source| ArtifactError::Content { id: row.id.clone(), source };
            file.seek(SeekFrom::Start(offset)).map_err(failed)?;
            let mut bytes = Vec::new();
            file.take(bytes_max.min(READ_BYTES_MAX)).read_to_end(&mut bytes).map_err(failed)?;
            Ok(bytes)
        });
        reading.await?
    }

    /// Removes those that are meant, and their bytes where no other artifact has the same.
    pub async fn remove(&self, which: ArtifactFilter) -> Result<CleanupResult, ArtifactError> {
        let mut cleaned = CleanupResult::default();
        loop {
            let _gate = self.0.gate.lock().await;
            let removed = self.0.store.remove_artifacts(which.clone()).await?;
            cleaned.count += removed.count;
            cleaned.bytes = cleaned.bytes.saturating_add(removed.bytes);
            self.forget(&removed.digests);
            if !removed.more {
                return Ok(cleaned);
            }
        }
    }

    /// Puts a content in its place and writes its row, or neither. Once begun it is not cancelled.
    async fn commit(&self, whole: WrittenBlob, row: ArtifactRow) -> Result<ArtifactRow, Reason> {
        let artifacts = self.clone();
        let committing = tokio::spawn(async move { artifacts.put(whole, row).await });
        committing.await.map_err(|error| Reason::host(&error))?
    }

    async fn put(&self, whole: WrittenBlob, mut row: ArtifactRow) -> Result<ArtifactRow, Reason> {
        let Limits { namespace_artifacts_max: count_max, namespace_bytes_max: bytes_max, .. } =
            self.0.limits;
        let _gate = self.0.gate.lock().await;
        let blobs = self.0.blobs.clone();
        let putting = tokio::task::spawn_blocking(move || blobs.put(&whole).map(|()| whole));
        let whole = putting.await.map_err(|error| Reason::host(&error))?;
        let whole = whole.map_err(|error| Reason::host(&error))?;
        let quota = Quota { count_max, bytes_max };
        let reason = match self.0.store.add_artifact(row.clone(), quota).await {
            Ok(ArtifactInsert::Made(number)) => {
                row.number = number;
                return Ok(row);
            }
            Ok(ArtifactInsert::Full(Usage { count, bytes })) => {
                let namespace = row.namespace;
                Reason::NamespaceFull { namespace, count, bytes, count_max, bytes_max }
            }
            Err(error) => Reason::host(&error),
        };
        let digest = whole.digest.as_str().to_owned();
        // If this fails, the next bridge does it.
        self.forget(&self.0.store.unused_digests(vec![digest]).await.unwrap_or_default());
        Err(reason)
    }

    /// Removes unreferenced contents. If one stays, the next bridge that opens removes it.
    fn forget(&self, digests: &[String]) {
        for digest in digests.iter().filter_map(|digest| digest.parse().ok()) {
            if let Err(error) = self.0.blobs.remove(&digest) {
                let digest = digest.as_str();
                tracing::warn!(target: "burrow::artifacts", digest, %error, "a content stays");
            }
        }
    }
}

/// The bytes of an artifact for who has no [`Artifacts`]: another process that only reads.
pub fn content_of(paths: &Paths, row: &ArtifactRow) -> Result<File, ArtifactError> {
    open_content(&Blobs::at(&paths.artifacts()), row)
}

fn open_content(blobs: &Blobs, row: &ArtifactRow) -> Result<File, ArtifactError> {
    let id = || row.id.clone();
    let digest = row.digest.parse();
    let digest = digest.map_err(|source| ArtifactError::Digest { id: id(), source })?;
    let failed = |source| ArtifactError::Content { id: id(), source };
    let file = blobs.open_blob(&digest).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes != row.size {
        return Err(ArtifactError::Damaged { id: id(), bytes, size: row.size });
    }
    Ok(file)
}

/// The time that so many milliseconds ago it was.
pub fn before_ms(age_ms: u64) -> u64 {
    now_ms().saturating_sub(age_ms)
}

#[cfg(test)]
mod tests;
