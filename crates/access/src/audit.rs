//! The audit log: who did what to which sandbox through which door, and the outcome.
//!
//! ```text
//!  api, control ──record(Entry)──▶ bounded queue ──▶ one thread ──▶ audit-<first number>.jsonl
//!                                                      │ gathers, numbers, chains, rotates, syncs
//!  audit, GET /v1/audit ◀── reader ◀───────────────────┘
//! ```
//!
//! Recording waits for nothing and wakes no thread before the answer is out: the thread gathers for
//! some milliseconds after the answers ([`limits::GATHER_PAUSE`]).
//!
//! Lines of JSON that are only ever added to. Their numbers have no gaps, so that what is not there any
//! more shows. Nothing is lost silently: what finds no place in the queue is counted, and the count is
//! a record of its own as soon as there is room. It knows nothing of HTTP, keys or sandboxes; those
//! who record bring words.

mod entry;
pub mod limits;
mod reader;
mod scan;
mod segment;
mod write_lock;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use entry::{Door, Entry, Outcome, Record, Verdict, Who};
pub use reader::{Fault, Filter, Verified, follow, read, verify};
pub use scan::Scan;

use host::journal::{Queue, QueueLimits};
use write_lock::WriteLock;
use writer::{Writer, WriterRole};

/// What happens to operations whose records cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// They are carried out; entries that do not fit into the queue are counted.
    #[default]
    Continue,
    /// They are refused until the log can be written again.
    Refuse,
}

/// The options of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Whether operations that only look are recorded.
    pub reads: bool,
    /// Whether arguments of programs are recorded besides their names.
    pub arguments: bool,
    /// Whether each record has the digest of the one before it.
    pub chain: bool,
    pub on_failure: OnFailure,
    pub file_bytes_max: u64,
    pub files_max: usize,
    /// No limit but `files_max` if absent.
    pub age_max: Option<Duration>,
}

/// Why the audit log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("cannot open the audit log in {directory:?}: {source}")]
    Open { directory: PathBuf, source: io::Error },
    #[error("cannot read the audit log in {directory:?}: {source}")]
    Read { directory: PathBuf, source: io::Error },
}

/// The audit log cannot be written, and operations without a record are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the audit log cannot be written, and this bridge refuses operations that it cannot record"
)]
pub struct AuditUnwritable;

/// Called when writing begins to fail and when it works again.
pub type Trouble = Box<dyn Fn(String) + Send>;

/// Called with each entry that was written. It must not wait.
pub type Observer = Box<dyn Fn(Entry) + Send + Sync>;

const QUEUE: QueueLimits = QueueLimits {
    entries_max: limits::QUEUE_MAX,
    batch_max: limits::BATCH_MAX,
    gather_pause: limits::GATHER_PAUSE,
};

/// The audit log of one bridge, or none. Clones share it.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Inner>>);

struct Inner {
    /// The lock to read the options from, if they are not ours to decide.
    set_in: Option<WriteLock>,
    /// The options that were last read.
    options: Mutex<Options>,
    directory: PathBuf,
    queue: Arc<Queue<Entry>>,
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state shared by the writer thread and the callers.
#[derive(Default)]
struct State {
    /// Whether the last write failed.
    is_failing: AtomicBool,
    /// The number of records that were lost.
    lost: AtomicU64,
    observer: OnceLock<Observer>,
    /// The name of this bridge in its fleet.
    node: OnceLock<String>,
}

impl Audit {
    /// Opens the log, repairs it after a crash, and starts the writer. A log that cannot be opened counts
    /// as one that cannot be written: it is tried again, and meanwhile operations are refused or not as
    /// the options say.
    pub fn open(
        directory: PathBuf,
        options: Options,
        trouble: Trouble,
    ) -> Result<Self, AuditError> {
        Self::open_as(WriterRole::Bridge, directory, options, trouble)
    }

    /// The same for a process beside the bridge that serves: it keeps the log as that one does, also if
    /// it comes later, and by `options` where there has been none.
    pub fn visit(
        directory: PathBuf,
        options: Options,
        trouble: Trouble,
    ) -> Result<Self, AuditError> {
        Self::open_as(WriterRole::Visitor, directory, options, trouble)
    }

    fn open_as(
        place: WriterRole,
        directory: PathBuf,
        options: Options,
        trouble: Trouble,
    ) -> Result<Self, AuditError> {
        let failed = |source| AuditError::Open { directory: directory.clone(), source };
        let state = Arc::new(State::default());
        let writer = match Writer::open(&directory, options, place) {
            Ok(writer) => Some(writer),
            Err(source) if place == WriterRole::Bridge => {
                trouble(failed(source).to_string());
                state.is_failing.store(true, Ordering::Relaxed);
                None
            }
            Err(source) => return Err(failed(source)),
        };
        let set_in = writer.as_ref().and_then(Writer::set_in);
        let known = Mutex::new(writer.as_ref().map_or(options, Writer::options));
        let log = Log { writer, directory: directory.clone(), options };
        let queue = Arc::new(Queue::new(QUEUE));
        let (taken, shared) = (Arc::clone(&queue), Arc::clone(&state));
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write_all(log, &taken, &shared, &trouble))
            .map_err(failed)?;
        let options = known;
        let thread = Mutex::new(Some(thread));
        let inner = Inner { set_in, options, directory, queue, state, thread };
        Ok(Self(Some(Arc::new(inner))))
    }

