//! How many lines requests may write to the log. A client that can send requests could otherwise
//! fill the disk or hide other lines. Lines that are left out are counted and reported.

use std::num::NonZeroU32;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use access::keys::{Rate, RateLimiter};

/// Lines per second and in a burst, of requests that were carried out.
const SERVED: [u32; 2] = [200, 2000];
/// The same of those that were refused, which need no key.
const REFUSED: [u32; 2] = [20, 200];
/// How long lines are left out before that is reported.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Which lines have a rate of their own, so that neither hides the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    Served,
    Refused,
}

static LINES: [LazyLock<LineRate>; 2] =
    [LazyLock::new(|| LineRate::new(SERVED)), LazyLock::new(|| LineRate::new(REFUSED))];

/// Whether one more line may be written. Those that may not are counted, and the count is written a
/// while later.
pub fn admit(line: Line) -> bool {
    let rate = &LINES[line as usize];
    match rate.admit(Instant::now()) {
        Admission::Write => true,
        Admission::Skip => false,
        Admission::SkipFirst => {
            tokio::spawn(async move {
                tokio::time::sleep(SAID_EVERY).await;
                let left_out = rate.take();
                let seconds = SAID_EVERY.as_secs();
                tracing::warn!(
                    target: "burrow::http", left_out, ?line,
                    "{left_out} more requests of this sort in the last {seconds} s have no line here"
                );
            });
            false
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Write,
    /// The first that is left out since the count was last reported.
    SkipFirst,
    Skip,
}

struct LineRate(Mutex<State>);

struct State {
    rate: RateLimiter<()>,
    left_out: u64,
}

impl LineRate {
    fn new([per_second, burst]: [u32; 2]) -> Self {
        let count = |count| NonZeroU32::new(count).expect("rates are not zero");
        let rate = RateLimiter::new(Rate::new(count(per_second), count(burst)), 1);
        Self(Mutex::new(State { rate, left_out: 0 }))
    }

    fn admit(&self, now: Instant) -> Admission {
        let mut state = self.state();
        if state.rate.admit((), now).is_ok() {
            return Admission::Write;
        }
        state.left_out += 1;
        if state.left_out == 1 { Admission::SkipFirst } else { Admission::Skip }
    }

    fn take(&self) -> u64 {
        std::mem::take(&mut self.state().left_out)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing in it is ever half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_rate_are_counted_and_no_more() {
        let (rate, now) = (LineRate::new([10, 5]), Instant::now());
        let all: Vec<_> = (0..20).map(|_| rate.admit(now)).collect();
        assert_eq!(all.iter().filter(|one| **one == Admission::Write).count(), 5);
        assert_eq!(all.iter().filter(|one| **one == Admission::SkipFirst).count(), 1);
        assert_eq!((rate.take(), rate.take()), (15, 0));
        assert_eq!(rate.admit(now + Duration::from_secs(1)), Admission::Write);
    }
}
