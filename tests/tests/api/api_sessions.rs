//! Sessions over the server's door: output from any place on, input that is typed once, terminals over
//! a plain WebSocket, and what is left when agent or sandbox are gone.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::door::{BOX, open};
use tests::eventually;
use tests::http::{Answer, Client, Socket, SocketMessage};
use tests::server::Server;

const MIB: usize = 1024 * 1024;

fn start(client: &Client, body: &Value) -> Answer {
    client.post(&format!("{BOX}/sessions"), body)
}

fn raw(client: &Client, path: &str) -> Answer {
    let headers = [("accept", "application/octet-stream")];
    client.send("GET", &format!("{BOX}/sessions/{path}"), &headers, &[])
}

fn input(client: &Client, path: &str, bytes: &[u8]) -> Answer {
    let headers = [("content-type", "application/octet-stream")];
    client.send("POST", &format!("{BOX}/sessions/{path}"), &headers, bytes)
}

/// The text of a program that writes so many lines of 64 bytes with their numbers.
fn numbered(lines: usize) -> String {
    format!("seq -f %063.0f {lines}")
}

fn numbered_output(lines: usize) -> Vec<u8> {
    (1..=lines).flat_map(|line| format!("{line:063}\n").into_bytes()).collect()
}

/// Shows a terminal's bytes until they have this word, and returns them all.
fn screen_until(socket: &mut Socket, word: &str) -> String {
    let mut screen = Vec::new();
    while !String::from_utf8_lossy(&screen).contains(word) {
        match socket.hear() {
            SocketMessage::Binary(bytes) => screen.extend(bytes),
            SocketMessage::Value(_) => {}
            SocketMessage::Closed(code) => panic!("closed with {code:?} after {screen:?}"),
        }
    }
    String::from_utf8_lossy(&screen).into_owned()
}

#[test]
fn a_start_that_is_repeated_is_one_session_also_when_it_has_ended() {
    let (_server, client) = open();
    let body = json!({ "script": "echo x >> /tmp/runs", "session": "once" });
    assert_eq!(start(&client, &body).expect(201).json()["session"], "once");
    assert_eq!(start(&client, &body).expect(200).json()["session"], "once");
    let waited = client.get(&format!("{BOX}/sessions/once/wait")).expect(200).json();
    assert_eq!(waited["exit"]["success"], true);
    // The agent forgets it now that it is recorded.
    eventually("it is recorded", || {
        client.get(&format!("{BOX}/sessions/once")).json()["live"] == false
    });
    let again = start(&client, &body).expect(200).json();
    assert_eq!((&again["running"], &again["live"]), (&json!(false), &json!(false)));
    let other = start(&client, &json!({ "argv": ["true"], "session": "once" })).expect(409);
    assert_eq!(other.json()["details"]["reason"], "session_exists");
    let runs = client.post(&format!("{BOX}/exec"), &json!({ "argv": ["cat", "/tmp/runs"] }));
    assert_eq!(runs.json()["stdout"], "x\n");
}

#[test]
fn invalid_sessions_are_refused() {
    let (_server, client) = open();
    for body in [
        json!({}),
        json!({ "argv": ["true"], "script": "true" }),
        json!({ "argv": ["true"], "terminal": { "rows": 0, "columns": 80 } }),
        json!({ "argv": ["true"], "spool": { "bytes": 1 } }),
        json!({ "argv": ["true"], "session": "-" }),
    ] {
        assert_eq!(start(&client, &body).status, 400, "{body}");
    }
    assert_eq!(start(&client, &json!({ "argv": ["no-such-program"] })).code(), "spawn_failed");
    for path in ["none", "none/wait", "none/output", "none/attach"] {
        let refused = client.get(&format!("{BOX}/sessions/{path}"));
        assert_eq!(refused.code(), "not_found", "{path}");
    }
    let _ = start(&client, &json!({ "argv": ["sleep", "20"], "session": "s" })).expect(201);
    let get = |path: &str| client.get(&format!("{BOX}/sessions/s/{path}"));
    assert_eq!(get("output?channel=terminal").status, 400);
    assert_eq!(get("output?from=1&tail=1").status, 400);
    assert_eq!(get("output?from=1").status, 416);
    assert_eq!(raw(&client, "s/output").status, 400);
    let size = json!({ "rows": 1, "columns": 1 });
    assert_eq!(client.post(&format!("{BOX}/sessions/s/resize"), &size).status, 400);
    let signal = |signal: Value| {
        client.post(&format!("{BOX}/sessions/s/signal"), &json!({ "signal": signal })).status
    };
    assert_eq!(signal(json!("NOPE")), 400);
    assert_eq!(signal(json!(99)), 400);
    assert_eq!(client.delete(&format!("{BOX}/sessions/s")).status, 409);
    assert_eq!(get("wait?timeout_ms=10").json(), json!({ "running": true }));
    assert_eq!(signal(json!("TERM")), 204);
    let exit = get("wait").json();
    assert_eq!(exit["exit"]["cause"]["type"], "killed");
    assert_eq!(exit["exit"]["exit_code"], 143);
}

