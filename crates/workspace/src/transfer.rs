//! Counts the bytes of files that workspaces have copied in each direction since this bridge started, for
//! metrics. A mounted workspace copies none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct TransferCounter(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    taken: AtomicU64,
}

impl TransferCounter {
    /// Into a sandbox.
    pub(super) fn send(&self, bytes: u64) {
        self.0.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Back from one, also of a file that then was the same, or was not kept.
    pub(super) fn take(&self, bytes: u64) {
        self.0.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn sent_bytes(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    pub fn taken_bytes(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }
}
