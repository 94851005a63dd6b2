//! Pulls images for sandboxes and operators: decides when to pull and for whom, shares one pull
//! among all who want the same image, and limits how many run at once.
//!
//! A pull runs as long as somebody waits for it. When the last waiter leaves, it is dropped, and the next
//! pull continues with what has arrived. `registry` fetches images, and `store` keeps them.

use std::collections::{BTreeSet, HashMap};
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
    /// The default policy.
    usual: Pull,
    at_once: Semaphore,
    flights: Mutex<HashMap<String, Weak<PendingPull>>>,
}

/// A running pull. It ends when its last waiter leaves.
struct PendingPull {
    done: watch::Receiver<Option<PullResult>>,
    progress: watch::Receiver<Progress>,
    passengers: Mutex<Passengers>,
    task: AbortHandle,
}

/// The requesters of a pull.
#[derive(Default)]
struct Passengers {
    is_for_all: bool,
    /// The namespaces with sandboxes that wait for it.
    namespaces: BTreeSet<String>,
}

impl Passengers {
    fn add(&mut self, namespace: Option<&str>) {
        match namespace {
            Some(namespace) => drop(self.namespaces.insert(namespace.to_owned())),
            None => self.is_for_all = true,
        }
    }

    fn is_seen_by(&self, namespace: &str) -> bool {
        self.is_for_all || self.namespaces.contains(namespace)
    }
}

impl PendingPull {
    fn passengers(&self) -> std::sync::MutexGuard<'_, Passengers> {
        // Nothing in it is ever half-changed.
        self.passengers.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    /// The size of its layers; 0 until it is known.
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

    /// The default policy.
    pub fn usual(&self) -> Pull {
        self.0.usual
    }

    /// Brings an image in for a namespace, or for all, or waits for those who do.
    pub async fn pull(
        &self,
        name: &Reference,
        namespace: Option<&str>,
    ) -> Result<Image, ImageError> {
        let flight = self.board(name, namespace)?;
        let mut done = flight.done.clone();
        let waited = tokio::time::timeout(PULL_TIME_MAX, done.wait_for(Option::is_some)).await;
        let slow = || ImageError::PullTook { image: name.short(), limit: PULL_TIME_MAX };
        // Release the watch before waiting again.
        let outcome = waited.map_err(|_| slow())?.map_err(|_| ImageError::Busy)?.clone();
        let outcome = outcome.unwrap_or(Err(Arc::new(ImageError::Busy)));
        let image = outcome.map_err(ImageError::Shared)?;
        let (images, name) = (self.0.images.of_namespace(namespace), name.clone());
        off_thread(move || images.show(&name)).await?;
        Ok(image)
    }

    /// The pulls that are under way, by name: of one namespace and those for all, or every one.
    pub fn under_way(&self, namespace: Option<&str>) -> Vec<PullProgress> {
        let flights = self.flights();
        let living = flights.iter().filter_map(|(name, flight)| {
            let flight = flight.upgrade()?;
            let is_seen = namespace.is_none_or(|own| flight.passengers().is_seen_by(own));
            if !is_seen {
                return None;
            }
            let progress = flight.progress.borrow();
            Some(PullProgress {
                image: name.clone(),
                bytes: progress.bytes(),
                size: progress.size(),
            })
        });
        let mut living: Vec<_> = living.collect();
        living.sort_by(|one, other| one.image.cmp(&other.image));
        living
    }

    fn flights(&self) -> std::sync::MutexGuard<'_, HashMap<String, Weak<PendingPull>>> {
        // Nothing in it is ever half-changed.
        self.0.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn board(
        &self,
        name: &Reference,
        namespace: Option<&str>,
    ) -> Result<Arc<PendingPull>, ImageError> {
        let key = name.to_string();
        let mut flights = self.flights();
        if let Some(flight) = flights.get(&key).and_then(Weak::upgrade)
            && flight.done.borrow().is_none()
        {
            flight.passengers().add(namespace);
            return Ok(flight);
        }
        flights.retain(|_, flight| flight.strong_count() > 0);
        if flights.len() >= PULLS_MAX {
            return Err(ImageError::TooManyPulls { max: PULLS_MAX });
        }
        let (tell, progress) = watch::channel(Progress::default());
        let (finish, done) = watch::channel(None);
        let (inner, name) = (Arc::clone(&self.0), name.clone());
        let mut passengers = Passengers::default();
        passengers.add(namespace);
        let images = inner.images.of_namespace(namespace);
        let task = tokio::spawn(async move {
            let permit = inner.at_once.acquire().await;
            let pulled = pull_into(&images, &name, &inner.options, &tell).await;
            drop(permit);
            finish.send_replace(Some(pulled.map_err(Arc::new)));
        });
        let passengers = Mutex::new(passengers);
        let flight =
            Arc::new(PendingPull { done, progress, passengers, task: task.abort_handle() });
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
        // A name with an index's digest means the manifest that was chosen from it.
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

/// Runs something that waits for disks and locks on a blocking thread.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(ImageError::Busy))
}
