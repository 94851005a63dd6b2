//! Programs over the server's door, as its clients see them: what they say and how they end is told
//! exactly, and nothing is left of what was given up.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::door::{BOX, open};
use tests::eventually;
use tests::http::{Answer, Client, Said};

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
fn a_program_says_what_it_says_and_its_end_is_told() {
    let (_server, client) = open();
    let told = exec(&client, &json!({ "argv": ["printf", "%s", "hi there"] })).expect(200).json();
    assert_eq!((told["stdout"].as_str(), told["stderr"].as_str()), (Some("hi there"), Some("")));
    assert_eq!(told["cause"], json!({ "type": "exited", "code": 0 }));
    assert_eq!((&told["success"], &told["exit_code"]), (&json!(true), &json!(0)));
    assert_eq!(told["truncated"], false);
    assert!(told.get("stdout_base64").is_none());

    let told = shell(&client, "echo out; echo err >&2; exit 3");
    assert_eq!((told["stdout"].as_str(), told["stderr"].as_str()), (Some("out\n"), Some("err\n")));
    assert_eq!((&told["success"], &told["exit_code"]), (&json!(false), &json!(3)));

    let told = shell(&client, "kill -SEGV $$");
    assert_eq!((&told["cause"]["type"], &told["exit_code"]), (&json!("signaled"), &json!(139)));
}

#[test]
fn what_a_program_is_asked_for_with_reaches_it() {
    let (_server, client) = open();
    let asked = json!({
        "script": "pwd; echo $WORD; id -un; cat; ulimit -u >/dev/null",
        "shell": "/bin/bash", "cwd": "/tmp", "env": { "WORD": "wört" }, "user": "nobody",
        "stdin": { "base64": "AAH/" }, "limits": { "memory_mib": 64, "cpus": 0.5, "processes": 20 },
    });
    let told = client.post(&format!("{BOX}/shell"), &asked).expect(200).json();
    assert_eq!(decode(&told["stdout_base64"]), b"/tmp\nw\xc3\xb6rt\nnobody\n\x00\x01\xff");
}

#[test]
fn ten_mebibytes_of_any_bytes_arrive_as_they_are() {
    let (_server, client) = open();
    // Bytes that are no text, and whose place shows in them.
    let script = "import sys\nfor i in range(40960): sys.stdout.buffer.write(i.to_bytes(4,'big')*62+b'\\xff\\xfe\\x00\\n'*2)";
    let asked = json!({ "argv": ["python3", "-c", script], "output_bytes_max": 16 * 1024 * 1024 });
    let told = exec(&client, &asked).expect(200).json();
    let expected: Vec<u8> = (0_u32..40960)
        .flat_map(|i| [i.to_be_bytes().repeat(62), b"\xff\xfe\x00\n".repeat(2)].concat())
        .collect();
    assert_eq!(expected.len(), TEN_MIB);
    assert!(decode(&told["stdout_base64"]) == expected, "the bytes differ");
    assert_eq!(told["truncated"], false);

    let mut at = 0;
    let path = format!("{BOX}/exec");
    for event in client.lines(&path, Some(&asked)) {
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
        let asked = json!({ "script": script, "output_bytes_max": 100_000 });
        client.post(&format!("{BOX}/shell"), &asked).expect(200).json()
    };
    let (whole, cut) = (ask(100_000), ask(100_001));
    assert_eq!(whole["truncated"], false);
    assert_eq!(cut["truncated"], true);
    assert_eq!(whole["stdout"], cut["stdout"]);
    assert_eq!(cut["success"], true);
}

