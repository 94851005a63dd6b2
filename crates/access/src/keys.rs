//! API keys: who may do what in which namespace, for how long, and how often.
//!
//! ```text
//!  keygen, /v1/keys ──▶ store: secrets.json, keys.json ◀── keys revoke, keys rotate
//!                      │ looked at twice a second
//!                      ▼
//!  a request's key ─▶ keyring ──▶ Grant ─▶ may(access)? covers(namespace)? rate?
//!                      └────────▶ Denied ─▶ 401, or 429 for a peer with too many bad ones
//! ```
//!
//! A key is `msb_` and a JWT (RFC 7519) signed with HS256. Its claims say all that a [`Grant`]
//! holds, so verifying needs no look-up beyond whether it was revoked. `cli` and `api` issue and
//! revoke by writing the files; `api` verifies. Nothing here speaks HTTP, and nothing ever writes a key or a
//! secret anywhere but a secret to `secrets.json`: their `Debug` shows neither.

mod access;
mod bad_keys;
mod claims;
mod files;
mod id;
mod issued;
mod keyring;
mod limits;
mod rate;
mod secret;
mod ssh_key;
mod store;
mod token;

use std::io;
use std::path::PathBuf;

pub use access::{Access, InvalidScope, Namespaces, Scopes};
pub use bad_keys::BadKeys;
pub use id::{Fingerprint, InvalidKeyId, KeyId};
pub use issued::{Issued, Standing};
pub use keyring::Keyring;
pub use limits::LABEL_CHARS_MAX;
use limits::SSH_KEYS_PER_KEY_MAX;
pub use rate::{Rate, RateLimiter, RetryAfter};
pub use secret::Key;
pub use ssh_key::{InvalidSshKey, SshKey};
pub use store::{KeyRequest, Rotation, Store};
pub use token::KEY_PREFIX;

use host::paths::Paths;
use sandbox::Name;
use serde::{Deserialize, Serialize};

/// The directory of a bridge's keys: a private directory in its state directory.
pub fn directory(paths: &Paths) -> PathBuf {
    paths.state.join("keys")
}

/// What the holder of a verified key may do. A door may store it with a secret of another kind, such as the
/// token of one sandbox, and ask [`Keyring::readmit`] when that is presented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Absent for a key that another program has created with our secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<KeyId>,
    /// The key's label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub namespace: Namespaces,
    pub scopes: Scopes,
    /// Milliseconds since 1970; none for a key that never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
    /// Identifies the key for rate limits, without revealing it.
    pub fingerprint: Fingerprint,
}

impl Grant {
    pub fn may(&self, access: Access) -> bool {
        self.scopes.allow(access)
    }

    pub fn covers(&self, namespace: &Name) -> bool {
        self.namespace.covers(namespace)
    }
}

/// Why a key is refused. `Display` is for the log; [`Denied::explanation`] is for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("no key was presented")]
    Missing,
    #[error("the presented key is malformed: {0}")]
    Malformed(&'static str),
    #[error("the key is not signed by a current secret")]
    BadSignature,
    /// Signed by us, but not in the index.
    #[error("the key {id} is not in the index of issued keys")]
    Unknown { id: KeyId },
    #[error("the key expired at {at_ms} ms")]
    Expired { at_ms: u64 },
    #[error("the key {id} was revoked at {at_ms} ms")]
    Revoked { id: KeyId, at_ms: u64 },
    #[error("the key is not valid before {from_ms} ms")]
    NotYetValid { from_ms: u64 },
}

impl Denied {
    /// One sentence for the client. It says more than "not valid" only where the signature was
    /// ours, so that a guesser learns nothing from the answers.
    pub fn explanation(&self) -> &'static str {
        match self {
            Self::Missing => {
                "an API key is required: send it as `Authorization: Bearer msb_...`; \
                 `host-bridge keygen` makes one"
            }
            Self::Malformed(_) | Self::BadSignature | Self::Unknown { .. } => {
                "the API key is not valid; `host-bridge keygen` creates a valid one"
            }
            Self::Expired { .. } => {
                "the API key has expired; `host-bridge keygen` creates a new one"
            }
            Self::Revoked { .. } => "the API key was revoked",
            Self::NotYetValid { .. } => "the API key is not valid yet",
        }
    }

    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing => "key_missing",
            Self::Malformed(_) | Self::BadSignature | Self::Unknown { .. } => "key_invalid",
            Self::Expired { .. } => "key_expired",
            Self::Revoked { .. } => "key_revoked",
            Self::NotYetValid { .. } => "key_not_yet_valid",
        }
    }

    /// Whether the peer may be guessing, so that [`BadKeys`] counts it.
    pub fn is_suspect(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::BadSignature | Self::Unknown { .. })
    }
}

/// Why keys could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("could not {action} {path:?}: {source}")]
    Files { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{path:?} can be read by others (mode {mode:o}); make it private with `chmod 600`, and \
         change the secrets with `host-bridge keys rotate --drop-old` if somebody may have read it"
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "{path:?} is damaged: {reason}; restore it, or remove it and secrets.json to start without any keys"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error("{path:?} is larger than {bytes_max} bytes")]
    TooLarge { path: PathBuf, bytes_max: u64 },
    #[error("there is no key {id}; `host-bridge keys ls` lists them")]
    NoSuchKey { id: KeyId },
    #[error(
        "there are already {keys_max} keys, which is the limit; long-expired keys are removed by themselves, and `host-bridge keys rotate --drop-old` removes the others"
    )]
    TooManyKeys { keys_max: usize },
    #[error(
        "{secrets_max} signing secrets are in use, which is the limit; `host-bridge keys rotate --drop-old` keeps only the new one"
    )]
    TooManySecrets { secrets_max: usize },
    #[error("{0:?} is not a label of a key: write 1 to {LABEL_CHARS_MAX} printable characters")]
    Label(String),
    #[error("a key cannot expire before it is created")]
    ExpiredAlready,
    #[error("cannot get random numbers from the host")]
    NoRandomness,
    #[error("the claims are too long for a key")]
    Claims,
    #[error(
        "{ssh_key:?} belongs to the key {id} already; `host-bridge keys rm-ssh {id}` removes it"
    )]
    SshKeyTaken { ssh_key: String, id: KeyId },
    #[error("a key has at most {SSH_KEYS_PER_KEY_MAX} SSH keys; issue another key for the others")]
    TooManySshKeys,
}

#[cfg(test)]
mod tests;
