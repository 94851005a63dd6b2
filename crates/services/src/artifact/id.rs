//! The id of an artifact.

use std::fmt;
use std::io;
use std::str::FromStr;

use host::id::random_bytes;

/// Random bytes of an id: none can be guessed, and none occurs twice.
const ID_BYTES: usize = 8;

/// An artifact's name for programs: sixteen hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArtifactId(String);

/// It is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an artifact's id: an id is 16 hexadecimal digits")]
pub struct InvalidArtifactId(pub String);

impl ArtifactId {
    pub fn draw() -> io::Result<Self> {
        let bytes = random_bytes::<ID_BYTES>()?;
        Ok(Self(format!("{:016x}", u64::from_le_bytes(bytes))))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ArtifactId {
    type Err = InvalidArtifactId;

    fn from_str(text: &str) -> Result<Self, InvalidArtifactId> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 2 * ID_BYTES && text.bytes().all(is_digit) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidArtifactId(text.chars().take(2 * ID_BYTES).collect()))
    }
}

impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