/// Holds a lease on the file that it is given: an execution of it waits, as on a file system that does not answer,
/// for 45 seconds or until a signal ends the wait.
const HOLD: &str = "\
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
signal.pause()";

#[test]
fn a_session_whose_program_cannot_begin_is_listed_as_starting_and_every_door_ends_it() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let project = server.scratch().join("project");
    fs::create_dir(&project).expect("a directory");
    fs::copy(tests::path_of("true"), project.join("slow")).expect("a program");
    let mut holder = Command::new("python3");
    holder.args(["-c", HOLD]).arg(project.join("slow")).stdout(Stdio::piped());
    let mut holder = holder.spawn().expect("Python");
    let mut line = [0];
    holder.stdout.as_mut().expect("its output").read_exact(&mut line).expect("it has the lease");
    let workspace = project.to_str().expect("UTF-8");
    server.ok(&["start", "--name", "box", "--workspace", workspace, "--mount"]);
    let (kill, delete) = (["kill", "box", "by-verb"], format!("{BOX}/sessions/by-call?kill=true"));
    let signal = format!("{BOX}/sessions/by-signal/signal");
    let ends: [(&str, &dyn Fn()); 3] = [
        ("by-verb", &|| drop(server.ok(&kill))),
        ("by-call", &|| drop(client.delete(&delete).expect(204))),
        ("by-signal", &|| drop(client.post(&signal, &json!({ "signal": "KILL" })).expect(204))),
    ];
    for (session, end) in ends {
        let slow = json!({ "argv": ["/workspace/slow"], "session": session });
        std::thread::scope(|scope| {
            let started = scope.spawn(|| start(&client, &slow));
            let path = format!("{BOX}/sessions/{session}");
            eventually("it is listed", || client.get(&path).json()["starting"] == true);
            let shown = client.get(&path).json();
            assert_eq!(
                (&shown["running"], &shown["live"]),
                (&json!(true), &json!(true)),
                "{shown}"
            );
            let inspected = server.ok(&["inspect", "box"]);
            let row = inspected.lines().find(|line| line.contains(session)).expect("a row");
            assert!(row.contains("starting"), "{row}");
            let begun = Instant::now();
            end();
            let _ = started.join().expect("it is answered");
            assert!(begun.elapsed() < tests::slowed(Duration::from_secs(10)), "{session}");
        });
    }
    holder.kill().expect("it is ours");
    holder.wait().expect("it is ours");
    server.ok(&["rm", "--force", "box"]);
}

#[test]
fn a_reader_that_loses_its_connection_misses_nothing_and_reads_nothing_twice() {
    let (_server, client) = open();
    let lines = 20 * MIB / 64;
    let body = json!({ "script": numbered(lines), "session": "big" });
    let _ = start(&client, &body).expect(201);
    let mut got: Vec<u8> = Vec::new();
    let mut connections = 0;
    let mut over = false;
    while !over {
        connections += 1;
        // Each connection breaks off a little later than the one before, wherever that is.
        let path =
            format!("{BOX}/sessions/big/output?channel=stdout&follow=true&from={}", got.len());
        for event in client.lines(&path, None).take(3 + 2 * connections) {
            match event["type"].as_str() {
                Some("output") => {
                    assert_eq!(event["offset"], got.len());
                    got.extend(event["text"].as_str().expect("text").as_bytes());
                }
                Some("exited") => over = true,
                _ => panic!("{event}"),
            }
        }
    }
    assert!(connections > 5, "{connections}");
    assert!(got == numbered_output(lines), "the output differs");
}

