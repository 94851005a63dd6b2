//! A refusal as programs read it: the body of HTTP's answers, an event of a stream, a part of a
//! tool's result. Each door gives its own words for the hint.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::PROBLEM_CHARS_MAX;
use sandbox::refusal::{Code, Hint, Refusal};

/// A door's words for what may help; `None` where it can do nothing about it.
pub type Words = fn(&Hint) -> Option<String>;

/// Why a call was not carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    pub code: Code,
    /// One sentence that says what was wrong.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub hint: Option<String>,
    /// Values for programs; which ones depends on the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub details: Option<Value>,
}

impl Problem {
    pub fn new(refusal: &Refusal, words: Words) -> Self {
        Self {
            code: refusal.code,
            message: cut(refusal.message.clone()),
            hint: refusal.hint.as_ref().and_then(|hint| words(hint)),
            details: refusal.details.as_ref().map(|details| (**details).clone()),
        }
    }
}

/// A message without what is too long of it: some quote what a client has sent, and that may be the
/// whole of a body.
pub fn cut(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(PROBLEM_CHARS_MAX) {
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let problem = |message: &str| Problem::new(&Refusal::invalid(message), Hint::words);
        let long = problem(&"é".repeat(PROBLEM_CHARS_MAX + 5));
        assert_eq!(long.message.chars().count(), PROBLEM_CHARS_MAX + 1);
        assert_eq!(problem("short").message, "short");
    }
}
