//! `[otel]`: where telemetry goes, and what of it. Pure.

use std::path::PathBuf;
use std::time::Duration;

use super::limits::{OTEL_HEADERS_MAX, OTEL_INTERVAL_DEFAULT, OTEL_PORT};
use super::value::{InvalidValue, RawValue};
use host::dial::{Origin, Scheme};
use host::percent::percent_decode;
use host::secret::{self, FIELDS_USUAL};
use host::similar::nearest;
use image::registry::Url;
use otel::{Header, HeaderText, Signal};

/// Telemetry for a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otel {
    pub enabled: bool,
    pub endpoint: Url,
    pub signals: Vec<Signal>,
    pub headers: Vec<Header>,
    /// Files of certificates that are trusted besides the host's own.
    pub ca: Vec<PathBuf>,
    pub interval: Duration,
    pub sample_percent: u32,
    pub service_name: String,
    /// Keys with their values.
    pub resource: Vec<String>,
}

impl Default for Otel {
    fn default() -> Self {
        let origin = Origin { scheme: Scheme::Http, name: "127.0.0.1".to_owned(), port: OTEL_PORT };
        Self {
            enabled: false,
            endpoint: Url::at(&origin, "/"),
            signals: Signal::ALL.to_vec(),
            headers: Vec::new(),
            ca: Vec::new(),
            interval: OTEL_INTERVAL_DEFAULT,
            sample_percent: 100,
            service_name: "burrow".to_owned(),
            resource: Vec::new(),
        }
    }
}

impl Otel {
    /// The secrets that headers name.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().filter_map(|header| match &header.value {
            HeaderText::Secret(name) => Some(name.as_str()),
            HeaderText::Plain(_) => None,
        })
    }
}

/// The standard variables, and the option that each sets where nothing else does. The one of headers is not
/// read: its values are credentials as a rule, and those are secrets here.
pub const STANDARD: [(&str, &str); 3] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "endpoint"),
    ("OTEL_SERVICE_NAME", "service_name"),
    ("OTEL_RESOURCE_ATTRIBUTES", "resource"),
];

/// The value of a standard variable as one of its option.
pub fn of_standard(key: &str, text: &str) -> RawValue {
    if key != "resource" {
        return RawValue::Text(text.to_owned());
    }
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    // One that is not encoded well is refused as what it is.
    let entry = |entry: &str| percent_decode(entry).unwrap_or_else(|| entry.to_owned());
    RawValue::List(entries.map(|text| RawValue::Text(entry(text))).collect())
}

const SECRET: &str = "secret:";
/// Headers that a request has anyway.
const TAKEN: [&str; 6] =
    ["connection", "content-length", "content-type", "host", "transfer-encoding", "user-agent"];
/// Words in names of headers that are credentials.
const CREDENTIAL_WORDS: [&str; 5] = ["auth", "cookie", "key", "secret", "token"];

pub fn read_endpoint(given: &RawValue) -> Result<Url, InvalidValue> {
    let text = given.text()?;
    let url = Url::parse(text).filter(|url| !url.path.contains(['?', '#']));
    url.ok_or_else(|| InvalidValue::OtelEndpoint(text.to_owned()))
}

pub fn show_endpoint(url: &Url) -> String {
    format!("{}{}", url.origin, url.path.trim_end_matches('/'))
}

pub fn read_signals(given: &RawValue) -> Result<Vec<Signal>, InvalidValue> {
    const NAMES: [&str; 3] = ["traces", "metrics", "logs"];
    let mut signals: Vec<Signal> = Vec::new();
    for text in given.texts()? {
        let known = Signal::ALL.into_iter().find(|signal| signal.name() == text);
        let signal = known.ok_or_else(|| InvalidValue::Choice {
            found: text.to_owned(),
            choices: &NAMES,
            meant: nearest(text, NAMES),
        })?;
        if !signals.contains(&signal) {
            signals.push(signal);
        }
    }
    Ok(signals)
}

pub fn read_headers(given: &RawValue) -> Result<Vec<Header>, InvalidValue> {
    let texts = given.texts()?;
    if texts.len() > OTEL_HEADERS_MAX {
        return Err(InvalidValue::TooMany { entries_max: OTEL_HEADERS_MAX });
    }
    texts.into_iter().map(read_header).collect()
}

fn read_header(text: &str) -> Result<Header, InvalidValue> {
    // What follows the name may be a credential, and is not repeated.
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let name = name.trim().to_ascii_lowercase();
    let wrong = || Err(InvalidValue::OtelHeader(name.clone()));
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) || TAKEN.contains(&name.as_str()) {
        return wrong();
    }
    if let Some(secret) = value.strip_prefix(SECRET) {
        if !secret::is_name(secret) {
            return Err(InvalidValue::SecretName(secret.to_owned()));
        }
        return Ok(Header { name, value: HeaderText::Secret(secret.to_owned()) });
    }
    let is_credential = FIELDS_USUAL.contains(&name.as_str())
        || CREDENTIAL_WORDS.iter().any(|word| name.contains(word));
    if is_credential {
        return Err(InvalidValue::OtelCredential(name));
    }
    let is_good = |byte: u8| matches!(byte, b' '..=b'~');
    if value.is_empty() || !value.bytes().all(is_good) {
        return wrong();
    }
    Ok(Header { name, value: HeaderText::Plain(value.to_owned()) })
}

pub fn show_header(header: &Header) -> String {
    match &header.value {
        HeaderText::Plain(text) => format!("{}={text}", header.name),
        HeaderText::Secret(name) => format!("{}={SECRET}{name}", header.name),
    }
}

/// Whether a text is a key with a value.
pub fn is_resource(text: &str) -> bool {
    let is_key = |key: &str| {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        !key.is_empty() && key.bytes().all(is_good)
    };
    let is_value = |value: &str| !value.chars().any(char::is_control);
    text.split_once('=').is_some_and(|(key, value)| is_key(key) && is_value(value))
}

#[cfg(test)]
mod tests;
