//! The daemon and the sandboxes that stay: every verb that needs it, and what becomes of sandboxes, their
//! sessions and their logs when it is killed, at any moment, and started again.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tests::{Burrow, PATIENCE, children, eventually, resident_bytes, written};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What `seq 1 last` prints.
fn numbers(last: u32) -> String {
    let mut text = String::new();
    for number in 1..=last {
        writeln!(text, "{number}").expect("a string takes all");
    }
    text
}

/// A script that prints the same in steps of ten thousand lines, and so takes a second or two for
/// some megabytes: long enough to be killed in the midst of.
fn flood(last: u32) -> String {
    assert!(last.is_multiple_of(10_000), "whole steps");
    let steps = last / 10_000;
    format!(
        "i=0; while [ $i -lt {steps} ]; do seq $((i * 10000 + 1)) $(((i + 1) * 10000)); \
         sleep 0.015; i=$((i + 1)); done"
    )
}

/// Asserts equality without printing megabytes.
fn assert_same(got: &[u8], wanted: &[u8], what: &str) {
    if got == wanted {
        return;
    }
    let at = got.iter().zip(wanted).take_while(|(got, wanted)| got == wanted).count();
    let around = |bytes: &[u8]| {
        let shown = bytes.get(at.saturating_sub(20)..bytes.len().min(at + 20));
        String::from_utf8_lossy(shown.unwrap_or_default()).into_owned()
    };
    let (has, wants) = (got.len(), wanted.len());
    panic!(
        "{what}: {has} of {wants} bytes, differs at {at}: {:?}/{:?}",
        around(got),
        around(wanted)
    );
}

/// A refusal with this code that names what a person needs to know.
fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is not in {stderr:?}");
    }
}

fn inspect(burrow: &Burrow, name: &str) -> Value {
    json(&burrow.ok(&["inspect", "--json", name]))
}

fn supervisor(burrow: &Burrow, name: &str) -> Pid {
    let pid = inspect(burrow, name)["pid"].as_i64().expect("a running box has a process");
    Pid::from_raw(pid as i32)
}

/// Waits until the recorder has given the session up, which is after all of it is in the log.
fn await_recorded(burrow: &Burrow, name: &str, session: &str) {
    eventually(&format!("session {session} is recorded"), || {
        let inspected = inspect(burrow, name);
        let sessions = inspected["sessions"].as_array().expect("a list");
        !sessions.iter().any(|known| known["session"] == session)
    });
}

fn logged(burrow: &Burrow, name: &str, session: &str) -> Vec<u8> {
    let output = burrow.run(&["logs", "--stdout", "--session", session, name]);
    // A gap would be reported there.
    assert_eq!(text(&output.stderr), "", "logs of {session}");
    output.stdout
}

/// The files below `dir`, with their sizes.
fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => found.extend(files(&entry.path())),
            Ok(metadata) => found.push((entry.path(), metadata.len())),
            // It went away meanwhile.
            Err(_) => {}
        }
    }
    found
}

/// How much all logs together have on disk.
fn log_bytes(burrow: &Burrow) -> u64 {
    files(&burrow.state().join("boxes")).iter().map(|(_, bytes)| bytes).sum()
}

/// The same numbers in every run, so that a failure can be had again.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Waits until the logs have grown by `bytes`, or `gone` says that they will not grow so far.
fn await_growth(burrow: &Burrow, bytes: u64, gone: impl Fn() -> bool) {
    let wanted = log_bytes(burrow) + bytes;
    eventually("the logs grow", || log_bytes(burrow) >= wanted || gone());
}

