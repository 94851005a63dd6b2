//! Programs over the server's door, as its clients see them: their output and end are reported
//! exactly, and nothing is left of what was given up.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::door::{BOX, open, open_with};
use tests::http::{Answer, Client, SocketMessage};
use tests::{eventually, skip};
use tungstenite::Message;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;

const TEN_MIB: usize = 10 * 1024 * 1024;

fn exec(client: &Client, body: &Value) -> Answer {
    client.post(&format!("{BOX}/exec"), body)
}

fn shell(client: &Client, script: &str) -> Value {
    client.post(&format!("{BOX}/shell"), &json!({ "script": script })).expect(200).json()
}

/// Whether a process whose command line has this word lives in the sandbox. The word is written so
/// that the look does not find itself.
fn lives(client: &Client, word: &str) -> bool {
    let (first, rest) = word.split_at(1);
    let script =
        format!("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '[{first}]{rest}'");
    shell(client, &script)["stdout"].as_str().expect("text").trim() != "0"
}

fn decode(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("base64");
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text.as_bytes().chunks(4) {
        let padding = four.iter().rev().take_while(|byte| **byte == b'=').count();
        let number = four.iter().fold(0_u32, |number, byte| {
            number << 6 | u32::from(if *byte == b'=' { 0 } else { digit(*byte) })
        });
        bytes.extend_from_slice(&number.to_be_bytes()[1..4 - padding]);
    }
    bytes
}

#[test]
fn a_close_of_the_client_is_answered_with_a_close() {
    let (_server, client) = open();
    let start = json!({ "argv": ["sleep", "60"], "session": "s" });
    let _ = client.post(&format!("{BOX}/sessions"), &start).expect(201);
    for path in ["sessions/s/attach", "exec"] {
        let mut socket = client.websocket(&format!("{BOX}/{path}"), &[]);
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        socket.send(Message::Close(Some(frame)));
        let mut message = std::iter::repeat_with(|| socket.hear()).take(100);
        let closed = message.find(|message| matches!(message, SocketMessage::Closed(_)));
        // Without an answer there is no code, which browsers call 1006.
        assert!(matches!(closed, Some(SocketMessage::Closed(Some(_)))), "{path}: {closed:?}");
    }
}

#[test]
fn the_end_of_an_agent_is_reported_by_its_cause_and_not_by_its_link() {
    let (server, client) = open();
    let name = BOX.rsplit('/').next().expect("a name");
    let record = server.ok(&["inspect", "--json", name]);
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let pid = record["pid"].as_i64().expect("a process") as i32;
    let url = server.url();
    let sleep = |mark: &str| format!("touch /tmp/on-{mark}; sleep 60");
    let start = json!({ "argv": ["sh", "-c", sleep("session")], "session": "s" });
    let _ = client.post(&format!("{BOX}/sessions"), &start).expect(201);
    // The last words of each door.
    std::thread::scope(|scope| {
        let whole = scope.spawn(|| {
            let refused = exec(&Client::new(url), &json!({ "argv": ["sh", "-c", sleep("whole")] }));
            assert_eq!((refused.status, &*refused.code()), (502, "guest_unreachable"));
            assert_eq!(refused.json()["details"]["reason"], "sandbox_ended", "{}", refused.text());
            refused.text()
        });
        let stream = |path: &'static str, body: Value| {
            scope.spawn(move || {
                let client = Client::new(url);
                let lines = client.lines(&format!("{BOX}/{path}"), Some(&body));
                lines.last().expect("an event").to_string()
            })
        };
        let lines = stream("exec", json!({ "argv": ["sh", "-c", sleep("lines")] }));
        let run = stream(
            "contexts/python/run",
            json!({ "code": "open('/tmp/on-run', 'w'); import time; time.sleep(60)" }),
        );
        let listen = |path: &str| {
            let lines = client.lines(&format!("{BOX}/{path}"), None);
            scope.spawn(move || lines.last().expect("an event").to_string())
        };
        let watch = listen("files/watch?path=/tmp");
        let metrics = listen("metrics/stream");
        let output = listen("sessions/s/output?follow=true");
        let rpc = scope.spawn(|| {
            let params = json!({ "sandbox": name, "command": "sh", "args": ["-c", sleep("rpc")] });
            let request = json!({
                "jsonrpc": "2.0", "id": 1, "method": "sandbox.command.run", "params": params
            });
            let record = Client::new(url).post("/api/v1/rpc", &request).expect(200).json();
            record["error"]["message"].as_str().expect("a message").to_owned()
        });
        let command = scope.spawn(|| {
            let output = server.run(&["exec", name, "sh", "-c", &sleep("command")]);
            assert_eq!(output.status.code(), Some(125), "{output:?}");
            String::from_utf8(output.stderr).expect("text")
        });
        let all = ["session", "whole", "lines", "run", "rpc", "command"];
        let all = all.map(|mark| format!("test -e /tmp/on-{mark}")).join(" && ");
        eventually("all run", || {
            exec(&client, &json!({ "argv": ["sh", "-c", all] })).json()["success"] == true
        });
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it is ours");
        let doors = [
            ("whole", whole),
            ("lines", lines),
            ("run", run),
            ("watch", watch),
            ("metrics", metrics),
            ("output", output),
            ("rpc", rpc),
            ("command", command),
        ];
        for (door, last) in doors {
            let last = last.join().expect("last words");
            assert!(last.contains("stopped (its agent "), "{door}: {last}");
            assert!(!last.contains("the link is closed"), "{door}: {last}");
        }
    });
}

