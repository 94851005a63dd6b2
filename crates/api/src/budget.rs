//! How much memory all calls may hold together for what clients and programs say: bodies that are
//! read whole, outputs that are kept for an answer. Each has its own bound; without this one their
//! number would have none.
//!
//! Every call has one share. Whoever keeps bytes for the call grows it, and what it has taken comes
//! back when the last who holds it is done: the call, the feeding of a program, the sending of the
//! answer. What is copied for a moment, as an answer is while it is written, is not counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::limits::{BUSY_PAUSE, MEMORY_STEP_BYTES};
use super::problem::{Code, Problem};
use agent_client::program::Memory;

/// What there is for all. Clones are the same.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Total>);

#[derive(Debug)]
struct Total {
    bytes_max: u64,
    taken_bytes: AtomicU64,
}

/// What one call holds. Clones are the same, and the last one gives it back.
#[derive(Clone, Debug)]
pub struct Share(Arc<Held>);

#[derive(Debug)]
struct Held {
    budget: Budget,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Account {
    /// What is held.
    used_bytes: u64,
    /// What was taken from the budget for it, in whole steps. The first step is free: most calls
    /// need no more, and so never touch what all have in common.
    taken_bytes: u64,
}

impl Budget {
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Total { bytes_max, taken_bytes: AtomicU64::new(0) }))
    }

    /// A share that holds nothing yet.
    pub fn share(&self) -> Share {
        Share(Arc::new(Held { budget: self.clone(), account: Mutex::default() }))
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.0.bytes_max);
        let taken = &self.0.taken_bytes;
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

impl Share {
    /// Takes so much more, if there is so much; otherwise nothing is taken.
    pub fn try_grow(&self, bytes: usize) -> bool {
        let mut account = self.0.account.lock().unwrap_or_else(PoisonError::into_inner);
        let used = account.used_bytes.saturating_add(bytes as u64);
        let missing = used.saturating_sub(account.taken_bytes + MEMORY_STEP_BYTES);
        if missing > 0 {
            let Some(step) = missing.checked_next_multiple_of(MEMORY_STEP_BYTES) else {
                return false;
            };
            if !self.0.budget.take(step) {
                return false;
            }
            account.taken_bytes += step;
        }
        account.used_bytes = used;
        true
    }

    /// The same for what a client has sent, who is told to come again.
    pub fn grow(&self, bytes: usize) -> Result<(), Problem> {
        if self.try_grow(bytes) {
            return Ok(());
        }
        let message = "the calls in progress use all the memory reserved for calls";
        Err(Problem::new(Code::Unavailable, message)
            .hint("try again in a moment, or send a smaller body")
            .retry_after(BUSY_PAUSE))
    }

    /// So much of it is not held any more, and is there for what the call keeps next.
    pub fn shrink(&self, bytes: usize) {
        let mut account = self.0.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.used_bytes = account.used_bytes.saturating_sub(bytes as u64);
    }

    /// Whether it has taken anything from the others.
    pub fn is_free(&self) -> bool {
        self.0.account.lock().unwrap_or_else(PoisonError::into_inner).taken_bytes == 0
    }
}

impl Memory for Share {
    fn try_grow(&self, bytes: usize) -> bool {
        self.try_grow(bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let account = self.account.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.budget.0.taken_bytes.fetch_sub(account.taken_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: usize = MEMORY_STEP_BYTES as usize;

    fn taken(budget: &Budget) -> usize {
        budget.0.taken_bytes.load(Ordering::Relaxed) as usize
    }

    #[test]
    fn a_small_call_takes_nothing_from_the_others() {
        let budget = Budget::new(0);
        let share = budget.share();
        assert!(share.try_grow(STEP - 1));
        assert!(share.try_grow(1));
        assert!(share.is_free());
        assert!(!share.try_grow(1));
        assert_eq!(share.grow(1).unwrap_err().code, Code::Unavailable);
    }

    #[test]
    fn what_is_taken_comes_back_with_the_last_who_holds_it() {
        let budget = Budget::new(2 * MEMORY_STEP_BYTES);
        let (first, second) = (budget.share(), budget.share());
        assert!(first.try_grow(2 * STEP + 1));
        assert_eq!(taken(&budget), 2 * STEP);
        assert!(!second.try_grow(STEP + 1), "there is nothing left");
        assert!(second.try_grow(STEP), "what is refused takes nothing");
        let kept = first.clone();
        drop(first);
        assert!(!second.try_grow(1));
        drop(kept);
        assert!(second.try_grow(1));
        drop(second);
        assert_eq!(taken(&budget), 0);
    }

    #[test]
    fn what_is_let_go_of_is_there_for_the_same_call() {
        let budget = Budget::new(MEMORY_STEP_BYTES);
        let share = budget.share();
        for _ in 0..10 {
            assert!(share.try_grow(2 * STEP));
            share.shrink(2 * STEP);
        }
        assert_eq!(taken(&budget), STEP);
        assert!(!share.try_grow(usize::MAX));
    }
}
