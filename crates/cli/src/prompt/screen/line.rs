//! Tracks the terminal line that the cursor is on. Pure.

use super::super::super::output::printable;

/// The maximum length of a stored line: more than any window is wide.
const LINE_BYTES_MAX: usize = 2048;

const ESCAPE: u8 = 0x1b;

/// What was written since the last end of a line.
#[derive(Debug, Default)]
pub(super) struct Line {
    bytes: Vec<u8>,
    /// Whether it was longer than that.
    long: bool,
}

impl Line {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let rest = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => {
                *self = Self::default();
                &bytes[end + 1..]
            }
            None => bytes,
        };
        let room = LINE_BYTES_MAX - self.bytes.len();
        self.long |= rest.len() > room;
        self.bytes.extend_from_slice(&rest[..rest.len().min(room)]);
    }

    /// Whether the cursor is at the left edge, with nothing on the line.
    pub(super) fn is_fresh(&self) -> bool {
        !self.long && self.visible().is_empty()
    }

    /// The visible text, printable; `None` if it has more than `columns`.
    pub(super) fn text(&self, columns: usize) -> Option<String> {
        let text = printable(&String::from_utf8_lossy(&self.visible()));
        (!self.long && text.chars().count() < columns).then_some(text)
    }

    /// The line without escape sequences, and with only the last layer of overwritten parts.
    fn visible(&self) -> Vec<u8> {
        let mut seen = Vec::new();
        let mut bytes = self.bytes.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            match byte {
                ESCAPE if bytes.next_if_eq(&b'[').is_some() => {
                    while bytes.next_if(|byte| !(0x40..0x7f).contains(byte)).is_some() {}
                    bytes.next();
                }
                ESCAPE => {
                    bytes.next();
                }
                // Following output covers what was there; without any, it stays visible.
                b'\r' if bytes.peek().is_some() => seen.clear(),
                b'\r' | 0x07 => {}
                _ => seen.push(byte),
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests;
