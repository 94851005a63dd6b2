//! The server's own counters, for `/metrics`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;

/// Upper bounds of the buckets of durations, in microseconds.
pub const BUCKETS_US: [u64; 12] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 10_000_000,
    60_000_000,
];

/// See the module's description.
#[derive(Debug, Default)]
pub struct Counters(Mutex<BTreeMap<(&'static str, u16), Calls>>);

/// The calls of one operation that were answered with one status.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    pub count: u64,
    pub sum_us: u64,
    /// How many took no longer than each bound, and longer than the one before.
    pub buckets: [u64; BUCKETS_US.len()],
}

impl Counters {
    pub fn answered(&self, operation: Option<&'static str>, status: StatusCode, elapsed: Duration) {
        let micros = elapsed.as_micros() as u64;
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = table.entry((operation.unwrap_or("none"), status.as_u16())).or_default();
        calls.count += 1;
        calls.sum_us += micros;
        if let Some(at) = BUCKETS_US.iter().position(|bound| micros <= *bound) {
            calls.buckets[at] += 1;
        }
    }

    pub fn all(&self) -> BTreeMap<(&'static str, u16), Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