/// Ends a child that a failed test would leave.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_sandbox_is_started_listed_inspected_stopped_and_removed() {
    let burrow = Burrow::serving();
    assert_eq!(burrow.ok(&["start", "--name", "work", "-e", "SECRET=hush"]), "work\n");
    assert_eq!(burrow.ok(&["ps", "--quiet"]), "work\n");
    let table = burrow.ok(&["ps"]);
    assert!(table.contains("work") && table.contains("running"), "{table}");

    let inspected = inspect(&burrow, "work");
    assert_eq!(inspected["state"], "running");
    assert_eq!(inspected["agent"]["init"], true);
    assert_eq!(inspected["env_names"][0], "SECRET");
    assert_eq!(burrow.ok(&["exec", "work", "--", "sh", "-c", "echo $SECRET"]), "hush\n");
    for (path, _) in files(&burrow.state()) {
        let content = written(&path).expect("a file of ours");
        let stored = path.extension().is_some_and(|extension| extension == "json")
            && String::from_utf8_lossy(&content).contains("hush");
        assert!(!stored, "{} keeps a value of the environment", path.display());
    }

    assert_eq!(burrow.ok(&["stop", "work"]), "work\n");
    assert_eq!(burrow.ok(&["ps", "--quiet"]), "");
    let stopped = inspect(&burrow, "work");
    assert_eq!((&stopped["state"], &stopped["why"]), (&"stopped".into(), &"asked".into()));
    assert_eq!(burrow.ok(&["logs", "work"]), "hush\n", "logs stay readable");
    let refused = burrow.run(&["exec", "work", "--", "true"]);
    assert_refused(&refused, 125, &["work is not running", "host-bridge restart work"]);
    burrow.ok(&["stop", "work"]);

    assert_eq!(burrow.ok(&["rm", "work"]), "work\n");
    assert_eq!(burrow.ok(&["ps", "--all", "--quiet"]), "");
    assert_refused(&burrow.run(&["inspect", "work"]), 125, &["there is no sandbox work"]);
}

#[test]
fn a_taken_name_is_refused_and_a_namespace_has_names_of_its_own() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let taken = burrow.run(&["start", "--name", "work"]);
    assert_refused(&taken, 125, &["work is taken", "running", "host-bridge rm --force work"]);
    assert_eq!(burrow.ok(&["start", "--name", "ci/work"]), "ci/work\n");
    assert_eq!(burrow.ok(&["ps", "-q", "--namespace", "ci"]), "ci/work\n");
    burrow.ok(&["exec", "ci/work", "--", "sh", "-c", "echo there > /marker"]);
    let apart = burrow.run(&["exec", "work", "--", "cat", "/marker"]);
    assert_eq!(apart.status.code(), Some(1), "sandboxes share files");

    burrow.ok(&["kill", "work"]);
    assert_eq!(inspect(&burrow, "work")["why"], "killed");
    let taken = burrow.run(&["start", "--name", "work"]);
    assert_refused(&taken, 125, &["work is taken", "host-bridge restart work"]);
    burrow.ok(&["rm", "work"]);
    burrow.ok(&["start", "--name", "work"]);
}

#[test]
fn an_unknown_sandbox_is_refused_with_similar_names() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "worker"]);
    for verb in [
        &["exec", "worked", "--", "true"][..],
        &["inspect", "worked"],
        &["stop", "worked"],
        &["kill", "worked"],
        &["rm", "-f", "worked"],
        &["cp", "worked:/etc/hostname", "-"],
        &["port-forward", "worked", "0:80"],
        &["attach", "worked", "--session", "x"],
        &["logs", "worked"],
    ] {
        assert_refused(&burrow.run(verb), 125, &["there is no sandbox worked", "worker"]);
    }
}

