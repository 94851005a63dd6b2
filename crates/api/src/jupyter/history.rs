//! The inputs of a kernel, for `history_request`: the newest of them.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::limits::{HISTORY_BYTES_MAX, HISTORY_MAX};
use super::wire::Content;

/// See the module's description.
#[derive(Debug, Default)]
pub struct History {
    inputs: VecDeque<(u64, String)>,
    bytes: usize,
}

impl History {
    /// An input with its number in the session. What is larger than all may be is left out.
    pub fn add(&mut self, number: u64, code: &str) {
        if code.len() > HISTORY_BYTES_MAX {
            return;
        }
        self.bytes += code.len();
        self.inputs.push_back((number, code.to_owned()));
        while self.inputs.len() > HISTORY_MAX || self.bytes > HISTORY_BYTES_MAX {
            let oldest = self.inputs.pop_front();
            self.bytes -= oldest.map_or(0, |(_, code)| code.len());
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The answer: the last `n`, those in a range, or those that have the words of a pattern.
    pub fn answer(&self, ask: &Content) -> Value {
        let is_wanted = |number: i64, code: &str| match ask.hist_access_type.as_str() {
            "range" => ask.start <= number && ask.stop.is_none_or(|stop| number < stop),
            "search" => ask.pattern.split('*').all(|word| code.contains(word)),
            _ => true,
        };
        let found = self.inputs.iter().filter(|(number, code)| is_wanted(*number as i64, code));
        // This kernel has one session, which Jupyter's clients call 0. The newest are wanted, the oldest first.
        let shown = found.rev().take(ask.n.unwrap_or(usize::MAX));
        let mut shown: Vec<_> = shown.map(|(number, code)| json!([0, number, code])).collect();
        shown.reverse();
        json!({ "status": "ok", "history": shown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_found_by_number_and_pattern_and_old_ones_make_room() {
        let mut history = History::default();
        for number in 1..=3 {
            history.add(number, &format!("x = {number}"));
        }
        let numbers = |ask: Content| {
            let answer = history.answer(&ask);
            let rows = answer["history"].as_array().unwrap();
            rows.iter().map(|row| row[1].as_u64().unwrap()).collect::<Vec<_>>()
        };
        let ask = |kind: &str| Content { hist_access_type: kind.to_owned(), ..Content::default() };
        assert_eq!(numbers(Content { n: Some(2), ..ask("tail") }), [2, 3]);
        assert_eq!(numbers(Content { start: 1, stop: Some(3), ..ask("range") }), [1, 2]);
        assert_eq!(numbers(Content { pattern: "x*3".to_owned(), ..ask("search") }), [3]);
        history.add(4, &"y".repeat(HISTORY_BYTES_MAX));
        assert_eq!(history.inputs.len(), 1);
        history.add(5, &"y".repeat(HISTORY_BYTES_MAX + 1));
        assert_eq!(history.inputs.len(), 1);
    }
}
