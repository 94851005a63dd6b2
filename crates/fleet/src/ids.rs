//! The names of things in a fleet, each its own type so that none is taken for another.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Milliseconds of one member's own monotonic clock. Two members' clocks have nothing in common but about
/// the same rate.
pub type Millis = u64;

/// The place of a write in the history of its bucket. 0 is the revision of a key that was never written.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Revision(pub u64);

/// The revision of the write that gave a name to its present owner. Each call carries it.
pub type Fence = Revision;

/// The revision of the write by which a member joined. A member that joins again has a higher one.
pub type Session = Revision;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a name of a node or a sandbox has 1 to 63 characters, not {0}")]
    Length(usize),
    #[error("a name of a node or a sandbox has a-z, A-Z, 0-9, _ and -, not {0:?}")]
    Character(char),
}

/// What may be one token of a subject.
fn parse_token(text: &str) -> Result<Arc<str>, NameError> {
    if text.is_empty() || text.len() > 63 {
        return Err(NameError::Length(text.len()));
    }
    match text.chars().find(|c| !c.is_ascii_alphanumeric() && !"-_".contains(*c)) {
        Some(wrong) => Err(NameError::Character(wrong)),
        None => Ok(text.into()),
    }
}

/// One bridge of the fleet.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(Arc<str>);

impl NodeId {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        parse_token(text).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The name of a sandbox in its namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    namespace: Arc<str>,
    name: Arc<str>,
}

impl Name {
    pub fn parse(namespace: &str, name: &str) -> Result<Self, NameError> {
        Ok(Self { namespace: parse_token(namespace)?, name: parse_token(name)? })
    }

    pub fn namespace(&self) -> &Arc<str> {
        &self.namespace
    }

    pub fn parts(&self) -> (Arc<str>, Arc<str>) {
        (self.namespace.clone(), self.name.clone())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.namespace, self.name)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// One life of a sandbox. A sandbox that is created again under its name has another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Incarnation(pub u128);

impl TryFrom<String> for Incarnation {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u128::from_str_radix(&text, 16).map(Self)
    }
}

impl From<Incarnation> for String {
    fn from(id: Incarnation) -> Self {
        id.to_string()
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Texts that many have, as JSON. Serde's own way is a feature with which every crate would be built again.
pub(crate) mod shared_text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(text: &Arc<str>, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(text)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Into::into)
    }
}