#[test]
fn a_slow_reader_holds_up_neither_the_program_nor_a_quick_one() {
    let (_server, client) = open();
    let lines = 20 * MIB / 64;
    let script = format!("read go; {}", numbered(lines));
    let _ =
        start(&client, &json!({ "script": script, "session": "big", "stdin": true })).expect(201);
    let path = format!("{BOX}/sessions/big/output?channel=stdout&follow=true");
    let slow = client.websocket(&path, &[]);
    let mut quick = client.lines(&path, None);
    let _ = input(&client, "big/input", b"go\n").expect(200);
    let mut count = 0;
    let last = loop {
        let event = quick.next().expect("an event");
        match event["text"].as_str() {
            Some(text) => count += text.len(),
            None => break event,
        }
    };
    assert_eq!((count, &last["type"]), (lines * 64, &json!("exited")));
    // Only now the slow one reads, and has it all.
    let mut slow = slow;
    let mut got: Vec<u8> = Vec::new();
    loop {
        let event = slow.hear_value();
        match event["text"].as_str() {
            Some(text) => {
                assert_eq!(event["offset"], got.len());
                got.extend(text.as_bytes());
            }
            None => break assert_eq!(event["type"], "exited"),
        }
    }
    assert!(got == numbered_output(lines), "the output differs");
    assert_eq!(slow.hear(), SocketMessage::Closed(Some(1000)));
}

#[test]
fn output_is_read_as_bytes_from_any_place_and_from_the_end() {
    let (_server, client) = open();
    let lines = 4 * MIB / 64;
    let _ = start(&client, &json!({ "script": numbered(lines), "session": "big" })).expect(201);
    let _ = client.get(&format!("{BOX}/sessions/big/wait")).expect(200);
    let expected = numbered_output(lines);
    let end = expected.len();
    for from in [0, 1, 64, MIB, 2 * MIB + 7, end - 1, end] {
        let answer = raw(&client, &format!("big/output?channel=stdout&from={from}")).expect(200);
        assert_eq!(answer.header("burrow-offset"), Some(from.to_string().as_str()));
        assert!(answer.body == expected[from..], "from {from}: {} bytes", answer.body.len());
    }
    for tail in [0, 1, 100, 3 * MIB, 9 * MIB] {
        let answer = raw(&client, &format!("big/output?channel=stdout&tail={tail}")).expect(200);
        let from = end.saturating_sub(tail);
        assert_eq!(answer.header("burrow-offset"), Some(from.to_string().as_str()));
        assert!(answer.body == expected[from..], "tail {tail}: {} bytes", answer.body.len());
    }
    let refused = raw(&client, &format!("big/output?channel=stdout&from={}", end + 1)).expect(416);
    assert_eq!(refused.json()["details"]["end"], end);
}

#[test]
fn reading_goes_on_after_the_last_byte_where_another_output_is_shorter() {
    let (_server, client) = open();
    let body = json!({ "script": "printf 12345", "session": "one" });
    let _ = start(&client, &body).expect(201);
    let _ = client.get(&format!("{BOX}/sessions/one/wait")).expect(200);
    let read = |from: u64| client.get(&format!("{BOX}/sessions/one/output?from={from}"));
    assert!(read(3).expect(200).text().contains("45"));
    assert!(!read(5).expect(200).text().contains("\"output\""), "nothing is said again");
    assert_eq!(read(6).status, 416);
}

#[test]
fn input_is_typed_once_however_often_it_is_sent() {
    let (_server, client) = open();
    let _ =
        start(&client, &json!({ "argv": ["cat"], "session": "cat", "stdin": true })).expect(201);
    assert_eq!(input(&client, "cat/input", b"").expect(200).json()["offset"], 0);
    let taken = input(&client, "cat/input?offset=0", b"one ").expect(200).json();
    assert_eq!(taken, json!({ "offset": 4, "complete": true }));
    let refused = input(&client, "cat/input?offset=0", b"one ").expect(409).json();
    assert_eq!(refused["details"], json!({ "reason": "offset", "offset": 4 }));
    let taken = input(&client, "cat/input?offset=4&eof=true", b"two").expect(200).json();
    assert_eq!(taken, json!({ "offset": 7, "complete": true }));
    let _ = client.get(&format!("{BOX}/sessions/cat/wait")).expect(200);
    assert_eq!(raw(&client, "cat/output?channel=stdout").text(), "one two");
    assert_eq!(input(&client, "cat/input", b"x").code(), "gone");
}

