//! A link over a line that has no connections, such as a virtio-serial port.
//!
//! Such a line does not show when one host leaves and the next one comes, and either may stop in the middle
//! of anything. So a host begins a link with bytes that cannot be read as the rest of an earlier host's data,
//! and all its data then comes in records that name the link:
//!
//! ```text
//! host ──▶ agent   FF FF … FF  "CONNECT " 16 hex digits "\n"   record record record …
//! agent ──▶ host                      "OK " the same digits "\n"   frames …
//! record           u16 length, as many bytes of frames, the number of the link as 8 bytes
//! ```
//!
//! The filling completes the record that was begun, which then belongs to no link, and makes an impossible
//! length if there was none. An agent passes on the content of complete records and drops everything else
//! until the next `CONNECT`; a host drops everything before its own `OK`, whose digits are random.
//! `guest-agent` and `agent-client::link` carry the bytes; nothing here does.

/// The largest record: enough that its overhead is small, and small enough that an agent without
/// memory can hold it.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;

const LENGTH_BYTES: usize = 2;
const LINK_BYTES: usize = 8;

/// What a host sends before `CONNECT`. As long as the rest of any record.
pub const FILLING_BYTES: usize = LENGTH_BYTES + RECORD_BYTES_MAX + LINK_BYTES;
const FILLING: u8 = 0xff;

const CONNECT: &[u8] = b"CONNECT ";
const DIGITS: usize = 16;

const _: () = assert!(RECORD_BYTES_MAX < u16::MAX as usize, "filling is no length");

/// The number of a link, which the host draws. No two in a row are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkNumber(u64);

impl LinkNumber {
    /// For a random number. Filling is none.
    pub fn drawn(number: u64) -> Self {
        Self(if number == u64::MAX { 0 } else { number })
    }

    fn digits(self) -> [u8; DIGITS] {
        std::array::from_fn(|at| b"0123456789abcdef"[(self.0 >> (60 - 4 * at)) as usize & 15])
    }

    /// What a host sends first.
    pub fn call(self) -> Vec<u8> {
        let mut call = vec![FILLING; FILLING_BYTES];
        call.extend_from_slice(CONNECT);
        call.extend_from_slice(&self.digits());
        call.push(b'\n');
        call
    }

    /// An agent's answer.
    pub fn answer(self) -> Vec<u8> {
        let mut answer = b"OK ".to_vec();
        answer.extend_from_slice(&self.digits());
        answer.push(b'\n');
        answer
    }

    /// Puts bytes into records of this link.
    pub fn wrap(self, bytes: &[u8], out: &mut Vec<u8>) {
        for piece in bytes.chunks(RECORD_BYTES_MAX) {
            out.extend_from_slice(&(piece.len() as u16).to_be_bytes());
            out.extend_from_slice(piece);
            out.extend_from_slice(&self.0.to_be_bytes());
        }
    }
}

/// The agent's reader of a host's data.
#[derive(Debug, Default)]
pub struct Intake {
    link: Option<LinkNumber>,
    /// What has arrived of a record; without a link, of a line.
    begun: Vec<u8>,
}

impl Intake {
    /// Takes bytes and puts the content of complete records into `out`. Stops after the end of a `CONNECT`:
    /// then the link with the returned number has begun, and everything before it is over. The other number
    /// is that of the bytes taken.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> (usize, Option<LinkNumber>) {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            if let Some(link) = self.link {
                taken += self.take_record(link, rest, out);
                continue;
            }
            taken += 1;
            self.link = self.take_of_line(rest[0]);
            if self.link.is_some() {
                return (taken, self.link);
            }
        }
        (taken, None)
    }

    /// Takes the available part of one record, and ends the link if it is invalid.
    fn take_record(&mut self, link: LinkNumber, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let whole = match *self.begun {
            [first, second, ..] => {
                LENGTH_BYTES + usize::from(u16::from_be_bytes([first, second])) + LINK_BYTES
            }
            _ => LENGTH_BYTES,
        };
        let taken = bytes.len().min(whole - self.begun.len());
        self.begun.extend_from_slice(&bytes[..taken]);
        if self.begun.len() < whole {
            return taken;
        }
        if whole == LENGTH_BYTES {
            let length = usize::from(u16::from_be_bytes([self.begun[0], self.begun[1]]));
            if length > RECORD_BYTES_MAX {
                self.forget();
            }
            return taken;
        }
        let (record, number) = self.begun.split_at(whole - LINK_BYTES);
        if number == link.0.to_be_bytes() {
            out.extend_from_slice(&record[LENGTH_BYTES..]);
            self.begun.clear();
        } else {
            self.forget();
        }
        taken
    }

    fn forget(&mut self) {
        self.link = None;
        self.begun.clear();
    }

    /// Takes one byte of a line that may be a `CONNECT`.
    fn take_of_line(&mut self, byte: u8) -> Option<LinkNumber> {
        let at = self.begun.len();
        let fits = match CONNECT.get(at) {
            Some(expected) => byte == *expected,
            None if at < CONNECT.len() + DIGITS => byte.is_ascii_hexdigit(),
            None => byte == b'\n',
        };
        if fits && at == CONNECT.len() + DIGITS {
            let digits = self.begun.split_off(CONNECT.len());
            self.begun.clear();
            let value = |number: u64, digit: &u8| {
                number << 4 | u64::from((*digit as char).to_digit(16).unwrap_or(0))
            };
            return Some(LinkNumber(digits.iter().fold(0, value)));
        }
        if !fits {
            self.begun.clear();
        }
        // The filling before a call fits nowhere, so each call begins afresh.
        if fits || byte == CONNECT[0] {
            self.begun.push(byte);
        }
        None
    }
}

/// The host's end until its link has begun: finds the answer to its call.
#[derive(Debug)]
pub struct Answer {
    expected: Vec<u8>,
    matched: usize,
}

impl Answer {
    /// To the call of this link.
    pub fn to(link: LinkNumber) -> Self {
        Self { expected: link.answer(), matched: 0 }
    }

    /// Takes bytes; returns what follows the answer, once it is complete.
    pub fn find<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        for (at, byte) in bytes.iter().enumerate() {
            if *byte != self.expected[self.matched] {
                // The answer's first letter is in it once.
                self.matched = 0;
            }
            if *byte == self.expected[self.matched] {
                self.matched += 1;
            }
            if self.matched == self.expected.len() {
                self.matched = 0;
                return Some(&bytes[at + 1..]);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
