//! The id of a sandbox: it names the directories and the control group of its machine.

use std::fmt;
use std::io;
use std::str::FromStr;

use host::id::{InvalidId, RandomId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A random id that the bridge draws. Unlike a sandbox's name it is never used again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxId(RandomId);

/// Why a text is not a [`SandboxId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the id of a sandbox: twelve of 0-9 and a-f")]
pub struct InvalidSandboxId(pub String);

impl SandboxId {
    pub fn draw() -> io::Result<Self> {
        RandomId::draw().map(Self)
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for SandboxId {
    type Err = InvalidSandboxId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|InvalidId(text)| InvalidSandboxId(text))
    }
}

impl Serialize for SandboxId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for SandboxId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