/// A regression: the answer was 404 when the input made the program end.
#[test]
fn input_that_ends_its_program_is_answered_as_taken() {
    let (_server, client) = open();
    for (number, script) in
        ["read line", "read line; kill -9 $$"].iter().cycle().take(20).enumerate()
    {
        let session = format!("last{number}");
        let body = json!({ "script": script, "session": session, "stdin": true });
        let _ = start(&client, &body).expect(201);
        let taken =
            input(&client, &format!("{session}/input?offset=0"), b"one\n").expect(200).json();
        assert_eq!(taken, json!({ "offset": 4, "complete": true }));
        let _ = client.get(&format!("{BOX}/sessions/{session}/wait")).expect(200);
        assert_eq!(input(&client, &format!("{session}/input"), b"x").code(), "gone");
    }
    // Of what the program did not wait for, the answer says how much it was given.
    let body = json!({ "script": "read line", "session": "early", "stdin": true });
    let _ = start(&client, &body).expect(201);
    let mut bytes = vec![b'x'; 3 * MIB];
    bytes[0] = b'\n';
    let refused = input(&client, "early/input", &bytes).expect(410).json();
    let given = refused["details"]["offset"].as_u64().expect("an offset") as usize;
    assert!(0 < given && given < bytes.len(), "{refused}");
}

#[test]
fn input_that_is_not_taken_is_reported_and_can_be_sent_again() {
    let (_server, client) = open();
    let body = json!({ "script": "sleep 1; wc -c", "session": "slow", "stdin": true });
    let _ = start(&client, &body).expect(201);
    let bytes = vec![b'x'; 3 * MIB];
    let taken = input(&client, "slow/input?offset=0&timeout_ms=200", &bytes).expect(200).json();
    assert_eq!(taken["complete"], false);
    let at = taken["offset"].as_u64().expect("an offset") as usize;
    assert!(at < bytes.len());
    let path = format!("slow/input?offset={at}&eof=true");
    let taken = input(&client, &path, &bytes[at..]).expect(200).json();
    assert_eq!(taken, json!({ "offset": bytes.len(), "complete": true }));
    let _ = client.get(&format!("{BOX}/sessions/slow/wait")).expect(200);
    assert_eq!(raw(&client, "slow/output?channel=stdout").text().trim(), bytes.len().to_string());
}

#[test]
fn a_browser_terminal_needs_one_url() {
    let (_server, client) = open();
    let path = format!("{BOX}/shell?rows=33&columns=101&argv=/bin/sh");
    let mut socket = client.websocket(&path, &[]);
    let attached = socket.hear_value();
    assert_eq!((&attached["type"], &attached["keyboard"]), (&json!("attached"), &json!(true)));
    socket.binary(b"stty size; echo en''d\n");
    assert!(screen_until(&mut socket, "end").contains("33 101"));
    socket.tell(&json!({ "type": "resize", "rows": 20, "columns": 60 }));
    socket.binary(b"stty size; echo en''d\n");
    assert!(screen_until(&mut socket, "end\r").contains("20 60"));
    socket.tell(&json!({ "type": "stdin", "text": "sleep 50\n" }));
    // A signal that comes before the program is for the shell.
    let look = json!({ "script": "grep -c '[s]leep' /proc/[0-9]*/comm | grep -c ':1$'" });
    eventually("it sleeps", || {
        client.post(&format!("{BOX}/shell"), &look).json()["stdout"] == "1\n"
    });
    socket.tell(&json!({ "type": "signal", "signal": "INT" }));
    socket.binary(b"exit 7\n");
    let exited = loop {
        match socket.hear() {
            SocketMessage::Value(value) if value["type"] == "exited" => break value,
            SocketMessage::Closed(code) => panic!("{code:?}"),
            _ => {}
        }
    };
    assert_eq!(exited["exit"]["exit_code"], 7);
    assert_eq!(socket.hear(), SocketMessage::Closed(Some(1000)));
}

#[test]
fn xterms_attach_addon_types_text_and_gets_bytes_alone() {
    let (_server, client) = open();
    let mut socket = client.websocket(&format!("{BOX}/shell?argv=/bin/sh&plain=true"), &[]);
    // The addon sends what is typed as text.
    let typed = tungstenite::Message::text("echo {\"type\":\"eof\"} en''d\n");
    socket.send(typed);
    let mut screen = String::new();
    while !screen.contains("end") {
        match socket.hear() {
            SocketMessage::Binary(bytes) => screen.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?}"),
        }
    }
    assert!(screen.contains("{type:eof} end"), "{screen}");
}