#[test]
fn the_codes_and_the_streams_of_exec_are_those_of_its_program() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let output = burrow.run(&["exec", "work", "--", "sh", "-c", "echo out; echo err >&2; exit 9"]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n", "err\n"));
    assert_eq!(output.status.code(), Some(9));
    let fed = burrow.feed(&["exec", "-i", "work", "--", "sha1sum"], numbers(300_000).as_bytes());
    let fed_here = burrow.ok(&["run", "--", "sh", "-c", "seq 1 300000 | sha1sum"]);
    assert_eq!(text(&fed.stdout), fed_here);
    assert_refused(&burrow.run(&["exec", "work", "--", "no-such"]), 127, &["no-such"]);
    assert_refused(
        &burrow.run(&["exec", "--timeout", "300ms", "work", "--", "sleep", "1000"]),
        124,
        &["time limit"],
    );
    // What came of those is recorded like everything else, and nothing of them is kept.
    eventually("no session is left", || {
        inspect(&burrow, "work")["sessions"].as_array().is_some_and(Vec::is_empty)
    });
    let entries = burrow.ok(&["logs", "--json", "work"]);
    let failed = entries
        .lines()
        .map(json)
        .any(|entry| entry["record"]["cause"]["spawn_failed"]["failure"]["subject"] == "no-such");
    assert!(failed, "the start that failed is not in the log: {entries}");
    let log = std::fs::read_to_string(burrow.scratch().join("serve.log")).expect("a log");
    assert!(!log.contains("not recorded"), "{log}");
}

#[test]
fn a_signal_reaches_a_session_and_all_that_it_has_started() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let script = "trap 'echo got it; exit 3' HUP; echo ready; while :; do sleep 0.05; done";
    burrow.ok(&["exec", "-d", "--session", "trap", "work", "--", "sh", "-c", script]);
    burrow.ok(&[
        "exec",
        "-d",
        "--session",
        "tree",
        "work",
        "--",
        "sh",
        "-c",
        "setsid sleep 1000 & sleep 1000",
    ]);
    eventually("it is ready", || burrow.ok(&["logs", "work"]).contains("ready"));
    burrow.ok(&["kill", "-s", "HUP", "work", "trap"]);
    await_recorded(&burrow, "work", "trap");
    assert_eq!(logged(&burrow, "work", "trap"), b"ready\ngot it\n");
    burrow.ok(&["kill", "work", "tree"]);
    await_recorded(&burrow, "work", "tree");
    eventually("the sleepers are gone", || {
        burrow.run(&["exec", "work", "--", "pgrep", "-x", "sleep"]).status.code() == Some(1)
    });
}

#[test]
fn logs_come_by_tail_by_time_by_stream_and_as_json() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let script = "seq 1 1000; echo err >&2";
    burrow.ok(&["exec", "-d", "--session", "old", "work", "--", "sh", "-c", script]);
    await_recorded(&burrow, "work", "old");
    assert_same(&logged(&burrow, "work", "old"), numbers(1000).as_bytes(), "the log");
    let both = burrow.run(&["logs", "work"]);
    assert_eq!(text(&both.stderr), "err\n");
    let only = burrow.run(&["logs", "--stderr", "work"]);
    assert_eq!((text(&only.stdout), text(&only.stderr)), ("", "err\n"));
    assert_eq!(
        burrow.ok(&["logs", "--stdout", "--since", "1h", "--tail", "2", "work"]),
        "999\n1000\n"
    );

    // Which instants are between the two is for the log to say: clocks have no finer grain.
    let first: Vec<Value> = burrow.ok(&["logs", "--json", "work"]).lines().map(json).collect();
    assert_eq!(first[0]["event"], "started");
    let ended = first.last().expect("entries");
    assert_eq!(
        (&ended["event"], &ended["record"]["cause"]["exited"]["code"]),
        (&"exited".into(), &0.into())
    );
    let last_ms = ended["record"]["ended_at_ms"].as_u64().expect("a time");
    eventually("the clock moves on", || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.expect("after 1970").as_millis() as u64 > last_ms + 1500
    });
    burrow.ok(&["exec", "-d", "--session", "new", "work", "--", "echo", "late"]);
    await_recorded(&burrow, "work", "new");
    let since = (last_ms / 1000 + 1).to_string();
    assert_eq!(burrow.ok(&["logs", "--since", &since, "work"]), "late\n");
    let output: Vec<Value> = burrow
        .ok(&["logs", "--json", "--session", "new", "work"])
        .lines()
        .map(json)
        .filter(|entry| entry["event"] == "output")
        .collect();
    assert_eq!(output.len(), 1);
    assert_eq!((&output[0]["text"], &output[0]["offset"]), (&"late\n".into(), &0.into()));
}

