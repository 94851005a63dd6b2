//! Notices of progress while something runs, for clients that have asked for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::limits::PROGRESS_PAUSE;

/// Tells the client from time to time how far it is. Dropping it ends that too, and one notice more
/// may be on its way then.
#[derive(Debug)]
pub struct Progress {
    bytes: Arc<AtomicU64>,
    /// The message instead of them.
    words: Arc<Mutex<Option<String>>>,
    task: Option<JoinHandle<()>>,
}

impl Progress {
    /// Progress is the seconds gone by, of those that there are at most.
    pub fn begin(context: &RequestContext<RoleServer>, limit: Duration) -> Self {
        let bytes = Arc::new(AtomicU64::new(0));
        let words = Arc::new(Mutex::new(None::<String>));
        let task = context.meta.get_progress_token().map(|token| {
            let (peer, bytes) = (context.peer.clone(), Arc::clone(&bytes));
            let cancelled = context.ct.clone();
            let words = Arc::clone(&words);
            tokio::spawn(async move {
                let begun = Instant::now();
                let mut ticks = interval_at(begun + PROGRESS_PAUSE, PROGRESS_PAUSE);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    tokio::select! {
                        _ = ticks.tick() => {}
                        // No progress is sent for a cancelled call.
                        () = cancelled.cancelled() => return,
                    }
                    let seconds = begun.elapsed().as_secs_f64();
                    let mut notice = ProgressNotificationParam::new(token.clone(), seconds);
                    notice.total = Some(limit.as_secs_f64().max(seconds));
                    let bytes = bytes.load(Ordering::Relaxed);
                    let text = words.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let text = text.unwrap_or_else(|| format!("{bytes} bytes of output"));
                    notice.message = Some(format!("{seconds:.0} s, {text}"));
                    if peer.notify_progress(notice).await.is_err() {
                        return;
                    }
                }
            })
        });
        Self { bytes, words, task }
    }

    /// How far it is, in its own words.
    pub fn say(&self, words: String) {
        *self.words.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
    }

    /// Tells nothing more. When this returns, the last notice is before whatever is sent next.
    pub async fn end(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // It has ended by itself, or was ended here.
            let _ = task.await;
        }
    }

    /// Counts further output.
    pub fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
