//! The answer to the only request of a connection. Its head must tell the client that no other answer
//! follows: a server that was asked to close need not say so, and the client would send its next request to
//! nobody. Pure; its input is untrusted and comes in any pieces.

use std::borrow::Cow;

use super::super::limits::HEAD_BYTES_MAX;

/// How an answer begins whose head can be recognised.
const BEGINS: &[u8] = b"HTTP/1.";
/// The position of the first digit of the status.
const KIND_AT: usize = "HTTP/1.1 ".len();
const CLOSE: &[u8] = b"Connection: close\r\n";
/// Fields about the server's own connection, which is not the client's.
const OWN: [&[u8]; 3] = [b"connection", b"keep-alive", b"proxy-connection"];

/// The state of a head while it passes through.
#[derive(Debug, Default)]
pub struct LastAnswer {
    held: Vec<u8>,
    /// Up to where no end of the head is.
    looked: usize,
    is_through: bool,
}

impl LastAnswer {
    /// Takes bytes from the server and returns what goes to the client.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_through {
            return Cow::Borrowed(bytes);
        }
        self.held.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(end) = self.end_of_head() {
            let rest = self.held.split_off(end);
            let head = std::mem::replace(&mut self.held, rest);
            self.looked = 0;
            // An interim answer (1xx) passes unchanged.
            if head.get(KIND_AT) == Some(&b'1') {
                out.extend(head);
                continue;
            }
            out.extend(closing(&head));
            self.is_through = true;
            break;
        }
        let length = self.held.len().min(BEGINS.len());
        if self.held[..length] != BEGINS[..length] || self.held.len() > HEAD_BYTES_MAX {
            self.is_through = true;
        }
        if self.is_through {
            out.append(&mut self.held);
        }
        Cow::Owned(out)
    }

    /// What was held back of a head that never ended.
    pub fn rest(self) -> Vec<u8> {
        self.held
    }

    /// The index after the empty line. Some servers end their lines with a bare LF.
    fn end_of_head(&mut self) -> Option<usize> {
        if !self.held.starts_with(BEGINS) {
            return None;
        }
        let from = self.looked;
        // The line's end may be the last that is there.
        self.looked = self.held.len().saturating_sub(2);
        let ends = self.held[from..].iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        ends.map(|(at, _)| from + at + 1).find_map(|next| {
            let rest = &self.held[next..];
            let empty = [&b"\r\n"[..], b"\n"].into_iter().find(|empty| rest.starts_with(empty));
            empty.map(|empty| next + empty.len())
        })
    }
}

/// A head that says that this is all.
fn closing(head: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.len() + CLOSE.len());
    let mut is_left_out = false;
    for (number, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
        // A line that begins with a space belongs to the one before.
        if number > 0 && !line.starts_with(b" ") && !line.starts_with(b"\t") {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            is_left_out = OWN.iter().any(|own| name.trim_ascii_end().eq_ignore_ascii_case(own));
        }
        if !is_left_out {
            out.extend_from_slice(line);
        }
        if number == 0 {
            out.extend_from_slice(CLOSE);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole output, checked to be the same for pieces of every size.
    fn through(answer: &str) -> String {
        let whole = |size: usize| {
            let mut last = LastAnswer::default();
            let mut out = Vec::new();
            for piece in answer.as_bytes().chunks(size) {
                out.extend_from_slice(&last.push(piece));
            }
            out.extend(last.rest());
            String::from_utf8(out).unwrap()
        };
        let expected = whole(answer.len());
        for size in 1..answer.len() {
            assert_eq!(whole(size), expected, "in pieces of {size}");
        }
        expected
    }

    #[test]
    fn the_only_answer_says_that_it_is_and_nothing_else_changes() {
        for (answer, expected) in [
            (
                "HTTP/1.1 200 OK\r\nServer: a\r\n\r\nbody\r\n\r\nConnection: x\r\n\r\n",
                "HTTP/1.1 200 OK\r\nConnection: close\r\nServer: a\r\n\r\nbody\r\n\r\nConnection: x\r\n\r\n",
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nconnection : keep-alive,\r\n x\r\n\
                 Keep-Alive: timeout=5\r\nA: b\r\n c\r\n\r\n",
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nConnection: close\r\nA: b\r\n c\r\n\r\n",
            ),
            (
                "HTTP/1.0 200 OK\nA: b\n\nc\n\n",
                "HTTP/1.0 200 OK\nConnection: close\r\nA: b\n\nc\n\n",
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"),
        ] {
            assert_eq!(through(answer), expected);
        }
    }

    #[test]
    fn an_answer_without_a_head_passes_unchanged() {
        for answer in ["hello", "HTTP/2 200\r\n\r\n", "HTTP/1.1 200 OK\r\nhalf", "H", "\r\n\r\n"] {
            assert_eq!(through(answer), answer);
        }
        // A head without an end is not awaited.
        let mut last = LastAnswer::default();
        let line = [&b"HTTP/1.1 200 OK\r\nX: "[..], &vec![b'x'; HEAD_BYTES_MAX]].concat();
        assert_eq!(*last.push(&line), line);
        assert_eq!(*last.push(b"y\r\n\r\n"), *b"y\r\n\r\n");
    }
}
