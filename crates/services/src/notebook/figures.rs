//! Counts of notebooks since this bridge began, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counted by the owners of notebooks.
#[derive(Debug, Default)]
pub(super) struct Counts {
    saves: AtomicU64,
    failed_saves: AtomicU64,
    save_us: AtomicU64,
    saved_bytes: AtomicU64,
    reopened: AtomicU64,
    lost_runs: AtomicU64,
}

/// The sums at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotebookFigures {
    /// Notebooks that are in use, or were recently.
    pub open: u64,
    /// Bytes of variables on disk, of all notebooks.
    pub kept_bytes: u64,
    pub saves: u64,
    pub failed_saves: u64,
    /// For successful saves, from the order to the disk.
    pub save_us: u64,
    pub saved_bytes: u64,
    /// Interpreters that got the saved variables.
    pub reopened: u64,
    /// Runs whose changes were found to be lost.
    pub lost_runs: u64,
}

impl Counts {
    pub fn saved(&self, took: Duration, bytes: u64) {
        add(&self.saves, 1);
        add(&self.save_us, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        add(&self.saved_bytes, bytes);
    }

    pub fn failed(&self) {
        add(&self.failed_saves, 1);
    }

    pub fn reopened(&self, lost_runs: u64) {
        add(&self.reopened, 1);
        add(&self.lost_runs, lost_runs);
    }

    pub fn read(&self, open: usize, kept_bytes: u64) -> NotebookFigures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        NotebookFigures {
            open: open as u64,
            kept_bytes,
            saves: read(&self.saves),
            failed_saves: read(&self.failed_saves),
            save_us: read(&self.save_us),
            saved_bytes: read(&self.saved_bytes),
            reopened: read(&self.reopened),
            lost_runs: read(&self.lost_runs),
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}