#[test]
fn a_programs_output_and_its_end_are_reported() {
    let (_server, client) = open();
    let answer = exec(&client, &json!({ "argv": ["printf", "%s", "hi there"] })).expect(200).json();
    assert_eq!(
        (answer["stdout"].as_str(), answer["stderr"].as_str()),
        (Some("hi there"), Some(""))
    );
    assert_eq!(answer["cause"], json!({ "type": "exited", "code": 0 }));
    assert_eq!((&answer["success"], &answer["exit_code"]), (&json!(true), &json!(0)));
    assert_eq!(answer["truncated"], false);
    assert!(answer.get("stdout_base64").is_none());

    let answer = shell(&client, "echo out; echo err >&2; exit 3");
    assert_eq!(
        (answer["stdout"].as_str(), answer["stderr"].as_str()),
        (Some("out\n"), Some("err\n"))
    );
    assert_eq!((&answer["success"], &answer["exit_code"]), (&json!(false), &json!(3)));

    let answer = shell(&client, "kill -SEGV $$");
    assert_eq!((&answer["cause"]["type"], &answer["exit_code"]), (&json!("signaled"), &json!(139)));
}

#[test]
fn a_programs_options_take_effect() {
    let (_server, client) = open();
    let body = json!({
        "script": "pwd; echo $WORD; id -un; cat; ulimit -u >/dev/null",
        "shell": "/bin/bash", "cwd": "/tmp", "env": { "WORD": "wört" }, "user": "nobody",
        "stdin": { "base64": "AAH/" }, "limits": { "memory_mib": 64, "cpus": 0.5, "processes": 20 },
    });
    let answer = client.post(&format!("{BOX}/shell"), &body).expect(200).json();
    assert_eq!(decode(&answer["stdout_base64"]), b"/tmp\nw\xc3\xb6rt\nnobody\n\x00\x01\xff");
}

#[test]
fn ten_mebibytes_of_any_bytes_arrive_as_they_are() {
    let (_server, client) = open();
    // Bytes that are no text, and whose place shows in them.
    let script = "import sys\nfor i in range(40960): sys.stdout.buffer.write(i.to_bytes(4,'big')*62+b'\\xff\\xfe\\x00\\n'*2)";
    let body = json!({ "argv": ["python3", "-c", script], "output_bytes_max": 16 * 1024 * 1024 });
    let answer = exec(&client, &body).expect(200).json();
    let expected: Vec<u8> = (0_u32..40960)
        .flat_map(|i| [i.to_be_bytes().repeat(62), b"\xff\xfe\x00\n".repeat(2)].concat())
        .collect();
    assert_eq!(expected.len(), TEN_MIB);
    assert!(decode(&answer["stdout_base64"]) == expected, "the bytes differ");
    assert_eq!(answer["truncated"], false);

    let mut at = 0;
    let path = format!("{BOX}/exec");
    for event in client.lines(&path, Some(&body)) {
        if event["type"] != "stdout" {
            continue;
        }
        assert_eq!(event["offset"], at);
        let bytes = match event["text"].as_str() {
            Some(text) => text.as_bytes().to_vec(),
            None => decode(&event["base64"]),
        };
        let end = at + bytes.len();
        assert!(bytes == expected[at..end], "the bytes from {at} differ");
        at = end;
    }
    assert_eq!(at, TEN_MIB);
}

#[test]
fn output_is_cut_at_the_cap_and_only_then() {
    let (_server, client) = open();
    let ask = |count: usize| {
        let script = format!("head -c {count} /dev/zero | tr '\\0' x");
        let body = json!({ "script": script, "output_bytes_max": 100_000 });
        client.post(&format!("{BOX}/shell"), &body).expect(200).json()
    };
    let (whole, cut) = (ask(100_000), ask(100_001));
    assert_eq!(whole["truncated"], false);
    assert_eq!(cut["truncated"], true);
    assert_eq!(whole["stdout"], cut["stdout"]);
    assert_eq!(cut["success"], true);
}

