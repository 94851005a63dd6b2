//! The figures of contexts: warm and cold runs of code, beside the floor and the Jupyter kernel.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_client::guest::contexts::{self, RunCode};
use protocol::repl::{OpenContext, RunEnd};
use tests::sandbox::Sandbox;
use tests::skip;

use super::{Floor, Report, Target, beside, median, timed};

/// Warm runs of which the median is taken, and those before them that are not counted.
const WARM_RUNS: usize = 2000;
const FIRST_RUNS: usize = 50;
/// Contexts that are made from nothing.
const COLD_RUNS: usize = 30;
/// Runs in the Jupyter kernel.
const JUPYTER_RUNS: usize = 300;
/// Lines of one run, the code that writes them, and its runs of which the median is taken.
const PRINTS: usize = 100_000;
const PRINTING: &str = "for number in range(100_000): print(number)";
const PRINTING_RUNS: usize = 5;
/// More than any of the short runs prints.
const SAID_BYTES_MAX: usize = 1024;

pub async fn figures(report: &mut Report) {
    let sandbox = Sandbox::start().await;
    let mut floor = Floor::start();
    let Warm { run: python, trip, hop } = warm(&sandbox, &mut floor, "python", "print(1)").await;
    let target = Target::toward(100.0, 150.0);
    report.bound("warm `print(1)` in Python, median", micros(python), "us", target);
    report.ratio("the same beside a socket round trip", python, trip, Target::toward(6.0, 12.0));
    report.ratio("the same beside two, over three processes", python, hop, 4.0);
    for (language, code) in [("node", "console.log(1)"), ("bash", "echo 1")] {
        if tests::have(language) {
            let Warm { run, hop, .. } = warm(&sandbox, &mut floor, language, code).await;
            beside(&format!("warm `{code}` in {language}, beside the same"), run, hop);
        }
    }
    let (context, bare) = cold(&sandbox).await;
    beside("a context from nothing, beside `python3 -c pass`", context, bare);
    let runs = JUPYTER_RUNS;
    if let Some(jupyter) = jupyter("jupyter_server.py", "print(1)", "1\n", runs) {
        beside("`print(1)` by Jupyter's server, beside ours", jupyter, python);
    }
    if let Some(jupyter) = jupyter("jupyter.py", "print(1)", "1\n", runs) {
        beside("`print(1)` in Jupyter, beside ours", jupyter, python);
        prints(report, &sandbox).await;
    }
    sandbox.end().await;
}

/// Medians.
struct Warm {
    /// Runs in a context that has run before.
    run: Duration,
    /// Round trips of a socket.
    trip: Duration,
    /// Two of them, to a process that asks another one, as an agent asks an interpreter.
    hop: Duration,
}

async fn warm(sandbox: &Sandbox, floor: &mut Floor, language: &str, code: &'static str) -> Warm {
    let open = context(language, language);
    let (mut runs, mut trips, mut hops) = (Vec::new(), Vec::new(), Vec::new());
    // In turns, so that other work of the machine affects both alike.
    for number in 0..FIRST_RUNS + WARM_RUNS {
        let trip = timed(|| floor.ask(b'p'));
        let hop = timed(|| floor.ask(b'h'));
        let time = run(sandbox, &open, code).await;
        if number >= FIRST_RUNS {
            trips.push(trip);
            hops.push(hop);
            runs.push(time);
        }
    }
    Warm { run: median(runs), trip: median(trips), hop: median(hops) }
}

/// Many lines, beside the Jupyter kernel's own way with them.
async fn prints(report: &mut Report, sandbox: &Sandbox) {
    let output = lines_to(PRINTS);
    let Some(jupyter) = jupyter("jupyter.py", PRINTING, &output, PRINTING_RUNS) else { return };
    let open = context("prints", "python");
    let mut runs = Vec::new();
    for _ in 0..PRINTING_RUNS {
        let begun = Instant::now();
        let run = sandbox.guest.run_code_now(RunCode::new(open.clone(), PRINTING));
        let ran = run.expect("asked for").collect(2 * output.len()).await.expect("it ends");
        runs.push(begun.elapsed());
        assert_eq!(ran.stdout(), output.as_bytes());
    }
    let target = Target::toward(0.3, 0.4);
    report.ratio("100,000 prints, beside Jupyter", median(runs), jupyter, target);
}

/// The median from asking for a context that there is not to the end of its first run, and that of
/// the same interpreter's doing nothing.
async fn cold(sandbox: &Sandbox) -> (Duration, Duration) {
    let known =
        sandbox.guest.open_context(&context("python", "python")).await.expect("it is there");
    let program = known.interpreter.expect("it lives").program;
    let (mut runs, mut floors) = (Vec::new(), Vec::new());
    for number in 0..COLD_RUNS {
        let begun = Instant::now();
        let bare = Command::new(&program).args(["-c", "pass"]).status().expect("it is here too");
        floors.push(begun.elapsed());
        assert!(bare.success());
        let open = context(&format!("cold-{number}"), "python");
        runs.push(run(sandbox, &open, "print(1)").await);
        sandbox.guest.close_context(&open.context).await.expect("closed");
    }
    (median(runs), median(floors))
}

async fn run(sandbox: &Sandbox, open: &OpenContext, code: &'static str) -> Duration {
    let ask = RunCode::new(open.clone(), code);
    let begun = Instant::now();
    let run = sandbox.guest.run_code_now(ask).expect("asked for");
    let ran = run.collect(SAID_BYTES_MAX).await.expect("it ends");
    let time = begun.elapsed();
    assert_eq!(ran.finished.end, RunEnd::Ok {}, "{:?}", ran.events);
    assert_eq!(ran.stdout(), b"1\n");
    time
}

/// A line for each number.
fn lines_to(end: usize) -> String {
    (0..end).fold(String::new(), |lines, number| lines + &number.to_string() + "\n")
}

fn context(name: &str, language: &str) -> OpenContext {
    contexts::open(name.parse().expect("a name"), language)
}

/// The median of runs of code that prints this in the Jupyter kernel, by this script.
fn jupyter(script: &str, code: &str, text: &str, runs: usize) -> Option<Duration> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = root.with_file_name("target").join("jupyter-kernel");
    if !place.join("ready").exists() {
        skip(
            "there is no Jupyter kernel in target/jupyter-kernel; target/jupyter-kernel.log says why",
        );
        return None;
    }
    let output = Command::new(place.join("bin/python"))
        .arg(root.join("benches/repl").join(script))
        .args([&runs.to_string(), code, &text.len().to_string()])
        .stderr(Stdio::null())
        .output();
    let answer = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().parse());
    if let Ok(Ok(micros)) = answer {
        return Some(Duration::from_micros(micros));
    }
    skip(&format!("the Jupyter kernel in target/jupyter-kernel does not answer to {script}"));
    None
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
