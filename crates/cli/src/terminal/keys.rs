//! The keys that mean something to us instead of to the program: a pure state machine over bytes.
//!
//! Bytes that could begin a sequence are held until the next byte decides. If it decides against the
//! sequence, all of them are passed to the program unchanged; so are held bytes when nothing follows soon
//! ([`Keys::expire`]), so that a lone ctrl-p reaches a shell's history. A slow typist can still complete the
//! sequence then, until [`Keys::forget`].

use std::str::FromStr;

/// The sequences of a terminal: `ctrl-p,ctrl-q` detaches and `ctrl-p,ctrl-t` takes the keyboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    detach: Vec<u8>,
    take: Vec<u8>,
    /// The beginning of a sequence.
    begun: Vec<u8>,
    /// How many bytes of it have been passed to the program already.
    forwarded: usize,
}

/// A command typed with the detach keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Detach,
    /// Take the keyboard from its current holder.
    Take,
}

/// Why a text is not a sequence of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "{key:?} is not a key: write one character, or ctrl- and one of a-z @ [ \\ ] ^ _, \
         as in ctrl-p,ctrl-q"
    )]
    Unknown { key: String },
    #[error("a sequence has at most {} keys, not {count}", Keys::LENGTH_MAX)]
    TooLong { count: usize },
}

/// The last key of the sequence that takes the keyboard; its other keys are those that detach.
const TAKE_KEY: u8 = control(b't');

impl Default for Keys {
    fn default() -> Self {
        Self::new(vec![control(b'p'), control(b'q')])
    }
}

impl Keys {
    /// The maximum length of a sequence.
    pub const LENGTH_MAX: usize = 8;

    /// No sequences: every key goes to the program.
    pub fn none() -> Self {
        Self::new(Vec::new())
    }

    fn new(detach: Vec<u8>) -> Self {
        // The two share their beginning. A single key has none to share, and a sequence that ends
        // in the take-over's own key leaves no room for it: then there is no key for taking over.
        let take = match detach.split_last() {
            Some((&last, prefix)) if !prefix.is_empty() && last != TAKE_KEY => {
                prefix.iter().copied().chain([TAKE_KEY]).collect()
            }
            _ => Vec::new(),
        };
        Self { detach, take, begun: Vec::new(), forwarded: 0 }
    }

    /// The readable form of the sequence that detaches; `None` if there is none.
    pub fn detach_name(&self) -> Option<String> {
        name(&self.detach)
    }

    /// The readable form of the sequence that takes the keyboard; `None` if there is none.
    pub fn take_name(&self) -> Option<String> {
        name(&self.take)
    }

    /// Takes bytes of the keyboard. Bytes for the program are appended to `forward`. A command
    /// comes with the count of bytes taken; the next caller must feed the rest again.
    pub fn feed(&mut self, input: &[u8], forward: &mut Vec<u8>) -> Option<(Command, usize)> {
        for (index, &byte) in input.iter().enumerate() {
            self.begun.push(byte);
            for (sequence, command) in
                [(&self.detach, Command::Detach), (&self.take, Command::Take)]
            {
                if self.begun == *sequence {
                    self.begun.clear();
                    self.forwarded = 0;
                    return Some((command, index + 1));
                }
            }
            while !self.begun.is_empty() && !self.may_follow() {
                let first = self.begun.remove(0);
                match self.forwarded.checked_sub(1) {
                    Some(forwarded) => self.forwarded = forwarded,
                    None => forward.push(first),
                }
            }
        }
        None
    }

    /// Whether a sequence has begun.
    pub fn is_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Whether bytes are held until the next one arrives.
    pub fn is_holding(&self) -> bool {
        self.begun.len() > self.forwarded
    }

    /// Stops holding: held bytes go to the program. The next byte may still complete the sequence.
    pub fn expire(&mut self, forward: &mut Vec<u8>) {
        forward.extend_from_slice(&self.begun[self.forwarded..]);
        self.forwarded = self.begun.len();
    }

    /// The bytes since its beginning are not the sequence.
    pub fn forget(&mut self, forward: &mut Vec<u8>) {
        self.expire(forward);
        self.begun.clear();
        self.forwarded = 0;
    }

    fn may_follow(&self) -> bool {
        self.detach.starts_with(&self.begun) || self.take.starts_with(&self.begun)
    }
}

impl FromStr for Keys {
    type Err = KeyError;

    /// Docker's notation: keys with commas between them; nothing at all means no sequence.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() {
            return Ok(Self::none());
        }
        let keys = text.split(',').map(parse_key).collect::<Result<Vec<_>, _>>()?;
        if keys.len() > Self::LENGTH_MAX {
            return Err(KeyError::TooLong { count: keys.len() });
        }
        Ok(Self::new(keys))
    }
}

fn parse_key(text: &str) -> Result<u8, KeyError> {
    let unknown = || KeyError::Unknown { key: text.to_owned() };
    match *text.as_bytes() {
        [key] if key.is_ascii_graphic() || key == b' ' => Ok(key),
        [.., key] if text.len() == 6 && text[..5].eq_ignore_ascii_case("ctrl-") => {
            let key = key.to_ascii_lowercase();
            match key {
                b'a'..=b'z' | b'@' | b'['..=b'_' => Ok(control(key)),
                _ => Err(unknown()),
            }
        }
        _ => Err(unknown()),
    }
}

/// The byte that a terminal sends for ctrl and a key.
const fn control(key: u8) -> u8 {
    key & 0x1f
}

fn name(sequence: &[u8]) -> Option<String> {
    let names: Vec<String> = sequence
        .iter()
        .map(|&byte| match byte {
            0x01..=0x1a => format!("ctrl-{}", char::from(byte | 0x60)),
            0x00 | 0x1b..=0x1f => format!("ctrl-{}", char::from(byte | 0x40)),
            _ => char::from(byte).to_string(),
        })
        .collect();
    (!names.is_empty()).then(|| names.join(" "))
}

#[cfg(test)]
mod tests;