#[test]
fn a_followed_log_shows_what_comes_and_ends_with_its_sandbox() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let script = "echo first; read line; echo $line; sleep 1000";
    let held = ["exec", "-i", "--session", "slow", "work", "--", "sh", "-c", script];
    let mut exec = Ended(
        burrow.command(&held).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts"),
    );
    let follow = burrow.command(&["logs", "-f", "work"]).stdout(Stdio::piped()).spawn();
    let mut follow = Ended(follow.expect("starts"));
    let mut lines = BufReader::new(follow.0.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().map(|line| line.expect("UTF-8"));
    assert_eq!(next().as_deref(), Some("first"));
    exec.0.stdin.take().expect("piped").write_all(b"second\n").expect("it reads");
    assert_eq!(next().as_deref(), Some("second"));
    burrow.ok(&["stop", "work"]);
    assert_eq!(next(), None);
    assert!(follow.0.wait().expect("it is ours").success());
    exec.0.wait().expect("it is ours");
}

#[test]
fn attached_users_learn_that_the_sandbox_ended() {
    let burrow = Burrow::serving();
    for (verb, code, word) in [
        (&["stop", "work"][..], 137, "because the sandbox was stopped"),
        (&["kill", "work"], 125, "the connection to the sandbox was lost"),
    ] {
        burrow.ok(&["start", "--name", "work"]);
        let exec = burrow
            .command(&["exec", "work", "--", "sh", "-c", "echo up; sleep 1000"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut exec = Ended(exec.expect("starts"));
        let mut up = [0; 3];
        exec.0.stdout.take().expect("piped").read_exact(&mut up).expect("output");
        burrow.ok(verb);
        let mut text = String::new();
        exec.0.stderr.take().expect("piped").read_to_string(&mut text).expect("UTF-8");
        assert_eq!(exec.0.wait().expect("it is ours").code(), Some(code), "{verb:?}: {text}");
        assert!(text.contains(word), "{verb:?}: {text}");
        burrow.ok(&["rm", "work"]);
    }
}

#[test]
fn a_second_daemon_in_the_same_place_is_refused() {
    let burrow = Burrow::serving();
    let pid = burrow.daemon_pid().to_string();
    let second = burrow.run(&["serve"]);
    assert_refused(&second, 125, &["another bridge", &pid, "BURROW_RUNTIME_DIR"]);
    assert!(burrow.run(&["ps"]).status.success(), "the first goes on");
    let elsewhere = burrow.scratch().join("elsewhere");
    let mut command = burrow.command(&["serve"]);
    let output = command.env("BURROW_RUNTIME_DIR", &elsewhere).output().expect("it runs");
    assert_refused(&output, 125, &["another bridge", "state"]);
}

#[test]
fn a_flood_is_whole_on_both_sides_of_a_killed_bridge() {
    const LAST: u32 = 3_000_000;
    const TRIES: usize = 10;
    let wanted = numbers(LAST);
    let mut burrow = Burrow::serving();
    for _ in 0..TRIES {
        burrow.ok(&["start", "--name", "work"]);
        burrow.ok(&["exec", "-d", "--session", "flood", "work", "--", "sh", "-c", &flood(LAST)]);
        let some = wanted.len() as u64 / 8;
        eventually("the flood has begun", || log_bytes(&burrow) >= some);
        burrow.kill_daemon();
        let before = log_bytes(&burrow);
        burrow.serve();
        assert_eq!(inspect(&burrow, "work")["state"], "running");
        await_recorded(&burrow, "work", "flood");
        assert_same(&logged(&burrow, "work", "flood"), wanted.as_bytes(), "the flood");
        if before < wanted.len() as u64 {
            return;
        }
        // On a host this busy we were too late to be in the midst of it.
        burrow.ok(&["rm", "-f", "work"]);
    }
    panic!("the flood was over before the kill, {TRIES} times");
}

#[test]
fn a_bridge_killed_again_and_again_loses_nothing_of_any_session() {
    const LAST: u32 = 1_100_000;
    const SESSIONS: [&str; 4] = ["a", "b", "c", "d"];
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    for session in SESSIONS {
        let script = format!("{}; seq 1 1000 >&2; exit 7", flood(LAST));
        burrow.ok(&["exec", "-d", "--session", session, "work", "--", "sh", "-c", &script]);
    }
    let wanted = numbers(LAST);
    let total = wanted.len() as u64 * SESSIONS.len() as u64;
    let mut chance = Chance(0x5eed);
    let mut kills = 0;
    while log_bytes(&burrow) < total {
        let growth = chance.below(2_000_000);
        await_growth(&burrow, growth, || log_bytes(&burrow) >= total);
        burrow.kill_daemon();
        kills += 1;
        // Now and then the next one does not even come to answer.
        if chance.below(3) == 0 {
            let mut short =
                Ended(burrow.command(&["serve"]).stderr(Stdio::null()).spawn().expect("starts"));
            let until = Instant::now() + Duration::from_millis(chance.below(60));
            while Instant::now() < until && matches!(short.0.try_wait(), Ok(None)) {
                std::thread::yield_now();
            }
        }
        burrow.serve();
    }
    assert!(kills >= 4, "only {kills} kills");
    for session in SESSIONS {
        await_recorded(&burrow, "work", session);
        assert_same(&logged(&burrow, "work", session), wanted.as_bytes(), session);
    }
    let entries = burrow.run(&["logs", "--json", "--stderr", "work"]);
    let exits = text(&entries.stdout).lines().map(json).filter(|entry| entry["event"] == "exited");
    let codes: Vec<Value> =
        exits.map(|entry| entry["record"]["cause"]["exited"]["code"].clone()).collect();
    assert_eq!(codes, vec![Value::from(7); SESSIONS.len()], "each end once");
    let errors = burrow.run(&["logs", "--stderr", "work"]);
    assert_eq!(errors.stderr.len(), numbers(1000).len() * SESSIONS.len());
}

#[test]
fn a_bridge_killed_at_seeded_moments_always_comes_back_to_its_sandboxes() {
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "first"]);
    let one = supervisor(&burrow, "first");
    let mut chance = Chance(0xb0a7);
    for round in 0..8 {
        let name = format!("box-{round}");
        let starting = burrow
            .command(&["start", "--name", &name])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let mut starting = Ended(starting.expect("starts"));
        let until = Instant::now() + Duration::from_millis(chance.below(40));
        while Instant::now() < until {
            std::thread::yield_now();
        }
        burrow.kill_daemon();
        let started = starting.0.wait().expect("it is ours").success();
        burrow.serve();
        let listed = burrow.ok(&["ps", "--all", "--quiet"]);
        let is_there = listed.lines().any(|line| line == name);
        assert!(is_there || !started, "{name} was said to be started and is gone");
        if is_there {
            assert_eq!(burrow.ok(&["exec", &name, "--", "echo", "here"]), "here\n");
        }
    }
    assert_eq!(supervisor(&burrow, "first"), one, "it is the same box still");
    assert_eq!(burrow.ok(&["exec", "first", "--", "echo", "here"]), "here\n");
    // Of those that were cut off nothing is left: as many directories as sandboxes.
    let count = burrow.ok(&["ps", "--all", "--quiet"]).lines().count();
    for parent in [burrow.runtime(), burrow.state()] {
        let boxes = std::fs::read_dir(parent.join("boxes")).expect("a directory").count();
        assert_eq!(boxes, count, "in {}", parent.display());
    }
}