#[test]
fn text_arrives_in_whole_characters_however_it_is_written() {
    let (_server, client) = open();
    let script = "printf '\\342\\202'; sleep 0.2; printf '\\254 '; sleep 0.2; printf '\\303'";
    let path = format!("{BOX}/shell");
    let events: Vec<Value> = client.lines(&path, Some(&json!({ "script": script }))).collect();
    let stdout: Vec<&Value> = events.iter().filter(|event| event["type"] == "stdout").collect();
    assert_eq!(stdout[0], &json!({ "type": "stdout", "offset": 0, "text": "€ " }));
    assert_eq!(stdout[1], &json!({ "type": "stdout", "offset": 4, "base64": "ww==" }));
    assert_eq!(events.first().expect("events")["type"], "started");
    assert_eq!(events.last().expect("events")["type"], "exited");
}

#[test]
fn a_program_that_cannot_be_started_is_refused_with_the_step() {
    let (_server, client) = open();
    for headers in [vec![], vec![("accept", "application/x-ndjson")]] {
        let headers = [vec![("content-type", "application/json")], headers].concat();
        let body = json!({ "argv": ["no-such-program"] }).to_string();
        let refused = client.send("POST", &format!("{BOX}/exec"), &headers, body.as_bytes());
        let refused = refused.expect(422).json();
        assert_eq!(refused["code"], "spawn_failed");
        assert_eq!(refused["details"]["stage"], "exec");
        assert_eq!(refused["details"]["errno"], 2);
    }
    let refused = exec(&client, &json!({ "argv": ["true"], "cwd": "/nowhere" })).expect(422);
    assert_eq!(refused.json()["details"]["stage"], "working_directory");
    let refused = exec(&client, &json!({ "argv": ["true"], "user": "nobody-at-all" })).expect(422);
    assert_eq!(refused.json()["details"]["stage"], "user");
}

#[test]
fn invalid_programs_are_refused_and_the_server_continues() {
    let (_server, client) = open();
    let wrong = [
        json!({}),
        json!({ "argv": [] }),
        json!({ "argv": "echo" }),
        json!({ "argv": ["echo"], "unknown": 1 }),
        json!({ "argv": ["echo"], "timeout_ms": 0 }),
        json!({ "argv": ["echo"], "timeout_ms": u64::MAX }),
        json!({ "argv": ["echo"], "output_bytes_max": u64::MAX }),
        json!({ "argv": ["echo"], "env": { "A=B": "x" } }),
        json!({ "argv": ["echo"], "session": "../x" }),
        json!({ "argv": ["echo"], "limits": { "cpus": -1 } }),
        json!({ "argv": ["echo"], "stdin": { "base64": "?" } }),
    ];
    for body in wrong {
        let refused = exec(&client, &body);
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid"), "{body}");
    }
    let refused = exec(&client, &json!({ "argv": ["echo", "a\u{0}b"] }));
    assert!((400..500).contains(&refused.status), "{}", refused.text());
    assert_eq!(shell(&client, "echo on")["stdout"], "on\n");
}

#[test]
fn a_timeout_ends_the_whole_tree_and_is_a_result() {
    let (_server, client) = open();
    let script = "echo before; sleep 41.7 & setsid sleep 41.7 & sleep 41.7";
    let body = json!({ "script": script, "timeout_ms": 500 });
    let begun = Instant::now();
    let answer = client.post(&format!("{BOX}/shell"), &body).expect(200).json();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(answer["cause"], json!({ "type": "timeout", "limit_ms": 500 }));
    assert_eq!((&answer["exit_code"], &answer["success"]), (&json!(124), &json!(false)));
    assert_eq!(answer["stdout"], "before\n");
    eventually("no process is left", || !lives(&client, "sleep 41.7"));
}

