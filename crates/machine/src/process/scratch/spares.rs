//! The writable layers that are mounted ahead, so that a start does not wait for the kernel to do it.
//!
//! [`super::super::ProcessMachine`] takes a layer for each start, and asks for the next one when the sandbox
//! has started. Only the size of the last start is kept ready. A spare is a descriptor and no more: the
//! kernel frees its mount, device and file with this process, however that ends.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::agent::Agent;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::NoDisk;
use crate::limits::{SPARE_LAYER_IDLE, SPARE_LAYER_PAUSE, SPARE_LAYERS};
use crate::process::sealed::Sealed;

/// Which layer a sandbox has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) state: PathBuf,
    pub(crate) bytes: u64,
}

/// The spare layers of a bridge. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    shelf: Arc<Mutex<Shelf>>,
    started: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Shelf {
    /// The kind of the last start, which all spares have.
    kind: Option<Kind>,
    spares: VecDeque<OwnedFd>,
    /// Whether somebody fills the shelf.
    is_kept: bool,
}

impl Layers {
    /// A spare layer, or a new one.
    pub(crate) async fn take(
        &self,
        kind: Kind,
        sealed: Sealed,
        agent: Agent,
    ) -> Result<OwnedFd, NoDisk> {
        match self.take_spare(&kind) {
            Some(spare) => Ok(spare),
            None => make(kind, sealed, agent).await,
        }
    }

    fn take_spare(&self, kind: &Kind) -> Option<OwnedFd> {
        let mut shelf = self.shelf();
        if shelf.kind.as_ref() != Some(kind) {
            shelf.spares.clear();
            shelf.kind = Some(kind.clone());
        }
        shelf.spares.pop_front()
    }

    /// Mounts the next layer behind a start, and frees it when no other start comes.
    pub(crate) fn prepare_next(&self, sealed: Sealed, agent: Agent) {
        self.started.notify_one();
        let is_kept = std::mem::replace(&mut self.shelf().is_kept, true);
        if !is_kept {
            let layers = self.clone();
            tokio::spawn(layers.keep(move |kind| make(kind, sealed.clone(), agent.clone())));
        }
    }

    /// Fills the shelf after each start, until none has come for [`SPARE_LAYER_IDLE`].
    async fn keep<M, F>(self, make: M)
    where
        M: Fn(Kind) -> F,
        F: Future<Output = Result<OwnedFd, NoDisk>>,
    {
        while timeout(SPARE_LAYER_IDLE, self.started.notified()).await.is_ok() {
            while let Some(kind) = self.missing() {
                self.pause().await;
                let Ok(spare) = make(kind.clone()).await else { break };
                self.put(&kind, spare);
            }
        }
        let mut shelf = self.shelf();
        shelf.spares.clear();
        shelf.is_kept = false;
    }

    /// Leaves the processors to the sandbox that has started: for [`SPARE_LAYER_PAUSE`], or until the next
    /// start leaves none for the one behind it.
    async fn pause(&self) {
        let emptied = async {
            loop {
                self.started.notified().await;
                if self.shelf().spares.is_empty() {
                    return;
                }
            }
        };
        let _ = timeout(SPARE_LAYER_PAUSE, emptied).await;
    }

    /// The kind of which there are too few.
    fn missing(&self) -> Option<Kind> {
        let shelf = self.shelf();
        shelf.kind.clone().filter(|_| shelf.spares.len() < SPARE_LAYERS)
    }

    fn put(&self, kind: &Kind, spare: OwnedFd) {
        let mut shelf = self.shelf();
        // Another kind may have been asked for since.
        if shelf.kind.as_ref() == Some(kind) {
            shelf.spares.push_back(spare);
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn make(kind: Kind, sealed: Sealed, agent: Agent) -> Result<OwnedFd, NoDisk> {
    let making = spawn_blocking(move || super::make(&kind.state, kind.bytes, &sealed, &agent));
    making.await.map_err(|error| NoDisk::Mount(std::io::Error::other(error)))?
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::sleep;

    use super::*;

    fn kind(bytes: u64) -> Kind {
        Kind { state: "/state".into(), bytes }
    }

    /// Starts a keeper that makes descriptors, and counts them.
    fn kept(layers: &Layers) -> Arc<AtomicUsize> {
        let made = Arc::new(AtomicUsize::new(0));
        let count = made.clone();
        layers.shelf().is_kept = true;
        tokio::spawn(layers.clone().keep(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            async { Ok(File::open("/dev/null").unwrap().into()) }
        }));
        made
    }

    #[tokio::test(start_paused = true)]
    async fn a_spare_layer_waits_for_the_next_start_and_goes_when_none_comes() {
        let layers = Layers::default();
        let made = kept(&layers);
        assert!(layers.take_spare(&kind(1)).is_none(), "nothing was made before the first start");
        layers.started.notify_one();
        sleep(SPARE_LAYER_PAUSE * 4).await;
        assert_eq!(made.load(Ordering::Relaxed), SPARE_LAYERS);
        assert!(layers.take_spare(&kind(1)).is_some());
        layers.started.notify_one();
        sleep(SPARE_LAYER_IDLE / 2).await;
        assert_eq!(layers.shelf().spares.len(), SPARE_LAYERS, "it is there for a while");
        sleep(SPARE_LAYER_IDLE).await;
        assert!(layers.shelf().spares.is_empty() && !layers.shelf().is_kept);
        assert_eq!(made.load(Ordering::Relaxed), SPARE_LAYERS + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn starts_that_follow_at_once_find_a_layer_each() {
        let layers = Layers::default();
        kept(&layers);
        assert!(layers.take_spare(&kind(1)).is_none());
        layers.started.notify_one();
        sleep(SPARE_LAYER_PAUSE / 10).await;
        assert!(layers.take_spare(&kind(1)).is_none(), "the first sandbox is left alone");
        for _ in 0..20 {
            layers.started.notify_one();
            sleep(SPARE_LAYER_PAUSE / 10).await;
            assert!(layers.take_spare(&kind(1)).is_some(), "one is made as soon as none is left");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_sandbox_gets_a_spare_layer_of_another_size() {
        let layers = Layers::default();
        kept(&layers);
        assert!(layers.take_spare(&kind(1)).is_none());
        layers.started.notify_one();
        sleep(SPARE_LAYER_PAUSE * 4).await;
        assert!(layers.take_spare(&kind(2)).is_none());
        layers.put(&kind(1), File::open("/dev/null").unwrap().into());
        assert!(layers.shelf().spares.is_empty(), "one that comes late is of another size");
        layers.started.notify_one();
        sleep(SPARE_LAYER_PAUSE * 4).await;
        assert!(layers.take_spare(&kind(2)).is_some());
    }
}