#[test]
fn a_bridge_killed_while_idle_adopts_and_goes_on() {
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["exec", "work", "--", "sh", "-c", "echo kept > /file"]);
    let before = supervisor(&burrow, "work");
    for _ in 0..3 {
        burrow.kill_daemon();
        let refused = burrow.run(&["ps"]);
        assert_refused(&refused, 125, &["no bridge serves", "omit --no-daemon"]);
        burrow.serve();
        assert_eq!(supervisor(&burrow, "work"), before);
        assert_eq!(burrow.ok(&["exec", "work", "--", "cat", "/file"]), "kept\n");
    }
    let log = std::fs::read_to_string(burrow.scratch().join("serve.log")).expect("a log");
    assert!(log.contains("work: adopted"), "{log}");
    burrow.ok(&["stop", "work"]);
    assert_eq!(inspect(&burrow, "work")["why"], "asked");
}

#[test]
fn a_sandbox_that_ended_while_the_bridge_was_away_is_shown_as_stopped() {
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["exec", "-d", "work", "--", "sh", "-c", "echo said; sleep 1000"]);
    eventually("it has spoken", || burrow.ok(&["logs", "work"]) == "said\n");
    let pid = supervisor(&burrow, "work");
    burrow.kill_daemon();
    kill(pid, Signal::SIGKILL).expect("it is ours");
    eventually("it is gone", || resident_bytes(pid).is_none());
    burrow.serve();
    let inspected = inspect(&burrow, "work");
    assert_eq!(
        (&inspected["state"], &inspected["why"]),
        (&"stopped".into(), &"bridge_away".into())
    );
    assert_eq!(burrow.ok(&["logs", "-f", "work"]), "said\n", "the log is closed");
    let refused = burrow.run(&["exec", "work", "--", "true"]);
    assert_refused(&refused, 125, &["ended while the bridge was away"]);
    burrow.ok(&["rm", "work"]);
}

