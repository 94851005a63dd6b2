//! Difficult code in bash contexts: tables of rows, and what takes more than a row to say.

mod rows;

use std::time::{Duration, Instant};

use agent_client::guest::{Guest, RunCode};
use protocol::repl::{Happening, RunEnd};
use tests::contexts::{context, late, ran, run, stderr, stdout};
use tests::sandbox::Sandbox;
use tests::torture::{Case, Tongue, run_table};

const BASH: Tongue = Tongue {
    context: "bash",
    set: |number| format!("kept={number}"),
    get: "[[ -z $kept ]] || \\builtin echo \"$kept\"",
};

async fn hold(cases: &[Case]) {
    if !tests::have_or_skip("bash") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let wrong = run_table(&sandbox.guest, &BASH, cases).await;
    sandbox.end().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn state_and_shapes() {
    hold(&rows::plain()).await;
}

#[tokio::test]
async fn ends_of_runs_and_shells() {
    hold(&rows::ends()).await;
}

#[tokio::test]
async fn a_ruined_shell_goes_on() {
    hold(&rows::hostile()).await;
}

#[tokio::test]
async fn endless_code() {
    hold(&rows::endless()).await;
}

#[tokio::test]
async fn survivors_of_a_run_print_late_output() {
    if !tests::have_or_skip("bash") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code = "(sleep 0.2; echo late; echo late e >&2) & echo now";
    assert_eq!(stdout(&run(guest, "bash", code).await), "now\n");
    let deadline = Instant::now() + tests::PATIENCE;
    let mut text = String::new();
    while !(text.contains("late\n") && text.contains("late e\n")) {
        assert!(Instant::now() < deadline, "{text:?}");
        let next = run(guest, "bash", "sleep 0.05; echo own").await;
        assert_eq!((stdout(&next).as_str(), stderr(&next).as_str()), ("own\n", ""));
        text += &late(&next);
    }
    // Code that prints forever costs the others only CPU time.
    run(guest, "bash", "(while :; do echo flood; done) & flood=$!").await;
    for number in 0..10 {
        assert_eq!(
            stdout(&run(guest, "bash", &format!("echo {number}")).await),
            format!("{number}\n")
        );
    }
    let ended = run(guest, "bash", "kill $flood; wait $flood; echo $?").await;
    assert_eq!(stdout(&ended), "143\n");
    sandbox.end().await;
}

#[tokio::test]
async fn fewer_privileges_are_for_good_and_harmless() {
    if !tests::have_or_skip("bash") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let mut ask = context("nobody:bash");
    ask.user = Some("65534:65534".into());
    guest.open_context(&ask).await.expect("a context");
    let who = run(guest, "nobody:bash", "id -u; x=1; kill -9 1; cat /proc/1/environ").await;
    assert_eq!(stdout(&who), "65534\n");
    assert!(stderr(&who).contains("not permitted"), "{}", stderr(&who));
    let mut spun = RunCode::new(context("nobody:bash"), "while :; do :; done");
    spun.deadline = Some(Duration::from_millis(250));
    let spun = ran(guest, spun).await;
    assert_eq!(spun.finished.end, RunEnd::TimedOut { limit_ms: 250 });
    assert!(spun.finished.state_kept);
    assert_eq!(stdout(&run(guest, "nobody:bash", "echo $x").await), "1\n");
    sandbox.end().await;
}

#[tokio::test]
async fn the_end_of_a_context_runs_its_exit_trap() {
    if !tests::have_or_skip("bash") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    // The end comes right after the run, so wherever the shell is between the two.
    for _ in 0..ENDS {
        assert_eq!(last_words(guest, "trap 'echo bye' EXIT").await, "bye\n");
    }
    sandbox.end().await;
}

#[tokio::test]
async fn a_shells_signal_handling_does_not_prevent_its_exit_trap() {
    if !tests::have_or_skip("bash") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let ignores = "trap '' HUP TERM INT; trap 'echo bye' EXIT";
    assert_eq!(last_words(guest, ignores).await, "bye\n");
    let traps = "trap 'echo struck' HUP TERM INT; trap 'echo bye' EXIT";
    assert_eq!(last_words(guest, traps).await, "bye\n");
    sandbox.end().await;
}

#[tokio::test]
async fn last_words_into_the_pipe_of_an_earlier_run_are_reported() {
    if !tests::have_or_skip("bash") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    for _ in 0..ENDS {
        let code = "exec 9>&1; trap 'echo bye >&9' EXIT";
        assert_eq!(last_words(guest, code).await, "bye\n");
    }
    sandbox.end().await;
}

/// How often a context is ended, because ends race with what they end.
const ENDS: usize = 20;

/// What watches get when a context ends in which this was run.
async fn last_words(guest: &Guest, code: &str) -> String {
    run(guest, "bash", code).await;
    let name = "bash".parse().expect("a name");
    let mut watch = guest.watch_context(&name).await.expect("a watch");
    guest.close_context(&name).await.expect("closed");
    let mut text = String::new();
    while let Some(event) = watch.next().await.expect("an event") {
        if let Happening::Late(late) = event.what {
            text.push_str(&late.bytes.to_string());
        }
    }
    text
}

#[tokio::test]
async fn a_removed_directory_costs_no_more_than_the_shell() {
    if !tests::have_or_skip("bash") {
        return;
    }
    let sandbox = Sandbox::start().await;
    let guest = &sandbox.guest;
    let code =
        "x=1; rm -rf /run/burrow-repl-* /dev/shm/burrow-repl-* /tmp/burrow-repl-*; echo removed";
    assert_eq!(stdout(&run(guest, "bash", code).await), "removed\n");
    // Whether the next one learns of a loss or is itself refused, the one after it has a shell.
    run(guest, "bash", "echo again").await;
    assert_eq!(stdout(&run(guest, "bash", "echo $((1 + 1))").await), "2\n");
    sandbox.end().await;
}
