//! Random ids: names for unnamed things, such as sessions of a single request, scratch directories
//! and drafts.
//!
//! Every part of the bridge draws them here. Types such as `machine::SandboxId` wrap one, so that
//! the ids of two kinds of thing cannot be mixed up.

use std::fmt;
use std::io;
use std::str::FromStr;

use ring::rand::{SecureRandom, SystemRandom};

/// Random bytes of an id. With 48 bits, two of a thousand ids are equal with odds of one to half a
/// billion; creating a directory with a used name fails.
const ID_BYTES: usize = 6;

/// Twelve hexadecimal digits, which are also a valid name of a session and of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RandomId(String);

/// Why a text is not a [`RandomId`]. It holds the beginning of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an id: it must be twelve of 0-9 and a-f")]
pub struct InvalidId(pub String);

/// Random bytes from the kernel, by one call.
pub fn random_bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| io::Error::other("the kernel gives no random numbers"))?;
    Ok(bytes)
}

impl RandomId {
    /// A new id, from the kernel's random numbers.
    pub fn draw() -> io::Result<Self> {
        Ok(Self(crate::hex::digits(&random_bytes::<ID_BYTES>()?)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RandomId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 2 * ID_BYTES && text.bytes().all(is_digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidId(text.chars().take(2 * ID_BYTES + 1).collect()))
        }
    }
}

impl fmt::Display for RandomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_id_is_twelve_digits_and_never_the_same() {
        let (first, second) = (RandomId::draw().unwrap(), RandomId::draw().unwrap());
        assert_ne!(first, second);
        assert_eq!(first.as_str().len(), 12);
        assert_eq!(first.to_string().parse(), Ok(first));
    }

    #[test]
    fn a_text_that_is_no_id_is_refused_with_its_beginning() {
        for text in ["", "0123456789a", "0123456789AB", "../456789abcd", "0123456789é"] {
            assert_eq!(text.parse::<RandomId>(), Err(InvalidId(text.to_owned())));
        }
        let long = "0".repeat(1000);
        assert_eq!(long.parse::<RandomId>(), Err(InvalidId("0".repeat(13))));
    }
}
