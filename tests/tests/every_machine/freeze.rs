//! A workload that is frozen for a snapshot, and thawed.

use std::process::Command;
use std::time::{Duration, Instant};

use agent_client::guest::metrics::Consumer;
use agent_client::guest::{Address, Adoption, Guest, Options, Piece, RunCode};
use protocol::repl::{OpenContext, RunEnd};
use protocol::requests::{MakeDirectory, Move, Remove};
use protocol::{FaultCode, Text};
use tempfile::TempDir;
use tests::contexts::{context, ran, run, stdout};
use tests::sandbox::{Sandbox, start};
use tests::{PATIENCE, have_or_skip, skip};

/// A watchdog that no test waits for.
const LONG: Duration = Duration::from_secs(60);
/// The shortest one.
const SHORT: Duration = Duration::from_secs(1);

/// Long enough for a counter that runs to count on.
const WHILE: Duration = Duration::from_millis(300);

/// Counts in a file, from a grandchild that is its own session.
const COUNTER: &str =
    "setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i > /tmp/count; done' & wait";

/// A sandbox with control groups, or the reason why there is none.
async fn sandbox() -> Option<Sandbox> {
    let sandbox = Sandbox::start().await;
    let Some(reason) = sandbox.guest.info().cgroup_missing else { return Some(sandbox) };
    skip(&format!("nothing can be frozen without control groups: {reason}"));
    sandbox.end().await;
    None
}

async fn count(sandbox: &Sandbox) -> u64 {
    let read = async {
        let (mut output, _, _) = sandbox.guest.read_file("/tmp/count", 0, None).await.ok()?;
        let mut text = Vec::new();
        while let Piece::Bytes { bytes, .. } = output.next().await {
            text.extend_from_slice(&bytes);
        }
        String::from_utf8(text).ok()?.trim().parse().ok()
    };
    read.await.unwrap_or(0)
}

