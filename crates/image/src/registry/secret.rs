//! Secret strings, which never appear in a log, a message or `{:?}`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A password or a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Only for the place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Credentials for a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    Password {
        user: String,
        password: Secret,
    },
    /// A refresh token for the token server.
    Identity(Secret),
}

impl Credential {
    /// The user name, for messages.
    pub fn user(&self) -> String {
        match self {
            Self::Password { user, .. } => format!("the user {user:?}"),
            Self::Identity(_) => "the holder of this token".to_owned(),
        }
    }
}

/// The value of an `Authorization` header.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorization(Secret);

impl Authorization {
    pub fn basic(user: &str, password: &Secret) -> Self {
        let pair = STANDARD.encode(format!("{user}:{}", password.reveal()));
        Self(Secret(format!("Basic {pair}")))
    }

    pub fn bearer(token: &Secret) -> Self {
        Self(Secret(format!("Bearer {}", token.reveal())))
    }

    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorization(…)")
    }
}
