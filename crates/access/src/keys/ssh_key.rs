//! Public keys of SSH, which stand for an issued key at the door for SSH. Pure.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::limits::SSH_KEY_CHARS_MAX;

/// The kinds of keys that the door can verify.
const KINDS: [&str; 4] =
    ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"];

/// The kind and the key as one line of OpenSSH, without its comment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SshKey(String);

/// Why a text is not an [`SshKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSshKey {
    #[error("{0:?} is not a public key of SSH: write a line such as `ssh-ed25519 AAAA… name`")]
    Form(String),
    #[error("{0:?} is a private key; give the file beside it that ends in .pub")]
    Private(String),
    #[error(
        "keys of the kind {0:?} cannot log in: use ed25519 or ecdsa, as `ssh-keygen -t ed25519` makes"
    )]
    Kind(String),
    #[error("the file has no public key")]
    Empty,
}

impl SshKey {
    /// All keys of a file of public keys, one a line, as in `authorized_keys` without options.
    pub fn parse_file(text: &str) -> Result<Vec<Self>, InvalidSshKey> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<Self> = lines.map(str::parse).collect::<Result<_, _>>()?;
        if keys.is_empty() { Err(InvalidSshKey::Empty) } else { Ok(keys) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SshKey {
    type Err = InvalidSshKey;

    fn from_str(line: &str) -> Result<Self, InvalidSshKey> {
        const SHOWN_CHARS: usize = 40;
        let shown = || line.chars().take(SHOWN_CHARS).collect::<String>();
        if line.contains("PRIVATE KEY") {
            return Err(InvalidSshKey::Private(shown()));
        }
        let mut words = line.split_ascii_whitespace();
        let (Some(kind), Some(key)) = (words.next(), words.next()) else {
            return Err(InvalidSshKey::Form(shown()));
        };
        let is_named_inside = |bytes: &[u8]| {
            let (length, rest) = bytes.split_first_chunk::<4>()?;
            rest.get(..u32::from_be_bytes(*length) as usize).map(|inside| inside == kind.as_bytes())
        };
        let decoded = STANDARD.decode(key).ok().filter(|_| line.len() <= SSH_KEY_CHARS_MAX);
        match decoded.as_deref().and_then(is_named_inside) {
            Some(true) if KINDS.contains(&kind) => Ok(Self(format!("{kind} {key}"))),
            Some(true) => Err(InvalidSshKey::Kind(kind.to_owned())),
            _ => Err(InvalidSshKey::Form(shown())),
        }
    }
}

impl fmt::Display for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for SshKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SshKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq";

    #[test]
    fn a_public_key_is_read_without_its_comment() {
        let key: SshKey = format!("{GOOD} ada@laptop").parse().unwrap();
        assert_eq!(key.as_str(), GOOD);
        assert_eq!(SshKey::parse_file(&format!("# mine\n\n{GOOD} x\n")).unwrap(), [key]);
    }

    #[test]
    fn what_is_no_key_is_refused_in_words() {
        let other = GOOD.replace("ssh-ed25519 ", "ssh-rsa ");
        let long = format!("{GOOD} {}", "x".repeat(SSH_KEY_CHARS_MAX));
        for text in ["", "ssh-ed25519", "ssh-ed25519 !!!", "ssh-ed25519 AAAA", &other, &long] {
            assert!(matches!(text.parse::<SshKey>(), Err(InvalidSshKey::Form(_))), "{text}");
        }
        let rsa = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQ==";
        assert!(matches!(rsa.parse::<SshKey>(), Err(InvalidSshKey::Kind(_))));
        let private = "-----BEGIN OPENSSH PRIVATE KEY-----";
        assert!(matches!(private.parse::<SshKey>(), Err(InvalidSshKey::Private(_))));
        assert_eq!(SshKey::parse_file("# none\n"), Err(InvalidSshKey::Empty));
    }
}
