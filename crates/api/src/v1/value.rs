//! Shapes that several resources use: output as text or as base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::json_bytes;
use sandbox::refusal::Refusal;

/// From this length on, text that JSON would escape to more than [`ESCAPED_TIMES_MAX`] its length is
/// base64. Shorter pieces stay text: they cost little, and people read them.
pub const ESCAPED_BYTES_MIN: usize = 1024;
/// Twice is what lines without text, quotes and backslashes take at most, so all of these stay text. A NUL
/// takes six times its length.
pub const ESCAPED_TIMES_MAX: usize = 2;

/// Bytes in JSON: exact as `text` where they are UTF-8, and as `base64` where they are not, or are long
/// and mostly control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    Text(String),
    Base64(String),
}

impl Content {
    pub fn of(bytes: Vec<u8>) -> Self {
        if bytes.len() >= ESCAPED_BYTES_MIN && json_bytes(&bytes) > ESCAPED_TIMES_MAX * bytes.len()
        {
            return Self::Base64(STANDARD.encode(bytes));
        }
        Self::exact(bytes)
    }

    /// Text wherever it is UTF-8, also where base64 would be shorter.
    pub fn exact(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64(STANDARD.encode(error.as_bytes())),
        }
    }

    /// As the fields `text` and `base64`.
    pub fn parts(self) -> (Option<String>, Option<String>) {
        match self {
            Self::Text(text) => (Some(text), None),
            Self::Base64(base64) => (None, Some(base64)),
        }
    }

    /// The bytes, of a client's value.
    pub fn into_bytes(self) -> Result<Vec<u8>, Refusal> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Base64(text) => STANDARD.decode(text).map_err(|error| {
                Refusal::invalid(format!("`base64` is not valid base64: {error}"))
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

    /// Output of mostly one kind: zeros, control characters, lines, text, anything.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let kind = prop_oneof![
            Just(0_u8..=0),
            Just(0..=0x1F),
            Just(b'\n'..=b'\n'),
            Just(b'"'..=b'"'),
            Just(0..=0x7F),
            Just(0..=0xFF),
        ];
        kind.prop_flat_map(|bytes| prop::collection::vec(bytes, 0..3 * ESCAPED_BYTES_MIN))
    }

    proptest! {
        #[test]
        fn content_is_read_as_it_was_written(bytes in output()) {
            prop_assert_eq!(Content::of(bytes.clone()).into_bytes().unwrap(), bytes.clone());
            prop_assert_eq!(Content::exact(bytes.clone()).into_bytes().unwrap(), bytes);
        }

        #[test]
        fn long_output_takes_at_most_twice_its_length_in_json(bytes in output()) {
            let json = serde_json::to_vec(&Content::of(bytes.clone())).unwrap();
            // Each character of a short piece may take six.
            let most = bytes.len().max(3 * ESCAPED_BYTES_MIN) * ESCAPED_TIMES_MAX;
            let frame = br#"{"base64":""}"#.len();
            prop_assert!(json.len() <= most + frame);
        }

        #[test]
        fn lines_and_quotes_and_short_output_stay_text(
            lines in "[\n\t\"\\\\a-zä]{0,2000}",
            short in "[\x00-\x7f]{0,1023}",
        ) {
            for text in [lines, short] {
                prop_assert_eq!(Content::of(text.clone().into_bytes()), Content::Text(text));
            }
        }
    }
}
