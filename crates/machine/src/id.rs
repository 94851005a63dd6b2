//! The id of a sandbox's machine: names its directories and control group.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

/// Random bytes of an id. With 48 bits a thousand sandboxes meet with odds of one to half a
/// billion, and a meeting is found when the directory is made.
const ID_BYTES: usize = 6;

/// Twelve hex digits, drawn by the bridge. Unlike a name it is never used again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct BoxId(String);

/// Why a text is not a [`BoxId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the id of a sandbox: twelve of 0-9 and a-f")]
pub struct InvalidBoxId(pub String);

impl BoxId {
    pub fn draw() -> io::Result<Self> {
        let mut bytes = [0_u8; ID_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let number = bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        Ok(Self(format!("{number:0width$x}", width = 2 * ID_BYTES)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BoxId {
    type Err = InvalidBoxId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 2 * ID_BYTES && text.bytes().all(hex) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidBoxId(text.chars().take(2 * ID_BYTES + 1).collect()))
        }
    }
}

impl<'de> Deserialize<'de> for BoxId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for BoxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