#[test]
fn a_sandbox_whose_agent_is_killed_under_a_living_bridge_is_shown_as_stopped() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let pid = supervisor(&burrow, "work");
    for init in children(pid) {
        kill(init, Signal::SIGKILL).expect("it is ours");
    }
    eventually("it is stopped", || inspect(&burrow, "work")["state"] == "stopped");
    assert!(inspect(&burrow, "work")["why"]["ended"].is_object());
}

#[test]
fn a_daemon_that_is_asked_to_end_leaves_its_sandboxes_to_the_next() {
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    burrow.ok(&["exec", "-d", "--session", "on", "work", "--", "sh", "-c", "echo a; sleep 1000"]);
    let before = supervisor(&burrow, "work");
    assert_eq!(burrow.end_daemon(), Some(0));
    assert!(resident_bytes(before).is_some(), "the sandbox has ended with the daemon");
    assert!(!burrow.runtime().join("control.sock").exists());
    burrow.serve();
    assert_eq!(supervisor(&burrow, "work"), before);
    assert_eq!(inspect(&burrow, "work")["sessions"][0]["session"], "on");
}

#[test]
fn a_daemon_that_is_asked_to_stop_its_sandboxes_does() {
    let mut burrow = Burrow::serving_with(&["--stop-sandboxes"]);
    burrow.ok(&["start", "--name", "work"]);
    let pid = supervisor(&burrow, "work");
    assert_eq!(burrow.end_daemon(), Some(0));
    assert_eq!(resident_bytes(pid), None);
    burrow.serve();
    assert_eq!(inspect(&burrow, "work")["why"], "asked");
}

/// A process with all that descend from it.
fn family(pid: Pid) -> Vec<Pid> {
    let mut all = vec![pid];
    let mut at = 0;
    while at < all.len() {
        all.extend(children(all[at]));
        at += 1;
    }
    all
}

