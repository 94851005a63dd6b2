//! Parameters by name, each checked for its type, with errors that name it. A parameter that no method reads
//! is passed over, because clients of other releases send more; but options of a sandbox are refused then. Pure.

use std::time::Duration;

use serde_json::{Map, Value};

use super::envelope::fields;
use super::failure::Failure;
use super::limits::{TIMEOUT_NANOS_MIN, WORD_CHARS_SHOWN};
use crate::limits::DEADLINE_MAX;
use sandbox::Name;

/// The parameters of one request, or a part of them. They are taken out, because code and arguments
/// may be large.
#[derive(Debug)]
pub struct Params {
    fields: Map<String, Value>,
    /// The prefix of the names, as in `config.`.
    inside: &'static str,
}

impl Params {
    pub fn of(params: Value) -> Result<Self, Failure> {
        Ok(Self { fields: fields(params)?, inside: "" })
    }

    /// An object among them; none is an empty one.
    pub fn part(&mut self, name: &str, inside: &'static str) -> Result<Self, Failure> {
        match self.take(name) {
            Some(Value::Object(fields)) => Ok(Self { fields, inside }),
            None => Ok(Self { fields: Map::new(), inside }),
            Some(other) => Err(self.wrong(name, "an object", &other)),
        }
    }

    /// A text that must be there.
    pub fn text(&mut self, name: &str) -> Result<String, Failure> {
        let inside = self.inside;
        let missing = || Failure::params(format!("the parameter {inside}{name} is missing"));
        self.maybe_text(name)?.ok_or_else(missing)
    }

    pub fn maybe_text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.take(name) {
            Some(Value::String(text)) => Ok(Some(text)),
            None => Ok(None),
            Some(other) => Err(self.wrong(name, "a string", &other)),
        }
    }

    pub fn maybe_name(&mut self, name: &str) -> Result<Option<Name>, Failure> {
        let Some(text) = self.maybe_text(name)? else { return Ok(None) };
        let inside = self.inside;
        let parsed = text.parse();
        parsed.map(Some).map_err(|error| Failure::params(format!("{inside}{name}: {error}")))
    }

    /// Texts; none is an empty list.
    pub fn texts(&mut self, name: &str) -> Result<Vec<String>, Failure> {
        Ok(self.maybe_texts(name)?.unwrap_or_default())
    }

    /// Texts, where an empty list is another word than none.
    pub fn maybe_texts(&mut self, name: &str) -> Result<Option<Vec<String>>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let Value::Array(items) = value else {
            return Err(self.wrong(name, "a list of strings", &value));
        };
        let text = |item| match item {
            Value::String(text) => Ok(text),
            other => Err(self.wrong(name, "a list of strings", &other)),
        };
        items.into_iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// Texts, or an object that is short for them: `from:to`, as other clients write volumes and ports.
    pub fn pairs(&mut self, name: &str) -> Result<Vec<String>, Failure> {
        match self.take(name) {
            Some(Value::Object(pairs)) => {
                let shown = |to: &Value| to.as_str().map_or_else(|| to.to_string(), str::to_owned);
                Ok(pairs.iter().map(|(from, to)| format!("{from}:{}", shown(to))).collect())
            }
            Some(other) => {
                self.fields.insert(name.to_owned(), other);
                self.texts(name)
            }
            None => Ok(Vec::new()),
        }
    }

    /// An environment: a list of `NAME=value`, or an object.
    pub fn environment(&mut self, name: &str) -> Result<Vec<(String, String)>, Failure> {
        if let Some(Value::Object(_)) = self.fields.get(name) {
            let mut part = self.part(name, "")?;
            let names: Vec<String> = part.fields.keys().cloned().collect();
            let pair = |key: String| Ok((key.clone(), part.text(&key)?));
            return names.into_iter().map(pair).collect();
        }
        let split = |text: String| match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            // Its value may be a secret, so it is not shown.
            _ => Err(Failure::params(format!("{name}: write each as NAME=value"))),
        };
        self.texts(name)?.into_iter().map(split).collect()
    }

    /// A number that is not negative.
    pub fn amount(&mut self, name: &str) -> Result<Option<f64>, Failure> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_f64().filter(|number| number.is_finite() && *number >= 0.0) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(name, "a number of at least 0", &value)),
        }
    }

    /// How long something may take, in seconds; in nanoseconds where that cannot be meant. 0 is as
    /// good as nothing.
    pub fn timeout(&mut self) -> Result<Option<Duration>, Failure> {
        let Some(number) = self.amount("timeout")?.filter(|number| *number > 0.0) else {
            return Ok(None);
        };
        let seconds = if number >= TIMEOUT_NANOS_MIN { number / 1e9 } else { number };
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or(DEADLINE_MAX);
        // The guest counts in milliseconds.
        Ok(Some(limit.clamp(Duration::from_millis(1), DEADLINE_MAX)))
    }

    /// One that nobody has taken and that asks for something: it is not empty.
    pub fn rest(&self) -> Option<&str> {
        let asks = |value: &Value| match value {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        };
        self.fields.iter().find(|(_, value)| asks(value)).map(|(name, _)| name.as_str())
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, expected: &str, found: &Value) -> Failure {
        let kind = match found {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(number) if number.as_f64().is_some_and(|number| number < 0.0) => {
                "a negative number"
            }
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        let inside = self.inside;
        Failure::params(format!("{inside}{name} must be {expected}, not {kind}"))
    }
}

