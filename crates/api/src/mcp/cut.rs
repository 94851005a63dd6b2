//! Outputs of which an answer shows only a part: what is kept, and pages of it that end between
//! characters. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use agent_client::program::whole_characters;

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

/// A part of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The text; invalid UTF-8 is shown as U+FFFD.
    pub text: String,
    /// Where it goes on, unless this was the last of what is kept.
    pub next: Option<usize>,
}

/// A part of some bytes that does not end within a character, unless it would be empty otherwise.
pub fn page(bytes: &[u8], offset: usize, bytes_max: usize) -> Page {
    let from = offset.min(bytes.len());
    let mut to = from.saturating_add(bytes_max).min(bytes.len());
    if to < bytes.len() {
        let whole = whole_characters(&bytes[from..to]);
        to = if whole > 0 { from + whole } else { to };
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
    fn binary_content_is_paged_too() {
        let bytes = [0x80; 10];
        let first = page(&bytes, 0, 4);
        assert_eq!(first.next, Some(4));
        assert_eq!(page(&bytes, 8, 4).next, None);
        assert_eq!(page(&bytes, 99, 4), Page { text: String::new(), next: None });
    }
}