    /// Shows all entries from here on to an observer, as soon as they are written. There can be one.
    pub fn observe(&self, observer: Observer) {
        if let Some(inner) = &self.0 {
            // A second one is a mistake of ours, which changes nothing that is recorded.
            let _ = inner.state.observer.set(observer);
        }
    }

    /// Has all entries from here on say which node of a fleet this is.
    pub fn is_of_node(&self, name: &str) {
        if let Some(inner) = &self.0 {
            // A bridge has one name.
            let _ = inner.state.node.set(name.to_owned());
        }
    }

    /// The directory of the records; none if nothing is recorded.
    pub fn directory(&self) -> Option<&PathBuf> {
        self.0.as_ref().map(|inner| &inner.directory)
    }

    /// Whether an operation that only looks is recorded.
    pub fn reads(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.options().reads)
    }

    pub fn arguments(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.options().arguments)
    }

    /// Refuses an operation that could not be recorded.
    pub fn admit(&self) -> Result<(), AuditUnwritable> {
        let Some(inner) = &self.0 else { return Ok(()) };
        if self.is_failing() == Some(true) && inner.options().on_failure == OnFailure::Refuse {
            return Err(AuditUnwritable);
        }
        Ok(())
    }

    /// Whether records cannot be written, or do not fit into the queue; `None` if nothing is recorded.
    pub fn is_failing(&self) -> Option<bool> {
        let state = &self.0.as_ref()?.state;
        let is_behind = state.lost.load(Ordering::Relaxed) > 0;
        Some(is_behind || state.is_failing.load(Ordering::Relaxed))
    }

    /// Records an entry. It never waits, so it can be called anywhere.
    pub fn record(&self, mut entry: Entry) {
        let Some(inner) = &self.0 else { return };
        entry.node = inner.state.node.get().cloned();
        if !inner.queue.push(entry) {
            inner.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes what was recorded so far, and ends. Later entries are not recorded.
    pub async fn close(&self) {
        let Some(inner) = self.0.clone() else { return };
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

impl Inner {
    /// The options that apply now.
    fn options(&self) -> Options {
        // It is exchanged as a whole.
        let mut known = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(newer) = self.set_in.as_ref().and_then(WriteLock::options) {
            *known = newer;
        }
        *known
    }
}

/// The log as its thread has it, which may be one that could not be opened yet.
struct Log {
    writer: Option<Writer>,
    directory: PathBuf,
    options: Options,
}

impl Log {
    fn is_unsynced(&self) -> bool {
        self.writer.as_ref().is_some_and(Writer::is_unsynced)
    }

    fn write(
        &mut self,
        waiting: &mut Vec<Entry>,
        is_ending: bool,
        observer: Option<&Observer>,
    ) -> io::Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(Writer::open(&self.directory, self.options, WriterRole::Bridge)?),
        };
        writer.write(waiting, observer)?;
        writer.sync_if_due(is_ending)
    }
}

/// The thread: takes entries, writes them, and keeps those that could not be written for the next try.
fn write_all(mut log: Log, queue: &Queue<Entry>, state: &State, trouble: &Trouble) {
    let mut waiting: Vec<Entry> = Vec::new();
    loop {
        let pause = if log.is_unsynced() { limits::SYNC_PAUSE } else { limits::IDLE_PAUSE };
        let is_ending = queue.take(&mut waiting, pause);
        let lost = state.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            waiting.push(Entry::lost(lost));
        }
        let written = log.write(&mut waiting, is_ending, state.observer.get());
        let is_failing = written.is_err();
        let was_failing = state.is_failing.swap(is_failing, Ordering::Relaxed);
        match written {
            Ok(()) if was_failing => trouble("the audit log can be written again".to_owned()),
            Err(error) if !was_failing => {
                trouble(format!("the audit log cannot be written: {error}"));
            }
            _ => {}
        }
        match (is_ending, is_failing) {
            (true, true) => {
                let count = waiting.len();
                trouble(format!(
                    "{count} records of the audit log were lost when this bridge ended"
                ));
                return;
            }
            (true, false) => return,
            (false, true) => std::thread::sleep(limits::RETRY_PAUSE),
            (false, false) => queue.gather(),
        }
    }
}

#[cfg(test)]
mod tests;