/// A word of a client's, cut to what is shown of one.
pub fn shown(word: &str) -> String {
    word.chars().take(WORD_CHARS_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn params(value: Value) -> Params {
        Params::of(value).unwrap()
    }

    #[test]
    fn invalid_arguments_are_named() {
        let mut broken = params(json!({ "a": 5, "b": ["x", 1], "t": -1, "n": "a b" }));
        let mut words = vec![
            broken.text("a").unwrap_err(),
            broken.texts("b").unwrap_err(),
            broken.text("c").unwrap_err(),
            broken.amount("t").unwrap_err(),
            broken.maybe_name("n").unwrap_err(),
        ];
        words.push(Params::of(json!([1])).unwrap_err());
        for (failure, word) in words.into_iter().zip(["a", "b", "c", "t", "n", "params"]) {
            let message = String::from_utf8(failure.into_written().into_bytes()).unwrap();
            assert!(
                message.contains(&format!("{word} ")) || message.contains(&format!("{word}:")),
                "{message}"
            );
        }
    }

    #[test]
    fn null_is_as_good_as_nothing() {
        let mut params = params(json!({ "a": null, "b": null, "timeout": null }));
        assert_eq!(params.maybe_text("a").unwrap(), None);
        assert!(params.texts("b").unwrap().is_empty() && params.texts("c").unwrap().is_empty());
        assert_eq!(params.timeout().unwrap(), None);
    }

    #[test]
    fn what_nobody_has_taken_is_found_unless_it_is_empty() {
        let mut some = params(json!({ "a": 1, "b": null, "c": [], "d": {}, "e": false }));
        assert_eq!(some.rest(), Some("a"));
        assert!(some.amount("a").is_ok());
        assert_eq!(some.rest(), Some("e"));
    }

    #[test]
    fn timeouts_are_seconds_unless_they_can_only_be_nanoseconds() {
        for (given, millis) in [
            (json!(5), 5000),
            (json!(0.25), 250),
            (json!(1e-9), 1),
            (json!(999_999), 86_400_000),
            (json!(500_000_000), 500),
            (json!(30_000_000_000_u64), 30_000),
            (json!(1e300), 86_400_000),
        ] {
            let limit = params(json!({ "timeout": given })).timeout().unwrap();
            assert_eq!(limit, Some(Duration::from_millis(millis)), "{given}");
        }
        assert_eq!(params(json!({ "timeout": 0 })).timeout().unwrap(), None);
        for wrong in [json!(-1), json!("5"), json!(true), json!([])] {
            assert!(params(json!({ "timeout": wrong })).timeout().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_environment_is_a_list_or_an_object() {
        let expected = vec![("A".to_owned(), "b=c".to_owned()), ("E".to_owned(), String::new())];
        for envs in [json!(["A=b=c", "E="]), json!({ "A": "b=c", "E": "" })] {
            assert_eq!(params(json!({ "envs": envs })).environment("envs").unwrap(), expected);
        }
        for wrong in [json!(["A"]), json!(["=b"]), json!({ "A": 5 }), json!("A=b")] {
            assert!(params(json!({ "envs": wrong })).environment("envs").is_err(), "{wrong}");
        }
    }
}
