//! The session on lines: versions, progress, cancellation, and what is left when a client is gone.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::mcp::{Lines, VERSION_WITHOUT_SESSIONS, text};
use tests::{Burrow, children, eventually};

/// The sandboxes that the daemon has.
fn boxes(burrow: &Burrow) -> Vec<String> {
    let listed = burrow.ok(&["ps", "--all", "--quiet"]);
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn every_version_is_spoken_and_an_unknown_one_is_answered_with_a_known() {
    let burrow = Burrow::new();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut lines = Lines::start(&burrow, &[]);
        let message = lines.initialize(version);
        assert_eq!(message["protocolVersion"], version);
        assert_eq!(message["serverInfo"]["name"], "burrow");
        assert!(message["capabilities"]["tools"].is_object(), "{message}");
        assert!(!lines.ask("tools/list", &json!({}))["result"]["tools"].is_null());
        assert_eq!(lines.close(), Some(0));
    }
    let mut lines = Lines::start(&burrow, &[]);
    assert_eq!(lines.initialize("1999-01-01")["protocolVersion"], "2025-11-25");
}

#[test]
fn the_version_without_sessions_is_spoken() {
    let burrow = Burrow::new();
    let mut lines = Lines::start(&burrow, &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION_WITHOUT_SESSIONS,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    let found = lines.ask("server/discover", &json!({ "_meta": meta }));
    assert!(
        found["result"]["supportedVersions"].to_string().contains(VERSION_WITHOUT_SESSIONS),
        "{found}"
    );
    let body = json!({ "_meta": meta, "name": "execute", "arguments": { "code": "6 * 7" } });
    let ran = lines.ask("tools/call", &body);
    assert_eq!(ran["result"]["structuredContent"]["value"], "42", "{ran}");
    assert_eq!(ran["result"]["resultType"], "complete");
}

#[test]
fn a_long_run_tells_how_far_it_is() {
    let burrow = Burrow::new();
    let mut lines = Lines::open(&burrow, &[]);
    lines.ok("execute", &json!({ "code": "import time" }));
    let code = "print('x' * 10, flush=True)\ntime.sleep(3.2)";
    let body = json!({
        "name": "execute", "arguments": { "code": code, "timeout": 60 },
        "_meta": { "progressToken": "token-1" }
    });
    let id = lines.send("tools/call", &body);
    assert_eq!(lines.hear(id)["result"]["isError"], false);
    let answer: Vec<&Value> = lines
        .notices
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .collect();
    assert!(answer.len() >= 2, "{answer:?}");
    let progress: Vec<_> =
        answer.iter().map(|message| message["params"]["progress"].as_f64().unwrap()).collect();
    assert!(progress.is_sorted_by(|before, after| before < after), "{progress:?}");
    assert_eq!(answer[0]["params"]["progressToken"], "token-1");
    assert!(answer[0]["params"]["message"].as_str().unwrap().contains("11 bytes"), "{answer:?}");
}

#[test]
fn a_cancelled_run_is_interrupted_and_keeps_its_variables() {
    let burrow = Burrow::new();
    let mut lines = Lines::open(&burrow, &[]);
    lines.ok("execute", &json!({ "code": "import time; kept = 1" }));
    let code = "open('/tmp/begun', 'w').close()\ntime.sleep(600)";
    let id = lines.send("tools/call", &json!({ "name": "execute", "arguments": { "code": code } }));
    eventually("the run has begun", || {
        let looked = lines.call("read_file", &json!({ "path": "/tmp/begun" }));
        looked["isError"] == false
    });
    let begun = Instant::now();
    lines.say(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id }
    }));
    assert_eq!(lines.ok("execute", &json!({ "code": "kept" }))["value"], "1");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(
        lines.notices.iter().all(|message| message["id"] != id),
        "what is cancelled is not answered"
    );
}

#[test]
fn a_cancelled_command_is_killed_with_all_that_it_has_started() {
    let burrow = Burrow::new();
    let mut lines = Lines::open(&burrow, &[]);
    let command = "touch /tmp/begun; sleep 4321 & sleep 4321";
    let body = json!({ "name": "shell_execute", "arguments": { "command": command } });
    lines.ok("execute", &json!({ "code": "1" }));
    let id = lines.send("tools/call", &body);
    eventually("the command has begun", || {
        lines.call("read_file", &json!({ "path": "/tmp/begun" }))["isError"] == false
    });
    lines.say(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id }
    }));
    // A pattern that its own search does not match.
    let count = "grep -al 'sleep.43[2]1' /proc/[0-9]*/cmdline 2>/dev/null | wc -l";
    eventually("nothing of it is left", || {
        lines.ok("shell_execute", &json!({ "command": count }))["stdout"] == "0\n"
    });
}

