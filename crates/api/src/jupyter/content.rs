//! What runs say, in Jupyter's words. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::repl::{Datum, Display, ErrorReport, Finished, RunEnd};
use serde_json::{Map, Value, json};

use crate::forms::exit::ended;
use agent_client::guest::contexts::language::Language;

/// An error as clients show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub name: String,
    pub value: String,
    pub traceback: Vec<String>,
}

impl Failure {
    pub fn new(name: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        Self { traceback: vec![format!("{name}: {value}")], name: name.to_owned(), value }
    }

    pub fn content(&self) -> Value {
        json!({ "ename": self.name, "evalue": self.value, "traceback": self.traceback })
    }

    /// The same as the reply to the request.
    pub fn reply(&self, count: u64) -> Value {
        let mut reply = self.content();
        reply["status"] = "error".into();
        reply["execution_count"] = count.into();
        reply
    }
}

impl From<ErrorReport> for Failure {
    fn from(report: ErrorReport) -> Self {
        let traceback = report.traceback.lines().map(str::to_owned).collect();
        Self { name: report.kind, value: report.message, traceback }
    }
}

/// The error of an end that no error was reported for; `None` for a good one.
pub fn failure(finished: &Finished, language: &Language) -> Option<Failure> {
    Some(match &finished.end {
        RunEnd::Ok {} => return None,
        RunEnd::Error {} => Failure::new("Error", "the run failed"),
        RunEnd::Exited { code } => {
            Failure::new(language.exit_error.unwrap_or("Exit"), code.to_string())
        }
        RunEnd::Interrupted { .. } => Failure::new("KeyboardInterrupt", ""),
        RunEnd::TimedOut { limit_ms } => {
            Failure::new("TimeoutError", format!("the run took longer than {limit_ms} ms"))
        }
        RunEnd::Died { cause } => {
            let how = ended(cause);
            let words = format!(
                "the interpreter {how}, and its variables are lost; the next cell starts another"
            );
            Failure::new("DeadKernelError", words)
        }
        RunEnd::Cancelled { reason } => Failure::new("Cancelled", reason.as_str()),
    })
}

pub fn stream(name: &str, text: &str) -> Value {
    json!({ "name": name, "text": text })
}

/// A display, with the id that updates of it use.
pub fn display(shown: Display) -> Value {
    let metadata: Option<Map<_, _>> =
        shown.metadata.and_then(|text| serde_json::from_str(&text).ok());
    let data: Map<_, _> = shown
        .data
        .into_iter()
        .map(|Datum { mime, data }| {
            let value = form(&mime, data.as_bytes());
            (mime, value)
        })
        .collect();
    let mut content =
        json!({ "data": data, "metadata": metadata.unwrap_or_default(), "transient": {} });
    if let Some(id) = shown.id {
        content["transient"]["display_id"] = id.into();
    }
    content
}

/// JSON as a value, text as text, and what is neither in base64.
fn form(mime: &str, bytes: &[u8]) -> Value {
    let is_json = mime == "application/json" || mime.ends_with("+json");
    if let Some(value) = is_json.then(|| serde_json::from_slice(bytes).ok()).flatten() {
        return value;
    }
    let is_text = mime.ends_with("+xml")
        || !["image/", "audio/", "video/", "application/pdf"]
            .iter()
            .any(|kind| mime.starts_with(kind));
    match std::str::from_utf8(bytes) {
        Ok(text) if is_text => text.into(),
        _ => STANDARD.encode(bytes).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_display_is_as_viewers_take_it() {
        for (mime, bytes, shown) in [
            ("text/html", &b"<b>"[..], json!("<b>")),
            ("image/png", b"\x89PNG", json!("iVBORw==")),
            ("image/png", b"text", json!("dGV4dA==")),
            ("image/svg+xml", b"<svg/>", json!("<svg/>")),
            ("application/json", b"{\"a\":1}", json!({ "a": 1 })),
            ("application/vnd.x+json", b"[1]", json!([1])),
            ("application/json", b"{", json!("{")),
            ("text/plain", b"\xff", json!("/w==")),
        ] {
            assert_eq!(form(mime, bytes), shown, "{mime}");
        }
    }
}