#[test]
fn running_out_of_memory_is_reported_with_the_limit_at_every_door() {
    let (_server, client) = open_with(&json!({ "memory_mib": 128 }));
    let made = client.get(BOX).json();
    if made["warnings"].to_string().contains("memory_mib is not enforced") {
        return skip("the control groups of this host cannot bound memory");
    }
    let hungry = "x = bytearray(400 << 20); print('had it')";
    let argv = ["python3", "-c", hungry];
    let answer = exec(&client, &json!({ "argv": argv })).expect(200).json();
    let expected = json!({ "type": "out_of_memory", "limit_bytes": 128 << 20 });
    assert_eq!((&answer["cause"], &answer["exit_code"]), (&expected, &json!(137)));
    // One that is killed for something else has not run out of memory, although another has.
    assert_eq!(shell(&client, "kill -9 $$")["cause"]["type"], "signaled");

    let ran = client.post(&format!("{BOX}/run"), &json!({ "code": hungry })).expect(200).json();
    let words = "ran out of memory, with a limit of 128 MiB";
    assert_eq!((&ran["status"], &ran["cause"]), (&json!("died"), &expected), "{ran}");
    assert!(ran["reason"].to_string().contains(words), "{ran}");

    let rpc = |method: &str, params: Value| {
        let mut params = params;
        params["sandbox"] = json!("box");
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        client.post("/api/v1/rpc", &body).expect(200).json()
    };
    let args = json!({ "command": "python3", "args": ["-c", hungry] });
    let answer = rpc("sandbox.command.run", args)["result"].clone();
    assert_eq!(
        (&answer["cause"], &answer["limit_bytes"]),
        (&json!("out_of_memory"), &json!(128 << 20))
    );
    let answer = rpc("sandbox.repl.run", json!({ "language": "python", "code": hungry }));
    assert!(answer.to_string().contains(words), "{answer}");

    // Answers that have no place for a cause say it behind the output, and so they do of a deadline.
    let line = format!("[the program {words}]\n");
    let a2a = |body: Value| client.post("/a2a/v1/sandboxes/box/exec", &body).expect(200).json();
    let answer = a2a(json!({ "cmd": "python3", "args": ["-c", hungry] }));
    assert_eq!((&answer["stderr"], &answer["exit_code"]), (&json!(line), &json!(137)));
    let answer = a2a(json!({ "script": "echo so far >&2; sleep 43.1", "timeout_seconds": 0.5 }));
    let line_of_deadline = "so far\n[the program was killed at its deadline of 0.5 s]\n";
    assert_eq!((&answer["stderr"], &answer["exit_code"]), (&json!(line_of_deadline), &json!(124)));
    let command = json!({ "command": format!("exec python3 -c \"{hungry}\"") });
    let answer = client.post("/daytona/toolbox/box/process/execute", &command).expect(200).json();
    assert_eq!((&answer["result"], &answer["exitCode"]), (&json!(line), &json!(137)));

    let notebook = json!({ "name": "hungry", "sandbox": "box" });
    client.post("/v1/notebooks", &notebook).expect(200);
    client.post("/v1/notebooks/default/hungry/run", &json!({ "code": hungry })).expect(200);
    let history = client.get("/v1/notebooks/default/hungry/history").json();
    assert_eq!(history["runs"][0]["error"], json!(format!("its interpreter {words}")));
}

#[test]
fn the_deadline_of_the_call_is_the_programs_too() {
    let (_server, client) = open();
    let headers = [("content-type", "application/json"), ("burrow-deadline-ms", "1500")];
    let body = json!({ "script": "echo so far; exec sleep 42.1" }).to_string();
    let answer = client.send("POST", &format!("{BOX}/shell"), &headers, body.as_bytes());
    let answer = answer.expect(200).json();
    let cause = json!({ "type": "timeout", "limit_ms": 1500 });
    assert_eq!((&answer["cause"], &answer["stdout"]), (&cause, &json!("so far\n")));
    assert!(!lives(&client, "sleep 42.1"));
}

#[test]
fn processes_left_behind_do_not_delay_the_result() {
    let (_server, client) = open();
    let begun = Instant::now();
    // Until it is the shell no more, and has arguments.
    let answer =
        shell(&client, "sleep 20 & until grep -qa ^sleep /proc/$!/cmdline; do :; done; echo hi");
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!((&answer["stdout"], &answer["left_behind_count"]), (&json!("hi\n"), &json!(1)));
    let command = answer["left_behind"][0]["command"].as_str().expect("a command");
    assert!(command.contains("sleep"), "{command}");
}

