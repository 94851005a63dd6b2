//! Contexts and runs over HTTP, as a client of the native API sees them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::contexts::notebook;
use tests::door::{BOX, open};
use tests::http::{Answer, Client, Socket, SocketMessage};
use tests::server::Server;
use tests::{PATIENCE, eventually, have_or_skip};

/// A server with one sandbox.
struct ContextServer {
    server: Server,
    client: Client,
}

impl ContextServer {
    fn new() -> Self {
        let (server, client) = open();
        Self { server, client }
    }

    fn at(path: &str) -> String {
        format!("{BOX}{path}")
    }

    fn post(&self, path: &str, value: &Value) -> Answer {
        self.client.post(&Self::at(path), value)
    }

    /// A run in Python's usual context, as a whole.
    fn run(&self, code: &str) -> Value {
        self.run_as(&json!({ "code": code }))
    }

    fn run_as(&self, request: &Value) -> Value {
        self.post("/run", request).expect(200).json()
    }

    fn context(&self, name: &str) -> Value {
        self.client.get(&Self::at(&format!("/contexts/{name}"))).expect(200).json()
    }

    fn converse(&self, request: &Value) -> Socket {
        let mut socket = self.client.websocket(&Self::at("/contexts/python/run"), &[]);
        socket.tell(request);
        socket
    }
}

#[test]
fn a_context_runs_in_a_virtual_environment() {
    let Some(place) = place_or_skip() else { return };
    let script = json!({ "script": "python3 -m venv --without-pip /tmp/own" });
    place.post("/shell", &script).expect(200);
    let body = json!({ "context": "own", "language": "python", "venv": "/tmp/own" });
    place.post("/contexts", &body).expect(201);
    let code = json!({ "code": "import os, sys\n(sys.prefix, os.environ['PATH'].split(':')[0])" });
    let ran = place.post("/contexts/own/run", &code).expect(200).json();
    let shown = &ran["value"]["data"]["text/plain"]["text"];
    assert_eq!(shown, "('/tmp/own', '/tmp/own/bin')", "{ran}");
    let both =
        json!({ "context": "two", "language": "python", "venv": "/tmp/own", "program": "python3" });
    place.post("/contexts", &both).expect(400);
}

#[test]
fn a_whole_notebook_runs_cell_by_cell() {
    let Some(place) = place_or_skip() else { return };
    let ran = place.run(&notebook());
    assert_eq!((&ran["stdout"], &ran["status"]), (&json!("first\n"), &json!("ok")), "{ran}");
    assert_eq!(ran["value"]["data"]["text/plain"]["text"], "42");
}

fn place_or_skip() -> Option<ContextServer> {
    have_or_skip("python3").then(ContextServer::new)
}

/// Reads a run's events up to one that `is_wanted`, and gives back all of them.
fn until(socket: &mut Socket, is_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut bytes = Vec::new();
    loop {
        bytes.push(socket.hear_value());
        if bytes.last().is_some_and(&is_wanted) {
            return bytes;
        }
    }
}

fn of_type(kind: &str) -> impl Fn(&Value) -> bool {
    move |event| event["type"] == kind
}

fn text_of(events: &[Value], kind: &str) -> String {
    let events_of_kind = events.iter().filter(|event| event["type"] == kind);
    events_of_kind.map(|event| event["text"].as_str().expect("text")).collect()
}

