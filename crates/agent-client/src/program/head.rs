//! The beginning of an output, and how much there was of it. Pure.

use super::whole_characters;

/// Decides whether there is memory for more.
pub trait Memory {
    /// Reserves the memory that these bytes need, here and later; if there is none, reserves nothing.
    fn try_keep(&self, bytes: &[u8]) -> bool;
}

/// Memory that always has room: only the bound of each output counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Memory for Unlimited {
    fn try_keep(&self, _: &[u8]) -> bool {
        true
    }
}

/// An output of which the beginning is kept. Once a byte was left out, all that follows is.
#[derive(Clone, Debug)]
pub struct Head {
    bytes: Vec<u8>,
    bytes_max: usize,
    total_bytes: u64,
    is_cut: bool,
}

impl Head {
    /// Keeps at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, total_bytes: 0, is_cut: false }
    }

    /// Appends bytes. Those without room in `memory` or beyond the bound are counted and dropped.
    pub fn add(&mut self, bytes: &[u8], memory: &impl Memory) {
        self.total_bytes = self.total_bytes.saturating_add(bytes.len() as u64);
        if self.is_cut {
            return;
        }
        let room = self.bytes_max - self.bytes.len();
        let mut count = bytes.len().min(room);
        if !memory.try_keep(&bytes[..count]) {
            count = 0;
        }
        self.bytes.extend_from_slice(&bytes[..count]);
        self.is_cut = count < bytes.len();
    }

    /// Counts bytes that were lost before, and drops what follows them.
    pub fn lose(&mut self, bytes: u64) {
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        self.is_cut |= bytes > 0;
    }

    /// Whether a byte was left out.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The number of all bytes.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The bytes that were kept.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes that were kept, without the beginning of a character that the bound cut off.
    pub fn into_characters(mut self) -> Vec<u8> {
        if self.is_cut {
            self.bytes.truncate(whole_characters(&self.bytes));
        }
        self.bytes
    }

    /// The text that was kept: bytes that are not UTF-8 are shown as U+FFFD.
    pub fn into_text(self) -> String {
        let bytes = self.into_characters();
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}
