//! The progress of a command, from its output: percentages, counts, and the bars that programs
//! draw. Pure.
//!
//! The output was written by untrusted code: progress is only shown, and nothing depends on it.

/// What is read of a line: bars are short, and a longer line is no bar.
const LINE_BYTES_MAX: usize = 1024;
/// What is shown of what a line says beside its number.
const LABEL_CHARS_MAX: usize = 80;

/// How far something is.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// From 0 to 1.
    pub done: f64,
    /// What it is that is so far, if the line says it.
    pub label: Option<String>,
}

/// Reads an output as it comes.
#[derive(Debug, Default)]
pub struct Gauge {
    line: Vec<u8>,
    last: Option<Reading>,
}

/// One notation of progress in a line: where its number begins, and what part of the whole it means.
type Way = fn(&str) -> Option<(usize, f64)>;

/// All of them, the surest first.
const WAYS: [Way; 2] = [percentage, count];

impl Gauge {
    /// Takes the next bytes, and returns the newest reading if it differs from the last.
    pub fn take(&mut self, bytes: &[u8]) -> Option<Reading> {
        let mut found = None;
        for byte in bytes {
            // A bar is drawn over itself, from the beginning of its line on.
            if matches!(byte, b'\n' | b'\r') {
                found = self.read().or(found);
                self.line.clear();
            } else if self.line.len() < LINE_BYTES_MAX {
                self.line.push(*byte);
            }
        }
        found = self.read().or(found);
        let found = found.filter(|found| Some(found) != self.last.as_ref())?;
        self.last = Some(found.clone());
        Some(found)
    }

    fn read(&self) -> Option<Reading> {
        parse_line(&String::from_utf8_lossy(&self.line))
    }
}

/// How far a line says that it is.
pub fn parse_line(line: &str) -> Option<Reading> {
    let line = without_escapes(line);
    let (at, done) = WAYS.iter().find_map(|way| way(&line))?;
    let ends = |c: char| c.is_whitespace() || ":[(|-=>".contains(c);
    let label = line[..at].trim_matches(ends);
    let label = (!label.is_empty()).then(|| label.chars().take(LABEL_CHARS_MAX).collect());
    Some(Reading { done, label })
}

/// The last percentage of a line: where it begins, and what part it is.
fn percentage(line: &str) -> Option<(usize, f64)> {
    line.rmatch_indices('%').find_map(|(end, _)| {
        let before = line[..end].trim_end_matches(' ');
        let start = number_at_end(before)?;
        let value: f64 = before[start..].parse().ok()?;
        (0.0..=100.0).contains(&value).then_some((start, value / 100.0))
    })
}

/// The last `n/m` of a line that is a count of something, and no date or path.
fn count(line: &str) -> Option<(usize, f64)> {
    line.rmatch_indices('/').find_map(|(slash, _)| {
        let start = number_at_end(&line[..slash])?;
        let rest = &line[slash + 1..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let is_word = |c: char| c.is_alphanumeric() || "/._-".contains(c);
        let next = rest[end..].chars().next();
        let (before, after) = (line[..start].chars().next_back(), next);
        if before.is_some_and(is_word) || after.is_some_and(|c| c == '/' || c.is_alphanumeric()) {
            return None;
        }
        let (done, all) =
            (line[start..slash].parse::<u32>().ok()?, rest[..end].parse::<u32>().ok()?);
        (done <= all && all > 0).then(|| (start, f64::from(done) / f64::from(all)))
    })
}

/// Where the number begins that a text ends in.
fn number_at_end(text: &str) -> Option<usize> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let start = text.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
    let start = text[..].char_indices().map(|(at, _)| at).find(|at| *at >= start)?;
    (start < text.len()).then_some(start)
}

/// A line as a terminal shows it, without colours.
fn without_escapes(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        if c != '\u{1b}' {
            shown.push(c);
            continue;
        }
        if characters.next() == Some('[') {
            characters.find(char::is_ascii_alphabetic);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<(f64, Option<String>)> {
        parse_line(line).map(|reading| (reading.done, reading.label))
    }

    fn reading(done: f64, label: &str) -> (f64, Option<String>) {
        (done, (!label.is_empty()).then(|| label.to_owned()))
    }

    #[test]
    fn bars_counts_and_percentages_are_read() {
        assert_eq!(read(" 45%|####5     | 9/20 [00:01<00:02,  5.2it/s]"), Some(reading(0.45, "")));
        assert_eq!(read("Epoch 2:  50%|#####     | 5/10"), Some(reading(0.5, "Epoch 2")));
        let manim = "Animation 3: Create(Circle), etc.:  45%|####5     | 27/60 [00:00<00:00]";
        assert_eq!(read(manim), Some(reading(0.45, "Animation 3: Create(Circle), etc.")));
        assert_eq!(read("rendering frame 3/12"), Some(reading(0.25, "rendering frame")));
        assert_eq!(read("[3/10] Compiling"), Some(reading(0.3, "")));
        assert_eq!(read("progress: 12.5 %"), Some(reading(0.125, "progress")));
        assert_eq!(
            read("\u{1b}[32mdone\u{1b}[0m: \u{1b}[1m100%\u{1b}[0m"),
            Some(reading(1.0, "done"))
        );
    }

    #[test]
    fn what_is_no_progress_is_none() {
        for line in [
            "",
            "%",
            "101%",
            "on 3/4/2026",
            "/usr/1/2",
            "a3/4",
            "5/3",
            "1/0",
            "3/4x",
            "50 percent",
            "ü%",
            "é3/0",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn a_reading_is_reported_once_and_however_its_line_is_cut() {
        let mut gauge = Gauge::default();
        assert_eq!(gauge.take(b"\rstep: 1"), None);
        assert_eq!(gauge.take(b"0%|#  ").map(|reading| reading.done), Some(0.1));
        assert_eq!(gauge.take(b" more").map(|reading| reading.done), None);
        let both = gauge.take(b"\rstep: 20%\rstep: 30%\n");
        assert_eq!(both, Some(Reading { done: 0.3, label: Some("step".to_owned()) }));
        assert_eq!(gauge.take(&[b'x'; 5000]), None);
        assert_eq!(gauge.take(b"99%"), None, "a line as long as that is no bar");
        assert!(gauge.line.len() <= LINE_BYTES_MAX);
    }
}