#[test]
fn text_is_told_in_whole_characters_however_it_is_written() {
    let (_server, client) = open();
    let script = "printf '\\342\\202'; sleep 0.2; printf '\\254 '; sleep 0.2; printf '\\303'";
    let path = format!("{BOX}/shell");
    let events: Vec<Value> = client.lines(&path, Some(&json!({ "script": script }))).collect();
    let said: Vec<&Value> = events.iter().filter(|event| event["type"] == "stdout").collect();
    assert_eq!(said[0], &json!({ "type": "stdout", "offset": 0, "text": "€ " }));
    assert_eq!(said[1], &json!({ "type": "stdout", "offset": 4, "base64": "ww==" }));
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
fn what_is_no_program_is_refused_and_the_server_goes_on() {
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
    let asked = json!({ "script": script, "timeout_ms": 500 });
    let begun = Instant::now();
    let told = client.post(&format!("{BOX}/shell"), &asked).expect(200).json();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(told["cause"], json!({ "type": "timeout", "limit_ms": 500 }));
    assert_eq!((&told["exit_code"], &told["success"]), (&json!(124), &json!(false)));
    assert_eq!(told["stdout"], "before\n");
    eventually("no process is left", || !lives(&client, "sleep 41.7"));
}

#[test]
fn the_deadline_of_the_call_is_the_programs_too() {
    let (_server, client) = open();
    let headers = [("content-type", "application/json"), ("burrow-deadline-ms", "1500")];
    let body = json!({ "script": "echo so far; exec sleep 42.1" }).to_string();
    let told = client.send("POST", &format!("{BOX}/shell"), &headers, body.as_bytes());
    let told = told.expect(200).json();
    assert_eq!((&told["cause"]["type"], &told["stdout"]), (&json!("timeout"), &json!("so far\n")));
    assert!(!lives(&client, "sleep 42.1"));
}

#[test]
fn what_a_program_leaves_behind_does_not_hold_up_its_result() {
    let (_server, client) = open();
    let begun = Instant::now();
    // Until it is the shell no more, and has arguments.
    let told =
        shell(&client, "sleep 20 & until grep -qa ^sleep /proc/$!/cmdline; do :; done; echo hi");
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!((&told["stdout"], &told["left_behind_count"]), (&json!("hi\n"), &json!(1)));
    let command = told["left_behind"][0]["command"].as_str().expect("a command");
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
    let asked = json!({
        "script": "cat; echo begun; sleep 1.5; echo done", "on_disconnect": "detach",
        "session": "long", "stdin": { "text": "fed\n" },
    });
    let path = format!("{BOX}/shell");
    let mut lines = client.lines(&path, Some(&asked));
    assert_eq!(lines.next().expect("an event")["session"], "long");
    drop(lines);
    let waited = client.get(&format!("{BOX}/sessions/long/wait")).expect(200).json();
    assert_eq!(waited["exit"]["success"], true);
    let headers = [("accept", "application/octet-stream")];
    let output = format!("{BOX}/sessions/long/output?channel=stdout");
    eventually("all is recorded", || {
        client.send("GET", &output, &headers, &[]).text() == "fed\nbegun\ndone\n"
    });
    let refused = client.post(&path, &asked).expect(409);
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
    let (mut said, mut refused) = (String::new(), 0);
    let exit = loop {
        let event = socket.hear_value();
        match event["type"].as_str().expect("a type") {
            "stdout" => said.push_str(event["text"].as_str().expect("text")),
            "refused" => refused += 1,
            "exited" => break event,
            other => panic!("{other}"),
        }
    };
    assert_eq!((said.as_str(), refused), ("one two three", 1));
    assert_eq!(exit["exit"]["success"], true);
    assert_eq!(socket.hear(), Said::Closed(Some(1000)));

    let mut socket = client.websocket(&format!("{BOX}/exec"), &[]);
    socket.tell(&json!({ "script": "sleep 44 & wait" }));
    assert_eq!(socket.hear_value()["type"], "started");
    socket.tell(&json!({ "type": "signal", "signal": "KILL", "target": "tree" }));
    assert_eq!(socket.hear_value()["exit"]["cause"]["type"], "killed");

    let mut socket = client.websocket(&format!("{BOX}/exec"), &[]);
    socket.tell(&json!({ "argv": ["no-such-program"] }));
    assert_eq!(socket.hear_value()["problem"]["code"], "spawn_failed");
    assert_eq!(socket.hear(), Said::Closed(Some(1011)));
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
    let mut said = String::new();
    loop {
        let event = socket.hear_value();
        match event["type"].as_str() {
            Some("stdout") => said.push_str(event["text"].as_str().expect("text")),
            Some("exited") => break,
            _ => {}
        }
    }
    assert_eq!(said.lines().count(), 20);
    drop(socket);
    writer.join().expect("no panic");
}
