//! The names of apps.

use std::fmt;
use std::str::FromStr;

use protocol::ids::is_name;
use serde::{Deserialize, Deserializer, Serialize};

use super::limits::APP_NAME_BYTES_MAX;

/// 1 to 40 of `[A-Za-z0-9_-]`, beginning with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct AppName(String);

/// Why a text is not an [`AppName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the name of an app: use 1 to {APP_NAME_BYTES_MAX} letters, digits, '_' and '-', \
    beginning with a letter or digit"
)]
pub struct InvalidAppName(pub String);

impl FromStr for AppName {
    type Err = InvalidAppName;

    fn from_str(text: &str) -> Result<Self, InvalidAppName> {
        if text.len() <= APP_NAME_BYTES_MAX && is_name(text, b"_-") {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidAppName(text.chars().take(APP_NAME_BYTES_MAX + 1).collect()))
        }
    }
}

impl<'de> Deserialize<'de> for AppName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for AppName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
