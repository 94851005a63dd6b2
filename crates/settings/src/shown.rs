//! Formats values as TOML. Pure.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::value::{OFF, show_duration};

/// A string of TOML.
pub fn quote(text: impl AsRef<str>) -> String {
    let mut quoted = String::from('"');
    for c in text.as_ref().chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // Writing to a String cannot fail.
            c if c.is_control() => drop(write!(quoted, "\\u{:04X}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

pub fn quote_all(texts: &[impl ToString]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| quote(text.to_string())).collect();
    format!("[{}]", quoted.join(", "))
}

pub fn quote_paths(paths: &[PathBuf]) -> String {
    quote_all(&paths.iter().map(|path| path.display()).collect::<Vec<_>>())
}

pub fn quote_path(path: Option<&PathBuf>) -> String {
    quote(path.map_or_else(|| OFF.to_owned(), |path| path.display().to_string()))
}

pub fn quote_duration(duration: Option<Duration>) -> String {
    quote(duration.map_or_else(|| OFF.to_owned(), show_duration))
}

pub fn show_cpus(millis: u32) -> String {
    if millis.is_multiple_of(1000) {
        (millis / 1000).to_string()
    } else {
        let thousandths = format!("{}.{:03}", millis / 1000, millis % 1000);
        thousandths.trim_end_matches('0').to_owned()
    }
}