/// Control groups of this name anywhere in the unified hierarchy.
fn control_groups(name: &str) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let roots = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(point))
    });
    let mut waiting: Vec<PathBuf> = roots.collect();
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() == name {
                    found.push(entry.path());
                }
                waiting.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn nothing_of_a_removed_sandbox_is_left() {
    let mut burrow = Burrow::serving();
    for (round, kill_daemon) in [false, true].into_iter().enumerate() {
        burrow.ok(&["start", "--name", "work"]);
        let script = "setsid sleep 1000 & (sleep 1000 &) ; echo up; sleep 1000";
        burrow.ok(&["exec", "-d", "work", "--", "sh", "-c", script]);
        eventually("it is up", || burrow.ok(&["logs", "work"]) == "up\n");
        if kill_daemon {
            burrow.kill_daemon();
            burrow.serve();
        }
        let inspected = inspect(&burrow, "work");
        let id = inspected["id"].as_str().expect("an id").to_owned();
        let processes = family(supervisor(&burrow, "work"));
        assert!(processes.len() >= 5, "round {round}: {processes:?}");
        let refused = burrow.run(&["rm", "work"]);
        assert_refused(&refused, 125, &["work is running"]);
        burrow.ok(&["rm", "-f", "work"]);

        for pid in processes {
            eventually("its processes are gone", || resident_bytes(pid).is_none());
        }
        let boxes = [burrow.runtime(), burrow.state()].map(|parent| files(&parent.join("boxes")));
        assert!(boxes.iter().all(Vec::is_empty), "{boxes:?}");
        for file in ["/proc/mounts", "/proc/net/unix"] {
            let seen = std::fs::read_to_string(file).expect("/proc");
            assert!(!seen.contains(&id), "{file} names {id}");
        }
        let groups = control_groups(&format!("burrow-{id}"));
        assert!(groups.is_empty(), "{groups:?}");
    }
    match std::fs::read_dir(format!("/proc/{}/fd", burrow.daemon_pid())) {
        Ok(open) => assert!(open.count() < 40, "the daemon has too many descriptors open"),
        // It shows them to root alone.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
}

#[test]
fn the_stream_of_an_exec_outlives_the_daemon() {
    // Less than a spool, since nobody records it while there is no daemon.
    const FIRST: u32 = 100_000;
    const SECOND: u32 = 700_000;
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let script =
        format!("echo ready; read go; seq 1 {FIRST}; echo half; read go; seq 1 {SECOND}; exit 5");
    let command = ["exec", "-i", "--session", "on", "work", "--", "sh", "-c", &script];
    let exec = burrow.command(&command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut exec = Ended(exec.expect("starts"));
    let mut stdin = exec.0.stdin.take().expect("piped");
    let mut stdout = BufReader::new(exec.0.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("output");
    assert_eq!(line, "ready\n");
    burrow.kill_daemon();
    stdin.write_all(b"go\n").expect("the program reads");
    let mut first = vec![0; numbers(FIRST).len() + "half\n".len()];
    stdout.read_exact(&mut first).expect("output");
    assert_same(&first, (numbers(FIRST) + "half\n").as_bytes(), "what came without a daemon");
    burrow.serve();
    stdin.write_all(b"go\n").expect("the program reads");
    let mut second = Vec::new();
    stdout.read_to_end(&mut second).expect("output");
    assert_same(&second, numbers(SECOND).as_bytes(), "what came after it");
    assert_eq!(exec.0.wait().expect("it is ours").code(), Some(5));
    await_recorded(&burrow, "work", "on");
    let all = format!("ready\n{}half\n{}", numbers(FIRST), numbers(SECOND));
    assert_same(&logged(&burrow, "work", "on"), all.as_bytes(), "the record of it");
}

#[test]
fn a_session_of_the_same_name_is_the_same_process() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let start =
        ["exec", "-d", "--session", "one", "work", "--", "sh", "-c", "echo once; sleep 1000"];
    burrow.ok(&start);
    burrow.ok(&start);
    eventually("it has spoken", || !burrow.ok(&["logs", "work"]).is_empty());
    assert_eq!(burrow.ok(&["logs", "work"]), "once\n");
    let other = burrow.run(&["exec", "-d", "--session", "one", "work", "--", "true"]);
    assert_refused(&other, 125, &["one", "differently"]);
}

#[test]
fn a_stop_grants_its_grace_and_no_more() {
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "polite"]);
    let script = "trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.05; done";
    burrow.ok(&["exec", "-d", "polite", "--", "sh", "-c", script]);
    eventually("it is up", || burrow.ok(&["logs", "polite"]) == "up\n");
    burrow.ok(&["stop", "--grace", "20s", "polite"]);
    assert_eq!(burrow.ok(&["logs", "polite"]), "up\nbye\n", "what it says at the end is kept");

    burrow.ok(&["start", "--name", "deaf"]);
    let script = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    burrow.ok(&["exec", "-d", "deaf", "--", "sh", "-c", script]);
    eventually("it is up", || burrow.ok(&["logs", "deaf"]) == "up\n");
    let before = Instant::now();
    burrow.ok(&["stop", "--grace", "300ms", "deaf"]);
    assert!(before.elapsed() < PATIENCE / 2, "{:?}", before.elapsed());
    assert_eq!(inspect(&burrow, "deaf")["state"], "stopped");
}

