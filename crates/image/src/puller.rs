//! Pulling because a sandbox or an operator asks for an image: when that is done, by whom it may be
//! asked for, one pull for all who want the same at once, and only a few at the same time.
//!
//! A pull goes on as long as somebody waits for it: when the last of them goes, it is dropped, and what
//! has come is there for the next. How images are fetched is `registry`'s, and where they are kept
//! `store`'s.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use super::limits::{PULL_TIME_MAX, PULLS_AT_ONCE, PULLS_MAX};
use super::reference::Reference;
use super::registry::{Options, Progress, pull};
use super::store::{Image, ImageError, Images};
use crate::Pull;

/// The result that all who wait for one image receive.
type PullResult = Result<Image, Arc<ImageError>>;

/// Pulls into one store. Clones are the same.
#[derive(Clone)]
pub struct Puller(Arc<Inner>);

struct Inner {
    images: Images,
    options: Options,
    /// What holds for those who do not say.
    usual: Pull,
    at_once: Semaphore,
    flights: Mutex<HashMap<String, Weak<PendingPull>>>,
}

/// A pull that is under way. It ends with the last who waits for it.
struct PendingPull {
    done: watch::Receiver<Option<PullResult>>,
    told: watch::Receiver<Progress>,
    task: AbortHandle,
}

impl Drop for PendingPull {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The progress of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullProgress {
    pub image: String,
    pub bytes: u64,
    /// Of its layers; 0 as long as that is not known.
    pub size: u64,
}

impl Puller {
    pub fn new(images: Images, options: Options, usual: Pull) -> Self {
        Self(Arc::new(Inner {
            images,
            options,
            usual,
            at_once: Semaphore::new(PULLS_AT_ONCE),
            flights: Mutex::default(),
        }))
    }

    /// What holds for those who do not say.
    pub fn usual(&self) -> Pull {
        self.0.usual
    }

    /// Brings an image in, or waits for those who do.
    pub async fn pull(&self, name: &Reference) -> Result<Image, ImageError> {
        let flight = self.board(name)?;
        let mut done = flight.done.clone();
        let waited = tokio::time::timeout(PULL_TIME_MAX, done.wait_for(Option::is_some)).await;
        let slow = || ImageError::PullTook { image: name.short(), limit: PULL_TIME_MAX };
        let outcome = waited.map_err(|_| slow())?.map_err(|_| ImageError::Busy)?;
        outcome.clone().unwrap_or(Err(Arc::new(ImageError::Busy))).map_err(ImageError::Shared)
    }

    /// The pulls that are under way, by name.
    pub fn under_way(&self) -> Vec<PullProgress> {
        let flights = self.flights();
        let living = flights.iter().filter_map(|(name, flight)| {
            let flight = flight.upgrade()?;
            let told = flight.told.borrow();
            Some(PullProgress { image: name.clone(), bytes: told.bytes(), size: told.size() })
        });
        let mut living: Vec<_> = living.collect();
        living.sort_by(|one, other| one.image.cmp(&other.image));
        living
    }

    fn flights(&self) -> std::sync::MutexGuard<'_, HashMap<String, Weak<PendingPull>>> {
        // Nothing in it is ever half-changed.
        self.0.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn board(&self, name: &Reference) -> Result<Arc<PendingPull>, ImageError> {
        let key = name.to_string();
        let mut flights = self.flights();
        if let Some(flight) = flights.get(&key).and_then(Weak::upgrade)
            && flight.done.borrow().is_none()
        {
            return Ok(flight);
        }
        flights.retain(|_, flight| flight.strong_count() > 0);
        if flights.len() >= PULLS_MAX {
            return Err(ImageError::TooManyPulls { max: PULLS_MAX });
        }
        let (tell, told) = watch::channel(Progress::default());
        let (finish, done) = watch::channel(None);
        let (inner, name) = (Arc::clone(&self.0), name.clone());
        let task = tokio::spawn(async move {
            let permit = inner.at_once.acquire().await;
            let pulled = pull_into(&inner.images, &name, &inner.options, &tell).await;
            drop(permit);
            finish.send_replace(Some(pulled.map_err(Arc::new)));
        });
        let flight = Arc::new(PendingPull { done, told, task: task.abort_handle() });
        flights.insert(key, Arc::downgrade(&flight));
        Ok(flight)
    }
}

/// Fetches an image and takes it up under the name that it was asked for by.
pub async fn pull_into(
    images: &Images,
    name: &Reference,
    options: &Options,
    tell: &watch::Sender<Progress>,
) -> Result<Image, ImageError> {
    let sharing = images.clone();
    let shared = off_thread(move || sharing.share()).await?;
    let pulled = pull(name, options, images.blobs(), tell).await;
    let failed = |source| ImageError::Pull { image: name.short(), source: Box::new(source) };
    let pulled = pulled.map_err(failed)?;
    let (images, name) = (images.clone(), name.clone());
    off_thread(move || {
        // What a name with the digest of an index means is what was chosen from that.
        let digest = pulled.index.or(name.digest);
        let fixed = digest.map(|_| Reference { tag: None, digest, ..name.clone() });
        let own = images.add(&shared, pulled.manifest, Some(&name), &pulled.source);
        let added = own.and_then(|image| match &fixed {
            Some(fixed) => images.add(&shared, pulled.manifest, Some(fixed), &pulled.source),
            None => Ok(image),
        });
        drop(shared);
        if added.is_err() {
            images.discard()?;
        }
        added
    })
    .await
}

/// Does what waits for disks and locks where that may be.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(ImageError::Busy))
}