#[test]
fn variables_are_there_in_the_next_run_and_not_in_another_context() {
    let Some(place) = place_or_skip() else { return };
    place.run("x = 42");
    let ran = place.run("y = x * 2\nprint('Result:', y)\ny");
    assert_eq!(ran["status"], "ok", "{ran}");
    assert_eq!(ran["stdout"], "Result: 84\n");
    assert_eq!(ran["value"]["data"]["text/plain"]["text"], "84");
    assert_eq!((&ran["run"], &ran["count"]), (&json!(2), &json!(2)));
    assert_eq!((&ran["state_kept"], &ran["truncated"]), (&json!(true), &json!(false)));
    let path = "/contexts/other/run";
    let ran = place.post(path, &json!({ "code": "x", "language": "py" })).expect(200).json();
    assert_eq!((&ran["status"], &ran["error"]["type"]), (&json!("error"), &json!("NameError")));
    assert_eq!(ran["context"], "other");
    // It is known now, and so is its language.
    let ran = place.post(path, &json!({ "code": "print(1)" })).expect(200).json();
    assert_eq!(ran["stdout"], "1\n");
}

#[test]
fn a_context_is_opened_found_listed_restarted_and_closed() {
    let Some(place) = place_or_skip() else { return };
    let ask = json!({ "context": "mine", "language": "python", "cwd": "/", "env": { "A": "b" } });
    let opened = place.post("/contexts", &ask).expect(201).json();
    assert_eq!((&opened["state"], &opened["language"]), (&json!("idle"), &json!("python")));
    assert_eq!(
        place.post("/contexts", &ask).expect(201).json()["interpreter"],
        opened["interpreter"]
    );
    let other = json!({ "context": "mine", "language": "python", "cwd": "/tmp" });
    assert_eq!(place.post("/contexts", &other).expect(409).code(), "conflict");
    let unknown = json!({ "context": "mine2", "language": "cobol" });
    assert_eq!(place.post("/contexts", &unknown).expect(422).code(), "unsupported");
    let listed = place.client.get(&ContextServer::at("/contexts")).expect(200).json();
    assert_eq!(listed["contexts"].as_array().map(Vec::len), Some(1), "{listed}");
    let code = json!({ "code": "import os; print(os.getcwd(), os.environ['A']); z = 1" });
    let ran = place.post("/contexts/mine/run", &code).expect(200).json();
    assert_eq!(ran["stdout"], "/ b\n", "{ran}");
    let restarted = place.post("/contexts/mine/restart", &json!({})).expect(200).json();
    assert_ne!(restarted["interpreter"]["pid"], opened["interpreter"]["pid"]);
    let ran = place.post("/contexts/mine/run", &json!({ "code": "z" })).expect(200).json();
    assert_eq!(ran["error"]["type"], "NameError");
    assert!(ran["lost"].as_str().is_some_and(|lost| lost.contains("restarted")), "{ran}");
    place.client.delete(&ContextServer::at("/contexts/mine")).expect(204);
    for path in ["/contexts/mine", "/contexts/mine/events"] {
        assert_eq!(place.client.get(&ContextServer::at(path)).expect(404).code(), "not_found");
    }
    let nameless = place.post("/contexts/mine/run", &json!({ "code": "1" }));
    assert_eq!(nameless.expect(404).code(), "not_found");
}

#[test]
fn an_exception_an_exit_and_a_crash_are_results() {
    let Some(place) = place_or_skip() else { return };
    let ran = place.run("print('before')\n1/0");
    assert_eq!((&ran["status"], &ran["stdout"]), (&json!("error"), &json!("before\n")));
    assert_eq!(ran["error"]["type"], "ZeroDivisionError");
    assert!(ran["error"]["traceback"].as_str().is_some_and(|text| text.contains("line 2")));
    assert_eq!(ran["error"]["frames"][0]["line"], 2);
    let ran = place.run("print('Hello'); import sys; sys.exit(3)");
    assert_eq!((&ran["status"], &ran["exit_code"]), (&json!("exited"), &json!(3)));
    assert_eq!(ran["stdout"], "Hello\n");
    let ran = place.run("x = 1\nprint('last words', flush=True)\nimport os; os._exit(7)");
    assert_eq!((&ran["status"], &ran["stdout"]), (&json!("died"), &json!("last words\n")));
    assert_eq!(ran["cause"], json!({ "type": "exited", "code": 7 }));
    assert_eq!((&ran["state_kept"], &ran["exit_code"]), (&json!(false), &json!(7)));
    let ran = place.run("print('anew')");
    assert_eq!((&ran["status"], &ran["stdout"]), (&json!("ok"), &json!("anew\n")));
    assert!(ran["lost"].is_string(), "{ran}");
}

