//! Formats the events of a run as JSON, one object per line. Pure.
//!
//! Bytes are a field `text` if they are UTF-8, otherwise a field `base64`.

use protocol::message::Channel;
use protocol::repl::{Display, ErrorReport, Event, Finished, Happening, RunEnd};
use serde_json::{Map, Value, json};

use agent_client::program::whole_characters;

/// Turns events into lines. A character that is split between two pieces of output goes with the
/// second, so that text stays text.
#[derive(Debug, Default)]
pub struct Lines {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Lines {
    /// Appends the lines of an event; there may be none, or several.
    pub fn append(&mut self, event: &Event, out: &mut String) {
        let piece = match &event.what {
            Happening::Stdout { bytes } => Some((&mut self.stdout, "stdout", bytes)),
            Happening::Stderr { bytes } => Some((&mut self.stderr, "stderr", bytes)),
            _ => None,
        };
        if let Some((begun, name, bytes)) = piece {
            begun.extend_from_slice(bytes.as_bytes());
            let rest = begun.split_off(whole_characters(begun));
            let piece = std::mem::replace(begun, rest);
            if !piece.is_empty() {
                append(event, name, with_bytes(Map::new(), &piece), out);
            }
            return;
        }
        if let Happening::Finished(_) = event.what {
            for (begun, name) in [(&mut self.stdout, "stdout"), (&mut self.stderr, "stderr")] {
                if !begun.is_empty() {
                    append(event, name, with_bytes(Map::new(), &std::mem::take(begun)), out);
                }
            }
        }
        let (name, fields) = describe(&event.what);
        append(event, name, fields, out);
    }
}

fn append(event: &Event, name: &str, fields: Map<String, Value>, out: &mut String) {
    let mut line = Map::new();
    line.insert("event".to_owned(), name.into());
    line.insert("run".to_owned(), event.run.into());
    line.insert("at_us".to_owned(), event.at_us.into());
    line.extend(fields);
    out.push_str(&Value::Object(line).to_string());
    out.push('\n');
}

fn describe(what: &Happening) -> (&'static str, Map<String, Value>) {
    let (name, fields) = match what {
        Happening::Started(started) => {
            ("started", json!({ "count": started.count, "lost": started.lost }))
        }
        Happening::Stdout { bytes } => return ("stdout", with_bytes(Map::new(), bytes.as_bytes())),
        Happening::Stderr { bytes } => return ("stderr", with_bytes(Map::new(), bytes.as_bytes())),
        Happening::Late(late) => {
            let channel = if late.channel == Channel::Stderr { "stderr" } else { "stdout" };
            let fields = json!({ "of": late.of, "channel": channel, "dropped": late.dropped });
            return ("late", with_bytes(object(fields), late.bytes.as_bytes()));
        }
        Happening::Display(shown) => ("display", display(shown)),
        Happening::Artifact(file) => {
            let path = with_bytes(Map::new(), file.path.as_bytes());
            let fields = json!({
                "path": path, "name": file.name, "mime": file.mime, "bytes": file.bytes,
            });
            ("artifact", fields)
        }
        Happening::Error(report) => ("error", error(report)),
        Happening::InputRequest { request, prompt, secret } => {
            ("input_request", json!({ "request": request, "prompt": prompt, "secret": secret }))
        }
        Happening::Lost { reason } => ("lost", json!({ "reason": reason })),
        Happening::Gap { events, bytes } => ("gap", json!({ "events": events, "bytes": bytes })),
        Happening::Finished(end) => ("finished", finished(end)),
    };
    (name, object(fields))
}

fn display(shown: &Display) -> Value {
    let data: Vec<Value> = shown
        .data
        .iter()
        .map(|form| {
            let fields = object(json!({ "mime": form.mime }));
            Value::Object(with_bytes(fields, form.data.as_bytes()))
        })
        .collect();
    // Its source claims that it is JSON; if it is not, it is text.
    let metadata = shown.metadata.as_ref().map(|text| {
        serde_json::from_str::<Value>(text).unwrap_or_else(|_| Value::String(text.clone()))
    });
    json!({ "role": shown.role, "id": shown.id, "data": data, "metadata": metadata })
}

fn error(report: &ErrorReport) -> Value {
    json!({
        "kind": report.kind,
        "message": report.message,
        "traceback": report.traceback,
        "frames": report.frames,
    })
}

fn finished(end: &Finished) -> Value {
    let (cause, detail) = match &end.end {
        RunEnd::Ok {} => ("ok", Value::Null),
        RunEnd::Error {} => ("error", Value::Null),
        RunEnd::Exited { code } => ("exited", json!({ "code": code })),
        RunEnd::Interrupted { by } => ("interrupted", json!({ "by": by })),
        RunEnd::TimedOut { limit_ms } => ("timed_out", json!({ "limit_ms": limit_ms })),
        RunEnd::Died { cause } => ("died", json!({ "how": cause })),
        RunEnd::Cancelled { reason } => ("cancelled", json!({ "reason": reason })),
    };
    let mut fields = object(json!({
        "cause": cause,
        "state_kept": end.state_kept,
        "duration_us": end.duration_us,
        "cpu_us": end.cpu_us,
        "memory_bytes_peak": end.memory_bytes_peak,
        "rung": end.rung,
        "stdout_bytes": end.stdout_bytes,
        "stderr_bytes": end.stderr_bytes,
    }));
    fields.extend(object(detail));
    Value::Object(fields)
}

/// The fields that are not empty.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => Map::new(),
    }
}