async fn until_counting(sandbox: &Sandbox, beyond: u64) {
    let deadline = Instant::now() + PATIENCE;
    while count(sandbox).await <= beyond {
        assert!(Instant::now() < deadline, "the counter counts beyond {beyond}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Files cannot be read while everything is frozen; what the counter has used tells whether it runs.
async fn cpu_us(sandbox: &Sandbox) -> u64 {
    let session = "counter".parse().expect("a session id");
    let usage = sandbox.guest.usage(Consumer::Session(session)).await;
    usage.expect("usage").cpu_us
}

#[tokio::test]
async fn a_frozen_program_stops_and_goes_on_after_the_thaw() {
    let Some(mut sandbox) = sandbox().await else { return };
    sandbox.guest.start(&start("counter", &["sh", "-c", COUNTER])).await.expect("a session");
    until_counting(&sandbox, 0).await;

    let frozen = sandbox.guest.freeze(LONG).await.expect("it freezes");
    assert!(frozen.groups >= 1, "{frozen:?}");
    let before = cpu_us(&sandbox).await;
    // A program that is not frozen uses some of this time.
    tokio::time::sleep(WHILE).await;
    assert_eq!(cpu_us(&sandbox).await, before, "a frozen program uses nothing");

    // No new work is begun, and what is asked beside it is answered.
    let refused = sandbox.guest.start(&start("new", &["true"])).await.expect_err("frozen");
    assert_eq!(refused.fault_code(), Some(FaultCode::Conflict), "{refused}");
    let again = sandbox.guest.freeze(LONG).await.expect_err("frozen already");
    assert_eq!(again.fault_code(), Some(FaultCode::Conflict), "{again}");
    assert_eq!(sandbox.guest.sessions(0).await.expect("a list").sessions.len(), 1);

    // Files are frozen, too.
    let at = |name: &str| Text::from(name);
    let made = sandbox.guest.make_directory(MakeDirectory {
        path: at("/tmp/new"),
        permissions: None,
        parents: false,
    });
    let ask = Move { from: at("/tmp/count"), to: at("/tmp/counted"), replace: true };
    let moved = sandbox.guest.rename(ask);
    let removed = sandbox.guest.remove(Remove { path: at("/tmp/count"), recursive: false });
    for refused in [made.await, moved.await, removed.await] {
        let refused = refused.expect_err("frozen");
        assert_eq!(refused.fault_code(), Some(FaultCode::Conflict), "{refused}");
    }

    let stood = sandbox.guest.thaw().await.expect("it thaws");
    assert!(stood >= WHILE, "{stood:?}");
    let stands_at = count(&sandbox).await;
    until_counting(&sandbox, stands_at).await;
    assert_eq!(sandbox.guest.thaw().await.expect("nothing to thaw"), Duration::ZERO);
    assert!(
        sandbox.run(&["true"]).await.finished.record.cause == protocol::Cause::Exited { code: 0 }
    );
    sandbox.end().await;
}

#[tokio::test]
async fn the_watchdog_lets_a_workload_go_on_that_nobody_thaws() {
    let Some(mut sandbox) = sandbox().await else { return };
    sandbox.guest.start(&start("counter", &["sh", "-c", COUNTER])).await.expect("a session");
    until_counting(&sandbox, 0).await;
    let began = Instant::now();
    sandbox.guest.freeze(SHORT).await.expect("it freezes");
    let deadline = Instant::now() + PATIENCE;
    let mut stands_at = None;
    // Reading is refused until then.
    while stands_at.is_none() {
        assert!(Instant::now() < deadline, "the watchdog thaws");
        tokio::time::sleep(Duration::from_millis(20)).await;
        stands_at = Some(count(&sandbox).await).filter(|count| *count > 0);
    }
    assert!(began.elapsed() >= SHORT, "not before its time: {:?}", began.elapsed());
    until_counting(&sandbox, stands_at.unwrap_or(0)).await;
    assert_eq!(sandbox.guest.thaw().await.expect("nothing to thaw"), Duration::ZERO);
    // Its watchdog is over with it: the next freeze has all of its own time.
    sandbox.guest.freeze(LONG).await.expect("it freezes");
    // The first watchdog would thaw within this time.
    tokio::time::sleep(SHORT + WHILE).await;
    assert!(sandbox.guest.thaw().await.expect("it thaws") >= SHORT);
    assert!(
        sandbox.run(&["true"]).await.finished.record.cause == protocol::Cause::Exited { code: 0 }
    );
    sandbox.end().await;
}

#[tokio::test]
async fn a_run_is_frozen_in_the_middle_and_comes_to_its_end() {
    let Some(sandbox) = sandbox().await else { return };
    if !have_or_skip("python3") {
        return sandbox.end().await;
    }
    run(&sandbox.guest, "python", "import time").await;
    let code = "for i in range(20):\n    print(i)\n    time.sleep(0.05)";
    let ask = RunCode::new(context("python"), code);
    let freezing = async {
        for _ in 0..5 {
            sandbox.guest.freeze(LONG).await.expect("it freezes");
            // The rhythm: frozen and running by turns, as often as the run prints.
            tokio::time::sleep(Duration::from_millis(50)).await;
            sandbox.guest.thaw().await.expect("it thaws");
            // The other half of it.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (ran, ()) = tokio::join!(ran(&sandbox.guest, ask), freezing);
    assert_eq!(ran.finished.end, RunEnd::Ok {});
    assert_eq!(stdout(&ran), tests::lines("", 0..20));
    sandbox.end().await;
}

#[tokio::test]
async fn a_context_that_is_restarted_while_frozen_comes_back_after_the_thaw_with_its_runs() {
    let Some(sandbox) = sandbox().await else { return };
    if !have_or_skip("python3") {
        return sandbox.end().await;
    }
    run(&sandbox.guest, "python", "x = 1").await;
    let sleeping = RunCode::new(context("python"), "import time; time.sleep(1000)");
    let sleeping = sandbox.guest.run_code(sleeping).await.expect("it is accepted");
    let queued = RunCode::new(context("python"), "print('here', 'x' in globals())");
    let queued = sandbox.guest.run_code(queued).await.expect("it is accepted");
    sandbox.guest.freeze(LONG).await.expect("it freezes");
    let name = context("python").context;
    let restarting = sandbox.guest.restart_context(&name);
    let thawing = async {
        assert!(matches!(
            sleeping.collect(1 << 20).await.expect("its end").finished.end,
            RunEnd::Interrupted { .. }
        ));
        // The restart must wait for the thaw, so the thaw comes later.
        tokio::time::sleep(WHILE).await;
        sandbox.guest.thaw().await.expect("it thaws");
    };
    let (restarted, ()) = tokio::join!(restarting, thawing);
    assert_eq!(restarted.expect("it is ready").interpreters, 2);
    let queued = queued.collect(1 << 20).await.expect("its events");
    assert_eq!((&queued.finished.end, stdout(&queued).trim()), (&RunEnd::Ok {}, "here False"));
    sandbox.end().await;
}

#[tokio::test]
async fn an_interpreter_that_is_frozen_and_restarted_while_it_starts_fails_nobody() {
    let Some(mut sandbox) = sandbox().await else { return };
    if !have_or_skip("python3") {
        return sandbox.end().await;
    }
    let slow =
        "printf '#!/bin/sh\\nsleep 1\\nexec python3 \"$@\"\\n' > /tmp/slow; chmod 755 /tmp/slow";
    sandbox.run(&["sh", "-c", slow]).await;
    let ask = OpenContext { program: Some("/tmp/slow".into()), ..context("python") };
    let restarting = async {
        let deadline = Instant::now() + PATIENCE;
        while sandbox.guest.contexts().await.expect("a list").is_empty() {
            assert!(Instant::now() < deadline, "the context is there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        sandbox.guest.freeze(LONG).await.expect("it freezes");
        let thawing = async {
            // The restart comes first.
            tokio::time::sleep(WHILE).await;
            sandbox.guest.thaw().await.expect("it thaws");
        };
        tokio::join!(sandbox.guest.restart_context(&ask.context), thawing).0
    };
    let (opened, restarted) = tokio::join!(sandbox.guest.open_context(&ask), restarting);
    assert_eq!(opened.expect("it is ready").interpreters, 2);
    assert_eq!(restarted.expect("it is ready").interpreters, 2);
    sandbox.end().await;
}

#[tokio::test]
async fn an_adoption_and_a_stop_thaw() {
    let Some(sandbox) = sandbox().await else { return };
    sandbox.guest.start(&start("counter", &["sh", "-c", COUNTER])).await.expect("a session");
    until_counting(&sandbox, 0).await;
    sandbox.guest.freeze(LONG).await.expect("it freezes");
    // The agent reports how long this was.
    tokio::time::sleep(WHILE).await;
    let adopted = sandbox.guest.adopt(Adoption::default()).await.expect("it is adopted");
    assert!(adopted.frozen_ms >= WHILE.as_millis() as u64, "{adopted:?}");
    let stands_at = count(&sandbox).await;
    until_counting(&sandbox, stands_at).await;
    // A frozen process does not receive TERM; this does not delay the end of the sandbox.
    sandbox.guest.freeze(LONG).await.expect("it freezes");
    let began = Instant::now();
    sandbox.end().await;
    assert!(began.elapsed() < LONG, "it ended after {:?}", began.elapsed());
}

#[tokio::test]
async fn a_watchdog_beyond_its_limits_is_refused() {
    let sandbox = Sandbox::start().await;
    for watchdog in [Duration::ZERO, Duration::from_millis(999), Duration::from_secs(301)] {
        let refused = sandbox.guest.freeze(watchdog).await.expect_err("no watchdog");
        assert_eq!(refused.fault_code(), Some(FaultCode::Invalid), "{watchdog:?}: {refused}");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn without_control_groups_a_freeze_is_refused_with_the_reason() {
    let dir = TempDir::with_prefix("burrow-").expect("a directory");
    let socket = dir.path().join("agent.sock");
    // In a place where the hierarchy cannot be seen.
    let script = "mount -t tmpfs none /sys/fs/cgroup && exec \"$0\" serve --listen \"$1\"";
    let mut child = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .args([tests::agent_path(), socket.clone()])
        .spawn()
        .expect("unshare is everywhere");
    let address = Address::Unix { path: socket };
    let options = Options { connect_deadline: Duration::from_secs(5), ..Options::default() };
    match Guest::connect(address, options).await {
        Err(error) => skip(&format!("no agent can be kept from its control groups: {error}")),
        Ok(guest) => {
            let reason = guest.info().cgroup_missing.expect("it sees no control groups");
            let refused = guest.freeze(LONG).await.expect_err("no control groups");
            assert_eq!(refused.fault_code(), Some(FaultCode::Unsupported), "{refused}");
            assert!(refused.to_string().contains(&reason), "{refused}");
            assert_eq!(guest.thaw().await.expect("nothing to thaw"), Duration::ZERO);
        }
    }
    child.kill().ok();
    child.wait().ok();
}
