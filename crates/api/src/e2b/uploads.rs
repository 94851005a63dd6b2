//! Files that clients upload for the steps of a build: under a link that is good for one upload of one namespace,
//! kept on disk for builds that name them, and removed after a day.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;

use super::limits::{UPLOAD_BYTES_MAX, UPLOAD_KEPT, UPLOAD_LINK_LIFE, UPLOADS_KNOWN_MAX};
use super::recipe::upload_file;
use crate::call::Call;
use access::keys::Grant;
use host::hex::digits;
use host::id::random_bytes;
use host::paths::make_private_directory;
use sandbox::Name;
use sandbox::refusal::{Code, Refusal};

/// The links that were given out.
#[derive(Default)]
pub struct Uploads(Mutex<HashMap<String, Link>>);

#[derive(Clone)]
pub struct Link {
    pub grant: Option<Grant>,
    pub namespace: Name,
    pub hash: String,
    until: Instant,
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws a link for one upload.
    pub fn draw(
        &self,
        grant: Option<Grant>,
        namespace: &Name,
        hash: &str,
    ) -> Result<String, Refusal> {
        let drawn = random_bytes::<24>().map_err(|error| Refusal::of(Code::Internal, &error))?;
        let token = digits(&drawn);
        let mut links = self.lock();
        links.retain(|_, link| link.until > Instant::now());
        if links.len() >= UPLOADS_KNOWN_MAX {
            let message = format!("{UPLOADS_KNOWN_MAX} uploads wait, which is the limit");
            return Err(
                Refusal::new(Code::LimitReached, message).retry_after(Duration::from_secs(60))
            );
        }
        let (namespace, hash) = (namespace.clone(), hash.to_owned());
        let until = Instant::now() + UPLOAD_LINK_LIFE;
        links.insert(token.clone(), Link { grant, namespace, hash, until });
        Ok(token)
    }

    pub fn find(&self, token: &str) -> Result<Link, Refusal> {
        let link = self.lock().get(token).cloned().filter(|link| link.until > Instant::now());
        link.ok_or_else(|| {
            Refusal::new(Code::Unauthenticated, "this link for an upload is not valid")
        })
    }

    /// The link was used.
    pub fn spend(&self, token: &str) {
        self.lock().remove(token);
    }
}

/// The directory of a namespace's uploads.
fn directory(call: &Call, namespace: &Name) -> PathBuf {
    call.api.registry().store_paths().state.join("e2b-uploads").join(namespace.as_str())
}

/// Where an upload is, or will be.
pub fn place(call: &Call, namespace: &Name, hash: &str) -> PathBuf {
    directory(call, namespace).join(upload_file(hash))
}

/// Writes the body of a call to a file, which is there when all of it is.
pub async fn write(call: &mut Call, link: &Link) -> Result<(), Refusal> {
    let directory = directory(call, &link.namespace);
    let failed = |error: io::Error| Refusal::of(Code::Io, &error).or_no_room(&error);
    make_private_directory(&directory).map_err(failed)?;
    sweep(&directory);
    let new = tempfile(&directory)?;
    let outcome = async {
        let mut file = tokio::fs::File::create(&new.0).await.map_err(failed)?;
        let mut bytes_left = UPLOAD_BYTES_MAX;
        while let Some(bytes) = call.body.chunk().await? {
            bytes_left = bytes_left.checked_sub(bytes.len() as u64).ok_or_else(|| {
                Refusal::new(
                    Code::TooLarge,
                    format!("an upload has at most {UPLOAD_BYTES_MAX} bytes"),
                )
            })?;
            file.write_all(&bytes).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        fs::rename(&new.0, place(call, &link.namespace, &link.hash)).map_err(failed)
    };
    outcome.await
}

/// A file that goes unless it was renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn tempfile(directory: &std::path::Path) -> Result<Partial, Refusal> {
    let drawn = random_bytes::<12>().map_err(|error| Refusal::of(Code::Internal, &error))?;
    Ok(Partial(directory.join(format!("{}.new", digits(&drawn)))))
}

/// Removes what is older than uploads are kept, and what a bridge has left that died.
fn sweep(directory: &std::path::Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|found| found.modified()).ok();
        let age = age.and_then(|modified| modified.elapsed().ok()).unwrap_or_default();
        if age > UPLOAD_KEPT {
            let _ = fs::remove_file(entry.path());
        }
    }
}