#[test]
fn a_client_that_leaves_ends_its_program() {
    let (_server, client) = open();
    // Buffered, as a stream, over a WebSocket.
    for (number, accept) in ["application/json", "application/x-ndjson"].into_iter().enumerate() {
        use std::io::Write;
        let word = format!("sleep 43.{number}");
        let body = json!({ "script": format!("{word} & {word}") }).to_string();
        let mut stream = client.raw();
        write!(
            stream,
            "POST {BOX}/shell HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("a request");
        eventually("it runs", || lives(&client, &word));
        drop(stream);
        eventually("it is gone", || !lives(&client, &word));
    }
    let mut socket = client.websocket(&format!("{BOX}/exec"), &[]);
    socket.tell(&json!({ "argv": ["sleep", "43.5"] }));
    assert_eq!(socket.hear_value()["type"], "started");
    assert!(lives(&client, "sleep 43.5"));
    drop(socket);
    eventually("it is gone", || !lives(&client, "sleep 43.5"));
    let left = client.get(&format!("{BOX}/sessions")).json();
    assert_eq!(left["sessions"], json!([]), "nothing is kept of it");
}

#[test]
fn a_client_that_detaches_leaves_its_program_running() {
    let (_server, client) = open();
    let body = json!({
        "script": "cat; echo begun; sleep 1.5; echo done", "on_disconnect": "detach",
        "session": "long", "stdin": { "text": "fed\n" },
    });
    let path = format!("{BOX}/shell");
    let mut lines = client.lines(&path, Some(&body));
    assert_eq!(lines.next().expect("an event")["session"], "long");
    drop(lines);
    let waited = client.get(&format!("{BOX}/sessions/long/wait")).expect(200).json();
    assert_eq!(waited["exit"]["success"], true);
    let headers = [("accept", "application/octet-stream")];
    let output = format!("{BOX}/sessions/long/output?channel=stdout");
    eventually("all is recorded", || {
        client.send("GET", &output, &headers, &[]).text() == "fed\nbegun\ndone\n"
    });
    let refused = client.post(&path, &body).expect(409);
    assert_eq!(refused.json()["details"]["reason"], "session_exists");
}

#[test]
fn a_conversation_over_a_websocket_goes_both_ways() {
    let (_server, client) = open();
    let mut socket = client.websocket(&format!("{BOX}/exec"), &["burrow.v1"]);
    assert_eq!(socket.headers.get("sec-websocket-protocol"), Some("burrow.v1"));
    socket.tell(&json!({ "argv": ["cat"] }));
    assert_eq!(socket.hear_value()["type"], "started");
    socket.tell(&json!({ "type": "stdin", "text": "one " }));
    socket.binary(b"two ");
    socket.tell(&json!({ "type": "nonsense" }));
    socket.tell(&json!({ "type": "stdin", "base64": "dGhyZWU=" }));
    socket.tell(&json!({ "type": "eof" }));
    let (mut message, mut refused) = (String::new(), 0);
    let exit = loop {
        let event = socket.hear_value();
        match event["type"].as_str().expect("a type") {
            "stdout" => message.push_str(event["text"].as_str().expect("text")),
            "refused" => refused += 1,
            "exited" => break event,
            other => panic!("{other}"),
        }
    };
    assert_eq!((message.as_str(), refused), ("one two three", 1));
    assert_eq!(exit["exit"]["success"], true);
    assert_eq!(socket.hear(), SocketMessage::Closed(Some(1000)));

    let mut socket = client.websocket(&format!("{BOX}/exec"), &[]);
    socket.tell(&json!({ "script": "sleep 44 & wait" }));
    assert_eq!(socket.hear_value()["type"], "started");
    socket.tell(&json!({ "type": "signal", "signal": "KILL", "target": "tree" }));
    assert_eq!(socket.hear_value()["exit"]["cause"]["type"], "killed");

    let mut socket = client.websocket(&format!("{BOX}/exec"), &[]);
    socket.tell(&json!({ "argv": ["no-such-program"] }));
    assert_eq!(socket.hear_value()["problem"]["code"], "spawn_failed");
    assert_eq!(socket.hear(), SocketMessage::Closed(Some(1011)));
}

#[test]
fn input_that_nobody_reads_does_not_stop_the_output() {
    let (_server, client) = open();
    let mut socket = client.websocket(&format!("{BOX}/exec"), &[]);
    let script = "for i in $(seq 20); do echo $i; sleep 0.1; done";
    socket.tell(&json!({ "script": script }));
    // More than all the buffers on the way; the client waits here until the program is over.
    let flood = vec![b'x'; 1024 * 1024];
    let stream = socket.stream().try_clone().expect("a second handle");
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        let mut stream = stream;
        // A binary frame of 1 MiB from a client, masked with zeros.
        let head = [0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0];
        for _ in 0..16 {
            if stream.write_all(&head).and_then(|()| stream.write_all(&flood)).is_err() {
                return;
            }
        }
    });
    let mut text = String::new();
    loop {
        let event = socket.hear_value();
        match event["type"].as_str() {
            Some("stdout") => text.push_str(event["text"].as_str().expect("text")),
            Some("exited") => break,
            _ => {}
        }
    }
    assert_eq!(text.lines().count(), 20);
    drop(socket);
    writer.join().expect("no panic");
}
