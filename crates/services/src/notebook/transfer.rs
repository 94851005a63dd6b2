//! The way of a notebook's files between its guest and its vault.

use std::collections::HashSet;

use protocol::requests::Remove;
use tokio::time::{Instant, sleep, timeout};

use super::error::NotebookError;
use super::limits::{
    BEGIN_DEADLINE, LOOK_PAUSE_MAX, LOOK_PAUSE_MIN, MANIFEST_BYTES_MAX, SAVE_DEADLINE,
};
use super::manifest::{Manifest, SavedVariables};
use super::seal::SealError;
use super::vault::{Stamp, Vault};
use agent_client::guest::{FileTarget, Guest, GuestError, Piece};

const MANIFEST: &str = "manifest.json";
/// What an unfinished save leaves behind.
const ATTEMPT: &str = "attempt.json";
const ATTEMPT_BYTES_MAX: u64 = 64 * 1024;
const READABLE_BY_OWNER: u32 = 0o600;

/// What was saved.
#[derive(Debug)]
pub struct FetchedSave {
    pub bytes: u64,
    pub variables: SavedVariables,
}

/// Waits for the state that the save of this mark writes, and brings it into the vault.
pub async fn fetch(
    guest: &Guest,
    directory: &str,
    mark: &str,
    vault: &Vault,
    stamp: Stamp,
) -> Result<FetchedSave, NotebookError> {
    let (bytes, manifest) = written(guest, directory, mark).await?;
    let mut digests = HashSet::new();
    for group in &manifest.groups {
        if !digests.insert(group.digest.clone()) || vault.has(&group.digest) {
            continue;
        }
        let path = format!("{directory}/{}", group.digest);
        let mut keeping = vault.begin(&group.digest)?;
        let mut left = group.bytes;
        let take = |piece: &[u8]| {
            left = left.checked_sub(piece.len() as u64).ok_or_else(wrong_size)?;
            Ok(keeping.write(piece)?)
        };
        match read(guest, &path, take).await {
            // What could not be loaded, and is not here either, is reported as such.
            Err(error) if is_missing(&error) && group.unavailable.is_some() => continue,
            read => read?,
        }
        if left > 0 {
            return Err(wrong_size());
        }
        blocking(move || keeping.finish()).await?;
    }
    let (bytes_kept, variables) = (manifest.bytes(), manifest.summary(&[]));
    let vault = vault.clone();
    blocking(move || vault.commit(stamp, &bytes, &digests)).await?;
    Ok(FetchedSave { bytes: bytes_kept, variables })
}

/// Puts a state into a directory of the guest. Files that do not open are left out, and returned.
pub async fn put(
    guest: &Guest,
    directory: &str,
    vault: &Vault,
    bytes: &[u8],
    manifest: &Manifest,
) -> Result<Vec<String>, NotebookError> {
    let mut damaged = Vec::new();
    let mut done = HashSet::new();
    for group in &manifest.groups {
        if done.insert(&group.digest) && !put_one(guest, directory, vault, &group.digest).await? {
            damaged.push(group.digest.clone());
            // A broken file must not count as saved when the same value is made again.
            let _ = vault.forget(&group.digest);
        }
    }
    let mut upload = guest.write_file(target(directory, MANIFEST))?.of_the_bridge();
    upload.write(bytes).await?;
    upload.finish().await?;
    Ok(damaged)
}

async fn put_one(
    guest: &Guest,
    directory: &str,
    vault: &Vault,
    digest: &str,
) -> Result<bool, NotebookError> {
    let mut opening = match vault.open(digest) {
        Ok(opening) => opening,
        Err(error) => return damage(error).map(|()| false),
    };
    let mut upload = guest.write_file(target(directory, digest))?.of_the_bridge();
    loop {
        match opening.next() {
            Ok(Some(chunk)) => upload.write(&chunk).await?,
            Ok(None) => break,
            // An upload that is dropped leaves nothing.
            Err(error) => return damage(error).map(|()| false),
        }
    }
    upload.finish().await?;
    Ok(true)
}

/// A file that is missing was changed, too.
fn damage(error: SealError) -> Result<(), NotebookError> {
    match error {
        SealError::Broken => Ok(()),
        SealError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => Err(other.into()),
    }
}

/// Removes a keeper's files in a guest.
pub async fn clear(guest: &Guest, directory: &str) {
    // On failure, the guest is lost, or there is nothing.
    let _ = guest.remove(Remove { path: directory.into(), recursive: true }).await;
}

