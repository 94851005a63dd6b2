//! The names that people give sandboxes, and the namespaces that keep them apart.

use std::fmt;
use std::io;
use std::str::FromStr;

use protocol::ids::is_name;
use protocol::limits::NAME_BYTES_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use host::id::RandomId;

/// The namespace of those who name none.
const DEFAULT_NAMESPACE: &str = "default";
/// Between the namespace and the name of a [`SandboxRef`].
const SEPARATOR: char = '/';

/// 1 to 63 of `[A-Za-z0-9_-]`, beginning with a letter or digit. It is safe as a file name, as a
/// host name and in an argument vector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Name(String);

/// Why a text is not a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a name: use 1 to {NAME_BYTES_MAX} letters, digits, '_' and '-', beginning with a \
    letter or digit"
)]
pub struct InvalidName(pub String);

impl Name {
    /// A name for a sandbox that was given none.
    pub fn generate() -> io::Result<Self> {
        Ok(Self(format!("box-{}", RandomId::draw()?)))
    }

    pub fn default_namespace() -> Self {
        Self(DEFAULT_NAMESPACE.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_name(text, b"_-") {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidName(text.chars().take(NAME_BYTES_MAX + 1).collect()))
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which sandbox is meant: `name`, or `namespace/name`; the same text in JSON.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxRef {
    pub namespace: Name,
    pub name: Name,
}

impl FromStr for SandboxRef {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(SEPARATOR) {
            Some((namespace, name)) => {
                Ok(Self { namespace: namespace.parse()?, name: name.parse()? })
            }
            None => Ok(Self { namespace: Name::default_namespace(), name: text.parse()? }),
        }
    }
}

impl fmt::Display for SandboxRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.as_str() != DEFAULT_NAMESPACE {
            write!(f, "{}{SEPARATOR}", self.namespace)?;
        }
        write!(f, "{}", self.name)
    }
}

impl Serialize for SandboxRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SandboxRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_both_ends_of_the_rule() {
        for good in ["a", "9", "A_b-c", &"x".repeat(63)] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "_a", "a.b", "a/b", "ä", "a b", &"x".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?} passed");
        }
    }

    #[test]
    fn a_reference_without_a_namespace_means_the_default_one() {
        let short: SandboxRef = "web".parse().unwrap();
        assert_eq!(short, "default/web".parse().unwrap());
        assert_eq!(short.to_string(), "web");
        assert_eq!("team/web".parse::<SandboxRef>().unwrap().to_string(), "team/web");
        assert!("a/b/c".parse::<SandboxRef>().is_err());
        assert!("/b".parse::<SandboxRef>().is_err());
    }

    #[test]
    fn generated_names_are_names_and_differ() {
        let (one, two) = (Name::generate().unwrap(), Name::generate().unwrap());
        assert!(one.as_str().parse::<Name>().is_ok());
        assert_ne!(one, two);
    }

    #[test]
    fn a_bad_name_in_json_is_refused() {
        assert!(serde_json::from_str::<Name>("\"../etc\"").is_err());
    }
}
