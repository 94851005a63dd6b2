//! The two values that must not be printed: a signing secret, and a key on its way to its owner.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::KeysError;
use super::limits::SECRET_BYTES;

/// A signing secret.
#[derive(Clone)]
pub struct Secret {
    bytes: [u8; SECRET_BYTES],
    /// The same, prepared for HMAC.
    prepared: hmac::Key,
}

impl Secret {
    pub fn draw() -> Result<Self, KeysError> {
        let mut bytes = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| KeysError::NoRandomness)?;
        Ok(Self::from_bytes(bytes))
    }

    pub fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Self { bytes, prepared: hmac::Key::new(hmac::HMAC_SHA256, &bytes) }
    }

    pub fn sign(&self, text: &str) -> [u8; SECRET_BYTES] {
        let tag = hmac::sign(&self.prepared, text.as_bytes());
        tag.as_ref().try_into().expect("an HMAC-SHA-256 has 32 bytes")
    }

    /// Compares in constant time.
    pub fn has_signed(&self, text: &str, signature: &[u8]) -> bool {
        hmac::verify(&self.prepared, text.as_bytes(), signature).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl PartialEq for Secret {
    /// For tests of what was written; keys are never compared so.
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.bytes))
    }
}

impl<'de> Deserialize<'de> for Secret {
    /// No error contains what was read.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut bytes = [0; SECRET_BYTES];
        match URL_SAFE_NO_PAD.decode_slice(text.as_bytes(), &mut bytes) {
            Ok(SECRET_BYTES) => Ok(Self::from_bytes(bytes)),
            _ => Err(serde::de::Error::custom("a secret is 32 bytes in base64url")),
        }
    }
}

/// A new key. It is stored nowhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// The key itself, to be shown to its owner once.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
