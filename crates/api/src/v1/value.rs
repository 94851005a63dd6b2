//! Shapes that several resources use: output as text or as the bytes that it is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// Bytes in JSON: exact as `text` where they are UTF-8, and as `base64` where they are not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    Text(String),
    Base64(String),
}

impl Content {
    pub fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64(STANDARD.encode(error.as_bytes())),
        }
    }

    /// The bytes, of a client's value.
    pub fn into_bytes(self) -> Result<Vec<u8>, Problem> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Base64(text) => STANDARD.decode(text).map_err(|error| {
                Problem::invalid(format!("`base64` is not valid base64: {error}"))
            }),
        }
    }
}

/// Bytes as text for people: what is not UTF-8 is shown as U+FFFD.
pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn content_is_read_as_it_was_written(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Content::of(bytes.clone()).into_bytes().unwrap(), bytes);
        }
    }
}
