//! Newtypes for everything that a number or a name identifies on the wire.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::NAME_BYTES_MAX;
use crate::msgpack::{Decode, Error, Input};

/// On the wire it is its inner value.
macro_rules! decode_newtype {
    ($name:ident) => {
        impl Decode for $name {
            fn blank() -> Self {
                Self(Decode::blank())
            }

            fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
                self.0.read(input)
            }
        }
    };
}

/// A byte stream. Chosen by the end that asks for the stream; even from the host, odd from the
/// agent, so that neither has to ask the other for a free number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId(pub u64);

decode_newtype!(StreamId);

/// A request. Chosen by the host, growing by one, and repeated unchanged when a request is sent
/// again over a new link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

decode_newtype!(RequestId);

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; 16]);

        decode_newtype!($name);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    };
}

random_id! {
    /// One run of an agent: drawn at its start, drawn again when a restored snapshot is adopted.
    AgentId
}
random_id! {
    /// One peer of an agent: drawn by a bridge (or a debugger) when it starts, kept over re-dials.
    ClientId
}
random_id! {
    /// The secret that lets a client take up its streams again after a cut. Never printed.
    Token
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentId({self})")
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                checked_name(text, $what).map(Self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl Decode for $name {
            fn blank() -> Self {
                Self(String::new())
            }

            fn read(&mut self, input: &mut Input<'_>) -> Result<(), Error> {
                let name = checked_name(input.parse_str()?, $what);
                self.0 = name.map_err(|error| Error::invalid(&error))?;
                Ok(())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// A session's name, chosen by the client, so that a repeated `start` means the same process.
    /// 1 to 63 of `[A-Za-z0-9_.-]`, beginning with a letter or digit: it is safe as a file name.
    SessionId, "session id"
}
name! {
    /// A context's name, chosen by the client: all who use the same name share an interpreter. The
    /// same rule as for a session's.
    ContextName, "name of a context"
}

/// Why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a {what}: use 1 to {NAME_BYTES_MAX} of letters, digits, '_', '.' and '-', \
     beginning with a letter or digit"
)]
pub struct InvalidName {
    pub text: String,
    pub what: &'static str,
}

fn checked_name(text: &str, what: &'static str) -> Result<String, InvalidName> {
    if is_name(text, b"_.-") {
        return Ok(text.to_owned());
    }
    Err(InvalidName { text: text.chars().take(NAME_BYTES_MAX).collect(), what })
}

/// Whether `text` is 1 to [`NAME_BYTES_MAX`] of ASCII letters, digits and `extra`, and begins with
/// a letter or digit. The rule for every name that outsiders choose.
pub fn is_name(text: &str, extra: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= NAME_BYTES_MAX
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || extra.contains(byte))
}
