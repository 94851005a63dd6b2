//! `top`: the picture for a person at a terminal, and the one for a script.

use std::process::{Command, Stdio};

use serde_json::Value;
use tests::tmux::Tmux;
use tests::{Burrow, bridge_path, eventually};

/// A sandbox that does nothing, and one with a session `burn` that takes a CPU.
fn stage() -> Burrow {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "calm"]);
    burrow.ok(&["start", "--name", "busy"]);
    let burn = ["exec", "-d", "-t", "--session", "burn", "busy", "--", "sh", "-c"];
    burrow.ok(&[&burn[..], &["echo burning; while :; do :; done"]].concat());
    burrow
}

fn once(burrow: &Burrow) -> Vec<Value> {
    let printed = burrow.ok(&["top", "--once", "--json"]);
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

#[test]
fn a_script_gets_what_each_sandbox_uses() {
    let burrow = stage();
    eventually("the load shows", || {
        once(&burrow)[0]["cpu_hundredths"].as_u64().is_some_and(|share| share > 1_000)
    });
    let rows = once(&burrow);
    let of = |row: &Value| (row["sandbox"].clone(), row["machine"].clone());
    assert_eq!(of(&rows[0]), ("busy".into(), "process".into()));
    assert_eq!(rows[0]["state"], "running");
    assert!(rows[0]["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{rows:?}");
    assert_eq!(of(&rows[1]), ("calm".into(), "process".into()));
    burrow.ok(&["stop", "calm"]);
    assert_eq!(once(&burrow).len(), 1, "what has stopped uses nothing");
    let table = burrow.ok(&["top", "--once", "--sort", "name"]);
    assert!(table.starts_with("NAME  STATE"), "{table}");
    assert_eq!(burrow.ok(&["top", "--once", "--json", "--namespace", "other"]).trim(), "[]");
}

#[test]
fn without_a_terminal_it_says_what_needs_none() {
    let burrow = Burrow::serving();
    let mut alone = Command::new("setsid");
    alone.arg("-w").arg(bridge_path()).arg("top").stdin(Stdio::null());
    for (name, value) in burrow.command(&[]).get_envs() {
        alone.env(name, value.unwrap_or_default());
    }
    let output = alone.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("--once needs no terminal"), "{said}");
    assert!(output.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_person_looks_into_a_sandbox_and_ends_what_takes_the_cpu() {
    let burrow = stage();
    let Some(tmux) = Tmux::open(&burrow) else { return };
    let mode = tmux.mode();
    tmux.line("echo what was before; hb top; echo code=$?");
    let screen = tmux.wait_until("the busy one is first", |screen| {
        let rows: Vec<&str> = screen.lines().collect();
        rows.len() > 2 && rows[2].starts_with("busy") && rows[2].contains('%')
    });
    assert!(screen.starts_with("2 sandboxes, 2 running"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(screen.contains("q quit") && !screen.contains("what was before"), "{screen}");

    tmux.text("/bu");
    tmux.wait_until("the filter", |screen| screen.contains("/bu") && !screen.contains("\ncalm"));
    tmux.keys(&["Escape"]);
    tmux.wait_for("\ncalm");
    tmux.text("ss");
    tmux.wait_for("DISK*");
    tmux.resize(100, 30);
    tmux.wait_for("CPU, LAST SECONDS");

    // It looks into the one that is selected, which has stayed so.
    tmux.keys(&["Enter"]);
    tmux.wait_until("its session", |screen| screen.contains("burn") && screen.contains("while :"));
    tmux.text("a");
    // The row of the session has the word, too.
    tmux.wait_until("it is attached", |screen| {
        screen.contains("burning") && !screen.contains("contexts and sessions")
    });
    tmux.keys(&["C-p", "C-q"]);
    tmux.wait_for("busy: contexts and sessions");
    tmux.text("kn");
    tmux.text("k");
    tmux.wait_for("kill session burn of busy? y or n");
    tmux.text("y");
    eventually("the load ends", || {
        let load = once(&burrow)[0]["cpu_hundredths"].as_u64();
        load.is_some_and(|share| share < 1_000)
    });
    tmux.wait_until("it is gone", |screen| {
        screen.contains("SIGKILL") || screen.contains("nothing runs in it")
    });

    tmux.keys(&["Escape"]);
    tmux.wait_for("2 sandboxes");
    tmux.text("q");
    tmux.wait_for("code=0");
    tmux.wait_for("what was before");
    assert_eq!(tmux.mode(), mode);
}

#[test]
fn a_sandbox_is_killed_and_one_that_comes_is_seen() {
    let burrow = Burrow::serving();
    let Some(tmux) = Tmux::open(&burrow) else { return };
    tmux.line("hb top; echo code=$?");
    tmux.wait_for("0 sandboxes");
    burrow.ok(&["start", "--name", "late"]);
    tmux.wait_for("late");
    tmux.text("k");
    tmux.wait_for("kill sandbox late? y or n");
    tmux.text("y");
    tmux.wait_for("0 sandboxes");

    // What a sandbox runs cannot write to the terminal.
    burrow.ok(&["start", "--name", "loud"]);
    let loud = "sleep 1000; # printf \x1b[31mred\x1b]0;owned\x07";
    burrow.ok(&["exec", "-d", "--session", "s", "loud", "--", "sh", "-c", loud]);
    tmux.wait_for("loud");
    tmux.keys(&["Enter"]);
    tmux.wait_for("loud: contexts and sessions");
    let screen = tmux.wait_until("what it runs", |screen| screen.contains("printf"));
    assert!(screen.lines().count() <= 24, "{screen}");
    tmux.keys(&["C-c"]);
    tmux.wait_for("code=0");
}
