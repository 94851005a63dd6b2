//! The promise of contexts: every run's output, error, end and counts are its own and whole, however
//! often and however quickly code is run.
//!
//! `BURROW_SOAK_RUNS` sets the number of runs; `just soak-repl` does ten thousand of each.

use std::fmt::Write as _;

use agent_client::guest::contexts::{self, Ran, RunCode};
use protocol::repl::{Happening, RunEnd};
use tests::sandbox::Sandbox;
use tests::{have, skip};
use tokio::runtime::Builder;

/// More than any of these runs says.
const SAID_BYTES_MAX: usize = 1024 * 1024;
/// How many lines the longest of them prints.
const LINES: u32 = 10_000;

/// Some code, and all that running it must come to.
struct Case {
    code: &'static str,
    stdout: String,
    /// What stderr ends with.
    stderr: &'static str,
    error: Option<&'static str>,
    end: RunEnd,
}

/// Code that prints and ends well.
fn prints(code: &'static str, stdout: impl Into<String>) -> Case {
    Case { code, stdout: stdout.into(), stderr: "", error: None, end: RunEnd::Ok {} }
}

/// Code that fails with an error of this kind.
fn fails(code: &'static str, kind: &'static str) -> Case {
    Case { error: Some(kind), end: RunEnd::Error {}, ..prints(code, "") }
}

fn lines() -> String {
    let mut lines = String::new();
    for number in 1..=LINES {
        writeln!(lines, "{number}").expect("a string takes all");
    }
    lines
}

fn python() -> Vec<Case> {
    vec![
        prints("print('hello')", "hello\n"),
        fails("x = = 1", "SyntaxError"),
        fails("1/0", "ZeroDivisionError"),
        prints("print('x', end='')", "x"),
        prints("for number in range(1, 10001): print(number)", lines()),
    ]
}

fn node() -> Vec<Case> {
    vec![
        prints("console.log('hello')", "hello\n"),
        fails("x = = 1", "SyntaxError"),
        fails("null.x", "TypeError"),
        prints("void process.stdout.write('x')", "x"),
        prints("for (let number = 1; number <= 10000; number++) console.log(number)", lines()),
    ]
}

fn bash() -> Vec<Case> {
    let unknown = Case { stderr: "line 1: x: command not found\n", ..prints("x = = 1", "") };
    vec![
        prints("echo hello", "hello\n"),
        Case { end: RunEnd::Exited { code: 127 }, ..unknown },
        Case { end: RunEnd::Exited { code: 10 }, ..prints("exit 10", "") },
        prints("printf x", "x"),
        prints("seq 1 10000", lines()),
    ]
}

/// Whether a run came to what it must, in as few words as say where it did not.
fn verdict(case: &Case, ran: &Ran, count: u64) -> Result<(), String> {
    let finished = &ran.finished;
    let (stdout, stderr) = (ran.stdout(), ran.stderr());
    let output = |what: &str, bytes: &[u8]| {
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(300)..]);
        Err(format!("{what}: {} bytes, ending with {text:?}", bytes.len()))
    };
    if stdout != case.stdout.as_bytes() || finished.stdout_bytes != stdout.len() as u64 {
        return output("stdout", &stdout);
    }
    let is_expected = match case.stderr {
        "" => stderr.is_empty(),
        end => stderr.ends_with(end.as_bytes()),
    };
    if !is_expected || finished.stderr_bytes != stderr.len() as u64 {
        return output("stderr", &stderr);
    }
    let kind = ran.error().map(|report| report.kind.as_str());
    if kind != case.error {
        return Err(format!("the error was {kind:?}"));
    }
    let is_output =
        |what: &Happening| matches!(what, Happening::Stdout { .. } | Happening::Stderr { .. });
    let others = ran.events.iter().filter(|event| !is_output(&event.what)).count();
    if others != usize::from(case.error.is_some()) || ran.is_truncated() {
        return Err(format!("its events were {:?}", ran.events));
    }
    let started = ran.started.as_ref().map(|started| (started.count, &started.lost));
    if finished.end != case.end
        || !finished.state_kept
        || finished.rung.is_some()
        || started != Some((count, &None))
    {
        return Err(format!("it was {:?}, {finished:?}", ran.started));
    }
    Ok(())
}

/// Runs all cases one after the other, again and again, each of which must come to what it must.
async fn repeat(language: &str, cases: &[Case], times: u64) {
    let sandbox = Sandbox::start().await;
    let open = contexts::open(language.parse().expect("a name"), language);
    let (mut count, mut wrong) = (0, Vec::new());
    for _ in 0..times {
        for case in cases {
            count += 1;
            let run = sandbox.guest.run_code_now(RunCode::new(open.clone(), case.code));
            let ran = run.expect("asked for").collect(SAID_BYTES_MAX).await;
            let ran = ran.unwrap_or_else(|error| panic!("run {count}, {}: {error}", case.code));
            if let Err(words) = verdict(case, &ran, count) {
                wrong.push(format!("run {count}, {}: {words}", case.code));
                assert!(wrong.len() < 20, "{} of {count} wrong: {wrong:#?}", wrong.len());
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count} wrong: {wrong:#?}", wrong.len());
    sandbox.end().await;
}

fn language(name: &str, program: &str, cases: &[Case], times: u64) {
    if !have(program) {
        return skip(&format!("there is no {program} here"));
    }
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(repeat(name, cases, times));
}

/// As often as CI has the time for.
const FEW: u64 = 100;

fn many() -> u64 {
    std::env::var("BURROW_SOAK_RUNS").map_or(10_000, |runs| runs.parse().expect("a number"))
}

#[test]
fn runs_of_python_are_right_each_time() {
    language("python", "python3", &python(), FEW);
}

#[test]
fn runs_of_node_are_right_each_time() {
    language("node", "node", &node(), FEW);
}

#[test]
fn runs_of_bash_are_right_each_time() {
    language("bash", "bash", &bash(), FEW);
}

#[test]
#[ignore = "ten thousand runs of each; `just soak-repl`"]
fn soak_runs_of_python_are_right_each_time() {
    language("python", "python3", &python(), many());
}

#[test]
#[ignore = "ten thousand runs of each; `just soak-repl`"]
fn soak_runs_of_node_are_right_each_time() {
    language("node", "node", &node(), many());
}

#[test]
#[ignore = "ten thousand runs of each; `just soak-repl`"]
fn soak_runs_of_bash_are_right_each_time() {
    language("bash", "bash", &bash(), many());
}
