//! The stream of events: what happens to the sandboxes of a namespace, in order, on disk, with an offset
//! that only grows.
//!
//! ```text
//!  owners ──sink──▶ bounded queue ──▶ one thread ──▶ events/<namespace>/events-<first offset>.jsonl
//!                                       │ gathers, numbers, bounds, syncs; knows which sandboxes there are
//!  doors, webhooks, `events` ◀─ Reader ─┘ (and a watch of the ends, for those who follow)
//! ```
//!
//! Nobody waits for it: what happens is queued, and written some milliseconds later. An event is shown
//! only after the kernel has it, so a bridge that is killed forgets nothing that a reader has seen, and
//! the next one goes on behind it. What a killed bridge has not written, the next one finds by comparing
//! the sandboxes that the log knows with those that there are ([`Events::settle`]). A bridge that cannot
//! write counts what it drops, and says so in the stream.

pub mod limits;
mod line;
mod namespace_log;
mod reader;
mod writer;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::watch;

use host::instant::now_ms;
use host::journal::{Queue, QueueLimits};
use sandbox::event::{Event, EventSink};
use sandbox::{Name, Record};

pub use line::{Entry, EntryJson};
pub use reader::{Batch, Filter, From, Reader, namespaces};
use writer::{Happened, Item, Writer};

const QUEUE: QueueLimits = QueueLimits {
    entries_max: limits::QUEUE_MAX,
    batch_max: limits::BATCH_MAX,
    gather_pause: limits::GATHER_PAUSE,
};

/// Called when writing begins to fail and when it works again.
pub type Trouble = Box<dyn Fn(String) + Send>;

/// For each namespace, the offset that its next event gets: all below are in the kernel's hands.
pub type Ends = HashMap<Name, u64>;

/// The stream of events of one bridge. Clones share it.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    directory: PathBuf,
    queue: Arc<Queue<Item>>,
    dropped: Arc<Dropped>,
    ends: watch::Receiver<Ends>,
    /// Set when followers are to leave, because the bridge ends.
    leaving: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The number of events that found no room in the queue, by namespace.
#[derive(Default)]
struct Dropped(Mutex<HashMap<Name, u64>>);

impl Dropped {
    fn count(&self, namespace: Name) {
        let mut dropped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *dropped.entry(namespace).or_default() += 1;
    }

    fn take(&self) -> HashMap<Name, u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Events {
    /// Opens the logs, repairs them after a crash, and starts the writer.
    pub fn open(directory: &Path, trouble: Trouble) -> io::Result<Self> {
        let (publish, ends) = watch::channel(Ends::new());
        let writer = Writer::open(directory, publish)?;
        let (queue, dropped) = (Arc::new(Queue::new(QUEUE)), Arc::<Dropped>::default());
        let (taken, counted) = (Arc::clone(&queue), Arc::clone(&dropped));
        let thread = std::thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || writer.run(&taken, &counted, &trouble))?;
        let (directory, thread) = (directory.to_owned(), Mutex::new(Some(thread)));
        let leaving = watch::Sender::new(false);
        Ok(Self(Arc::new(Inner { directory, queue, dropped, ends, leaving, thread })))
    }

    /// A sink that adds events to the stream and passes all on.
    pub fn recording(&self, events: EventSink) -> EventSink {
        let inner = Arc::clone(&self.0);
        Arc::new(move |event| {
            if let Event::Happened { of, kind, facts } = event {
                let happened = Happened {
                    at_ms: now_ms(),
                    namespace: of.which.namespace.clone(),
                    sandbox: of.which.name.clone(),
                    id: of.id.clone(),
                    kind: *kind,
                    facts: (**facts).clone(),
                };
                if !inner.queue.push(Item::Happened(Box::new(happened))) {
                    inner.dropped.count(of.which.namespace.clone());
                }
            }
            events(event);
        })
    }

    /// Compares the sandboxes that the stream knows with those that there are, and adds what an earlier
    /// bridge was killed before it could write. Called once, before there are new ones.
    pub fn settle(&self, present: Vec<Record>) {
        let _ = self.0.queue.push(Item::Present(present));
    }

    /// The directory of the logs.
    pub fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// The offset that the next event of a namespace gets. A namespace without events begins somewhere.
    pub fn end(&self, namespace: &Name) -> Option<u64> {
        self.0.ends.borrow().get(namespace).copied()
    }

    /// Reads the events of a namespace.
    pub fn reader(&self, namespace: &Name, from: From) -> Reader {
        Reader::new(&self.0.directory, namespace, from)
    }

    /// Waits until there is an event with this offset or a later one; false when the bridge ends.
    pub async fn reached(&self, namespace: &Name, offset: u64) -> bool {
        let (mut ends, mut leaving) = (self.0.ends.clone(), self.0.leaving.subscribe());
        let is_there = |ends: &Ends| ends.get(namespace).is_some_and(|end| *end > offset);
        tokio::select! {
            // What is there already is read before anybody leaves.
            biased;
            reached = ends.wait_for(is_there) => reached.is_ok(),
            _ = leaving.wait_for(|leaving| *leaving) => self.end(namespace).is_some_and(|end| end > offset),
        }
    }

    /// A view of the ends of all namespaces, for those who follow several.
    pub fn ends(&self) -> watch::Receiver<Ends> {
        self.0.ends.clone()
    }

    /// Lets those who follow leave: the bridge ends, and they go on with the next one.
    pub fn release(&self) {
        self.0.leaving.send_replace(true);
    }

    /// Writes what has happened so far, and ends. Later events are not recorded.
    pub async fn close(&self) {
        let inner = Arc::clone(&self.0);
        let closing = tokio::task::spawn_blocking(move || {
            let thread = inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            inner.queue.end();
            if let Some(thread) = thread {
                let _ = thread.join();
            }
        });
        let _ = closing.await;
    }
}

#[cfg(test)]
mod tests;