#[test]
fn a_sparse_file_stays_sparse_both_ways() {
    const BYTES: u64 = 64 * 1024 * 1024;
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let tree = burrow.scratch().join("tree");
    std::fs::create_dir(&tree).expect("a directory");
    let file = std::fs::File::create(tree.join("image")).expect("a file");
    file.write_all_at(b"middle", BYTES / 2).expect("there is room");
    file.set_len(BYTES).expect("there is room");
    let path = |name: &str| burrow.scratch().join(name).display().to_string();
    burrow.ok(&["cp", &path("tree/image"), "work:/tmp/alone"]);
    burrow.ok(&["cp", &path("tree"), "work:/tmp/tree"]);
    for name in ["alone", "tree/image"] {
        let script = format!("stat -c '%s %b' /tmp/{name}");
        let answer = burrow.ok(&["exec", "work", "sh", "-c", &script]);
        let (bytes, blocks) = answer.trim().split_once(' ').expect("two numbers");
        assert_eq!(bytes.parse(), Ok(BYTES), "{name}");
        let stored = blocks.parse::<u64>().expect("a number") * 512;
        assert!(stored < 1024 * 1024, "{name}: {stored} bytes are stored");
    }
    burrow.ok(&["cp", "work:/tmp/tree", &path("back")]);
    let back = std::fs::metadata(burrow.scratch().join("back/image")).expect("it is back");
    assert!(back.blocks() * 512 < 1024 * 1024, "{} blocks", back.blocks());
    let mut same = std::process::Command::new("cmp");
    same.arg(tree.join("image")).arg(path("back/image"));
    assert!(same.status().expect("cmp runs").success());
}

#[test]
fn clients_that_are_killed_in_a_flood_leave_no_session_and_a_finished_log() {
    const CLIENTS: usize = 12;
    let burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "work"]);
    let mut clients: Vec<Child> = (0..CLIENTS)
        .map(|_| {
            let arguments = ["exec", "work", "--", "sh", "-c", "echo begin; exec yes"];
            burrow.command(&arguments).stdout(Stdio::piped()).spawn().expect("it starts")
        })
        .collect();
    for client in &mut clients {
        let mut first = [0; 6];
        client.stdout.as_mut().expect("piped").read_exact(&mut first).expect("it begins");
        assert_eq!(&first, b"begin\n");
    }
    for mut client in clients {
        client.kill().expect("it is ours");
        client.wait().expect("it was ours");
    }
    eventually("every session is forgotten", || {
        let inspected = json(&burrow.ok(&["inspect", "--json", "work"]));
        inspected["sessions"].as_array().is_some_and(Vec::is_empty)
    });
    eventually("every end is in the log", || {
        let all = burrow.run(&["logs", "--json", "--stderr", "work"]).stdout;
        let exits = text(&all).lines().filter(|entry| entry.contains("\"exited\"")).count();
        exits == CLIENTS
    });
}
