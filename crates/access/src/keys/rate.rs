//! Rate limits: one token bucket per caller. Pure; the time is an argument.
//!
//! A bucket is stored as one instant: when it will be full again. A token moves the instant by the
//! time that one token takes to come back. No token is left if the instant would be further away
//! than the whole bucket takes to fill. An instant in the past is a full bucket, which need not be
//! stored, so dropping idle buckets loses nothing.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// A rate: on average, and in a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How long one token takes to come back.
    interval: Duration,
    /// How long an empty bucket takes to fill.
    span: Duration,
}

impl Rate {
    /// `per_second` on average, and `burst` of them at once.
    pub fn new(per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1) / per_second.get();
        Self { interval, span: interval * burst.get() }
    }
}

/// How long to wait for the next token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter(pub Duration);

impl RetryAfter {
    /// For the header of that name: whole seconds, rounded up, and never zero.
    pub fn seconds(self) -> u64 {
        let RetryAfter(wait) = self;
        (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
    }
}

/// The buckets of all callers whose bucket is not full.
#[derive(Debug)]
pub struct RateLimiter<K> {
    rate: Rate,
    who_max: usize,
    full_at: HashMap<K, Instant>,
    /// The one bucket of all who find no room. They wait for each other, which is what a table
    /// that an attacker has filled costs.
    others_full_at: Option<Instant>,
    swept_at: Option<Instant>,
}

impl<K: Eq + Hash> RateLimiter<K> {
    pub fn new(rate: Rate, who_max: usize) -> Self {
        Self { rate, who_max, full_at: HashMap::new(), others_full_at: None, swept_at: None }
    }

    /// Takes a token, or returns when there is one.
    pub fn admit(&mut self, who: K, now: Instant) -> Result<(), RetryAfter> {
        if let Some(full_at) = self.full_at.get_mut(&who) {
            return take(self.rate, full_at, now);
        }
        if self.full_at.len() >= self.who_max {
            self.sweep(now);
        }
        if self.full_at.len() >= self.who_max {
            return take(self.rate, self.others_full_at.get_or_insert(now), now);
        }
        take(self.rate, self.full_at.entry(who).or_insert(now), now)
    }

    /// The number of stored buckets.
    pub fn remembered(&self) -> usize {
        self.full_at.len()
    }

    /// Forgets the full buckets. Not more often than one token takes, so that a full table costs
    /// no walk through it for each request.
    fn sweep(&mut self, now: Instant) {
        let is_early = |at: Instant| now.saturating_duration_since(at) < self.rate.interval;
        if self.swept_at.is_some_and(is_early) {
            return;
        }
        self.swept_at = Some(now);
        self.full_at.retain(|_, full_at| *full_at > now);
    }
}

fn take(rate: Rate, full_at: &mut Instant, now: Instant) -> Result<(), RetryAfter> {
    let next = (*full_at).max(now) + rate.interval;
    let ahead = next.saturating_duration_since(now);
    match ahead.checked_sub(rate.span) {
        Some(wait) if wait > Duration::ZERO => Err(RetryAfter(wait)),
        _ => {
            *full_at = next;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
