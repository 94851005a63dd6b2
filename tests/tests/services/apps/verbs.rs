//! The same from the command line.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tests::http::Client;

use super::*;

#[test]
fn an_app_is_started_found_read_and_ended_from_the_command_line() {
    if !tests::have_or_skip("python3") {
        return;
    }
    let server = Server::dev();
    server.ok(&["start", "--name", "work"]);
    let start = ["app", "start", "work", "--name", "files", "-e", "WORD=spoken", "--"];
    let line = "echo $WORD; exec python3 -m http.server $PORT --bind 127.0.0.1";
    let url = server.ok(&[&start[..], &["sh", "-c", line]].concat());
    let url = url.trim();
    assert_eq!(Client::new(url.trim_end_matches('/')).get("/").status, 200);
    assert_eq!(server.ok(&["app", "url", "work", "files"]).trim(), url);
    let listed: Value = serde_json::from_str(&server.ok(&["app", "ls", "--json"])).expect("JSON");
    assert_eq!((&listed[0]["app"], &listed[0]["state"]), (&json!("files"), &json!("running")));
    assert_eq!(listed[0]["url"], url, "{listed}");
    let table = server.ok(&["app", "ls", "work"]);
    assert!(table.contains("files") && table.contains("running") && table.contains(url), "{table}");
    eventually("its log has what it said", || {
        server.ok(&["app", "logs", "work", "files"]).contains("spoken")
    });
    assert_eq!(server.ok(&["app", "stop", "work", "files"]).trim(), "files");
    assert_eq!(server.ok(&["app", "ls", "--json"]).trim(), "[]");
    assert!(TcpStream::connect(url.trim_start_matches("http://").trim_end_matches('/')).is_err());
}

#[test]
fn an_app_that_never_answers_reports_why_and_leaves_nothing() {
    let server = Server::dev();
    server.ok(&["start", "--name", "work"]);
    let refused = |arguments: &[&str]| {
        let ran = server.run(arguments);
        assert!(!ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stderr).expect("UTF-8")
    };
    let line = "echo the-last-word >&2; exit 3";
    let message = refused(&["app", "start", "work", "--", "sh", "-c", line]);
    assert!(message.contains("the-last-word"), "{message}");
    assert_eq!(server.ok(&["app", "ls", "--json"]).trim(), "[]");
    assert!(refused(&["app", "url", "work", "none"]).contains("has no app none"));
    assert!(refused(&["app", "stop", "work", "none"]).contains("`host-bridge app ls`"));
    assert!(refused(&["app", "ls", "nowhere"]).contains("nowhere"));
    let audited = server.ok(&["audit", "--json"]);
    let started = audited.lines().filter(|line| line.contains("\"start_app\""));
    let started: Vec<Value> =
        started.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(started.len(), 1, "{audited}");
    assert_eq!((&started[0]["door"], &started[0]["outcome"]), (&json!("cli"), &json!("failed")));
    assert_eq!(started[0]["sandbox"], "work");
}

#[test]
fn an_interrupted_start_leaves_nothing() {
    let (server, client) = open();
    let listed =
        || -> Value { serde_json::from_str(&server.ok(&["app", "ls", "--json"])).expect("JSON") };
    let line = format!("echo begun; sleep 600 # {MARK}");
    // Once in order, as a terminal does it, and once without a chance to clean up.
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGKILL] {
        let arguments = ["app", "start", "box", "--name", "slow", "--", "sh", "-c", &line];
        let mut command = server.command(&arguments);
        let mut start =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        eventually("its program runs", || {
            server.run(&["app", "logs", "box", "slow"]).stdout == b"begun\n"
        });
        assert_eq!(
            (&listed()[0]["app"], &listed()[0]["state"]),
            (&json!("slow"), &json!("starting"))
        );
        kill(Pid::from_raw(start.id().cast_signed()), signal).expect("it is ours");
        assert!(!start.wait().expect("it is ours").success());
        // Its name is free again, too: the next round uses it.
        eventually("it is let go of", || listed() == json!([]));
        nothing_is_left(&server, &client);
    }
    eventually("each is audited as begun and failed", || {
        let audited = server.ok(&["audit", "--json"]);
        let started = audited.lines().filter(|line| line.contains("\"start_app\""));
        started.filter(|line| line.contains("\"outcome\":\"failed\"")).count() == 3
    });
}
