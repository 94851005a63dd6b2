//! A recording as asciicast version 2: a line of JSON for what it is, and one for each step. Pure.

use std::collections::BTreeMap;

use protocol::message::Channel;
use serde::Serialize;
use serde_json::json;

use super::recording::{Recording, Step};
use agent_client::program::Characters;

/// The first line. Players want `version` first, whatever order a map of JSON would have.
#[derive(Serialize)]
struct Head<'a> {
    version: u8,
    width: u16,
    height: u16,
    timestamp: u64,
    title: &'a str,
    command: &'a str,
    env: serde_json::Value,
}

/// The whole file.
pub fn write(recording: &Recording) -> String {
    let (columns, rows) = recording.size;
    let head = Head {
        version: 2,
        width: columns,
        height: rows,
        timestamp: recording.started_at_ms / 1000,
        title: &recording.title,
        command: &recording.command,
        env: json!({ "TERM": "xterm-256color" }),
    };
    let mut text = line(&head);
    let mut characters: BTreeMap<Channel, Characters> = BTreeMap::new();
    let mut keys = Characters::default();
    let mut last = 0.0;
    for (at, step) in &recording.steps {
        last = at.as_secs_f64();
        let (kind, data) = match step {
            Step::Output { channel, bytes } => {
                ("o", text_of(characters.entry(*channel).or_default(), bytes))
            }
            Step::Input(typed) => ("i", text_of(&mut keys, &typed.bytes)),
            Step::Resized(columns, rows) => ("r", format!("{columns}x{rows}")),
            Step::Note { text, .. } => ("m", text.clone()),
            Step::Mark { .. } => continue,
        };
        if !data.is_empty() {
            text.push_str(&line(&json!([last, kind, data])));
        }
    }
    for rest in characters.values_mut().map(Characters::finish).filter(|rest| !rest.is_empty()) {
        text.push_str(&line(&json!([last, "o", String::from_utf8_lossy(&rest)])));
    }
    text
}

fn line(value: &impl Serialize) -> String {
    let value = serde_json::to_string(value).expect("numbers and text");
    value + "\n"
}

/// What is whole by now. What is not UTF-8 becomes U+FFFD, because JSON has nothing for it.
fn text_of(characters: &mut Characters, bytes: &[u8]) -> String {
    String::from_utf8_lossy(&characters.take(bytes.to_vec())).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

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
            assert!(written.starts_with("{\"version\":2,\"width\":80,"), "{written}");
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
        assert_eq!(text_of(&mut characters, b"a\xffb\xc3"), "a\u{fffd}b");
        assert_eq!(text_of(&mut characters, b"\xa4c"), "äc");
    }
}
