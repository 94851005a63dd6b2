//! `doctor`: check what this host can run. Every check tries the real thing.

mod checks;
mod machines;
pub mod probe;

use std::fmt::Write;
use std::io::{IsTerminal as _, stdout};

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::context::Context;
use super::exit::Exit;
use super::{help, output};
use machine::process::bounds;

/// Check what this host can run
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  host-bridge doctor
  host-bridge doctor --json | jq '.checks[] | select(.verdict == \"fails\")'

The exit code is 0 if the process machine works, even if others do not.")]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Works,
    /// Sandboxes run, but with a feature missing.
    Lacks,
    Fails,
    /// Nothing was tried.
    Unknown,
}

/// One check of the host.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    /// The result.
    detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, detail: impl Into<String>) -> Self {
        Self { name, verdict, detail: detail.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

#[derive(Serialize)]
struct Report {
    process_machine_works: bool,
    checks: Vec<Check>,
}

impl Doctor {
    pub async fn run(&self, context: &Context) -> Result<Exit> {
        let mut checks = vec![checks::agent(), checks::directories(&context.paths)];
        checks.extend(checks::probed().await);
        let (sandbox, agent) = checks::sandbox(&context.paths).await;
        checks.extend([
            checks::control_groups(agent.as_ref(), &bounds::holdable()),
            checks::vsock(),
            checks::memory(),
            checks::disk(&context.paths),
            checks::layers(&context.paths),
            checks::packages(),
        ]);
        checks.extend(checks::state(&context.paths));
        checks.extend(checks::telemetry().await);
        checks.push(checks::daemon(context).await);
        checks.extend(machines::all(&context.paths).await);
        let works = sandbox.verdict == Verdict::Works;
        checks.push(sandbox);
        let report = Report { process_machine_works: works, checks };
        if self.json {
            output::print_json(&report)?;
        } else {
            // Lines that no person sees wrapped stay whole for programs.
            let columns = if stdout().is_terminal() { help::width() } else { usize::MAX };
            output::print(&describe(&report, output::stdout_has_colours(), columns))?;
        }
        Ok(if works { Exit::SUCCESS } else { Exit(1) })
    }
}

fn describe(report: &Report, colours: bool, columns: usize) -> String {
    let width = report.checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for check in &report.checks {
        let (mark, colour) = match check.verdict {
            Verdict::Works => ("ok  ", "32"),
            Verdict::Lacks => ("less", "33"),
            Verdict::Fails => ("FAIL", "31"),
            Verdict::Unknown => ("?   ", "2"),
        };
        let mark = if colours { format!("\x1b[{colour}m{mark}\x1b[0m") } else { mark.to_owned() };
        // Writing to a String cannot fail.
        let _ = write!(text, "{mark}  {:width$}  ", check.name);
        let indent = " ".repeat(width + 8);
        let details = check.detail.lines().map(|line| (output::printable(line.trim()), 0));
        let fix = check.fix.as_ref().map(|fix| (format!("-> {}", output::printable(fix)), 3));
        let mut is_first = true;
        for (paragraph, hanging) in details.chain(fix) {
            let further = format!("{indent}{:hanging$}", "");
            for line in help::wrapped(&paragraph, columns, &indent, &further) {
                let _ = writeln!(text, "{}", if is_first { line.trim_start() } else { &line });
                is_first = false;
            }
        }
        if is_first {
            text.push('\n');
        }
    }
    text.push_str(if report.process_machine_works {
        "\nThis host runs sandboxes on the process machine: host-bridge run -- echo hello\n"
    } else {
        "\nThis host cannot run sandboxes on the process machine yet; see above.\n"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_fix_below_the_fault() {
        let checks = vec![
            Check::new("agent", Verdict::Works, "/bin/agent"),
            Check::new("overlay", Verdict::Fails, "no\x1b such\n  at all").fix("modprobe overlay"),
        ];
        let report = Report { process_machine_works: false, checks };
        assert_eq!(
            describe(&report, false, usize::MAX),
            "ok    agent    /bin/agent\nFAIL  overlay  no\\u{1b} such\n               at all\n               -> modprobe overlay\n\
             \nThis host cannot run sandboxes on the process machine yet; see above.\n"
        );
        let narrow = describe(&report, false, 27);
        assert!(narrow.contains("-> modprobe\n                  overlay\n"), "{narrow}");
    }
}
