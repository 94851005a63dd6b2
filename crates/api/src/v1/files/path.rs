//! Paths, cursors and permissions as clients write them, in queries and in JSON.
//!
//! Linux does not promise that a path is UTF-8, so a path may also be given as base64.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use protocol::Text;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::forms::files::PATH;
use sandbox::refusal::Refusal;

/// What base64 looks like; in queries the alphabet for URLs is easier to write.
pub const BASE64: &str = "^[A-Za-z0-9+/_-]+={0,2}$";
/// What permissions look like: octal, with setuid, setgid and sticky.
pub const PERMISSIONS: &str = "^[0-7]{1,4}$";
/// What a cursor looks like: the bytes of a name in hexadecimal digits.
pub const CURSOR: &str = "^([0-9a-f]{2}){1,255}$";

/// Padding is for those who like it.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// A path in JSON.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a path must be a string, or an object with only `base64`")]
pub enum FilePath {
    Text(#[schemars(regex(pattern = PATH), length(max = 4096))] String),
    Bytes(BytesPath),
}

/// A path that is not UTF-8.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BytesPath {
    #[schemars(regex(pattern = BASE64))]
    pub base64: String,
}

impl FilePath {
    pub fn into_text(self) -> Result<Text, Refusal> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Bytes(BytesPath { base64 }) => decode(&base64),
        }
    }
}

/// The path of a query. Exactly one of the two parameters must be there.
///
/// Queries with more fields flatten it, which costs that what they say is held a second time while
/// they are read: little, because a query is short.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathQuery {
    /// The absolute path.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = PATH, "maxLength" = 4096))]
    path: Option<String>,
    /// The path in base64, for paths that are not UTF-8.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = BASE64))]
    path_base64: Option<String>,
}

impl PathQuery {
    pub fn into_text(self) -> Result<Text, Refusal> {
        match (self.path, self.path_base64) {
            (Some(path), None) => Ok(path.into()),
            (None, Some(encoded)) => decode(&encoded),
            (None, None) => Err(Refusal::invalid("the query has no path")
                .hint("add ?path=/…, or ?path_base64= for one that is not UTF-8")),
            (Some(_), Some(_)) => Err(Refusal::invalid("the query has both path and path_base64")),
        }
    }
}

fn decode(encoded: &str) -> Result<Text, Refusal> {
    let is_for_urls = encoded.contains(['-', '_']);
    let engine = if is_for_urls { URL_SAFE } else { STANDARD };
    match engine.decode(encoded) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(Refusal::invalid(format!("the path is not valid base64: {error}"))
            .hint("in a query, `+` is a space: use the alphabet with `-` and `_`")),
    }
}

/// Permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Permissions(pub u32);

impl TryFrom<String> for Permissions {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_octal = (1..=4).contains(&text.len())
            && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        let bits = is_octal.then(|| u32::from_str_radix(&text, 8).ok()).flatten();
        bits.map(Self).ok_or_else(|| "permissions must be one to four octal digits".to_owned())
    }
}

/// Where a page of a listing ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Cursor(pub Text);

impl TryFrom<String> for Cursor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let bytes = text.as_bytes().chunks(2).map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        });
        let name: Option<Vec<u8>> = bytes.collect();
        let name = name.filter(|name| !name.is_empty());
        name.map(|name| Self(name.into()))
            .ok_or_else(|| "`after` must be the `next` of the previous page".to_owned())
    }
}

/// The cursor after a name.
pub fn cursor(name: &Text) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 0xf)]);
    name.as_bytes().iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::super::archive::{PackQuery, UnpackQuery};
    use super::super::tree::{ListFiles, RemoveFile, StatQuery};
    use super::super::upload::WriteQuery;
    use super::super::watch::WatchQuery;
    use super::*;

    fn named(query: &str) -> Result<Text, Refusal> {
        serde_html_form::from_str::<PathQuery>(query).expect("a query").into_text()
    }

    #[test]
    fn a_path_may_be_base64_of_either_alphabet() {
        for encoded in ["L/8+", "L_8-", "L/8+"] {
            let query = PathQuery { path: None, path_base64: Some(encoded.to_owned()) };
            assert_eq!(query.into_text().unwrap().as_bytes(), b"/\xff>");
        }
        for encoded in ["L3RtcA==", "L3RtcA"] {
            assert_eq!(named(&format!("path_base64={encoded}")).unwrap().as_bytes(), b"/tmp");
        }
        assert!(named("path_base64=L+8%2B").is_err());
        assert!(named("").is_err());
        assert!(named("path=/&path_base64=Lw==").is_err());
    }

    /// A query with this path, with the path and an unknown field, and with the path twice.
    fn hold<T: DeserializeOwned>() {
        let name = std::any::type_name::<T>();
        assert!(serde_html_form::from_str::<T>("path=/tmp").is_ok(), "{name}");
        for wrong in ["path=/tmp&colour=red", "path=/&path=/", "path_base64=Lw&path_base64=Lw"] {
            assert!(serde_html_form::from_str::<T>(wrong).is_err(), "{name}: {wrong}");
        }
    }

    #[test]
    fn no_query_takes_unknown_fields_or_fields_given_twice() {
        hold::<PathQuery>();
        hold::<ListFiles>();
        hold::<StatQuery>();
        hold::<RemoveFile>();
        hold::<WriteQuery>();
        hold::<WatchQuery>();
        hold::<PackQuery>();
        hold::<UnpackQuery>();
    }

    #[test]
    fn permissions_are_octal_digits_alone() {
        assert_eq!(Permissions::try_from("644".to_owned()), Ok(Permissions(0o644)));
        assert_eq!(Permissions::try_from("4755".to_owned()), Ok(Permissions(0o4755)));
        for wrong in ["", "8", "+64", "0o644", "00644", "rwx"] {
            assert!(Permissions::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cursor_is_any_name_and_back() {
        let name = Text::from(b"\xff\x00 name".to_vec());
        assert_eq!(Cursor::try_from(cursor(&name)), Ok(Cursor(name)));
        for wrong in ["", "f", "FF", "0g", "+1"] {
            assert!(Cursor::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
