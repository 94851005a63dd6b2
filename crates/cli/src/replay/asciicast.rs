//! A recording as asciicast version 2: a line of JSON for what it is, and one for each step. Pure.

use std::collections::BTreeMap;

use protocol::message::Channel;
use serde_json::{Value, json};

use super::recording::{Recording, Step};

/// The whole file.
pub fn write(recording: &Recording) -> String {
    let (columns, rows) = recording.size;
    let head = json!({
        "version": 2, "width": columns, "height": rows,
        "timestamp": recording.started_at_ms / 1000, "title": recording.title,
        "command": recording.command, "env": { "TERM": "xterm-256color" },
    });
    let mut text = line(&head);
    let mut characters: BTreeMap<Channel, Characters> = BTreeMap::new();
    let mut last = 0.0;
    for (at, step) in &recording.steps {
        last = at.as_secs_f64();
        let (kind, data) = match step {
            Step::Output { channel, bytes } => {
                ("o", characters.entry(*channel).or_default().next(bytes))
            }
            Step::Resized(columns, rows) => ("r", format!("{columns}x{rows}")),
            Step::Note(note) => ("m", note.clone()),
        };
        if !data.is_empty() {
            text.push_str(&line(&json!([last, kind, data])));
        }
    }
    for rest in characters.values().filter(|rest| !rest.0.is_empty()) {
        text.push_str(&line(&json!([last, "o", String::from_utf8_lossy(&rest.0)])));
    }
    text
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

/// The bytes of a character that the next output goes on with.
#[derive(Default)]
struct Characters(Vec<u8>);

impl Characters {
    /// What is whole by now. What is not UTF-8 becomes U+FFFD, because JSON has nothing for it.
    fn next(&mut self, bytes: &[u8]) -> String {
        self.0.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.0) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.0.clear();
                    return text;
                }
                Err(error) => {
                    let (whole, rest) = self.0.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(whole));
                    let Some(wrong) = error.error_len() else {
                        self.0 = rest.to_vec();
                        return text;
                    };
                    text.push('\u{fffd}');
                    self.0 = rest[wrong..].to_vec();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn characters_that_are_cut_anywhere_come_whole() {
        let text = "grün ✓ 🦀\r\n";
        for cut in 0..=text.len() {
            let steps = [&text.as_bytes()[..cut], &text.as_bytes()[cut..]].map(|bytes| {
                let output = Step::Output { channel: Channel::Terminal, bytes: bytes.to_vec() };
                (Duration::from_millis(250), output)
            });
            let recording = Recording {
                title: "work build".to_owned(),
                command: "make".to_owned(),
                started_at_ms: 1000,
                size: (80, 24),
                steps: steps.into(),
            };
            let written = write(&recording);
            let mut lines = written.lines();
            let head: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
            assert_eq!((&head["version"], &head["width"]), (&json!(2), &json!(80)));
            let events = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
            let shown: String = events.map(|event| event[2].as_str().unwrap().to_owned()).collect();
            assert_eq!(shown, text, "cut at {cut}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_cost_one_character_each() {
        let mut characters = Characters::default();
        assert_eq!(characters.next(b"a\xffb\xc3"), "a\u{fffd}b");
        assert_eq!(characters.next(b"\xa4c"), "äc");
    }
}
