//! Output of earlier runs' threads and children. It is kept, within bounds, until there is a run whose
//! caller can receive it.

use std::collections::VecDeque;

use protocol::message::Channel;
use protocol::repl;

use super::limits::{LATE_BYTES_MAX, LATE_PIECES_MAX};

/// Late output in the order in which it was read, the newest of it if there is too much.
#[derive(Default)]
pub struct LateOutput {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Bytes that were given up before the oldest piece.
    dropped: u64,
}

struct Piece {
    of: u64,
    channel: Channel,
    bytes: Vec<u8>,
}

impl LateOutput {
    pub fn push(&mut self, of: u64, channel: Channel, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len();
        match self.pieces.back_mut() {
            Some(last) if last.of == of && last.channel == channel => {
                last.bytes.extend_from_slice(bytes);
            }
            _ => self.pieces.push_back(Piece { of, channel, bytes: bytes.to_vec() }),
        }
        while (self.bytes > LATE_BYTES_MAX || self.pieces.len() > LATE_PIECES_MAX)
            && let Some(oldest) = self.pieces.front_mut()
        {
            let all = oldest.bytes.len();
            let excess = match self.bytes.saturating_sub(LATE_BYTES_MAX) {
                0 => all,
                excess => excess.min(all),
            };
            oldest.bytes.drain(..excess);
            self.bytes -= excess;
            self.dropped += excess as u64;
            if oldest.bytes.is_empty() {
                self.pieces.pop_front();
            }
        }
    }

    /// The oldest bytes. The first piece after the dropped ones reports their number.
    pub fn pop(&mut self) -> Option<repl::Late> {
        let Piece { of, channel, bytes } = self.pieces.pop_front()?;
        self.bytes -= bytes.len();
        let dropped = std::mem::take(&mut self.dropped);
        Some(repl::Late { of, channel, bytes: bytes.into(), dropped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_one_origin_are_joined_and_come_in_order() {
        let mut late = LateOutput::default();
        late.push(1, Channel::Stdout, b"a");
        late.push(1, Channel::Stdout, b"b");
        late.push(1, Channel::Stderr, b"c");
        late.push(2, Channel::Stderr, b"d");
        let all: Vec<_> = std::iter::from_fn(|| late.pop())
            .map(|late| (late.of, late.channel, late.bytes.to_string(), late.dropped))
            .collect();
        let expected = [
            (1, Channel::Stdout, "ab".to_owned(), 0),
            (1, Channel::Stderr, "c".to_owned(), 0),
            (2, Channel::Stderr, "d".to_owned(), 0),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn pieces_are_bounded_in_number_and_empty_ones_are_none() {
        let mut late = LateOutput::default();
        late.push(1, Channel::Stdout, b"");
        assert!(late.pop().is_none());
        for number in 0..2 * LATE_PIECES_MAX as u64 {
            late.push(number, Channel::Stdout, b"x");
        }
        let first = late.pop().expect("a piece");
        assert_eq!((first.of, first.dropped), (LATE_PIECES_MAX as u64, LATE_PIECES_MAX as u64));
        let rest = std::iter::from_fn(|| late.pop()).count();
        assert_eq!(rest, LATE_PIECES_MAX - 1);
    }

    #[test]
    fn of_too_much_the_newest_is_kept_and_the_rest_is_counted() {
        let mut late = LateOutput::default();
        for of in 1..=3 {
            late.push(of, Channel::Stdout, &vec![b'x'; LATE_BYTES_MAX]);
        }
        late.push(4, Channel::Stdout, b"last");
        let first = late.pop().expect("a piece");
        assert_eq!((first.of, first.dropped), (3, 2 * LATE_BYTES_MAX as u64 + 4));
        assert_eq!(first.bytes.as_bytes().len(), LATE_BYTES_MAX - 4);
        let last = late.pop().expect("a piece");
        assert_eq!((last.bytes.to_string().as_str(), last.dropped), ("last", 0));
        assert!(late.pop().is_none());
    }
}