#[test]
fn a_run_beyond_its_deadline_is_a_result_with_its_output() {
    let Some(place) = place_or_skip() else { return };
    place.run("x = 42");
    let code = "print('so far', flush=True)\nwhile True: pass";
    let ran = place.run_as(&json!({ "code": code, "timeout_ms": 300 }));
    assert_eq!((&ran["status"], &ran["stdout"]), (&json!("timeout"), &json!("so far\n")));
    assert_eq!((&ran["timeout_ms"], &ran["rung"]), (&json!(300), &json!("polite")));
    assert_eq!(ran["state_kept"], true);
    assert_eq!(place.run("print(x)")["stdout"], "42\n");
}

#[test]
fn bytes_come_as_they_are_and_a_bound_cuts_only_what_is_beyond_it() {
    let Some(place) = place_or_skip() else { return };
    let binary = "import sys; sys.stdout.buffer.write(bytes(range(256)))";
    let ran = place.run(binary);
    assert_eq!(ran["stdout_bytes"], 256);
    let base64 = ran["stdout_base64"].as_str().expect("bytes that are no text");
    assert!(base64.starts_with("AAECAwQF") && base64.len() == 344, "{base64}");
    let ran = place.run_as(&json!({ "code": "print('a' * 9)", "output_bytes_max": 10 }));
    assert_eq!((&ran["stdout"], &ran["truncated"]), (&json!("aaaaaaaaa\n"), &json!(false)));
    let ran = place.run_as(&json!({ "code": "print('€' * 9)", "output_bytes_max": 10 }));
    assert_eq!((&ran["stdout"], &ran["truncated"]), (&json!("€€€"), &json!(true)));
    assert_eq!((&ran["stdout_bytes"], ran.get("stdout_base64")), (&json!(28), None));
}

#[test]
fn a_character_that_is_written_in_two_pieces_is_read_in_one() {
    let Some(place) = place_or_skip() else { return };
    let code = "import sys, time\nfor byte in '€'.encode():\n    sys.stdout.buffer.write(bytes([byte]))\n    sys.stdout.flush()\n    time.sleep(0.05)";
    let lines = place.client.lines(&ContextServer::at("/run"), Some(&json!({ "code": code })));
    let events: Vec<Value> = lines.collect();
    assert_eq!(text_of(&events, "stdout"), "€");
    let pieces = events.iter().filter(|event| event["type"] == "stdout").count();
    assert_eq!(pieces, 1, "{events:?}");
}

#[test]
fn a_stream_tells_a_run_as_it_goes_on() {
    let Some(place) = place_or_skip() else { return };
    let code = "import sys, time\nprint('first', flush=True)\ntime.sleep(1)\nprint('second', file=sys.stderr)\n[1, 2]";
    let mut lines = place.client.lines(&ContextServer::at("/run"), Some(&json!({ "code": code })));
    assert_eq!(lines.headers.get("content-type"), Some("application/x-ndjson"));
    let queued = lines.next().expect("an event");
    assert_eq!((&queued["type"], &queued["run"]), (&json!("queued"), &json!(1)));
    assert_eq!(lines.next().expect("an event")["type"], "started");
    // The interpreter writes the line and its end by themselves, so they may come as two events.
    let mut first = String::new();
    while first != "first\n" {
        let event = lines.next().expect("an event");
        assert_eq!(event["type"], "stdout", "{event}");
        first.push_str(event["text"].as_str().expect("text"));
        assert!("first\n".starts_with(&first), "{first:?}");
    }
    let at = Instant::now();
    let rest: Vec<Value> = lines.collect();
    assert!(at.elapsed() > Duration::from_millis(500), "it came before the run was over");
    let kinds: Vec<_> = rest.iter().map(|event| event["type"].as_str().unwrap_or("")).collect();
    assert_eq!(kinds, ["stderr", "display", "finished"], "{rest:?}");
    assert_eq!(rest[1]["display"]["role"], "value");
    assert_eq!(rest[2]["status"], "ok");
}

