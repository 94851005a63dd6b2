//! How many runs may be in progress at once, of one key and of all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use sandbox::limits::BUSY_PAUSE;
use sandbox::refusal::{Code, Refusal};

/// Counts the runs under way.
#[derive(Debug)]
pub struct Admission {
    all: Arc<Semaphore>,
    all_max: usize,
    per_key_max: usize,
    /// Keys with runs under way; the others are not in it.
    keys: Arc<Mutex<HashMap<String, usize>>>,
}

/// A place among the runs. Clones are the same place, and dropping the last gives it to another.
#[derive(Clone, Debug)]
pub struct RunPermit {
    _place: Arc<KeySlot>,
}

#[derive(Debug)]
struct KeySlot {
    _permit: OwnedSemaphorePermit,
    keys: Arc<Mutex<HashMap<String, usize>>>,
    key: String,
}

impl Admission {
    pub fn new(all_max: usize, per_key_max: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all_max)), all_max, per_key_max, keys: Arc::default() }
    }

    /// A place for a run of this key, if there is one.
    pub fn admit(&self, key: &str) -> Result<RunPermit, Refusal> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let running = keys.get(key).copied().unwrap_or(0);
        if running >= self.per_key_max {
            let message = format!(
                "this key has {running} runs in progress, and the limit is {}",
                self.per_key_max
            );
            let details = serde_json::json!({ "running": running, "limit": self.per_key_max });
            return Err(Refusal::new(Code::LimitReached, message)
                .hint("wait until one of them ends")
                .details(details)
                .retry_after(BUSY_PAUSE));
        }
        let Ok(place) = Arc::clone(&self.all).try_acquire_owned() else {
            let message =
                format!("this server has {} runs in progress, which is the limit", self.all_max);
            return Err(Refusal::new(Code::Unavailable, message)
                .hint("try again in a moment")
                .retry_after(BUSY_PAUSE));
        };
        *keys.entry(key.to_owned()).or_default() += 1;
        let place = KeySlot { _permit: place, keys: Arc::clone(&self.keys), key: key.to_owned() };
        Ok(RunPermit { _place: Arc::new(place) })
    }

    /// How many runs are under way.
    pub fn running(&self) -> usize {
        self.all_max - self.all.available_permits()
    }
}

impl Drop for KeySlot {
    fn drop(&mut self) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = keys.get_mut(&self.key) {
            *running -= 1;
            if *running == 0 {
                keys.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_own_bound_below_that_of_all() {
        let admission = Admission::new(3, 2);
        let first = admission.admit("a").unwrap();
        let _second = admission.admit("a").unwrap();
        assert_eq!(admission.admit("a").unwrap_err().code, Code::LimitReached);
        let _third = admission.admit("b").unwrap();
        assert_eq!(admission.admit("c").unwrap_err().code, Code::Unavailable);
        assert_eq!(admission.running(), 3);
        drop(first);
        assert_eq!(admission.running(), 2);
        admission.admit("a").unwrap();
    }

    #[test]
    fn a_place_is_kept_until_the_last_who_has_it_is_done() {
        let admission = Admission::new(3, 1);
        let call = admission.admit("a").unwrap();
        let feeding = call.clone();
        drop(call);
        assert_eq!(admission.admit("a").unwrap_err().code, Code::LimitReached);
        drop(feeding);
        admission.admit("a").unwrap();
    }

    #[test]
    fn a_key_without_runs_is_forgotten() {
        let admission = Admission::new(3, 2);
        drop(admission.admit("a").unwrap());
        assert!(admission.keys.lock().unwrap().is_empty());
    }
}
