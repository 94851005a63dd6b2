//! The two JSON objects of a key. Pure.

use serde::{Deserialize, Serialize};

use super::access::{Namespaces, Scopes};

/// The first part of a key. What is not named here is refused: an extension that is marked as
/// critical (`crit`) must not be ignored, and neither must a key's own `jwk` or `x5u`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub alg: String,
    #[serde(default)]
    pub typ: Option<String>,
    /// A hint at the secret, which we do not need: there are few.
    #[serde(default, rename = "kid")]
    pub _kid: Option<String>,
}

/// The second part. What other makers of keys add is ignored, as RFC 7519 asks; what is named here
/// and comes twice is refused.
#[derive(Debug, Serialize, Deserialize)]
pub struct Claims {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    pub iat: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
    pub namespace: Namespaces,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Scopes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
