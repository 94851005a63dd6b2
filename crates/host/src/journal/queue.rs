//! Entries on their way to the thread that writes them.
//!
//! ```text
//!               push: wakes it in GATHER_PAUSE, once              take
//!   (asleep) ────────────────────────────────────────▶ (writing) ──────▶ (gathering) ─▶ take …
//!      ▲                                                                      │ nothing came
//!      └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A call records before its answer is written, and to wake a thread then would cost the answer more
//! than the record does. So the thread is not woken while it writes or gathers, and one that sleeps
//! is woken by a timer of the runtime that the caller is on.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

/// The bounds of a queue, which its owner names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Entries that wait.
    pub entries_max: usize,
    /// Entries that are taken in one turn.
    pub batch_max: usize,
    /// How long entries are gathered behind the answers of those who added them.
    pub gather_pause: Duration,
}

/// See the module's description.
pub struct Queue<T> {
    limits: QueueLimits,
    waiting: Mutex<Waiting<T>>,
    woken: Condvar,
}

struct Waiting<T> {
    entries: Vec<T>,
    /// Whether the thread sleeps until it is woken.
    is_asleep: bool,
    is_ending: bool,
}

impl<T: Send + 'static> Queue<T> {
    pub fn new(limits: QueueLimits) -> Self {
        let waiting = Waiting { entries: Vec::new(), is_asleep: false, is_ending: false };
        Self { limits, waiting: Mutex::new(waiting), woken: Condvar::new() }
    }

    /// Adds an entry; false where there is no room, or the end has been ordered.
    pub fn push(self: &Arc<Self>, entry: T) -> bool {
        let mut waiting = self.waiting();
        if waiting.is_ending || waiting.entries.len() >= self.limits.entries_max {
            return false;
        }
        waiting.entries.push(entry);
        let was_asleep = std::mem::take(&mut waiting.is_asleep);
        drop(waiting);
        if was_asleep {
            let (wake, pause) = (Wake(Arc::clone(self)), self.limits.gather_pause);
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(async move {
                    tokio::time::sleep(pause).await;
                    drop(wake);
                })),
                Err(_) => drop(wake),
            }
        }
        true
    }

    /// Moves what waits to `into`, up to a batch or at the end all of it, and sleeps for at most `pause` when there is nothing
    /// to do. Says whether that was the last.
    pub fn take(&self, into: &mut Vec<T>, pause: Duration) -> bool {
        let mut waiting = self.waiting();
        if into.is_empty() {
            waiting.is_asleep = waiting.entries.is_empty() && !waiting.is_ending;
            let has_none = |it: &mut Waiting<T>| it.entries.is_empty() && !it.is_ending;
            let slept = self.woken.wait_timeout_while(waiting, pause, has_none);
            waiting = slept.unwrap_or_else(PoisonError::into_inner).0;
            waiting.is_asleep = false;
        }
        // The end has to know of all, also where they cannot be written.
        let QueueLimits { entries_max, batch_max, .. } = self.limits;
        let batch =
            if waiting.is_ending { entries_max } else { batch_max.saturating_sub(into.len()) };
        let count = batch.min(waiting.entries.len());
        into.extend(waiting.entries.drain(..count));
        waiting.is_ending
    }

    /// Waits while entries come, unless there is a batch of them or it is the end.
    pub fn gather(&self) {
        let batch_max = self.limits.batch_max;
        let is_short = |it: &mut Waiting<T>| it.entries.len() < batch_max && !it.is_ending;
        let pause = self.limits.gather_pause;
        drop(self.woken.wait_timeout_while(self.waiting(), pause, is_short));
    }

    /// Orders the end. What was added so far is still written.
    pub fn end(&self) {
        self.waiting().is_ending = true;
        self.woken.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        // Nothing in it is ever half-changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the thread when it is dropped: also with a runtime that ends before its timer.
struct Wake<T>(Arc<Queue<T>>);

impl<T> Drop for Wake<T> {
    fn drop(&mut self) {
        self.0.woken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const BATCH_MAX: usize = 256;
    const GATHER_PAUSE: Duration = Duration::from_millis(10);
    const LIMITS: QueueLimits =
        QueueLimits { entries_max: 8192, batch_max: BATCH_MAX, gather_pause: GATHER_PAUSE };

    fn entry() -> &'static str {
        "entry"
    }

    /// A thread that takes one batch, asleep when this returns.
    fn asleep(queue: &Arc<Queue<&'static str>>) -> std::thread::JoinHandle<(usize, Instant)> {
        let taken = Arc::clone(queue);
        let thread = std::thread::spawn(move || {
            let mut entries = Vec::new();
            taken.take(&mut entries, Duration::from_secs(60));
            (entries.len(), Instant::now())
        });
        while !queue.waiting().is_asleep {
            std::thread::yield_now();
        }
        thread
    }

    #[tokio::test]
    async fn the_thread_is_woken_behind_the_answer_and_has_all_that_came_meanwhile() {
        let queue = Arc::new(Queue::new(LIMITS));
        let thread = asleep(&queue);
        let begun = Instant::now();
        assert!(queue.push(entry()) && queue.push(entry()));
        // Nothing was written before the recording task goes on: the timer is this runtime's.
        tokio::task::yield_now().await;
        assert!(!thread.is_finished() || begun.elapsed() >= GATHER_PAUSE);
        tokio::time::sleep(GATHER_PAUSE).await;
        let (count, woken) = tokio::task::spawn_blocking(|| thread.join()).await.unwrap().unwrap();
        assert_eq!(count, 2);
        assert!(woken - begun >= GATHER_PAUSE, "{:?}", woken - begun);
    }

    #[test]
    fn a_caller_without_a_runtime_wakes_the_thread_at_once() {
        let queue = Arc::new(Queue::new(LIMITS));
        let thread = asleep(&queue);
        assert!(queue.push(entry()));
        assert_eq!(thread.join().unwrap().0, 1);
        let thread = asleep(&queue);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert!(runtime.block_on(async { queue.push(entry()) }));
        drop(runtime);
        assert_eq!(thread.join().unwrap().0, 1);
    }

    #[test]
    fn what_was_added_before_the_end_is_taken_and_nothing_after_it() {
        let queue = Arc::new(Queue::new(LIMITS));
        let count = BATCH_MAX + 1;
        assert!((0..count).all(|_| queue.push(entry())));
        let mut entries = Vec::new();
        assert!(!queue.take(&mut entries, Duration::ZERO));
        assert_eq!(entries.len(), BATCH_MAX);
        // As where they cannot be written: what is there stays, and the end still learns of the last.
        assert!(!queue.take(&mut entries, Duration::ZERO));
        assert_eq!(entries.len(), BATCH_MAX);
        queue.end();
        assert!(!queue.push(entry()));
        assert!(queue.take(&mut entries, Duration::ZERO));
        assert_eq!(entries.len(), count);
    }
}
