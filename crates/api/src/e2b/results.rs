//! A run of code as lines of JSON: its output as it comes, what it shows, its error, its end.
//!
//! All that is not ASCII is escaped: one of the clients breaks lines at other characters too, another
//! reads each piece of the network for itself.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use protocol::repl::{Datum, Display, DisplayRole, Event, Finished, Happening, RunEnd};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::charts::{CHART, TABLE};
use super::limits::RUN_KEEPALIVE;
use crate::body::{Gone, Hold, NDJSON, Outgoing, Response, Sink, respond};
use crate::call::{Call, Inside};
use crate::environment::ascii;
use crate::forms::exit::ended;
use crate::limits::STREAM_BYTES;
use agent_client::guest::Run;
use agent_client::program::Characters;
use sandbox::refusal::Refusal;

/// Answers with what a run says. Who leaves has the run interrupted, because the run is dropped then; the
/// others beside it go on by themselves.
pub fn answer(
    call: &mut Call,
    inside: Inside,
    run: Run,
    beside: Vec<Run>,
) -> Result<Response, Refusal> {
    let (sink, body) = Outgoing::stream(None);
    call.memory.grow(STREAM_BYTES)?;
    let held: Hold = Arc::new((call.permit.take(), call.memory.clone(), call.trail.clone()));
    for mut run in beside {
        // What it says is for nobody.
        tokio::spawn(async move { while let Ok(Some(_)) = run.next().await {} });
    }
    let lines =
        Lines { sink: sink.clone(), outputs: [Characters::default(), Characters::default()] };
    tokio::spawn(async move {
        let _held = (held, inside);
        tokio::select! {
            _ = lines.follow(run) => {}
            () = sink.closed() => {}
        }
    });
    Ok(respond(StatusCode::OK, NDJSON, body))
}

struct Lines {
    sink: Sink,
    /// Of stdout and of stderr.
    outputs: [Characters; 2],
}

impl Lines {
    async fn say(&self, line: &Value) -> Result<(), Gone> {
        self.sink.send(ascii_line(line)).await
    }

