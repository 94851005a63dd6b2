//! How apps end: before they answer, afterwards, with their sandbox, and with their bridge.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::Burrow;
use tests::door::{BOX, open};
use tests::eventually;
use tests::mcp::Lines;

use super::{MARK, SERVE, apps, command, fetch, host_port, is_reached, nothing_is_left, start};

/// Serves until it is asked for `/die`, and leaves a child behind.
const MORTAL: &str = "
import http.server, os, subprocess, sys
class Mortal(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == '/die':
            print('last words', file=sys.stderr)
            os._exit(7)
        self.send_response(200)
        self.end_headers()
subprocess.Popen(['sleep', '600'])
http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), Mortal).serve_forever()
";

/// Ends by itself when it has been asked for its last answer.
const ENDING: &str = "
import http.server, os
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        self.server.is_over = self.path == '/last'
        super().do_GET()
server = http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), Handler)
server.is_over = False
while not server.is_over:
    server.handle_request()
";

fn log(refusal: &Value) -> &str {
    refusal["details"]["log"].as_str().expect("a log")
}

#[test]
fn an_app_that_ends_before_it_answers_is_reported_at_once_with_its_last_words() {
    let (server, client) = open();
    let begun = Instant::now();
    let ended = start(&client, &command(&format!("(sleep 600 # {MARK}\n) & echo why >&2; exit 3")));
    let ended = ended.expect(422).json();
    assert!(begun.elapsed() < Duration::from_secs(30), "it was waited for in vain");
    assert_eq!(ended["code"], "app_failed");
    assert_eq!(ended["details"]["exit"]["exit_code"], 3);
    assert_eq!(log(&ended), "why\n");
    nothing_is_left(&server, &client);
    let none = start(&client, &command("no-such-program")).expect(422).json();
    assert_eq!(none["details"]["exit"]["exit_code"], 127);
    assert!(log(&none).contains("not found"), "{none}");
    let argv = json!({ "type": "command", "command": ["/no/such/program"] });
    assert_eq!(start(&client, &argv).expect(422).code(), "spawn_failed");
    nothing_is_left(&server, &client);
}

#[test]
fn an_app_that_never_listens_is_given_up_in_time() {
    let (server, client) = open();
    let mut silent = command(&format!("echo thinking; sleep 600 # {MARK}\ntrue"));
    silent["ready_timeout_ms"] = json!(700);
    let late = start(&client, &silent).expect(422).json();
    assert_eq!(late["code"], "app_not_ready");
    assert!(late["message"].as_str().expect("text").contains("does not listen on port 8000"));
    assert_eq!((log(&late), &late["details"]["listens_on"]), ("thinking\n", &json!([])));
    nothing_is_left(&server, &client);
}

#[test]
fn an_app_that_listens_elsewhere_is_reported_where() {
    let (server, client) = open();
    let mut elsewhere = command("exec python3 -m http.server 18123 --bind 127.0.0.1");
    (elsewhere["ready_timeout_ms"], elsewhere["port"]) = (json!(2500), json!(5000));
    let late = start(&client, &elsewhere).expect(422).json();
    let message = late["message"].as_str().expect("text");
    assert!(message.contains("it listens on 18123, not on 5000"), "{message}");
    assert_eq!(late["details"]["listens_on"], json!([18123]));
    elsewhere["command"] = json!("exec python3 -m http.server $PORT --bind ::1");
    let message = start(&client, &elsewhere).expect(422).json()["message"].to_string();
    assert!(message.contains("listens on port 5000, but not at 127.0.0.1"), "{message}");
    nothing_is_left(&server, &client);
}

#[test]
fn an_app_that_does_not_speak_http_is_none() {
    let (server, client) = open();
    let code = "
import os, socket, time
server = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))
while True:
    peer = server.accept()[0]
    peer.recv(65536)
    peer.sendall(b'220 a server of mail is ready')
    peer.close()
