//! Cuts pieces of text without splitting a character. Pure.

/// Cuts a stream of bytes where characters end, so that text stays text although its pieces end
/// anywhere.
#[derive(Clone, Debug, Default)]
pub struct Characters {
    /// The beginning of a character that is not whole yet.
    rest: Vec<u8>,
}

impl Characters {
    /// All whole characters so far. What is not UTF-8 is passed on as it is. Copies the piece only
    /// when the one before it ended within a character.
    pub fn take(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let mut all = if self.rest.is_empty() {
            bytes
        } else {
            let mut all = std::mem::take(&mut self.rest);
            all.extend_from_slice(&bytes);
            all
        };
        let whole = whole_characters(&all);
        self.rest.extend_from_slice(&all[whole..]);
        all.truncate(whole);
        all
    }

    /// The bytes that are left at the end.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Bytes that are held back.
    pub fn held(&self) -> u64 {
        self.rest.len() as u64
    }
}

/// How many bytes precede an incomplete character at the end. Bytes that are not UTF-8 count as
/// complete.
pub fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.iter().rev().take(3).enumerate();
    for (back, byte) in last {
        let length = match byte {
            0x80..=0xBF => continue,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => return bytes.len(),
        };
        return if back + 1 < length { bytes.len() - (back + 1) } else { bytes.len() };
    }
    bytes.len()
}
