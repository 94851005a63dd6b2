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

/// Cuts a stream of bytes where characters end, so that text stays text although its pieces end
/// anywhere.
#[derive(Clone, Debug, Default)]
pub struct Characters {
    /// The beginning of a character that is not whole yet.
    rest: Vec<u8>,
}

impl Characters {
    /// All whole characters so far. What is not UTF-8 is passed on as it is.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let keep = incomplete_tail(&all);
        self.rest = all.split_off(all.len() - keep);
        all
    }

    /// What is left at the end.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Bytes that are held back.
    pub fn held(&self) -> u64 {
        self.rest.len() as u64
    }
}

/// How many bytes at the end may be the beginning of a character.
fn incomplete_tail(bytes: &[u8]) -> usize {
    let last = bytes.iter().rev().take(3).enumerate();
    for (back, byte) in last {
        let length = match byte {
            0x80..=0xBF => continue,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => return 0,
        };
        return if back + 1 < length { back + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_cut_anywhere_stays_text(text in "\\PC{0,40}", cuts in prop::collection::vec(0usize..160, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let mut characters = Characters::default();
            let mut joined = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                let whole = characters.take(&text.as_bytes()[from..cut]);
                prop_assert!(std::str::from_utf8(&whole).is_ok());
                joined.extend(whole);
                from = cut;
            }
            prop_assert_eq!(characters.held(), 0);
            prop_assert_eq!(joined, text.into_bytes());
        }

        #[test]
        fn no_byte_is_kept_for_good(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9)) {
            let mut characters = Characters::default();
            let mut joined = Vec::new();
            for piece in &pieces {
                joined.extend(characters.take(piece));
                prop_assert!(characters.held() <= 3);
            }
            joined.extend(characters.finish());
            prop_assert_eq!(joined, pieces.concat());
        }

        #[test]
        fn content_is_read_as_it_was_written(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Content::of(bytes.clone()).into_bytes().unwrap(), bytes);
        }
    }
}