#[test]
fn a_megabyte_of_code_runs() {
    let Some(place) = place_or_skip() else { return };
    let code = format!("text = '{}'\nprint(len(text))", "x".repeat(1 << 20));
    assert_eq!(place.run(&code)["stdout"], "1048576\n");
    let lines = place.client.lines(&ContextServer::at("/run"), Some(&json!({ "code": code })));
    assert_eq!(text_of(&lines.collect::<Vec<_>>(), "stdout"), "1048576\n");
}

#[test]
fn displays_come_in_all_their_forms() {
    let Some(place) = place_or_skip() else { return };
    let code = "class Shown:\n    def _repr_html_(self): return '<b>x</b>'\n    def _repr_png_(self): return b'\\x89PNG\\xff'\n    def __repr__(self): return 'plain'\nShown()";
    let ran = place.run(code);
    let data = &ran["value"]["data"];
    assert_eq!(data["text/plain"]["text"], "plain", "{ran}");
    assert_eq!(data["text/html"]["text"], "<b>x</b>");
    assert!(data["image/png"].is_object(), "{ran}");
}

#[test]
fn late_output_is_marked_in_the_next_run() {
    let Some(place) = place_or_skip() else { return };
    let ran = place.run(
        "import threading, time\ndef later():\n    time.sleep(0.2)\n    print('late')\nthreading.Thread(target=later).start()",
    );
    assert_eq!(ran["stdout"], "");
    let ran = place.run("import time; time.sleep(0.5); print('now')");
    assert_eq!(ran["stdout"], "now\n");
    assert_eq!(ran["late"][0]["of"], 1, "{ran}");
    assert_eq!(ran["late"][0]["text"], "late\n");
}

#[test]
fn lines_that_are_given_before_are_read_and_then_the_end() {
    let Some(place) = place_or_skip() else { return };
    let code =
        "a = input('? ')\nb = input()\ntry:\n    input()\nexcept EOFError:\n    print(a, b, 'end')";
    let ran = place.run_as(&json!({ "code": code, "stdin": "one\ntwo" }));
    assert_eq!(ran["status"], "ok", "{ran}");
    assert!(ran["stdout"].as_str().is_some_and(|text| text.ends_with("one two end\n")), "{ran}");
    let ran = place.run("input()");
    assert_eq!(ran["error"]["type"], "EOFError");
}

#[test]
fn a_websocket_carries_a_run_and_its_input() {
    let Some(place) = place_or_skip() else { return };
    let code = "name = input('who? ')\nprint('hello', name)";
    let mut socket = place.converse(&json!({ "code": code, "input": true }));
    let events = until(&mut socket, of_type("input_request"));
    let request = events.last().expect("it was asked");
    assert_eq!((&request["prompt"], &request["secret"]), (&json!("who? "), &json!(false)));
    socket.tell(&json!({ "type": "input", "request": request["request"], "line": "world" }));
    let rest = until(&mut socket, of_type("finished"));
    assert!(text_of(&rest, "stdout").ends_with("hello world\n"), "{rest:?}");
    assert_eq!(socket.hear(), SocketMessage::Closed(Some(1000)));
}

#[test]
fn input_can_be_answered_by_a_call_of_its_own() {
    let Some(place) = place_or_skip() else { return };
    let ask = json!({ "code": "print(input())", "input": true });
    let mut lines = place.client.lines(&ContextServer::at("/run"), Some(&ask));
    let request = lines.find(of_type("input_request")).expect("it is asked");
    let answer = json!({ "run": request["run"], "request": request["request"], "line": "typed" });
    place.post("/contexts/python/input", &answer).expect(204);
    assert_eq!(text_of(&lines.collect::<Vec<_>>(), "stdout"), "typed\n");
    assert_eq!(place.post("/contexts/python/input", &answer).expect(410).code(), "gone");
}