    async fn follow(mut self, mut run: Run) -> Result<(), Gone> {
        loop {
            let event = tokio::select! {
                event = run.next() => event,
                () = sleep(RUN_KEEPALIVE) => {
                    self.say(&json!({ "type": "keepalive" })).await?;
                    continue;
                }
            };
            match event {
                Ok(Some(event)) => {
                    let is_last = matches!(event.what, Happening::Finished(_));
                    self.tell(event).await?;
                    if is_last {
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.say(&failure("UnexpectedEndOfExecution", &error.to_string())).await?;
                    break;
                }
            }
        }
        self.say(&json!({ "type": "end_of_execution" })).await
    }

    async fn tell(&mut self, event: Event) -> Result<(), Gone> {
        let at = host::instant::format(event.at_us / 1000);
        match event.what {
            Happening::Started(started) => {
                let count = started.count;
                self.say(&json!({ "type": "number_of_executions", "execution_count": count })).await
            }
            Happening::Stdout { bytes } => self.output(0, bytes.into_bytes(), &at).await,
            Happening::Stderr { bytes } => self.output(1, bytes.into_bytes(), &at).await,
            Happening::Display(display) => self.say(&result(display)).await,
            Happening::Error(report) => {
                self.say(&json!({
                    "type": "error", "name": report.kind, "value": report.message,
                    "traceback": report.traceback,
                }))
                .await
            }
            Happening::Finished(finished) => {
                for stream in 0..2 {
                    let rest = self.outputs[stream].finish();
                    self.piece(stream, &rest, &at).await?;
                }
                match end(&finished) {
                    Some(line) => self.say(&line).await,
                    None => Ok(()),
                }
            }
            // Input ends at once, files are read as such, and the rest is of no run of this client.
            _ => Ok(()),
        }
    }

    async fn output(&mut self, stream: usize, bytes: Vec<u8>, at: &str) -> Result<(), Gone> {
        let whole = self.outputs[stream].take(bytes);
        self.piece(stream, &whole, at).await
    }

    async fn piece(&self, stream: usize, bytes: &[u8], at: &str) -> Result<(), Gone> {
        if bytes.is_empty() {
            return Ok(());
        }
        let kind = ["stdout", "stderr"][stream];
        let text = String::from_utf8_lossy(bytes);
        self.say(&json!({ "type": kind, "text": text, "timestamp": at })).await
    }
}

fn failure(name: &str, value: &str) -> Value {
    json!({ "type": "error", "name": name, "value": value, "traceback": "" })
}

/// The error for an end that no `error` event has reported.
fn end(finished: &Finished) -> Option<Value> {
    match &finished.end {
        RunEnd::Ok {} | RunEnd::Error {} => None,
        RunEnd::Exited { code } => Some(failure("SystemExit", &code.to_string())),
        RunEnd::Interrupted { by } => {
            Some(failure("KeyboardInterrupt", &format!("interrupted by {by}")))
        }
        RunEnd::TimedOut { limit_ms } => {
            Some(failure("TimeoutError", &format!("the run took longer than {limit_ms} ms")))
        }
        RunEnd::Died { cause } => Some(failure(
            "UnexpectedEndOfExecution",
            &format!("the interpreter {}; its state is lost", ended(cause)),
        )),
        RunEnd::Cancelled { reason } => Some(failure("ContextRestarting", reason)),
    }
}

/// What is shown, in the fields of the clients.
fn result(display: Display) -> Value {
    let mut fields = Map::new();
    let mut extra = Map::new();
    for Datum { mime, data } in display.data {
        let bytes = data.as_bytes();
        let text = || Value::from(String::from_utf8_lossy(bytes));
        let base64 = || Value::from(STANDARD.encode(bytes));
        let (name, value) = match mime.as_str() {
            "text/plain" => ("text", Value::from(unquoted(&String::from_utf8_lossy(bytes)))),
            "text/html" => ("html", text()),
            "text/markdown" => ("markdown", text()),
            "text/latex" => ("latex", text()),
            "image/svg+xml" => ("svg", text()),
            "image/png" => ("png", base64()),
            "image/jpeg" => ("jpeg", base64()),
            "application/pdf" => ("pdf", base64()),
            "application/javascript" => ("javascript", text()),
            "application/json" | CHART | TABLE => match serde_json::from_slice(bytes) {
                Ok(value) => (json_field(&mime), value),
                Err(_) => continue,
            },
            other => {
                let is_text = std::str::from_utf8(bytes).is_ok();
                extra.insert(other.to_owned(), if is_text { text() } else { base64() });
                continue;
            }
        };
        fields.insert(name.to_owned(), value);
    }
    if !extra.is_empty() {
        fields.insert("extra".to_owned(), extra.into());
    }
    fields.insert("type".to_owned(), "result".into());
    fields.insert("is_main_result".to_owned(), (display.role == DisplayRole::Value).into());
    fields.into()
}

/// Where a client looks for a value that is JSON.
fn json_field(mime: &str) -> &'static str {
    match mime {
        CHART => "chart",
        TABLE => "data",
        _ => "json",
    }
}

/// A text as its own value: a string is shown without its quotes.
fn unquoted(text: &str) -> &str {
    let inner = ['\'', '"'].iter().find_map(|quote| {
        let inner = text.strip_prefix(*quote)?.strip_suffix(*quote)?;
        (text.len() >= 2).then_some(inner)
    });
    inner.unwrap_or(text)
}

/// A line with nothing but ASCII in it.
fn ascii_line(line: &Value) -> Vec<u8> {
    let mut ascii = ascii(line);
    ascii.push('\n');
    ascii.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_ascii_and_the_same_value() {
        let value = json!({ "text": "a\u{2028}é\u{85}🦫\n\u{7f}" });
        let line = ascii_line(&value);
        assert!(line.is_ascii());
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), value);
    }

    #[test]
    fn a_string_is_shown_without_its_quotes() {
        for (text, shown) in [("'a'", "a"), ("\"it's\"", "it's"), ("'", "'"), ("1", "1")] {
            assert_eq!(unquoted(text), shown);
        }
    }
}
