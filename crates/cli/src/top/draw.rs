//! The picture as lines of a size: sums, a table, and a line of keys. Text of sandboxes comes here without control
//! characters. Marks are bold, underlined, faint and reversed: there are no colours to miss.

use std::fmt::Write as _;
use std::time::Duration;

use super::model::{Entered, HEAD, Model, Sort};
use crate::output;
use crate::terminal::Size;
use crate::values::{human_bytes, human_duration};

/// Characters of a sparkline.
const SPARK_WIDTH: usize = 16;
/// Below this width there is no room for sparklines.
const SPARK_COLUMNS_MIN: usize = 96;
/// The widest that a column becomes, except for the last.
const CELL_WIDTH_MAX: usize = 32;
/// The columns of what is inside of a sandbox.
const INSIDE_HEAD: [&str; 7] = ["NAME", "STATE", "CPU", "MEMORY", "PROCESSES", "AGE", "WHAT"];
/// Lines that are no rows: the sums, the heads of the columns, the keys.
const OTHER_LINES: usize = 3;

const PLAIN: &str = "";
const BOLD: &str = "\x1b[1m";
const HEADS: &str = "\x1b[1;4m";
const FAINT: &str = "\x1b[2m";
const MARKED: &str = "\x1b[7m";

/// A line of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    style: &'static str,
    text: String,
}

/// What is on the screen, so that only lines that have changed are written.
#[derive(Default)]
pub struct Painter {
    shown: Vec<Line>,
    size: Option<Size>,
}

impl Painter {
    /// The bytes that turn the screen into this picture.
    pub fn paint(&mut self, lines: Vec<Line>, size: Size) -> String {
        let mut bytes = String::new();
        if self.size != Some(size) {
            (self.size, self.shown) = (Some(size), Vec::new());
            bytes.push_str("\x1b[2J");
        }
        for (place, line) in lines.iter().enumerate() {
            if self.shown.get(place) != Some(line) {
                // Writing to a String cannot fail.
                let _ =
                    write!(bytes, "\x1b[{};1H{}{}\x1b[0m\x1b[K", place + 1, line.style, line.text);
            }
        }
        self.shown = lines;
        bytes
    }
}

/// As many lines as the screen has, none longer than its width.
pub fn picture(model: &Model, size: Size, now_ms: u64) -> Vec<Line> {
    let (width, height) = (usize::from(size.columns), usize::from(size.rows));
    let room = height.saturating_sub(OTHER_LINES).max(1);
    let mut lines = vec![Line { style: BOLD, text: sums(model) }];
    lines.extend(match model.inside() {
        Some(entered) => inside(entered, room, now_ms),
        None => sandboxes(model, width, room, now_ms),
    });
    lines.resize(height.saturating_sub(1).max(1), Line::default());
    let style = if model.asks() { BOLD } else { FAINT };
    lines.push(Line { style, text: model.last_line() });
    for line in &mut lines {
        if line.style == MARKED {
            line.text = format!("{:width$}", line.text);
        }
        line.text = line.text.chars().take(width).collect();
    }
    lines
}

/// The first line.
fn sums(model: &Model) -> String {
    if let Some(which) = model.entered() {
        return format!("{which}: contexts and sessions");
    }
    let (mut all, mut running, mut cpu, mut memory) = (0, 0, 0.0, 0);
    for row in model.all() {
        all += 1;
        running += u32::from(row.is_running);
        if let Some(sample) = &row.sample {
            cpu += sample.cpu_percent().unwrap_or_default();
            memory += sample.memory_bytes;
        }
    }
    let noun = if all == 1 { "sandbox" } else { "sandboxes" };
    let memory = human_bytes(memory);
    let mut sums = format!("{all} {noun}, {running} running   CPU {cpu:.1}%   memory {memory}");
    if !model.unanswered().is_empty() {
        let names: Vec<_> = model.unanswered().iter().map(|one| one.node.as_str()).collect();
        // Writing to a String cannot fail.
        let _ = write!(sums, "   no answer of {}", output::printable(&names.join(", ")));
    }
    sums
}

