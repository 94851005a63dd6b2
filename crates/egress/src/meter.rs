//! Rate limits and total limits of one sandbox's egress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A token bucket: refills at a rate, up to a burst.
#[derive(Debug)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    level: Mutex<(f64, Instant)>,
}

impl Bucket {
    pub fn new(per_second: f64, burst: f64) -> Self {
        Self { per_second, burst, level: Mutex::new((burst, Instant::now())) }
    }

    /// Takes one, if there is one.
    pub fn try_take(&self) -> bool {
        let mut level = self.level();
        let has = level.0 >= 1.0;
        if has {
            level.0 -= 1.0;
        }
        has
    }

    /// Takes this amount in any case, and returns how long to wait for the missing part.
    fn owe(&self, amount: f64) -> Duration {
        let mut level = self.level();
        level.0 -= amount;
        if level.0 >= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(-level.0 / self.per_second)
    }

    fn level(&self) -> std::sync::MutexGuard<'_, (f64, Instant)> {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let gained = now.duration_since(level.1).as_secs_f64() * self.per_second;
        *level = ((level.0 + gained).min(self.burst), now);
        level
    }
}

/// The bytes of all connections of one sandbox, both ways.
#[derive(Debug)]
pub struct Meter {
    rate: Option<Bucket>,
    bytes_max: Option<u64>,
    bytes: AtomicU64,
}

/// The sandbox has carried as much as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox has used its limit of {bytes_max} bytes")]
pub struct LimitReached {
    pub bytes_max: u64,
}

impl Meter {
    pub fn new(bytes_per_second: Option<u64>, bytes_max: Option<u64>) -> Self {
        let rate = bytes_per_second.map(|rate| Bucket::new(rate as f64, rate as f64));
        Self { rate, bytes_max, bytes: AtomicU64::new(0) }
    }

    /// Refuses a connection that could carry nothing.
    pub fn left(&self) -> Result<(), LimitReached> {
        match self.bytes_max {
            Some(bytes_max) if self.bytes.load(Ordering::Relaxed) >= bytes_max => {
                Err(LimitReached { bytes_max })
            }
            _ => Ok(()),
        }
    }

    /// Counts bytes before they are forwarded, and waits for their turn. A waiter delays others no
    /// longer than their own share of the rate.
    pub async fn pass(&self, bytes: usize) -> Result<(), LimitReached> {
        let before = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(bytes_max) = self.bytes_max
            && before.saturating_add(bytes as u64) > bytes_max
        {
            return Err(LimitReached { bytes_max });
        }
        if let Some(rate) = &self.rate {
            let wait = rate.owe(bytes as f64);
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_has_a_burst_and_then_its_rate() {
        let bucket = Bucket::new(10.0, 3.0);
        assert_eq!((0..5).filter(|_| bucket.try_take()).count(), 3);
        tokio::time::advance(Duration::from_millis(210)).await;
        assert_eq!((0..5).filter(|_| bucket.try_take()).count(), 2);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((0..5).filter(|_| bucket.try_take()).count(), 3, "no more than the burst");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_go_at_their_rate() {
        let meter = Meter::new(Some(1000), None);
        let began = Instant::now();
        for _ in 0..50 {
            meter.pass(100).await.unwrap();
        }
        let took = began.elapsed();
        assert!(
            (Duration::from_millis(3900)..Duration::from_millis(4100)).contains(&took),
            "{took:?}"
        );
    }

    #[tokio::test]
    async fn there_are_no_more_bytes_than_may_be() {
        let meter = Meter::new(None, Some(250));
        assert_eq!(meter.left(), Ok(()));
        assert_eq!(meter.pass(250).await, Ok(()));
        assert_eq!(meter.left(), Err(LimitReached { bytes_max: 250 }));
        assert_eq!(meter.pass(1).await, Err(LimitReached { bytes_max: 250 }));
    }
}