";
    let body = json!({ "type": "command", "code": code, "ready_timeout_ms": 1500 });
    let message = start(&client, &body).expect(422).json()["message"].to_string();
    assert!(message.contains("does not speak HTTP"), "{message}");
    nothing_is_left(&server, &client);
}

#[test]
fn an_app_that_dies_later_is_listed_with_its_end_until_another_takes_its_name() {
    let (server, client) = open();
    let mortal = json!({ "type": "command", "code": MORTAL, "name": "web" });
    let app = start(&client, &mortal).expect(201).json();
    fetch(&app, "/").expect(200);
    // It dies instead of an answer.
    let mut dying = TcpStream::connect(("127.0.0.1", host_port(&app))).expect("it listens");
    dying.write_all(b"GET /die HTTP/1.1\r\n\r\n").expect("taken");
    eventually("its end is known", || apps(&client)[0]["state"] == "failed");
    let dead = &apps(&client)[0];
    assert_eq!(dead["exit"]["exit_code"], 7);
    assert!(dead["log"].as_str().expect("a log").ends_with("last words\n"), "{dead}");
    assert!(dead.get("url").is_none() && !is_reached(host_port(&app)), "{dead}");
    assert_eq!(client.get(&format!("{BOX}/ports")).expect(200).json(), json!({ "ports": [] }));
    let sleeping = server.ok(&["exec", "box", "--", "sh", "-c", "cat /proc/*/cmdline"]);
    assert!(!sleeping.contains("sleep"), "its child lives: {sleeping:?}");
    let again = start(&client, &mortal).expect(201).json();
    assert_eq!(apps(&client), std::slice::from_ref(&again));
    assert_ne!(again["session"], app["session"]);
    client.delete(&format!("{BOX}/apps/web")).expect(204);
    let done = json!({ "type": "command", "code": ENDING });
    let done = start(&client, &done).expect(201).json();
    fetch(&done, "/last");
    eventually("it is over", || apps(&client)[0]["state"] == "exited");
    assert_eq!(apps(&client)[0]["exit"]["success"], true);
    client.delete(&format!("{BOX}/apps/command")).expect(204);
    nothing_is_left(&server, &client);
}

#[test]
fn an_app_can_be_stopped_before_it_answers() {
    let (server, client) = open();
    let slow = command(&format!("sleep 600 # {MARK}\ntrue"));
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| start(&client, &slow));
        eventually("it is being started", || {
            apps(&client).first().is_some_and(|app| app["pid"].is_number())
        });
        client.delete(&format!("{BOX}/apps/command")).expect(204);
        let stopped = starting.join().expect("no panic").expect(409).json();
        assert_eq!(stopped["details"]["reason"], "stopped");
    });
    nothing_is_left(&server, &client);
}

#[test]
fn an_app_that_ignores_the_request_to_end_is_killed_with_its_tree() {
    let (server, client) = open();
    let deaf = format!(
        "trap '' TERM; (sleep 600 # {MARK}\n) & python3 -m http.server $PORT --bind 127.0.0.1 # {MARK}\ntrue"
    );
    let app = start(&client, &command(&deaf)).expect(201).json();
    client.delete(&format!("{BOX}/apps/command")).expect(204);
    assert!(!is_reached(host_port(&app)));
    nothing_is_left(&server, &client);
}

#[test]
fn apps_end_with_their_sandbox() {
    let (_server, client) = open();
    let app = start(&client, &command(SERVE)).expect(201).json();
    client.post(&format!("{BOX}/stop"), &json!({})).expect(200);
    eventually("it is gone", || apps(&client).is_empty() && !is_reached(host_port(&app)));
    client.delete(BOX).expect(200);
    client.post("/v1/sandboxes", &json!({ "name": "box" })).expect(201);
    let app = start(&client, &command(SERVE)).expect(201).json();
    client.delete(&format!("{BOX}?force=true")).expect(200);
    eventually("it is gone", || {
        let all = client.get("/v1/apps").expect(200).json();
        all == json!({ "apps": [] }) && !is_reached(host_port(&app))
    });
    // One of the same name in a sandbox of the same name is another.
    client.post("/v1/sandboxes", &json!({ "name": "box" })).expect(201);
    start(&client, &command(SERVE)).expect(201);
    let slow = std::thread::scope(|scope| {
        let slow = scope.spawn(|| start(&client, &command("sleep 600")));
        eventually("it is being started", || apps(&client).len() == 2);
        client.post(&format!("{BOX}/kill"), &json!({})).expect(200);
        slow.join().expect("no panic")
    });
    assert!(slow.status >= 400, "{slow:?}");
}

