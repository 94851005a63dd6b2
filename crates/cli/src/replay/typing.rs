//! What was typed, as lines: keys come one by one, and people read what they were together. Pure.

use std::collections::BTreeMap;

use protocol::SessionId;

use sandbox::log::Typed;
use services::timeline::{Moment, What};

/// Bytes that are shown together if no line ends before.
const LINE_BYTES_MAX: usize = 160;

/// What was typed into each session since its last line.
#[derive(Debug, Default)]
pub struct TypedLines(BTreeMap<SessionId, Vec<u8>>);

impl TypedLines {
    /// Joins it with what came before; false if it is to wait for the end of the line.
    pub fn join(&mut self, typed: &mut Typed) -> bool {
        let mut line = self.0.remove(&typed.session).unwrap_or_default();
        line.append(&mut typed.bytes);
        if line.len() < LINE_BYTES_MAX && !line.last().copied().is_some_and(ends_line) {
            self.0.insert(typed.session.clone(), line);
            return false;
        }
        typed.bytes = line;
        true
    }

    /// What has no end of a line.
    pub fn rest(self, at_ms: u64) -> impl Iterator<Item = Moment> {
        let moment = move |(session, bytes)| {
            let typed = Typed { session, bytes };
            Moment { at_ms, what: What::Input { typed, output_offset: 0 } }
        };
        self.0.into_iter().map(moment)
    }
}

/// Return, line feed, and the keys that interrupt, end the input and suspend.
fn ends_line(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | 0x03 | 0x04 | 0x1a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_with_their_line() {
        let mut lines = TypedLines::default();
        let mut join = |name: &str, bytes: &[u8]| {
            let mut typed = Typed { session: name.parse().unwrap(), bytes: bytes.to_vec() };
            lines.join(&mut typed).then_some(typed.bytes)
        };
        assert_eq!(join("a", b"l"), None);
        assert_eq!(join("b", b"\x03"), Some(b"\x03".to_vec()));
        assert_eq!(join("a", b"s"), None);
        assert_eq!(join("a", b"\r"), Some(b"ls\r".to_vec()));
        assert_eq!(join("a", &[b'x'; 200]), Some(vec![b'x'; 200]));
        assert_eq!(join("a", b"y"), None);
        let rest: Vec<_> = lines.rest(7).map(|moment| moment.summary()).collect();
        assert_eq!(rest, ["typed into session a: \"y\""]);
    }
}
