//! Outputs of which an answer shows a part: what is kept, and pages of it that end between
//! characters. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::KEPT_BYTES_MAX;
use crate::budget::Share;

/// One of the two outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    #[default]
    Stdout,
    Stderr,
}

impl Stream {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// An output as it comes: its beginning, and how much there was.
#[derive(Clone, Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    total_bytes: u64,
}

/// A part of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The text; invalid UTF-8 is shown as U+FFFD.
    pub text: String,
    /// Where it goes on, unless this was the last of what is kept.
    pub next: Option<usize>,
}

impl Output {
    /// Takes in what comes next. What `memory` has no room for is counted alone, and so is all that
    /// follows.
    pub fn add(&mut self, bytes: &[u8], memory: &Share) {
        let is_whole = self.total_bytes == self.bytes.len() as u64;
        self.total_bytes += bytes.len() as u64;
        let room = if is_whole { KEPT_BYTES_MAX - self.bytes.len() } else { 0 };
        let kept = room.min(bytes.len());
        if memory.try_grow(kept) {
            self.bytes.extend_from_slice(&bytes[..kept]);
        }
    }

    /// Bytes that were lost before they came here.
    pub fn lose(&mut self, bytes: u64) {
        self.total_bytes += bytes;
    }

    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub fn kept_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// At most so many bytes from `offset` on.
    pub fn page(&self, offset: usize, bytes_max: usize) -> Page {
        page(&self.bytes, offset, bytes_max)
    }
}

/// A part of some bytes that does not end within a character, unless it would be empty otherwise.
pub fn page(bytes: &[u8], offset: usize, bytes_max: usize) -> Page {
    let from = offset.min(bytes.len());
    let mut to = from.saturating_add(bytes_max).min(bytes.len());
    if to < bytes.len() {
        let begins = |at: usize| bytes[at] & 0b1100_0000 != 0b1000_0000;
        // A character has at most three bytes behind its first.
        let whole = (to.saturating_sub(3).max(from + 1)..=to).rev().find(|at| begins(*at));
        to = whole.unwrap_or(to);
    }
    let text = String::from_utf8_lossy(&bytes[from..to]).into_owned();
    Page { text, next: (to < bytes.len()).then_some(to) }
}

/// The beginning of what cannot be read on, with a word on what is missing.
pub fn clip(text: &str, bytes_max: usize) -> String {
    let page = page(text.as_bytes(), 0, bytes_max);
    match page.next {
        Some(shown) => {
            format!("{}\n[cut: the first {shown} of {} bytes]", page.text, text.len())
        }
        None => page.text,
    }
}

/// An output that was cut, and how to read on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rest {
    pub stream: Stream,
    /// Bytes shown here.
    pub shown_bytes: u64,
    /// Bytes of the whole output.
    pub total_bytes: u64,
    /// Bytes from the beginning that `read_output` can still return.
    pub kept_bytes: u64,
    /// The `offset` to pass to `read_output`.
    pub next_offset: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::limits::MEMORY_STEP_BYTES;

    #[test]
    fn pages_end_between_characters_and_join_to_the_whole() {
        let text = "aé€𝄞".repeat(50);
        for bytes_max in 1..12 {
            let (mut joined, mut offset) = (String::new(), 0);
            loop {
                let page = page(text.as_bytes(), offset, bytes_max);
                if bytes_max >= 4 {
                    assert!(!page.text.contains('\u{fffd}'), "{bytes_max}");
                    joined.push_str(&page.text);
                }
                let Some(next) = page.next else { break };
                assert!(next > offset, "it gets on");
                offset = next;
            }
            assert!(bytes_max < 4 || joined == text, "{bytes_max}");
        }
    }

    #[test]
    fn what_is_clipped_says_so() {
        assert_eq!(clip("short", 5), "short");
        assert_eq!(clip("aé€", 4), "aé\n[cut: the first 3 of 6 bytes]");
    }

    #[test]
    fn what_is_no_text_is_paged_all_the_same() {
        let bytes = [0x80; 10];
        let first = page(&bytes, 0, 4);
        assert_eq!(first.next, Some(4));
        assert_eq!(page(&bytes, 8, 4).next, None);
        assert_eq!(page(&bytes, 99, 4), Page { text: String::new(), next: None });
    }

    #[test]
    fn an_output_keeps_its_beginning_and_counts_the_rest() {
        let memory = Budget::new(u64::MAX).share();
        let mut output = Output::default();
        output.add(&vec![b'a'; KEPT_BYTES_MAX - 1], &memory);
        output.add(b"bcd", &memory);
        output.lose(2);
        assert_eq!(output.kept_bytes(), KEPT_BYTES_MAX);
        assert_eq!(output.total_bytes(), KEPT_BYTES_MAX as u64 + 4);
        assert_eq!(output.page(KEPT_BYTES_MAX - 1, 9).text, "b");
    }

    #[test]
    fn nothing_is_kept_behind_what_there_was_no_memory_for() {
        let memory = Budget::new(0).share();
        let mut output = Output::default();
        output.add(b"first", &memory);
        output.add(&vec![b'x'; MEMORY_STEP_BYTES as usize], &memory);
        output.add(b"last", &memory);
        assert_eq!(output.page(0, 99), Page { text: "first".to_owned(), next: None });
        assert_eq!(output.total_bytes(), 9 + MEMORY_STEP_BYTES);
    }
}
