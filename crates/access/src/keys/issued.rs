//! The index of issued keys: what is known about each key, without anything that grants access.

use serde::{Deserialize, Serialize};

use super::access::{Namespaces, Scopes};
use super::id::KeyId;
use super::ssh_key::SshKey;

/// One issued key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    pub id: KeyId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub namespace: Namespaces,
    pub scopes: Scopes,
    pub issued_at_ms: u64,
    /// None for a key that never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at_ms: Option<u64>,
    /// The secret that has signed it: when that is dropped, so is the key.
    pub secret: KeyId,
    /// The key whose holder has asked for it; absent for the operator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_by: Option<KeyId>,
    /// Whose holders may do the same over SSH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<SshKey>,
}

/// Whether a key is still valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Valid,
    Expired,
    Revoked,
    /// Its secret is no longer in use.
    Dropped,
}

impl Standing {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Dropped => "dropped",
        }
    }
}

impl Issued {
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}