#[test]
fn two_sessions_have_a_sandbox_each_and_the_end_of_one_is_not_the_others() {
    let burrow = Burrow::serving();
    let (mut one, mut two) =
        (Lines::open(&burrow, &[]), Lines::open(&burrow, &["--namespace", "team"]));
    let first = one.ok("execute", &json!({ "code": "x = 1" }))["sandbox"].clone();
    let second = two.ok("execute", &json!({ "code": "x = 2" }))["sandbox"].clone();
    assert!(second.as_str().unwrap().starts_with("team/mcp-"), "{second}");
    let mut both = boxes(&burrow);
    both.sort();
    let mut expected = [first.as_str().unwrap().to_owned(), second.as_str().unwrap().to_owned()];
    expected.sort();
    assert_eq!(both, expected);
    // A name without a namespace is one of the session's.
    let name = second.as_str().unwrap().strip_prefix("team/").unwrap();
    assert_eq!(two.ok("execute", &json!({ "code": "x", "sandbox": name }))["value"], "2");
    assert_eq!(one.close(), Some(0));
    eventually("its sandbox is gone", || boxes(&burrow) == [second.as_str().unwrap()]);
    assert_eq!(two.ok("execute", &json!({ "code": "x" }))["value"], "2");
}

#[test]
fn a_client_that_is_killed_leaves_no_sandbox() {
    let burrow = Burrow::serving();
    let mut lines = Lines::open(&burrow, &[]);
    lines.ok("execute", &json!({ "code": "1" }));
    let endless = json!({ "name": "execute", "arguments": { "code": "while True: pass" } });
    lines.send("tools/call", &endless);
    assert_eq!(boxes(&burrow).len(), 1);
    lines.signal(Signal::SIGKILL);
    lines.wait();
    eventually("its sandbox is gone", || boxes(&burrow).is_empty());
}

#[test]
fn without_a_daemon_all_ends_with_the_program_however_it_ends() {
    let burrow = Burrow::new();
    for signal in [None, Some(Signal::SIGTERM), Some(Signal::SIGINT), Some(Signal::SIGKILL)] {
        let mut lines = Lines::open(&burrow, &[]);
        lines.ok("execute", &json!({ "code": "1" }));
        lines.ok("sandbox_create", &json!({ "name": "kept" }));
        let started = children(lines.pid());
        assert!(!started.is_empty(), "a sandbox is a process");
        match signal {
            None => assert_eq!(lines.close(), Some(0)),
            Some(signal) => {
                lines.signal(signal);
                lines.wait();
            }
        }
        eventually("its sandboxes are gone", || {
            started.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
        });
        let left = std::fs::read_dir(burrow.runtime()).unwrap().flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("mcp-"));
        assert_eq!(left.count(), usize::from(signal == Some(Signal::SIGKILL)), "{signal:?}");
    }
}

#[test]
fn two_programs_without_a_daemon_go_on_beside_each_other() {
    let burrow = Burrow::new();
    let (mut one, mut two) = (Lines::open(&burrow, &[]), Lines::open(&burrow, &[]));
    one.ok("execute", &json!({ "code": "x = 1" }));
    let apart = two.call("execute", &json!({ "code": "x" }));
    assert_eq!(apart["structuredContent"]["error"]["type"], "NameError", "{}", text(&apart));
    // What holds the others' sandboxes is hidden from them.
    let place = burrow.runtime().display().to_string();
    let looked =
        two.ok("shell_execute", &json!({ "command": format!("ls -A {place} 2>&1 | wc -l") }));
    assert!(["0\n", "1\n"].contains(&looked["stdout"].as_str().unwrap()), "{looked}");
}

#[test]
fn invalid_messages_end_nothing() {
    let burrow = Burrow::new();
    let mut lines = Lines::open(&burrow, &[]);
    lines.say(&json!("words"));
    lines.say(&json!({ "jsonrpc": "2.0", "id": 99, "method": "nobody/knows" }));
    assert!(lines.ask("ping", &json!({})).get("result").is_some());
}
