//! The newest output of an app, both streams in the order of their arrival. Pure.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::limits::LOG_KEPT_BYTES;

/// The tail as an app's keeper fills it and others read it.
#[derive(Clone, Debug, Default)]
pub struct SharedTail(Arc<Mutex<Tail>>);

/// See the module's description.
#[derive(Debug, Default)]
struct Tail {
    bytes: VecDeque<u8>,
    total_bytes: u64,
}

/// A piece of the tail, to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The text; invalid UTF-8 is shown as U+FFFD.
    pub text: String,
    /// All that the app has written, shown here or not.
    pub total_bytes: u64,
}

impl SharedTail {
    pub fn add(&self, bytes: &[u8]) {
        self.with(|tail| tail.add(bytes));
    }

    /// At most so many of the newest bytes.
    pub fn show(&self, bytes_max: usize) -> Shown {
        self.with(|tail| tail.show(bytes_max))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Tail) -> T) -> T {
        // Nothing in it is ever half-changed.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        self.total_bytes = self.total_bytes.saturating_add(bytes.len() as u64);
        let newest = &bytes[bytes.len().saturating_sub(LOG_KEPT_BYTES)..];
        let surplus = (self.bytes.len() + newest.len()).saturating_sub(LOG_KEPT_BYTES);
        self.bytes.drain(..surplus);
        self.bytes.extend(newest);
    }

    fn show(&self, bytes_max: usize) -> Shown {
        let first = self.bytes.len().saturating_sub(bytes_max);
        let newest: Vec<u8> = self.bytes.iter().skip(first).copied().collect();
        // A character that was cut in two is left out.
        let is_cut = self.total_bytes > newest.len() as u64;
        let rest = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
        let skipped =
            if is_cut { newest.iter().take(3).take_while(|byte| rest(byte)).count() } else { 0 };
        let text = String::from_utf8_lossy(&newest[skipped..]).into_owned();
        Shown { text, total_bytes: self.total_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_kept_and_all_of_it_counted() {
        let tail = SharedTail::default();
        tail.add(&vec![b'a'; LOG_KEPT_BYTES]);
        tail.add(b"end");
        let shown = tail.show(usize::MAX);
        assert_eq!(
            (shown.text.len(), shown.total_bytes),
            (LOG_KEPT_BYTES, LOG_KEPT_BYTES as u64 + 3)
        );
        assert_eq!(tail.show(5).text, "aaend");
        tail.add(&vec![b'b'; 2 * LOG_KEPT_BYTES]);
        assert_eq!(tail.show(usize::MAX).text, "b".repeat(LOG_KEPT_BYTES));
    }

    #[test]
    fn a_character_that_is_cut_is_left_out() {
        let tail = SharedTail::default();
        tail.add("a€b".as_bytes());
        assert_eq!(tail.show(3).text, "b");
        assert_eq!(tail.show(4).text, "€b");
        assert_eq!(tail.show(9).text, "a€b");
        assert_eq!(tail.show(0).text, "");
    }
}