/// The manifest with this mark: an earlier save's may be newer than the last one that was known.
async fn written(
    guest: &Guest,
    directory: &str,
    mark: &str,
) -> Result<(Vec<u8>, Manifest), NotebookError> {
    let (began, mut is_dead) = (Instant::now(), false);
    let (manifest, attempt) = (format!("{directory}/{MANIFEST}"), format!("{directory}/{ATTEMPT}"));
    let mut pause = LOOK_PAUSE_MIN;
    loop {
        // In this order: an attempt that ends between the two has written its manifest before.
        let under_way = read_small(guest, &attempt, ATTEMPT_BYTES_MAX).await?;
        if let Some(bytes) = read_small(guest, &manifest, MANIFEST_BYTES_MAX).await? {
            let read = Manifest::parse(&bytes)?;
            if read.mark == mark {
                return Ok((bytes, read));
            }
        }
        let what = match under_way.as_deref() {
            // It had time to write the manifest since it was found dead.
            _ if is_dead => Some("the process that saved them was ended".to_owned()),
            _ if began.elapsed() > SAVE_DEADLINE => {
                Some(format!("it took more than {} s", SAVE_DEADLINE.as_secs()))
            }
            None if began.elapsed() > BEGIN_DEADLINE => Some("it did not start".to_owned()),
            attempt => attempt.and_then(failure),
        };
        if let Some(what) = what {
            return Err(NotebookError::NotSaved { what });
        }
        is_dead = match under_way.as_deref().and_then(worker) {
            Some(pid) if pause == LOOK_PAUSE_MAX => is_gone(guest, pid).await?,
            _ => false,
        };
        sleep(pause).await;
        pause = (pause * 2).min(LOOK_PAUSE_MAX);
    }
}

/// The process that is at it.
fn worker(attempt: &[u8]) -> Option<u32> {
    let attempt: serde_json::Value = serde_json::from_slice(attempt).ok()?;
    u32::try_from(attempt.get("pid")?.as_u64()?).ok()
}

async fn is_gone(guest: &Guest, pid: u32) -> Result<bool, NotebookError> {
    match guest.stat(format!("/proc/{pid}"), false).await {
        Ok(_) => Ok(false),
        Err(error) if error.fault_code() == Some(protocol::FaultCode::NotFound) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Why an attempt failed.
fn failure(attempt: &[u8]) -> Option<String> {
    let attempt: serde_json::Value = serde_json::from_slice(attempt).ok()?;
    let error = attempt.get("error")?.as_str()?;
    Some(error.chars().take(super::limits::WORDS_CHARS_MAX).collect())
}

async fn read_small(
    guest: &Guest,
    path: &str,
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, NotebookError> {
    let mut whole = Vec::new();
    let take = |piece: &[u8]| {
        whole.extend_from_slice(piece);
        if whole.len() as u64 > bytes_max {
            let what = format!("their description has more than {bytes_max} bytes");
            return Err(NotebookError::NotSaved { what });
        }
        Ok(())
    };
    match read(guest, path, take).await {
        Ok(()) => Ok(Some(whole)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_missing(error: &NotebookError) -> bool {
    let NotebookError::Guest(error) = error else { return false };
    error.fault_code() == Some(protocol::FaultCode::NotFound)
}

async fn read(
    guest: &Guest,
    path: &str,
    mut take: impl FnMut(&[u8]) -> Result<(), NotebookError>,
) -> Result<(), NotebookError> {
    let (mut output, _, _) = guest.read_file(path, 0, None).await?;
    loop {
        match timeout(SAVE_DEADLINE, output.next()).await {
            Ok(Piece::Bytes { bytes, .. }) => take(&bytes)?,
            Ok(Piece::End) => return Ok(()),
            Ok(Piece::Gap { .. }) => {
                return Err(GuestError::Malformed { what: "a file with a gap" }.into());
            }
            Ok(Piece::Failed(error)) => return Err(error.into()),
            Err(_) => {
                let what = "the guest stopped in the middle of a file".to_owned();
                return Err(NotebookError::NotSaved { what });
            }
        }
    }
}

/// Waits for a disk where others need the thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SealError> + Send + 'static,
) -> Result<T, NotebookError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))?)
}

fn wrong_size() -> NotebookError {
    NotebookError::NotSaved {
        what: "a file from the keeper does not have the size that the keeper gave".to_owned(),
    }
}

fn target(directory: &str, name: &str) -> FileTarget {
    let mut target = FileTarget::replace(format!("{directory}/{name}"));
    (target.permissions, target.parents) = (Some(READABLE_BY_OWNER), true);
    target
}