#[test]
fn a_run_on_a_websocket_can_be_interrupted() {
    let Some(place) = place_or_skip() else { return };
    let mut socket = place.converse(&json!({ "code": "x = 5\nwhile True: pass" }));
    until(&mut socket, of_type("started"));
    socket.tell(&json!({ "type": "interrupt" }));
    let events = until(&mut socket, of_type("finished"));
    assert_eq!(events.last().expect("its end")["status"], "interrupted");
    assert_eq!(place.run("x")["value"]["data"]["text/plain"]["text"], "5");
}

#[test]
fn invalid_runs_and_orders_are_refused_with_a_reason() {
    let Some(place) = place_or_skip() else { return };
    let mut socket = place.converse(&json!({ "cod": "1" }));
    let message = socket.hear_value();
    assert_eq!(
        (&message["type"], &message["problem"]["code"]),
        (&json!("problem"), &json!("invalid"))
    );
    assert_eq!(socket.hear(), SocketMessage::Closed(Some(1008)));
    let mut socket = place.converse(&json!({ "code": "while True: pass" }));
    until(&mut socket, of_type("started"));
    socket.tell(&json!({ "type": "dance" }));
    let events = until(&mut socket, of_type("problem"));
    assert_eq!(events.last().expect("why")["problem"]["code"], "invalid");
    assert_eq!(socket.hear(), SocketMessage::Closed(Some(1008)));
    assert_eq!(place.run("print('free again')")["stdout"], "free again\n");
    let refused = place.client.get(&ContextServer::at("/contexts/python/run"));
    assert_eq!(refused.expect(400).code(), "invalid");
    for (request, status) in [
        (json!({ "code": "1", "timeout_ms": 0 }), 400),
        (json!({ "code": "1", "output_bytes_max": 67_108_865 }), 400),
        (json!({ "code": "1", "unknown": 1 }), 400),
        (json!({ "code": 1 }), 400),
        (json!({ "code": "1", "language": "cobol" }), 422),
    ] {
        place.post("/run", &request).expect(status);
    }
}

const LOOP: &str = "import time\nn = 0\nwhile True:\n    n += 1\n    time.sleep(0.01)";

#[test]
fn a_client_that_is_gone_interrupts_its_run() {
    let Some(place) = place_or_skip() else { return };
    // Of each kind of call one, each dropped in the middle.
    let buffered = json!({ "code": LOOP }).to_string();
    let mut raw = place.client.raw();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{buffered}",
        ContextServer::at("/run"),
        buffered.len()
    );
    std::io::Write::write_all(&mut raw, head.as_bytes()).expect("it is sent");
    eventually("it runs", || {
        let listed = place.client.get(&ContextServer::at("/contexts")).expect(200).json();
        listed["contexts"][0]["state"] == "running"
    });
    drop(raw);
    let ran = place.run("print(n > 0)");
    assert_eq!(ran["stdout"], "True\n");

    let mut lines = place.client.lines(&ContextServer::at("/run"), Some(&json!({ "code": LOOP })));
    lines.find(of_type("started")).expect("it runs");
    drop(lines);
    assert_eq!(place.run("print('next')")["stdout"], "next\n");

    let mut socket = place.converse(&json!({ "code": LOOP }));
    until(&mut socket, of_type("started"));
    drop(socket);
    assert_eq!(place.run("print('next')")["stdout"], "next\n");
}

