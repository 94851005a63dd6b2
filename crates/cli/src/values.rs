//! Parsers for command-line values: sizes, durations, points in time, signals, variables; and the
//! formats for printing them. Pure: a parser depends only on its text (and on "now", where a time
//! is relative).

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::instant;
pub use host::units::{human_bytes, human_cpus, human_duration};

/// Why a value is invalid; each message says what would be valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("{0:?} is not a size: write a number of bytes, or one with K, M, G or T, as in 512M")]
    Size(String),
    #[error(
        "{0:?} is not an amount of memory: write a number of MiB, or a size with its unit as in 2G"
    )]
    Memory(String),
    #[error("{0:?} is not a number of CPUs: write one as in 2 or 0.5")]
    Cpus(String),
    #[error("{0:?} is not a duration: write seconds, or units as in 90s, 500ms, 1.5m or 1h30m")]
    Duration(String),
    #[error(
        "{0:?} is not a point in time: write an age as in 10m, a date as in \
         2026-01-31T12:00:00Z, or seconds since 1970"
    )]
    Since(String),
    #[error("{0:?} is not a signal: write a name or a number, as in TERM, SIGKILL or 9")]
    Signal(String),
    #[error("{0:?} is not a variable: write NAME=VALUE, or NAME to pass the current value")]
    Variable(String),
    #[error("line {line} of {path} is not a variable: {text:?}")]
    VariableLine { path: String, line: usize, text: String },
    #[error("{0:?} is not a port forwarding: write [BIND:]HOST_PORT:SANDBOX_PORT, as in 8080:80")]
    Forwarding(String),
}

/// Bytes: `1048576`, `512M`, `1.5G`, `10MiB`. K, M, G and T are powers of 1024, as for docker.
pub fn parse_size(text: &str) -> Result<u64, ValueError> {
    let wrong = || ValueError::Size(text.to_owned());
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let shift = match unit.trim_start().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    scale(number, 1_u64 << shift).ok_or_else(wrong)
}

/// MiB: `512`, `512M`, `2G`. What is no whole number of them is rounded up.
pub fn parse_memory_mib(text: &str) -> Result<u64, ValueError> {
    if let Ok(mib) = text.parse() {
        return Ok(mib);
    }
    let bytes = parse_size(text).map_err(|_| ValueError::Memory(text.to_owned()))?;
    Ok(bytes.div_ceil(1024 * 1024))
}

/// Thousandths of a processor: `2`, `0.5`, `1.25`. 0 is the smallest share.
pub fn parse_cpu_millis(text: &str) -> Result<u32, ValueError> {
    let millis = scale(text, 1000).and_then(|millis| u32::try_from(millis).ok());
    millis.ok_or_else(|| ValueError::Cpus(text.to_owned()))
}

/// `90` (seconds), `500ms`, `1.5m`, `1h30m`, `2d`.
pub fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    let wrong = || ValueError::Duration(text.to_owned());
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total_ns = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit_ns = match unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            // A bare number is seconds, and only alone: `1m30` is more likely a slip than meant.
            "" if digits == text.trim().len() => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(wrong()),
        };
        let part = scale(number, unit_ns).ok_or_else(wrong)?;
        total_ns = total_ns.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    Ok(Duration::from_nanos(total_ns))
}

/// `number` (digits with at most one point) times `unit`, in whole numbers throughout.
fn scale(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let numerator = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
    let part = numerator / 10_u128.pow(fraction.len() as u32);
    whole.checked_add(u64::try_from(part).ok()?)
}

/// A point in time for `--since`, kept as written until "now" is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// An age.
    Age(Duration),
    /// Milliseconds since 1970.
    At(u64),
}

impl Since {
    /// Milliseconds since 1970.
    pub fn resolve(self, now_ms: u64) -> u64 {
        match self {
            Self::Age(age) => {
                now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
            }
            Self::At(ms) => ms,
        }
    }
}

/// Numbers up to here are ages in seconds, larger ones points in time: 1970 had no sandboxes, and
/// nobody keeps a log for thirty years.
const AGE_SECONDS_MAX: u64 = 1_000_000_000;

impl FromStr for Since {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Some(ms) = instant::parse(text) {
            return Ok(Self::At(ms));
        }
        if let Ok(seconds) = text.parse::<u64>()
            && seconds > AGE_SECONDS_MAX
        {
            return seconds
                .checked_mul(1000)
                .map(Self::At)
                .ok_or_else(|| ValueError::Since(text.to_owned()));
        }
        parse_duration(text).map(Self::Age).map_err(|_| ValueError::Since(text.to_owned()))
    }
}

/// `TERM`, `SIGTERM`, `term` or `15`. Real-time signals have numbers alone.
pub fn parse_signal(text: &str) -> Result<i32, ValueError> {
    let wrong = || ValueError::Signal(text.to_owned());
    if let Ok(number) = text.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number).ok_or_else(wrong);
    }
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    name.parse::<Signal>().map(|signal| signal as i32).map_err(|_| wrong())
}

/// The name of a signal.
pub fn signal_name(number: i32) -> String {
    Signal::try_from(number)
        .map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

/// One `-e`: `NAME=VALUE`, or `NAME` for the value that our own environment has. `None` when it
/// has none: as with docker, the variable is then left unset.
pub fn resolve_variable(
    text: &str,
    ours: impl Fn(&str) -> Option<String>,
) -> Result<Option<(String, String)>, ValueError> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, ours(text)),
    };
    if name.is_empty() || name.contains('\0') {
        return Err(ValueError::Variable(text.to_owned()));
    }
    Ok(value.map(|value| (name.to_owned(), value)))
}

/// An `--env-file`: a variable per line; empty lines and lines beginning with # say nothing.
pub fn resolve_variables(
    path: &str,
    content: &str,
    ours: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>, ValueError> {
    let mut variables = Vec::new();
    for (index, line) in content.lines().enumerate() {
        let text = line.trim_start();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let variable = resolve_variable(text, &ours).map_err(|_| ValueError::VariableLine {
            path: path.to_owned(),
            line: index + 1,
            text: text.to_owned(),
        })?;
        variables.extend(variable);
    }
    Ok(variables)
}

/// One `[BIND:]HOST_PORT:SANDBOX_PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// Address of the host; loopback by default.
    pub bind: String,
    /// Port of the host; 0 lets the kernel choose.
    pub host_port: u16,
    pub sandbox_port: u16,
}

impl FromStr for Forwarding {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::Forwarding(text.to_owned());
        let (rest, sandbox_port) = text.rsplit_once(':').unwrap_or((text, text));
        let sandbox_port = sandbox_port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        let (bind, host_port) = rest.rsplit_once(':').unwrap_or(("127.0.0.1", rest));
        let bind = bind.strip_prefix('[').and_then(|bind| bind.strip_suffix(']')).unwrap_or(bind);
        let host_port = host_port.parse().map_err(|_| wrong())?;
        if bind.is_empty() {
            return Err(wrong());
        }
        Ok(Self { bind: bind.to_owned(), host_port, sandbox_port })
    }
}

/// Labels for people: `ci team=a`.
pub fn human_labels(labels: &BTreeMap<String, String>) -> String {
    let each = labels.iter().map(|(key, value)| match value.as_str() {
        "" => key.clone(),
        value => format!("{key}={value}"),
    });
    each.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
