//! The end of an output, and whether there was more of it. Pure.

/// Keeps the newest bytes of its input.
#[derive(Clone, Debug)]
pub struct Tail {
    bytes: Vec<u8>,
    bytes_max: usize,
    total_bytes: u64,
}

impl Tail {
    /// Keeps at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, total_bytes: 0 }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.total_bytes = self.total_bytes.saturating_add(bytes.len() as u64);
        // Only the end of a piece is copied that is larger than the bound.
        let newest = &bytes[bytes.len().saturating_sub(self.bytes_max)..];
        let over = (self.bytes.len() + newest.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..over);
        self.bytes.extend_from_slice(newest);
    }

    /// Whether there was more than is kept.
    pub fn is_cut(&self) -> bool {
        self.total_bytes > self.bytes.len() as u64
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