#[test]
fn a_run_that_is_detached_goes_on_without_its_client() {
    let Some(place) = place_or_skip() else { return };
    let code = "import time\nfor i in range(3000): print('x' * 1000)\nline = input()\ntime.sleep(0.3)\nopen('/tmp/done', 'w').write(line)";
    let ask = json!({ "code": code, "stdin": "typed\n", "on_disconnect": "detach" });
    let wait = "import os, time\nfor _ in range(500):\n    if os.path.exists('/tmp/done'): break\n    time.sleep(0.01)\nprint(open('/tmp/done').read(), end='')\nos.remove('/tmp/done')";
    let mut lines = place.client.lines(&ContextServer::at("/run"), Some(&ask));
    lines.find(of_type("started")).expect("it runs");
    drop(lines);
    assert_eq!(place.run(wait)["stdout"], "typed");

    let mut socket = place.converse(&ask);
    until(&mut socket, of_type("started"));
    drop(socket);
    assert_eq!(place.run(wait)["stdout"], "typed");

    let body = ask.to_string();
    let mut raw = place.client.raw();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        ContextServer::at("/run"),
        body.len()
    );
    std::io::Write::write_all(&mut raw, head.as_bytes()).expect("it is sent");
    eventually("it runs", || place.context("python")["state"] == "running");
    drop(raw);
    assert_eq!(place.run(wait)["stdout"], "typed");
}

#[test]
fn a_run_is_interrupted_or_taken_out_of_the_queue() {
    let Some(place) = place_or_skip() else { return };
    let mut first = place.client.lines(&ContextServer::at("/run"), Some(&json!({ "code": LOOP })));
    first.find(of_type("started")).expect("it runs");
    let mut second =
        place.client.lines(&ContextServer::at("/run"), Some(&json!({ "code": "print(2)" })));
    let queued = second.next().expect("an event");
    assert_eq!(queued["ahead"], 1, "{queued}");
    let run = json!({ "run": queued["run"] });
    let answer = place.post("/contexts/python/interrupt", &run).expect(200).json();
    assert_eq!(answer, run);
    assert_eq!(second.last().expect("its end")["status"], "cancelled");
    place.post("/contexts/python/interrupt", &json!({})).expect(200);
    let end = first.last().expect("its end");
    assert_eq!((&end["status"], &end["rung"]), (&json!("interrupted"), &json!("polite")));
    let nothing = place.post("/contexts/python/interrupt", &json!({})).expect(200).json();
    assert_eq!(nothing, json!({}));
}

#[test]
fn the_deadline_of_a_call_ends_its_run_also_in_the_queue() {
    let Some(place) = place_or_skip() else { return };
    let mut first = place.client.lines(&ContextServer::at("/run"), Some(&json!({ "code": LOOP })));
    first.find(of_type("started")).expect("it runs");
    let headers = [
        ("accept", "application/x-ndjson"),
        ("content-type", "application/json"),
        ("burrow-deadline-ms", "600"),
    ];
    let body = json!({ "code": "print(2)" }).to_string();
    let began = Instant::now();
    let answer = place.client.send("POST", &ContextServer::at("/run"), &headers, body.as_bytes());
    assert!(began.elapsed() < PATIENCE / 2);
    let last: Value =
        serde_json::from_str(answer.text().trim().lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["status"], "cancelled", "{last}");
    let answer =
        place.client.send("POST", &ContextServer::at("/run"), &headers[1..], body.as_bytes());
    assert_eq!(answer.expect(200).json()["status"], "cancelled");
    drop(first);
    let body = json!({ "code": "print('so far', flush=True)\nwhile True: pass" }).to_string();
    // Its turn comes when the first run has been interrupted, which a busy machine takes its time for.
    let headers = [headers[1], ("burrow-deadline-ms", "2000")];
    let answer = place.client.send("POST", &ContextServer::at("/run"), &headers, body.as_bytes());
    let ran = answer.expect(200).json();
    assert_eq!((&ran["status"], &ran["stdout"]), (&json!("timeout"), &json!("so far\n")));
    assert_eq!(ran["timeout_ms"], 2000, "{ran}");
}

