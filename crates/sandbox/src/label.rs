//! Labels: what people put on sandboxes to find them by. Pure.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{LABEL_KEY_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX};

/// The labels of a sandbox.
pub type Labels = BTreeMap<String, String>;

/// Why labels are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLabel {
    #[error("{count} labels are more than the {LABELS_MAX} that a sandbox may have")]
    TooMany { count: usize },
    #[error(
        "{0:?} is not a label key: use 1 to {LABEL_KEY_BYTES_MAX} letters, digits, '.', '_', '/' \
        and '-', beginning with a letter or digit"
    )]
    Key(String),
    #[error(
        "the value of the label {key:?} is invalid: use at most {LABEL_VALUE_BYTES_MAX} bytes, \
        without control characters"
    )]
    Value { key: String },
    #[error("{0:?} is not a label: write KEY=VALUE")]
    NoValue(String),
}

/// Refuses labels that break the rules.
pub fn check(labels: &Labels) -> Result<(), InvalidLabel> {
    if labels.len() > LABELS_MAX {
        return Err(InvalidLabel::TooMany { count: labels.len() });
    }
    labels.iter().try_for_each(|(key, value)| {
        check_key(key)?;
        check_value(key, value)
    })
}

/// `KEY=VALUE`.
pub fn parse(text: &str) -> Result<(String, String), InvalidLabel> {
    let (key, value) = text.split_once('=').ok_or_else(|| InvalidLabel::NoValue(cut(text)))?;
    check_key(key)?;
    check_value(key, value)?;
    Ok((key.to_owned(), value.to_owned()))
}

fn check_key(key: &str) -> Result<(), InvalidLabel> {
    let begins_well = key.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let is_plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/-".contains(&b));
    if begins_well && is_plain && key.len() <= LABEL_KEY_BYTES_MAX {
        Ok(())
    } else {
        Err(InvalidLabel::Key(cut(key)))
    }
}

fn check_value(key: &str, value: &str) -> Result<(), InvalidLabel> {
    if value.len() <= LABEL_VALUE_BYTES_MAX && !value.contains(char::is_control) {
        Ok(())
    } else {
        Err(InvalidLabel::Value { key: key.to_owned() })
    }
}

/// Enough of a text to recognise it.
fn cut(text: &str) -> String {
    text.chars().take(LABEL_KEY_BYTES_MAX + 1).collect()
}

/// A filter by label: `key`, with any value, or `key=value`; the same text in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    key: String,
    value: Option<String>,
}

impl Selector {
    pub fn matches(&self, labels: &Labels) -> bool {
        labels
            .get(&self.key)
            .is_some_and(|found| self.value.as_ref().is_none_or(|value| value == found))
    }
}

impl FromStr for Selector {
    type Err = InvalidLabel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('=') {
            let (key, value) = parse(text)?;
            Ok(Self { key, value: Some(value) })
        } else {
            check_key(text)?;
            Ok(Self { key: text.to_owned(), value: None })
        }
    }
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Some(value) => serializer.collect_str(&format_args!("{}={value}", self.key)),
            None => serializer.serialize_str(&self.key),
        }
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn keys_and_values_are_checked_at_both_ends_of_the_rule() {
        let long = ("k".repeat(63), "v".repeat(255));
        for (key, value) in [("a", ""), ("9.b/c_d-e", "ä = b"), (&*long.0, &*long.1)] {
            assert_eq!(check(&labels(&[(key, value)])), Ok(()), "{key}={value}");
        }
        let longer = ("k".repeat(64), "v".repeat(256));
        for (key, value) in
            [("", "v"), ("-a", "v"), ("a b", "v"), ("ä", "v"), (&*longer.0, ""), ("a", &*longer.1)]
        {
            assert!(check(&labels(&[(key, value)])).is_err(), "{key}={value}");
        }
        assert!(check(&labels(&[("a", "b\nc")])).is_err());
    }

    #[test]
    fn one_label_too_many_is_refused_with_the_number() {
        let many = |count| (0..count).map(|n| (format!("k{n}"), String::new())).collect();
        assert_eq!(check(&many(LABELS_MAX)), Ok(()));
        assert_eq!(check(&many(LABELS_MAX + 1)), Err(InvalidLabel::TooMany { count: 65 }));
    }

    #[test]
    fn a_selector_asks_for_a_key_or_for_its_value_too() {
        let labels = labels(&[("team", "a"), ("empty", "")]);
        for (text, found) in [
            ("team", true),
            ("team=a", true),
            ("team=b", false),
            ("empty=", true),
            ("empty", true),
            ("other", false),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.matches(&labels), found, "{text}");
            let json = serde_json::to_string(&selector).unwrap();
            assert_eq!(serde_json::from_str::<Selector>(&json).unwrap(), selector);
        }
        assert!("=a".parse::<Selector>().is_err() && "".parse::<Selector>().is_err());
    }
}
