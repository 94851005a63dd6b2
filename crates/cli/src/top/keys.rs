//! The keyboard of a screen that gives it to other programs between. It has its own descriptor of the terminal,
//! which can be non-blocking without those programs noticing, and is read only while somebody waits for a key.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;

use nix::fcntl::OFlag;
use tokio::net::unix::pipe::Receiver;

/// More than a person types between two looks.
const READ_BYTES: usize = 1024;

/// A key that a person has pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Erase,
    Interrupt,
}

pub struct Keyboard(Receiver);

impl Keyboard {
    /// Opens the terminal of this process.
    pub fn open() -> io::Result<Self> {
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let terminal = OpenOptions::new().read(true).custom_flags(flags).open("/dev/tty")?;
        // It is no pipe, and read like one.
        Receiver::from_file_unchecked(terminal).map(Self)
    }

    /// The next keys; `None` when the terminal is gone. Safe to cancel.
    pub async fn next(&mut self) -> io::Result<Option<Vec<Key>>> {
        let mut buffer = [0; READ_BYTES];
        loop {
            self.0.readable().await?;
            match self.0.try_read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => return Ok(Some(parse(&buffer[..count]))),
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                // A closed terminal returns EIO forever.
                Err(_) => return Ok(None),
            }
        }
    }
}

/// The sequences of keys that have no character.
const SEQUENCES: [(&str, Key); 13] = [
    ("\x1b[A", Key::Up),
    ("\x1bOA", Key::Up),
    ("\x1b[B", Key::Down),
    ("\x1bOB", Key::Down),
    ("\x1b[5~", Key::PageUp),
    ("\x1b[6~", Key::PageDown),
    ("\x1b[H", Key::Home),
    ("\x1b[1~", Key::Home),
    ("\x1b[F", Key::End),
    ("\x1b[4~", Key::End),
    ("\r", Key::Enter),
    ("\x7f", Key::Erase),
    ("\x08", Key::Erase),
];

/// The keys of what was read at once. Sequences that mean nothing here are left out.
fn parse(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = &*text;
    let mut keys = Vec::new();
    while let Some(first) = rest.chars().next() {
        if let Some((sequence, key)) = SEQUENCES.iter().find(|(known, _)| rest.starts_with(known)) {
            keys.push(*key);
            rest = &rest[sequence.len()..];
            continue;
        }
        rest = &rest[first.len_utf8()..];
        match first {
            '\x1b' => match rest.strip_prefix(['[', 'O']) {
                // It ends with its first letter or tilde.
                Some(unknown) => {
                    let end = unknown.find(|c: char| c.is_ascii_alphabetic() || c == '~');
                    rest = end.map_or("", |end| &unknown[end + 1..]);
                }
                None => keys.push(Key::Escape),
            },
            '\x03' => keys.push(Key::Interrupt),
            other if other.is_control() || other == char::REPLACEMENT_CHARACTER => {}
            other => keys.push(Key::Char(other)),
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::{Key, parse};

    #[test]
    fn sequences_are_keys_and_unknown_ones_are_nothing() {
        assert_eq!(parse(b"q\x1b[A\x1bOB"), [Key::Char('q'), Key::Up, Key::Down]);
        assert_eq!(parse(b"\x1b"), [Key::Escape]);
        assert_eq!(parse(b"\x1b[15~x\x1b[1;5C"), [Key::Char('x')]);
        assert_eq!(
            parse("ü\x03\x7f\r".as_bytes()),
            [Key::Char('ü'), Key::Interrupt, Key::Erase, Key::Enter]
        );
        assert_eq!(parse(b"\xff\x01\x1b["), []);
    }
}
