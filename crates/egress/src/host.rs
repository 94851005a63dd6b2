//! A host name in the form in which it is compared: lower case, without a final dot.

use std::fmt;
use std::str::FromStr;

/// The longest name that the name system carries, as text.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A name of the name system. Never an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(String);

/// Why a text is not a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    #[error("it is empty")]
    Empty,
    #[error("it is an address; only names can be allowed")]
    Address,
    #[error("it has non-ASCII letters; write its ASCII form, which begins with xn--")]
    NotAscii,
    #[error("it has more than {NAME_BYTES_MAX} characters")]
    TooLong,
    #[error("one of its labels is empty or longer than {LABEL_BYTES_MAX} characters")]
    Label,
    #[error("it has a character that host names cannot have")]
    Character,
}

impl Host {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is below `suffix`, and not that itself.
    pub fn is_below(&self, suffix: &Self) -> bool {
        self.0.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.ends_with('.'))
    }

    /// Whether it can be a name of the internet at all: one of a single part is the local network's.
    pub fn is_qualified(&self) -> bool {
        self.0.contains('.')
    }
}

impl FromStr for Host {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(InvalidHost::Empty);
        }
        if !name.is_ascii() {
            return Err(InvalidHost::NotAscii);
        }
        if name.contains(':') || name.starts_with('[') {
            return Err(InvalidHost::Address);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(InvalidHost::TooLong);
        }
        let labels = || name.split('.');
        if labels().any(|label| label.is_empty() || label.len() > LABEL_BYTES_MAX) {
            return Err(InvalidHost::Label);
        }
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !labels().all(|label| label.bytes().all(is_good)) {
            return Err(InvalidHost::Character);
        }
        // Some programs read a name that ends in a number as an address: 127.1, 0x7f.0.0.1, 1.
        if labels().next_back().is_some_and(is_number) {
            return Err(InvalidHost::Address);
        }
        Ok(Self(name.to_ascii_lowercase()))
    }
}

fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case_and_without_the_last_dot() {
        let host: Host = "WWW.Example.ORG.".parse().unwrap();
        assert_eq!(host, "www.example.org".parse().unwrap());
        assert!(host.is_below(&"example.org".parse().unwrap()));
        assert!(host.is_below(&"org".parse().unwrap()));
        assert!(!host.is_below(&"www.example.org".parse().unwrap()), "not below itself");
        assert!(!host.is_below(&"ample.org".parse().unwrap()), "not in the midst of a part");
    }

    #[test]
    fn invalid_names_are_refused_with_a_reason() {
        for (text, why) in [
            ("", InvalidHost::Empty),
            (".", InvalidHost::Empty),
            ("127.0.0.1", InvalidHost::Address),
            ("2130706433", InvalidHost::Address),
            ("0x7f.1", InvalidHost::Address),
            ("example.0x7f", InvalidHost::Address),
            ("::1", InvalidHost::Address),
            ("[::1]", InvalidHost::Address),
            ("exämple.org", InvalidHost::NotAscii),
            ("a..b", InvalidHost::Label),
            (".a", InvalidHost::Label),
            ("a b", InvalidHost::Character),
            ("a/b", InvalidHost::Character),
            ("*.a", InvalidHost::Character),
            ("a\0b", InvalidHost::Character),
        ] {
            assert_eq!(text.parse::<Host>(), Err(why), "{text:?}");
        }
        assert_eq!(format!("{}.org", "a".repeat(64)).parse::<Host>(), Err(InvalidHost::Label));
        assert_eq!("a.".repeat(140).parse::<Host>(), Err(InvalidHost::TooLong));
    }
}