fn with_bytes(mut fields: Map<String, Value>, bytes: &[u8]) -> Map<String, Value> {
    match std::str::from_utf8(bytes) {
        Ok(text) => fields.insert("text".to_owned(), text.into()),
        Err(_) => fields.insert("base64".to_owned(), base64(bytes).into()),
    };
    fields
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - three.len()));
        for digit in 0..4 {
            if digit <= three.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use protocol::Text;
    use protocol::exit::Cause;
    use protocol::repl::{Datum, DisplayRole, Started};

    use super::*;

    fn event(what: Happening) -> Event {
        Event { run: 2, at_us: 5, what }
    }

    fn stdout(bytes: &[u8]) -> Event {
        event(Happening::Stdout { bytes: Text::from(bytes.to_vec()) })
    }

    fn lines(events: &[Event]) -> Vec<Value> {
        let (mut lines, mut out) = (Lines::default(), String::new());
        for event in events {
            lines.append(event, &mut out);
        }
        out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn end() -> Event {
        let cause = Cause::Signaled { signal: 9, core_dumped: false };
        event(Happening::Finished(Finished {
            end: RunEnd::Died { cause },
            duration_us: 1,
            cpu_us: None,
            memory_bytes_peak: Some(7),
            state_kept: false,
            rung: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
            cached: None,
        }))
    }

    #[test]
    fn events_are_objects_with_a_name() {
        let data = vec![
            Datum { mime: "text/plain".to_owned(), data: "x\ny".into() },
            Datum { mime: "image/png".to_owned(), data: vec![0x89, b'P', b'N', b'G'].into() },
        ];
        let shown = Display {
            role: DisplayRole::Value,
            id: None,
            data,
            metadata: Some("{\"w\":1}".to_owned()),
        };
        let lines_shown = lines(&[
            event(Happening::Started(Started { count: 1, lost: None })),
            event(Happening::Display(shown)),
            end(),
        ]);
        assert_eq!(lines_shown[0], json!({ "event": "started", "run": 2, "at_us": 5, "count": 1 }));
        assert_eq!(lines_shown[1]["role"], "value");
        assert_eq!(lines_shown[1]["data"][0], json!({ "mime": "text/plain", "text": "x\ny" }));
        assert_eq!(lines_shown[1]["data"][1], json!({ "mime": "image/png", "base64": "iVBORw==" }));
        assert_eq!(lines_shown[1]["metadata"]["w"], 1);
        assert_eq!(lines_shown[2]["cause"], "died");
        assert_eq!(lines_shown[2]["how"]["signaled"]["signal"], 9);
        assert_eq!(
            (&lines_shown[2]["state_kept"], &lines_shown[2]["memory_bytes_peak"]),
            (&json!(false), &json!(7))
        );
    }

    #[test]
    fn a_character_in_two_pieces_stays_one() {
        let lines_shown = lines(&[stdout(b"f\xc3"), stdout(b"\xbcr \xe2"), stdout(b"\x82"), end()]);
        assert_eq!(lines_shown[0]["text"], "f");
        assert_eq!(lines_shown[1]["text"], "\u{fc}r ");
        assert_eq!(
            (&lines_shown[2]["event"], &lines_shown[2]["base64"]),
            (&json!("stdout"), &json!("4oI="))
        );
        assert_eq!(lines_shown[3]["event"], "finished");
    }

    #[test]
    fn binary_output_is_base64() {
        let lines_shown = lines(&[stdout(b"\xff\xfe"), stdout(b"ok")]);
        assert_eq!(lines_shown[0]["base64"], "//4=");
        assert_eq!(lines_shown[1]["text"], "ok");
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }
}