fn sandboxes(model: &Model, width: usize, room: usize, now_ms: u64) -> Vec<Line> {
    let has_sparks = width >= SPARK_COLUMNS_MIN;
    let mut heads = HEAD.map(str::to_owned).to_vec();
    heads[column(model.sort())].push('*');
    let has_nodes = model.all().any(|row| row.node.is_some());
    heads.extend(has_nodes.then(|| "NODE".to_owned()));
    heads.extend(has_sparks.then(|| "CPU, LAST SECONDS".to_owned()));
    let rows: Vec<(bool, Vec<String>)> = model
        .rows()
        .map(|row| {
            let spark = has_sparks.then(|| row.sparkline(SPARK_WIDTH));
            let node = has_nodes.then(|| row.node.clone().unwrap_or_default());
            (row.is_running, row.cells(now_ms).into_iter().chain(node).chain(spark).collect())
        })
        .collect();
    table(&heads, &rows, model.selected().unwrap_or_default(), room)
}

fn inside(entered: &Entered, room: usize, now_ms: u64) -> Vec<Line> {
    if entered.parts.is_empty() {
        let text = if entered.is_known { "nothing runs in it" } else { "asking its agent" };
        return vec![Line { style: PLAIN, text: text.to_owned() }];
    }
    let none = || "-".to_owned();
    let rows: Vec<(bool, Vec<String>)> = entered
        .parts
        .iter()
        .map(|part| {
            let age = Duration::from_millis(now_ms.saturating_sub(part.started_at_ms));
            let cells = vec![
                part.name.clone(),
                part.state.clone(),
                part.cpu_percent.map_or_else(none, |percent| format!("{percent:.1}%")),
                part.memory_bytes.map_or_else(none, human_bytes),
                part.processes.map_or_else(none, |count| count.to_string()),
                human_duration(age),
                output::printable(&part.what),
            ];
            (part.is_alive, cells)
        })
        .collect();
    table(&INSIDE_HEAD.map(str::to_owned), &rows, entered.place, room)
}

/// The heads of the columns, and as many rows around the selected one as there is room for.
fn table(
    heads: &[String],
    rows: &[(bool, Vec<String>)],
    selected: usize,
    room: usize,
) -> Vec<Line> {
    let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
    for (_, cells) in rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count().min(CELL_WIDTH_MAX));
        }
    }
    let aligned = |cells: &[String]| {
        let mut text = String::new();
        for (place, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let is_last = place + 1 == cells.len();
            let bound = if is_last { usize::MAX } else { *width };
            let cut: String = cell.chars().take(bound).collect();
            let gap = if is_last { 0 } else { width + 2 };
            let _ = write!(text, "{cut:gap$}");
        }
        text
    };
    let first = (selected + 1).saturating_sub(room);
    let shown = rows.iter().enumerate().skip(first).take(room);
    let lines = shown.map(|(place, (is_alive, cells))| {
        let style = match is_alive {
            _ if place == selected => MARKED,
            true => PLAIN,
            false => FAINT,
        };
        Line { style, text: aligned(cells) }
    });
    std::iter::once(Line { style: HEADS, text: aligned(heads) }).chain(lines).collect()
}

/// The place of a column in the head.
fn column(sort: Sort) -> usize {
    match sort {
        Sort::Name => 0,
        Sort::Cpu => 2,
        Sort::Memory => 3,
        Sort::Disk => 4,
        Sort::Processes => 5,
        Sort::Age => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Painter};
    use crate::terminal::Size;

    #[test]
    fn only_what_has_changed_is_written() {
        let line = |text: &str| Line { style: "", text: text.to_owned() };
        let (mut painter, size) = (Painter::default(), Size { rows: 2, columns: 9 });
        let first = painter.paint(vec![line("a"), line("b")], size);
        assert_eq!(first, "\x1b[2J\x1b[1;1Ha\x1b[0m\x1b[K\x1b[2;1Hb\x1b[0m\x1b[K");
        assert_eq!(painter.paint(vec![line("a"), line("c")], size), "\x1b[2;1Hc\x1b[0m\x1b[K");
        assert_eq!(painter.paint(vec![line("a"), line("c")], size), "");
        let resized = painter.paint(vec![line("a")], Size { rows: 1, columns: 9 });
        assert!(resized.starts_with("\x1b[2J"));
    }
}
