//! The lines of a recipe: continuations, comments, the directives of the first lines, and
//! here-documents. Pure.

use super::{DockerfileError, Fault};

/// An instruction with all its lines as one.
#[derive(Debug)]
pub struct Line {
    /// The number of its first line, from one.
    pub number: usize,
    pub text: String,
}

/// The rest of a recipe.
#[derive(Debug)]
pub struct Lines<'a> {
    pub escape: char,
    all: Vec<&'a str>,
    at: usize,
}

impl<'a> Lines<'a> {
    pub fn new(text: &'a str) -> Result<Self, DockerfileError> {
        let lines: Vec<_> = text.trim_start_matches('\u{feff}').lines().collect();
        let mut escape = '\\';
        // Directives are comments that come before all else.
        for (at, line) in lines.iter().enumerate() {
            let Some((name, value)) =
                line.trim().strip_prefix('#').and_then(|rest| rest.split_once('='))
            else {
                break;
            };
            if name.trim().eq_ignore_ascii_case("escape") {
                escape = match value.trim() {
                    "\\" => '\\',
                    "`" => '`',
                    _ => return Err(DockerfileError { line: at + 1, fault: Fault::Escape }),
                };
            }
        }
        Ok(Self { escape, all: lines, at: 0 })
    }

    /// The number of all lines.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    pub fn next_line(&mut self) -> Option<Line> {
        let (mut number, mut text) = (None, String::new());
        while let Some(line) = self.all.get(self.at) {
            self.at += 1;
            let plain = line.trim();
            if plain.is_empty() || plain.starts_with('#') {
                continue;
            }
            let first = *number.get_or_insert(self.at);
            // White space before the first word means nothing, nor does it after an escape.
            let line = if text.is_empty() { line.trim_start() } else { line };
            let Some(begun) = line.trim_end().strip_suffix(self.escape) else {
                text.push_str(line);
                return Some(Line { number: first, text });
            };
            text.push_str(begun);
        }
        number.filter(|_| !text.trim().is_empty()).map(|number| Line { number, text })
    }

    /// The lines up to one that consists of this word, optionally without leading tabs.
    pub fn until(&mut self, word: &str, strips_tabs: bool) -> Result<String, Fault> {
        let mut text = String::new();
        while let Some(line) = self.all.get(self.at) {
            self.at += 1;
            let line = if strips_tabs { line.trim_start_matches('\t') } else { line };
            if line == word {
                return Ok(text);
            }
            text.push_str(line);
            text.push('\n');
        }
        Err(Fault::Unclosed { what: format!("<<{word}") })
    }
}
