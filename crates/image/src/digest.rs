//! Digests: `sha256:` and 64 hexadecimal digits. Pure.
//!
//! [`Digest`] is the name; [`Digester`] computes one from a stream of bytes and counts them.
//! SHA-512, which the formats allow as well, is refused: nobody publishes images with it, and a
//! second algorithm would mean two names for one content.

use std::fmt;
use std::str::FromStr;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use host::excerpt::excerpt;
use host::hex;

/// The one algorithm, as it is written in front of the digits.
const ALGORITHM: &str = "sha256";
/// Bytes of such a digest; each is two digits.
const DIGEST_BYTES: usize = 32;
/// How much of untrusted text an error shows.
const CHARS_SHOWN_MAX: usize = 80;

/// The SHA-256 of a content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; DIGEST_BYTES]);

/// Why a text is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDigest {
    #[error("{0:?} is not a digest: it must begin with an algorithm, as in \"sha256:…\"")]
    NoAlgorithm(String),
    #[error("the digest's algorithm is {0:?}; only sha256 is supported")]
    Algorithm(String),
    #[error("{0:?} is not a sha256 of 64 lower-case hexadecimal digits")]
    Digits(String),
}

impl Digest {
    /// The digest of bytes in memory.
    pub fn of(bytes: &[u8]) -> Self {
        let mut digester = Digester::default();
        digester.update(bytes);
        digester.finish()
    }

    /// The digits alone, which are also the name of a file.
    pub fn hex(&self) -> String {
        hex::digits(&self.0)
    }

    /// The reverse of [`Self::hex`]; capitals are none of the digits, so that a content has one name.
    pub fn from_hex(digits: &str) -> Result<Self, InvalidDigest> {
        let invalid = || InvalidDigest::Digits(excerpt(digits, CHARS_SHOWN_MAX));
        let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if pairs.len() != DIGEST_BYTES || !rest.is_empty() || !digits.bytes().all(|b| is_digit(&b))
        {
            return Err(invalid());
        }
        let mut bytes = [0; DIGEST_BYTES];
        let value = |digit: u8| if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 };
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = value(*high) << 4 | value(*low);
        }
        Ok(Self(bytes))
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        match text.split_once(':') {
            None => Err(InvalidDigest::NoAlgorithm(excerpt(text, CHARS_SHOWN_MAX))),
            Some((ALGORITHM, digits)) => Self::from_hex(digits),
            Some((other, _)) => Err(InvalidDigest::Algorithm(excerpt(other, CHARS_SHOWN_MAX))),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Computes the digest of a stream of bytes, and counts them.
#[derive(Clone)]
pub struct Digester {
    context: Context,
    bytes: u64,
}

impl Default for Digester {
    fn default() -> Self {
        Self { context: Context::new(&SHA256), bytes: 0 }
    }
}

impl Digester {
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn finish(self) -> Digest {
        let digest = self.context.finish();
        let bytes = digest.as_ref().try_into().expect("a SHA-256 has 32 bytes");
        Digest(bytes)
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digester").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest: Digest = EMPTY.parse().unwrap();
        assert_eq!(digest.to_string(), EMPTY);
        assert_eq!(digest, Digest::of(b""));
        assert_eq!(Digest::from_hex(&digest.hex()), Ok(digest));
        assert_eq!(serde_json::to_string(&digest).unwrap(), format!("{EMPTY:?}"));
        assert_eq!(serde_json::from_str::<Digest>(&format!("{EMPTY:?}")).unwrap(), digest);
    }

    #[test]
    fn an_invalid_digest_has_a_reason() {
        let refused = |text: &str| text.parse::<Digest>().unwrap_err();
        assert_eq!(refused("latest"), InvalidDigest::NoAlgorithm("latest".to_owned()));
        assert!(refused(&format!("sha512:{}", "0".repeat(128))).to_string().contains("sha512"));
        for digits in ["", "0", &"0".repeat(63), &"0".repeat(65), &"A".repeat(64), &"é".repeat(32)]
        {
            let error = refused(&format!("sha256:{digits}"));
            assert!(matches!(error, InvalidDigest::Digits(_)), "{digits}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn pieces_make_the_digest_of_the_whole(
            pieces in proptest::collection::vec(proptest::collection::vec(0_u8.., 0..50), 0..20),
        ) {
            let mut digester = Digester::default();
            for piece in &pieces {
                digester.update(piece);
            }
            let whole = pieces.concat();
            proptest::prop_assert_eq!(digester.bytes(), whole.len() as u64);
            proptest::prop_assert_eq!(digester.finish(), Digest::of(&whole));
        }

        #[test]
        fn any_text_is_a_digest_or_none(text in "(sha256:)?[0-9a-fA-F:é]{0,70}") {
            if let Ok(digest) = text.parse::<Digest>() {
                proptest::prop_assert_eq!(digest.to_string(), text);
            }
        }
    }
}
