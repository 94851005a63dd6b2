//! One sandbox as a row.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use protocol::metrics::Sample;
use serde::Serialize;

use super::Sort;
use crate::output;
use crate::values::{human_bytes, human_duration};
use sandbox::{Record, SandboxRef};

/// The newest minute of samples.
const HISTORY_MAX: usize = 60;
/// The heights of a sparkline, from nothing.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The lowest top of a sparkline: a sandbox that does next to nothing shows a flat line.
const TOP_MIN: u32 = 2_500;

pub const HEAD: [&str; 7] = ["NAME", "STATE", "CPU", "MEMORY", "DISK", "PROCESSES", "AGE"];

/// A sandbox, and what it uses while it runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    #[serde(skip)]
    pub which: SandboxRef,
    pub sandbox: String,
    /// The node that has it, where all nodes of a fleet are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub machine: String,
    pub state: String,
    pub created_at_ms: u64,
    #[serde(flatten)]
    pub sample: Option<Sample>,
    /// The shares of a CPU of the last samples, in hundredths of a percent.
    #[serde(skip)]
    history: VecDeque<u32>,
    #[serde(skip)]
    pub is_running: bool,
}

impl Row {
    pub fn new(record: &Record) -> Self {
        let mut row = Self {
            which: record.which(),
            sandbox: record.which().to_string(),
            node: None,
            machine: record.machine.to_string(),
            state: String::new(),
            created_at_ms: record.created_at_ms,
            sample: None,
            history: VecDeque::new(),
            is_running: false,
        };
        row.describe(record);
        row
    }

    /// Takes a newer description of the sandbox. Another one of the same name has no history.
    pub fn describe(&mut self, record: &Record) {
        if self.created_at_ms != record.created_at_ms {
            *self = Self::new(record);
            return;
        }
        self.state = output::printable(&record.state.to_string());
        self.is_running = matches!(record.state, sandbox::State::Running);
        if !self.is_running {
            self.sample = None;
            self.history.clear();
        }
    }

    pub fn sample(&mut self, sample: &Sample) {
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(sample.cpu_hundredths.unwrap_or_default());
        self.sample = Some(*sample);
    }

    /// Its columns, those of [`HEAD`].
    pub fn cells(&self, now_ms: u64) -> [String; 7] {
        let none = || "-".to_owned();
        let of = |used: u64, bound: Option<u64>| match bound {
            Some(bound) => format!("{} of {}", human_bytes(used), human_bytes(bound)),
            None => human_bytes(used),
        };
        let sample = self.sample.as_ref();
        let age = Duration::from_millis(now_ms.saturating_sub(self.created_at_ms));
        [
            self.sandbox.clone(),
            self.state.clone(),
            sample
                .and_then(Sample::cpu_percent)
                .map_or_else(none, |percent| format!("{percent:.1}%")),
            sample.map_or_else(none, |sample| of(sample.memory_bytes, sample.memory_bytes_max)),
            sample
                .and_then(|sample| sample.disk_bytes.map(|used| of(used, sample.disk_bytes_max)))
                .unwrap_or_else(none),
            sample.map_or_else(none, |sample| sample.processes.to_string()),
            human_duration(age),
        ]
    }

    /// The CPU of the last samples as a line of so many characters; the newest is the last one.
    pub fn sparkline(&self, width: usize) -> String {
        let top = self.history.iter().copied().max().unwrap_or_default().max(TOP_MIN);
        let newest = self.history.iter().rev().take(width).rev();
        let line: String = newest
            .map(|share| {
                let height = u64::from(*share) * (HEIGHTS.len() as u64 - 1) / u64::from(top);
                HEIGHTS[usize::try_from(height).unwrap_or_default().min(HEIGHTS.len() - 1)]
            })
            .collect();
        format!("{line:>width$}")
    }
}

/// The order of rows: what uses most is first, names are as in a list.
pub fn compare(a: &Row, b: &Row, sort: Sort) -> Ordering {
    let key = |row: &Row| {
        let sample = row.sample.as_ref();
        match sort {
            Sort::Name => 0,
            Sort::Age => row.created_at_ms,
            Sort::Cpu => sample
                .and_then(|sample| sample.cpu_hundredths)
                .map_or(0, |share| u64::from(share) + 1),
            Sort::Memory => sample.map_or(0, |sample| sample.memory_bytes),
            Sort::Disk => sample.and_then(|sample| sample.disk_bytes).unwrap_or_default(),
            Sort::Processes => sample.map_or(0, |sample| u64::from(sample.processes)),
        }
    };
    key(b).cmp(&key(a))
}
