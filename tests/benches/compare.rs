//! Two builds of the bridge beside each other: `just bench --compare REV`.
//!
//! A program of its own measures one build, so that nothing of the other is left in its memory. The two take
//! turns, and each turn gives one ratio to each row. What is printed is the median ratio and the interval that
//! holds it with 95 % confidence. A row that is more than [`REGRESSION`] times slower is measured once more,
//! with as many turns again, and fails only if that repeats.

#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

#[path = "compare/rows.rs"]
mod rows;
#[path = "compare/statistics.rs"]
mod statistics;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use statistics::{Interval, median};

/// How many times slower a row may have become.
const REGRESSION: f64 = 1.25;
/// Turns of each build, in the short form and in the long one.
const TURNS_SHORT: usize = 9;
const TURNS: usize = 25;
/// The argument of the short form, whose builds are not optimised.
const SHORT: &str = "--short";
/// The argument by which the program measures one build, that of its environment.
const MEASURE: &str = "--measure";

/// One build: a directory with the bridge and the agent.
struct Build {
    bridge: PathBuf,
    agent: PathBuf,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let turns = match words[..] {
        [MEASURE] => {
            rows::measure();
            return ExitCode::SUCCESS;
        }
        [_, _] => TURNS,
        [SHORT, _, _] => TURNS_SHORT,
        _ => {
            println!(
                "compare: two directories, each with host-bridge and guest-agent; --short before them"
            );
            return ExitCode::from(2);
        }
    };
    let [base, new] = [words.len() - 2, words.len() - 1].map(|at| Build::of(Path::new(words[at])));
    let rows: Vec<usize> = (0..rows::ROWS.len()).collect();
    println!("{:<44} {:>10} {:>10} {:>7}  95 %", "row, new beside base", "base", "new", "ratio");
    let mut suspects = compared(&base, &new, turns, &rows);
    suspects.retain(|row| words[0] != SHORT || rows::ROWS[*row].name != rows::FLOOD);
    if suspects.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("once more, for {} rows that seem slower", suspects.len());
    let slower = compared(&base, &new, turns, &suspects);
    for row in &slower {
        println!("SLOWER twice by more than {REGRESSION} times: {}", rows::ROWS[*row].name);
    }
    if slower.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints these rows, and returns those that are slower.
fn compared(base: &Build, new: &Build, turns: usize, rows: &[usize]) -> Vec<usize> {
    let mut taken = vec![Vec::new(); rows::ROWS.len()];
    for turn in 0..=turns {
        // Who is first changes from turn to turn: the second may find a warmer or a busier machine.
        let (before, after) = if turn % 2 == 0 {
            let before = base.measured();
            (before, new.measured())
        } else {
            let after = new.measured();
            (base.measured(), after)
        };
        // The first fills the caches.
        if turn > 0 {
            for row in rows {
                taken[*row].push((before[*row], after[*row]));
            }
        }
    }
    let is_slower = |row: &usize| {
        let pairs = &taken[*row];
        let ratio = Interval::of(pairs.iter().map(|(before, after)| after / before).collect());
        let [before, after] = [0, 1].map(|side| {
            median(pairs.iter().map(|pair| if side == 0 { pair.0 } else { pair.1 }).collect())
        });
        println!(
            "{:<44} {:>8.3}ms {:>8.3}ms {:>7.2}  {:.2} to {:.2}",
            rows::ROWS[*row].name,
            before,
            after,
            ratio.median,
            ratio.low,
            ratio.high
        );
        ratio.median > REGRESSION
    };
    rows.iter().copied().filter(is_slower).collect()
}

impl Build {
    fn of(directory: &Path) -> Self {
        let [bridge, agent] = ["host-bridge", "guest-agent"].map(|name| directory.join(name));
        for path in [&bridge, &agent] {
            assert!(path.exists(), "{} is missing", path.display());
        }
        Self { bridge, agent }
    }

    /// One turn: the milliseconds of each row.
    fn measured(&self) -> Vec<f64> {
        let done = Command::new(std::env::current_exe().expect("it runs"))
            .arg(MEASURE)
            .env("BURROW_TEST_BRIDGE", &self.bridge)
            .env("BURROW_AGENT", &self.agent)
            .stderr(Stdio::inherit())
            .output()
            .expect("it starts");
        assert!(done.status.success(), "{}: {}", self.bridge.display(), done.status);
        let stdout = String::from_utf8(done.stdout).expect("numbers");
        let measured: Vec<f64> =
            stdout.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        assert_eq!(measured.len(), rows::ROWS.len(), "a number for each row: {stdout}");
        measured
    }
}