#[test]
fn a_terminal_that_is_left_ends_or_goes_on_as_was_asked() {
    let (_server, client) = open();
    let session_of = |socket: &mut Socket| {
        socket.hear_value()["session"].as_str().expect("a session").to_owned()
    };
    let running =
        |session: &str| client.get(&format!("{BOX}/sessions/{session}")).json()["running"] == true;
    let mut socket = client.websocket(&format!("{BOX}/shell"), &[]);
    let session = session_of(&mut socket);
    assert!(running(&session));
    drop(socket);
    eventually("the shell is gone", || !running(&session));

    let path = format!("{BOX}/shell?argv=/bin/sh&on_disconnect=detach");
    let mut socket = client.websocket(&path, &[]);
    let session = session_of(&mut socket);
    socket.binary(b"WORD=kept; echo be''gun\n");
    let seen = screen_until(&mut socket, "begun").len();
    drop(socket);
    assert!(running(&session));
    let path = format!("{BOX}/sessions/{session}/attach?from={seen}");
    let mut socket = client.websocket(&path, &[]);
    let attached = socket.hear_value();
    assert_eq!((&attached["offset"], &attached["terminal"]), (&json!(seen), &json!(true)));
    eventually("the keyboard is free", || {
        socket.tell(&json!({ "type": "take" }));
        loop {
            match socket.hear() {
                SocketMessage::Value(value) if value["type"] == "keyboard" => {
                    break value["held"] == true;
                }
                SocketMessage::Closed(code) => panic!("{code:?}"),
                _ => {}
            }
        }
    });
    socket.binary(b"echo $WORD en''d\n");
    assert!(screen_until(&mut socket, "end").contains("kept end"));
    let path = format!("{BOX}/sessions/{session}?kill=true");
    let _ = client.delete(&path).expect(204);
    eventually("it is gone", || !running(&session));
}

#[test]
fn a_keyboard_is_one_clients_until_another_takes_it() {
    let (_server, client) = open();
    let body = json!({
        "argv": ["cat"], "session": "tty", "terminal": { "rows": 24, "columns": 80 },
    });
    let _ = start(&client, &body).expect(201);
    let attach = |query: &str| {
        let path = format!("{BOX}/sessions/tty/attach?{query}");
        let mut socket = client.websocket(&path, &[]);
        let held = socket.hear_value()["keyboard"].as_bool().expect("a keyboard or none");
        (socket, held)
    };
    let (mut first, held) = attach("from=0");
    assert!(held);
    let (mut second, held) = attach("from=0");
    assert!(!held);
    let (mut looking, held) = attach("from=0&read_only=true");
    assert!(!held);
    assert_eq!(
        input(&client, "tty/input", b"x").expect(409).json()["details"]["reason"],
        "keyboard_held"
    );
    first.binary(b"mine\n");
    for socket in [&mut first, &mut second, &mut looking] {
        screen_until(socket, "mine\r\nmine");
    }
    second.tell(&json!({ "type": "take" }));
    assert_eq!(second.hear_value(), json!({ "type": "keyboard", "held": true }));
    second.binary(b"yours\n");
    screen_until(&mut second, "yours\r\nyours");
    looking.tell(&json!({ "type": "stdin", "text": "no" }));
    assert_eq!(looking.hear_value()["type"], "refused");
    // The end-of-file key ends the program.
    second.tell(&json!({ "type": "eof" }));
    loop {
        let value = second.hear_value();
        if value["type"] == "exited" {
            break assert_eq!(value["exit"]["success"], true);
        }
    }
}

