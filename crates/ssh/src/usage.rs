//! Whether a connection is used: it is as long as it has a channel.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Clones are of the same connection.
#[derive(Clone, Debug)]
pub struct Usage(Arc<Mutex<Seen>>);

#[derive(Debug)]
struct Seen {
    channels: usize,
    unused_since: Instant,
}

/// Held by the work of a channel.
#[derive(Debug)]
pub struct InUse(Usage);

impl Default for Usage {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Seen { channels: 0, unused_since: Instant::now() })))
    }
}

impl Usage {
    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        // Nothing in it is ever half-changed.
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn begin(&self) -> InUse {
        self.seen(|seen| seen.channels += 1);
        InUse(self.clone())
    }

    /// How long it has had no channel; `None` while it has one.
    pub fn unused_for(&self) -> Option<Duration> {
        self.seen(|seen| (seen.channels == 0).then(|| seen.unused_since.elapsed()))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.seen(|seen| {
            seen.channels = seen.channels.saturating_sub(1);
            seen.unused_since = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_without_a_channel_begins_when_the_last_has_ended() {
        let usage = Usage::default();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(usage.unused_for(), Some(Duration::from_secs(3)));
        let (one, two) = (usage.begin(), usage.begin());
        drop(one);
        assert_eq!(usage.unused_for(), None);
        drop(two);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(usage.unused_for(), Some(Duration::from_secs(1)));
    }
}
