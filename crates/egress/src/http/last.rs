//! The answer to the only request of a connection. Its head tells the client that there will be no other
//! one: a server that was asked to close need not say so, and a client that has heard nothing of it may
//! send its next request to nobody. Pure; what it reads comes from strangers, in whatever pieces.

use std::borrow::Cow;

use super::super::limits::HEAD_BYTES_MAX;

/// How an answer begins whose head can be told apart.
const BEGINS: &[u8] = b"HTTP/1.";
/// Where the digit is that says of which kind an answer is.
const KIND_AT: usize = "HTTP/1.1 ".len();
const CLOSE: &[u8] = b"Connection: close\r\n";
/// What a server says of its own connection, which is not the client's.
const OWN: [&[u8]; 3] = [b"connection", b"keep-alive", b"proxy-connection"];

/// What is left of a head, as it goes by.
#[derive(Debug, Default)]
pub struct LastAnswer {
    held: Vec<u8>,
    /// Up to where no end of the head is.
    looked: usize,
    is_through: bool,
}

impl LastAnswer {
    /// Takes bytes of the server, and says what goes on to the client.
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
            // What comes before the answer goes on as it is.
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

    /// Behind the empty line. There are servers that end their lines with half of what belongs there.
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

    /// All that comes out, in pieces of every size; they must be the same.
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
    fn what_has_no_head_goes_on_as_it_is() {
        for answer in ["hello", "HTTP/2 200\r\n\r\n", "HTTP/1.1 200 OK\r\nhalf", "H", "\r\n\r\n"] {
            assert_eq!(through(answer), answer);
        }
        // One without an end is not waited for.
        let mut last = LastAnswer::default();
        let line = [&b"HTTP/1.1 200 OK\r\nX: "[..], &vec![b'x'; HEAD_BYTES_MAX]].concat();
        assert_eq!(*last.push(&line), line);
        assert_eq!(*last.push(b"y\r\n\r\n"), *b"y\r\n\r\n");
    }
}