/// Kills the program of this host that has `mark` among its arguments.
fn kill_by(mark: &str) {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_mark = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
    };
    let found: Vec<i32> = pids.filter(has_mark).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    kill(Pid::from_raw(found[0]), Signal::SIGKILL).expect("it is ours");
}

#[test]
fn an_app_outlives_its_bridge_at_the_same_url_and_what_died_meanwhile_is_reported() {
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "box"]);
    let mut lines = Lines::open(&burrow, &[]);
    let mark = format!("/nowhere/{}", std::process::id());
    let mut start = |name: &str, command: &str| {
        let body = json!({ "command": command, "name": name, "sandbox": "box" });
        lines.ok("start_web_app", &body)
    };
    let app = start("web", SERVE);
    let mortal = start("mortal", &format!("{SERVE} --directory {mark}"));
    drop(lines);
    burrow.kill_daemon();
    assert!(!is_reached(host_port(&app)) && !is_reached(host_port(&mortal)));
    kill_by(&mark);
    burrow.serve();
    fetch(&app, "/").expect(200);
    let mut lines = Lines::open(&burrow, &[]);
    let mut listed = Value::Null;
    eventually("its end is known", || {
        listed = lines.ok("list_web_apps", &json!({ "sandbox": "box" }))["apps"].clone();
        listed[0]["state"] == "failed"
    });
    assert_eq!(listed[1], app);
    assert_eq!(
        listed[0]["exit"]["cause"],
        json!({ "type": "signaled", "signal": 9, "core_dumped": false })
    );
    assert!(listed[0]["log"].as_str().expect("a log").contains("GET / HTTP/1.1"), "{listed}");
    // One that ends in order leaves it as well, and the next finds it under the same name.
    drop(lines);
    assert_eq!(burrow.end_daemon(), Some(0));
    burrow.serve();
    fetch(&app, "/").expect(200);
    let mut lines = Lines::open(&burrow, &[]);
    assert_eq!(lines.ok("list_web_apps", &json!({}))["apps"], json!([app]));
    lines.ok("stop_web_app", &json!({ "app": "web", "sandbox": "box" }));
    assert!(!is_reached(host_port(&app)));
    assert_eq!(lines.ok("list_web_apps", &json!({}))["apps"], json!([]));
}

#[test]
fn an_app_that_is_half_started_when_its_bridge_dies_is_taken_away_by_the_next() {
    let mut burrow = Burrow::serving();
    burrow.ok(&["start", "--name", "box"]);
    let mut lines = Lines::open(&burrow, &[]);
    let body = json!({ "command": "sleep 600", "sandbox": "box" });
    lines.send("tools/call", &json!({ "name": "start_web_app", "arguments": body }));
    eventually("it is being started", || {
        burrow.ok(&["exec", "box", "--", "sh", "-c", "cat /proc/*/cmdline"]).contains("sleep")
    });
    burrow.kill_daemon();
    drop(lines);
    burrow.serve();
    let mut lines = Lines::open(&burrow, &[]);
    assert_eq!(lines.ok("list_web_apps", &json!({}))["apps"], json!([]));
    let left = burrow.ok(&["exec", "box", "--", "sh", "-c", "cat /proc/*/cmdline"]);
    assert!(!left.contains("sleep"), "{left:?}");
}
