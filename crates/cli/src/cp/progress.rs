//! Draws a progress line if stderr is a terminal, and nothing otherwise.

use std::time::{Duration, Instant};

use super::super::output;
use super::super::values::human_bytes;

/// How often the line is drawn: people see no difference below it, and a serial line would be too
/// slow.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Shorter copies show no line.
const QUIET_FOR: Duration = Duration::from_millis(300);
const BAR_CELLS: usize = 24;

/// The state of one copy.
pub struct Progress {
    what: String,
    total: Option<u64>,
    done: u64,
    started: Instant,
    drawn: Option<Instant>,
    enabled: bool,
}

impl Progress {
    /// `total` is the expected size, if known; with `quiet` nothing is ever drawn.
    pub fn new(what: &str, total: Option<u64>, quiet: bool) -> Self {
        let enabled = !quiet && output::stderr_is_screen();
        let what = output::printable(what);
        Self { what, total, done: 0, started: Instant::now(), drawn: None, enabled }
    }

    /// Adds transferred bytes.
    pub fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if !self.enabled {
            return;
        }
        let now = Instant::now();
        let due = match self.drawn {
            None => now - self.started >= QUIET_FOR,
            Some(drawn) => now - drawn >= DRAW_EVERY,
        };
        if due {
            self.drawn = Some(now);
            let line = line(&self.what, self.done, self.total, now - self.started);
            output::draw_line(&line);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            output::draw_line("");
        }
    }
}

fn line(what: &str, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let rate = human_bytes((done as f64 / elapsed.as_secs_f64().max(0.001)) as u64);
    let amount = human_bytes(done);
    match total {
        // More than was promised is shown as all of it: a file may grow while it is read.
        Some(total) if total > 0 => {
            let percent = (u128::from(done.min(total)) * 100 / u128::from(total)) as usize;
            let filled = percent * BAR_CELLS / 100;
            let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR_CELLS - filled));
            format!("{what}  {bar} {percent:3}%  {amount} of {}  {rate}/s", human_bytes(total))
        }
        _ => format!("{what}  {amount}  {rate}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_share_and_rate() {
        let second = Duration::from_secs(1);
        let half = line("f", 1 << 20, Some(2 << 20), second);
        assert_eq!(half, "f  ████████████░░░░░░░░░░░░  50%  1.0 MiB of 2.0 MiB  1.0 MiB/s");
        assert!(line("f", 30, Some(20), second).contains("100%"));
        assert_eq!(line("f", 2048, None, second), "f  2.0 KiB  2.0 KiB/s");
        assert!(line("f", 0, Some(0), Duration::ZERO).starts_with("f  0 B"));
    }
}
