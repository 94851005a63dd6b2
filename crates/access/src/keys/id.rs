//! Ids of keys and secrets, which can be shown without revealing the key.

use std::fmt;
use std::str::FromStr;

use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Deserializer, Serialize};

use super::KeysError;

/// Random bytes of an id. The index is asked before one is used, so they need not be many.
const ID_BYTES: usize = 6;

/// Twelve hex digits: the `jti` of a key that we have made, and the name of a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct KeyId(String);

/// Why a text is not a [`KeyId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the id of a key: write twelve digits of 0-9 and a-f, as `host-bridge keys ls` shows them"
)]
pub struct InvalidKeyId(pub String);

impl KeyId {
    pub(super) fn draw() -> Result<Self, KeysError> {
        let mut bytes = [0_u8; ID_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| KeysError::NoRandomness)?;
        let number = bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        Ok(Self(format!("{number:0width$x}", width = 2 * ID_BYTES)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyId {
    type Err = InvalidKeyId;

    fn from_str(text: &str) -> Result<Self, InvalidKeyId> {
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 2 * ID_BYTES && text.bytes().all(hex) {
            Ok(Self(text.to_owned()))
        } else {
            // A whole key that is pasted here must not appear in a log.
            Err(InvalidKeyId(text.chars().take(2 * ID_BYTES).collect()))
        }
    }
}

impl<'de> Deserialize<'de> for KeyId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identifies a key. It is taken from a digest, so that nothing of the key's signature is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(u64);

impl Fingerprint {
    pub(super) fn of(signature: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, signature);
        let first = digest.as_ref().first_chunk().expect("a SHA-256 digest has 32 bytes");
        Self(u64::from_be_bytes(*first))
    }
}
