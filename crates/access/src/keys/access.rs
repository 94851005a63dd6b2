//! What a key allows: scopes, each including the smaller ones, and namespaces.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use sandbox::{InvalidName, Name};

/// The scope that a call needs. Each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read: lists, logs, metrics, files.
    Read,
    /// Create sandboxes and run code in them.
    Run,
    /// Everything, the bridge itself included.
    Admin,
}

/// Text that is not a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a scope: write read, run or admin")]
pub struct InvalidScope(pub String);

impl Access {
    pub const ALL: [Self; 3] = [Self::Read, Self::Run, Self::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Access {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        let known = Self::ALL.into_iter().find(|access| access.as_str() == text);
        known.ok_or_else(|| InvalidScope(text.chars().take(32).collect()))
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A key's scopes: since each holds those before it, the greatest says all. Never empty. In JSON it
/// is the list of all that are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes(Access);

impl Scopes {
    /// Those of a key that names none, as other makers of keys do: all that a sandbox's user needs.
    pub const UNSAID: Self = Self(Access::Run);

    /// None if there are no scopes.
    pub fn of(scopes: &[Access]) -> Option<Self> {
        scopes.iter().max().map(|greatest| Self(*greatest))
    }

    pub fn allow(self, access: Access) -> bool {
        access <= self.0
    }

    pub fn iter(self) -> impl Iterator<Item = Access> {
        Access::ALL.into_iter().filter(move |access| self.allow(*access))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Access::as_str).collect();
        f.write_str(&names.join(","))
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scopes = Vec::<Access>::deserialize(deserializer)?;
        Self::of(&scopes).ok_or_else(|| serde::de::Error::custom("the list of scopes is empty"))
    }
}

/// The namespaces that a key is for. As text it is a name, or `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Namespaces {
    All,
    One(Name),
}

/// The sign for all namespaces.
const ALL: &str = "*";

impl Namespaces {
    pub fn covers(&self, namespace: &Name) -> bool {
        match self {
            Self::All => true,
            Self::One(name) => name == namespace,
        }
    }
}

impl FromStr for Namespaces {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if text == ALL { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str(ALL),
            Self::One(name) => name.fmt(f),
        }
    }
}

impl Serialize for Namespaces {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Namespaces {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