#[test]
fn a_viewers_terminal_is_asked_live_with_the_keyboard_alone() {
    let (_server, client) = open();
    let script = "stty -echo; printf 'old-\\033[6n\\033[c-old'; while read word; do printf \
                  'live-\\033[6n\\033]11;?\\007-live'; done";
    let body = json!({
        "argv": ["sh", "-c", script], "session": "asks", "terminal": { "rows": 24, "columns": 80 },
    });
    let _ = start(&client, &body).expect(201);
    let output = || raw(&client, "asks/output?channel=terminal").body;
    eventually("it has asked", || output().ends_with(b"-old"));
    let attach = |query: &str| {
        let mut socket =
            client.websocket(&format!("{BOX}/sessions/asks/attach?from=0{query}"), &[]);
        let attached = socket.hear_value();
        assert_eq!(attached["offset"], json!(0));
        socket
    };
    let (mut typist, mut looking) = (attach(""), attach("&read_only=true"));
    // As many NULs: who counts bytes resumes at the right one.
    let old = "old-\0\0\0\0\0\0\0-old";
    for socket in [&mut typist, &mut looking] {
        assert_eq!(screen_until(socket, "-old"), old);
    }
    typist.binary(b"go\n");
    assert_eq!(screen_until(&mut typist, "-live"), "live-\u{1b}[6n\u{1b}]11;?\u{7}-live");
    assert_eq!(screen_until(&mut looking, "-live"), format!("live-{}-live", "\0".repeat(11)));
    let all = output();
    assert!(String::from_utf8_lossy(&all).contains("live-\u{1b}[6n"), "the record is unchanged");
    // A client that gives an offset gets the output from there on.
    let mut resumed =
        client.websocket(&format!("{BOX}/sessions/asks/attach?from={}", all.len()), &[]);
    assert_eq!(resumed.hear_value()["offset"], json!(all.len()));
    typist.binary(b"go\n");
    assert_eq!(screen_until(&mut resumed, "-live"), format!("live-{}-live", "\0".repeat(11)));
}

#[test]
fn a_session_is_read_from_the_log_when_its_sandbox_has_stopped() {
    let (_server, client) = open();
    let lines = 3 * MIB / 64;
    let _ = start(&client, &json!({ "script": numbered(lines), "session": "done" })).expect(201);
    let _ = client.get(&format!("{BOX}/sessions/done/wait")).expect(200);
    let body = json!({ "script": "echo first; exec sleep 60", "session": "cut" });
    let _ = start(&client, &body).expect(201);
    let path = format!("{BOX}/sessions/cut/output?channel=stdout&follow=true");
    let mut following = client.lines(&path, None);
    assert_eq!(following.next().expect("an event")["text"], "first\n");
    let _ = client.post(&format!("{BOX}/stop"), &json!({ "grace_ms": 1000 })).expect(200);
    // A listener is informed of the end.
    let begun = Instant::now();
    let last = following.next().expect("an event");
    assert!(last["type"] == "exited" || last["type"] == "over", "{last}");
    assert!(begun.elapsed() < Duration::from_secs(10));

    let sessions = client.get(&format!("{BOX}/sessions")).expect(200).json();
    let names: Vec<_> =
        sessions["sessions"].as_array().expect("a list").iter().map(|s| &s["session"]).collect();
    assert_eq!(names, ["cut", "done"]);
    let answer = raw(&client, "done/output?channel=stdout&from=64").expect(200);
    assert!(answer.body == numbered_output(lines)[64..], "the output differs");
    let info = client.get(&format!("{BOX}/sessions/done")).expect(200).json();
    assert_eq!((&info["running"], &info["exit"]["success"]), (&json!(false), &json!(true)));
    let events: Vec<Value> =
        client.lines(&format!("{BOX}/sessions/cut/output?follow=true"), None).collect();
    assert_eq!(events[0]["text"], "first\n");
    assert_eq!(client.get(&format!("{BOX}/sessions/cut/wait")).json()["running"], false);
    assert_eq!(start(&client, &json!({ "argv": ["true"] })).code(), "conflict");
}

#[test]
fn output_that_the_log_has_rotated_away_is_reported_as_a_gap() {
    let (_server, client) = open();
    let lines = 80 * MIB / 64;
    let script = format!("{} ; echo done >&2", numbered(lines));
    let _ = start(&client, &json!({ "script": script, "session": "huge" })).expect(201);
    let path = format!("{BOX}/sessions/huge/wait?timeout_ms=60000");
    assert_eq!(client.get(&path).expect(200).json()["running"], false);
    let path = format!("{BOX}/sessions/huge/output?from=0");
    let (mut at, mut gaps) = (0, 0);
    for event in client.lines(&path, None) {
        match (event["type"].as_str(), event["channel"].as_str()) {
            (Some("gap"), Some("stdout")) => {
                assert_eq!(event["from"], at);
                at = event["to"].as_u64().expect("an offset");
                gaps += 1;
            }
            (Some("output"), Some("stdout")) => {
                assert_eq!(event["offset"], at);
                at += event["text"].as_str().expect("text").len() as u64;
            }
            _ => {}
        }
    }
    assert_eq!((at, gaps), (lines as u64 * 64, 1));
}
