//! Values of attributes, bounded as they are made. Pure.

use std::borrow::Cow;

use super::limits::{ATTRIBUTES_MAX, DEPTH_MAX, LIST_MAX, TEXT_CHARS_MAX};

/// The name of an attribute.
pub type Key = Cow<'static, str>;

/// What an entry costs beside its texts.
const ENTRY_BYTES: usize = 64;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Whole(i64),
    Real(f64),
    Truth(bool),
    List(Vec<Value>),
    Table(Vec<(Key, Value)>),
}

impl Value {
    /// What it costs in memory, about.
    fn bytes(&self) -> usize {
        ENTRY_BYTES
            + match self {
                Self::Text(text) => text.len(),
                Self::Whole(_) | Self::Real(_) | Self::Truth(_) => 0,
                Self::List(values) => values.iter().map(Self::bytes).sum(),
                Self::Table(entries) => {
                    entries.iter().map(|(key, value)| key.len() + value.bytes()).sum()
                }
            }
    }

    /// `None` for what has no value there: null, and numbers that are none.
    pub fn of_json(json: serde_json::Value) -> Option<Self> {
        Self::of_json_at(json, 0)
    }

    fn of_json_at(json: serde_json::Value, depth: usize) -> Option<Self> {
        use serde_json::Value as Json;
        if depth > DEPTH_MAX {
            return None;
        }
        Some(match json {
            Json::Null => return None,
            Json::Bool(truth) => Self::Truth(truth),
            Json::Number(number) => match number.as_i64() {
                Some(whole) => Self::Whole(whole),
                None => Self::Real(number.as_f64()?),
            },
            Json::String(text) => text.into(),
            Json::Array(values) => {
                let values = values.into_iter().take(LIST_MAX);
                Self::List(values.filter_map(|one| Self::of_json_at(one, depth + 1)).collect())
            }
            Json::Object(entries) => {
                let entries = entries.into_iter().take(LIST_MAX);
                let one =
                    |(key, value)| Some((cut(key).into(), Self::of_json_at(value, depth + 1)?));
                Self::Table(entries.filter_map(one).collect())
            }
        })
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(cut(text))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(cut(text.to_owned()))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Whole(number.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Whole(number.into())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Truth(truth)
    }
}

/// Attributes of a span or of a record, each once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(Vec<(Key, Value)>);

impl Attributes {
    /// A later value replaces an earlier one. Beyond the bound new ones are left out.
    pub fn set(&mut self, key: impl Into<Key>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        if let Some((_, place)) = self.0.iter_mut().find(|(known, _)| *known == key) {
            *place = value;
        } else if self.0.len() < ATTRIBUTES_MAX {
            self.0.push((key, value));
        }
    }

    /// The same for what may be absent.
    pub fn set_if(&mut self, key: impl Into<Key>, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &(Key, Value)> {
        self.0.iter()
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// What they cost in memory, about.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value.bytes()).sum()
    }
}

/// Limits the length of a text.
pub fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_have_chosen_is_bounded() {
        let mut attributes = Attributes::default();
        for number in 0..=ATTRIBUTES_MAX {
            attributes.set(format!("key{number}"), "é".repeat(TEXT_CHARS_MAX + 1));
        }
        attributes.set("key0", 7_u64);
        assert_eq!(attributes.iter().count(), ATTRIBUTES_MAX);
        assert_eq!(attributes.get("key0"), Some(&Value::Whole(7)));
        assert!(attributes.bytes() <= ATTRIBUTES_MAX * (2 * TEXT_CHARS_MAX + ENTRY_BYTES + 10));
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep, null]);
        }
        assert!(Value::of_json(deep).unwrap().bytes() < 10 * ENTRY_BYTES);
        let wide = Value::of_json(json!(vec![1; 1000]));
        assert!(matches!(wide, Some(Value::List(values)) if values.len() == LIST_MAX));
    }

    #[test]
    fn json_keeps_its_types() {
        let json = json!({ "a": 1, "b": 1.5, "c": [true, "x"], "d": null });
        let expected = Value::Table(vec![
            ("a".into(), Value::Whole(1)),
            ("b".into(), Value::Real(1.5)),
            ("c".into(), Value::List(vec![Value::Truth(true), "x".into()])),
        ]);
        assert_eq!(Value::of_json(json), Some(expected));
        assert_eq!(Value::of_json(json!(null)), None);
    }
}