#[test]
fn code_is_completed_and_checked_by_characters() {
    let Some(place) = place_or_skip() else { return };
    place.run("größe_in_metern = 1");
    let ask = json!({ "code": "'€'; größe_in_m + 1", "cursor": 15 });
    let found = place.post("/contexts/python/complete", &ask).expect(200).json();
    let expected = json!({ "start": 5, "end": 15, "matches": ["größe_in_metern"] });
    assert_eq!(found, expected);
    let beyond = json!({ "code": "a", "cursor": 2 });
    assert_eq!(place.post("/contexts/python/complete", &beyond).expect(400).code(), "invalid");
    for (code, state) in [("1 + 1", "complete"), ("if x:", "incomplete"), ("1 +* 1", "invalid")] {
        let checked = place.post("/contexts/python/check", &json!({ "code": code })).expect(200);
        assert_eq!(checked.json()["state"], state, "{code}");
    }
    let mut lines = place.client.lines(&ContextServer::at("/run"), Some(&json!({ "code": LOOP })));
    lines.find(of_type("started")).expect("it runs");
    let busy = place.post("/contexts/python/check", &json!({ "code": "1" }));
    assert_eq!(busy.expect(409).code(), "conflict");
}

#[test]
fn a_watch_tells_of_everybodys_runs_and_ends_with_the_context() {
    let Some(place) = place_or_skip() else { return };
    place.run("pass");
    let path = ContextServer::at("/contexts/python/events");
    let mut watch = place.client.lines(&path, None);
    let mut socket = place.client.websocket(&path, &[]);
    place.run("print('seen')");
    let until_end = |event: &Value| event["type"] == "finished";
    let events = until(&mut socket, until_end);
    assert_eq!(text_of(&events, "stdout"), "seen\n");
    let mut read = Vec::new();
    while !read.last().is_some_and(until_end) {
        read.push(watch.next().expect("an event"));
    }
    assert_eq!(read, events);
    place.client.delete(&ContextServer::at("/contexts/python")).expect(204);
    assert_eq!(watch.next(), None);
    assert_eq!(socket.hear(), SocketMessage::Closed(Some(1000)));
}

#[test]
fn a_watch_that_stops_reading_gets_its_gap_and_holds_nobody_up() {
    let Some(place) = place_or_skip() else { return };
    place.run("pass");
    let mut watch = place.client.lines(&ContextServer::at("/contexts/python/events"), None);
    let code = "for _ in range(40): print('x' * 999_999)";
    let ran = place.run_as(&json!({ "code": code, "output_bytes_max": 1000 }));
    assert_eq!((&ran["status"], &ran["stdout_bytes"]), (&json!("ok"), &json!(40_000_000)));
    place.run("print('after')");
    let (mut bytes, mut gaps) = (0, 0);
    loop {
        let event = watch.next().expect("an event");
        match event["type"].as_str() {
            Some("stdout") if event["text"] == "after\n" => break,
            Some("stdout") => bytes += event["text"].as_str().map_or(0, str::len),
            Some("gap") => gaps += 1,
            _ => {}
        }
    }
    assert!(gaps > 0 && bytes < 40_000_000, "{bytes} bytes, {gaps} gaps");
}

#[test]
fn a_sandbox_that_is_over_ends_its_runs_with_a_word() {
    let Some(place) = place_or_skip() else { return };
    let mut lines = place.client.lines(&ContextServer::at("/run"), Some(&json!({ "code": LOOP })));
    lines.find(of_type("started")).expect("it runs");
    place.post("/kill", &json!({})).expect(200);
    let last = lines.last().expect("a last event");
    assert!(last["type"] == "problem" || last["status"] == "died", "{last}");
    let refused = place.post("/run", &json!({ "code": "1" }));
    assert_eq!(refused.expect(409).code(), "conflict");
    assert!(place.server.log().exists());
}
