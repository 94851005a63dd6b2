//! The promise of the project: not one byte lost or out of order, and the honest end of every
//! process, however often and however quickly.
//!
//! `BURROW_SOAK_RUNS` sets the number of runs; `just soak` does ten thousand of each.

use std::fmt::Write as _;

use protocol::Cause;
use tests::sandbox::Sandbox;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn runs(default: usize) -> usize {
    std::env::var("BURROW_SOAK_RUNS").map_or(default, |runs| runs.parse().expect("a number"))
}

async fn repeat(count: usize, argv: &[&str], stdout: &[u8], stderr: &[u8]) {
    let mut sandbox = Sandbox::start().await;
    for run in 0..count {
        let ran = sandbox.run(argv).await;
        let cause = &ran.finished.record.cause;
        assert_eq!(cause, &Cause::Exited { code: 0 }, "run {run} of {argv:?}");
        assert!(ran.stdout == stdout, "run {run} of {argv:?}: {} bytes", ran.stdout.len());
        assert!(ran.stderr == stderr, "run {run} of {argv:?}: {} bytes", ran.stderr.len());
        assert_eq!(ran.finished.missing_bytes, 0);
    }
    sandbox.end().await;
}

async fn all(count: usize) {
    repeat(count, &["echo", "hello"], b"hello\n", b"").await;
    repeat(count, &["sh", "-c", "echo out; echo err >&2"], b"out\n", b"err\n").await;
    let mut numbers = String::new();
    for number in 1..=10_000 {
        writeln!(numbers, "{number}").expect("a string takes all");
    }
    repeat(count, &["seq", "1", "10000"], numbers.as_bytes(), b"").await;
}

#[test]
fn short_commands_lose_nothing() {
    runtime().block_on(all(300));
}

#[test]
#[ignore = "ten thousand runs of each; `just soak`"]
fn soak_short_commands_lose_nothing() {
    runtime().block_on(all(runs(10_000)));
}

#[test]
fn every_exit_code_arrives_as_itself() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        for code in 0..=255 {
            let ran = sandbox.run(&["sh", "-c", &format!("exit {code}")]).await;
            assert_eq!(ran.finished.record.cause, Cause::Exited { code });
        }
        sandbox.end().await;
    });
}

#[test]
fn every_deadly_signal_arrives_as_itself() {
    // Those that stop, continue or are ignored end nothing.
    const HARMLESS: [i32; 7] = [17, 18, 19, 20, 21, 22, 28];
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        for signal in (1..=31).filter(|signal| !HARMLESS.contains(signal) && *signal != 23) {
            let ran = sandbox.run(&["sh", "-c", &format!("kill -{signal} $$")]).await;
            let cause = ran.finished.record.cause;
            assert!(
                matches!(cause, Cause::Signaled { signal: answer, .. } if answer == signal),
                "signal {signal} was told as {cause:?}"
            );
        }
        sandbox.end().await;
    });
}

#[test]
fn ten_thousand_orphans_leave_no_zombie() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        // Each subshell leaves one orphan behind, which ends at once.
        let script = "for i in $(seq 1 10000); do (true &) ; done";
        let ran = sandbox.run(&["sh", "-c", script]).await;
        assert_eq!(ran.finished.record.cause, Cause::Exited { code: 0 });
        let count = "ls -d /proc/[0-9]* | wc -l; grep -l '^State:.Z' /proc/[0-9]*/status | wc -l";
        let mut left = String::new();
        for _ in 0..100 {
            let ran = sandbox.run(&["sh", "-c", count]).await;
            left = String::from_utf8(ran.stdout).expect("UTF-8");
            if left.lines().nth(1) == Some("0") {
                break;
            }
        }
        assert_eq!(left.lines().nth(1), Some("0"), "zombies are left: {left:?}");
        sandbox.end().await;
    });
}

#[test]
fn output_of_every_byte_and_a_hundred_megabytes_arrive_unharmed() {
    runtime().block_on(async {
        let mut sandbox = Sandbox::start().await;
        let script = "import sys; b = bytes(range(256)) * 4096\nfor _ in range(100): sys.stdout.buffer.write(b)";
        let ran = sandbox.run(&["python3", "-c", script]).await;
        assert_eq!(ran.finished.record.cause, Cause::Exited { code: 0 });
        assert_eq!(ran.stdout.len(), 100 * 1024 * 1024);
        let whole = ran.stdout.iter().enumerate().all(|(at, byte)| *byte == (at % 256) as u8);
        assert!(whole, "the bytes differ");
        sandbox.end().await;
    });
}
