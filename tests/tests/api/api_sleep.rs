//! Sandboxes that sleep when they are idle, behind a real server: what wakes them, through each door, and
//! what does not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use serde_json::{Value, json};
use tests::door::BOX;
use tests::http::{Answer, Client};
use tests::mcp::{VERSION, Web};
use tests::server::Server;
use tests::{PATIENCE, eventually, skip};

const RPC: &str = "/api/v1/rpc";
const WOKE: &str = "burrow-woke-ms";
/// Short wakes, of a second each, until what they have cost must be known.
const WAKES_MAX: usize = 40;

/// A server with a sandbox that soon sleeps.
fn sleepy() -> Option<(Server, Client)> {
    let server = Server::dev();
    let client = Client::new(server.url());
    make(&client, "box", 500).then_some((server, client))
}

/// Makes one, if this host can freeze it.
fn make(client: &Client, name: &str, idle_ttl_ms: u64) -> bool {
    let spec = json!({ "name": name, "idle_ttl_ms": idle_ttl_ms, "on_idle": "pause" });
    let made = client.post("/v1/sandboxes", &spec);
    if made.status != 201 {
        assert_eq!(made.code(), "unsupported", "{}", made.text());
        skip(&made.text());
        return false;
    }
    assert_eq!(made.json()["on_idle"], "pause");
    true
}

fn until_asleep(client: &Client) {
    eventually("it sleeps", || client.get(BOX).expect(200).json()["asleep"] == true);
}

fn woke(answer: Answer, status: u16) -> Answer {
    let answer = answer.expect(status);
    let ms = answer.header(WOKE).and_then(|text| text.parse::<u64>().ok());
    assert!(ms.is_some_and(|ms| ms > 0), "it does not say that it waited");
    answer
}

#[test]
fn a_request_through_any_door_wakes_it_and_the_answer_says_so() {
    let Some((server, client)) = sleepy() else { return };
    let run = json!({ "script": "echo on" });
    until_asleep(&client);
    let ran = woke(client.post(&format!("{BOX}/shell"), &run), 200).json();
    assert_eq!(ran["stdout"], "on\n");
    // Awake it says nothing.
    let again = client.post(&format!("{BOX}/shell"), &run).expect(200);
    assert_eq!(again.header(WOKE), None);
    until_asleep(&client);
    let file = format!("{BOX}/files/content?path=/tmp/note");
    woke(client.send("PUT", &file, &[], b"kept"), 200);
    until_asleep(&client);
    assert_eq!(woke(client.get(&file), 200).text(), "kept");
    until_asleep(&client);
    let start = json!({ "argv": ["cat", "/tmp/note"], "session": "s" });
    woke(client.post(&format!("{BOX}/sessions"), &start), 201);
    until_asleep(&client);
    // A session that has ended is read, and attached to.
    let output = woke(client.get(&format!("{BOX}/sessions/s/output?from=0")), 200);
    assert!(output.text().contains("\"text\":\"kept\""), "{}", output.text());
    until_asleep(&client);
    let mut socket = client.websocket(&format!("{BOX}/exec"), &[]);
    socket.tell(&json!({ "argv": ["echo", "socket"] }));
    let mut events = std::iter::repeat_with(|| socket.hear_value()).take(100);
    assert!(events.any(|event| event["type"] == "exited" || event["exit"].is_object()));
    until_asleep(&client);
    let params =
        json!({ "sandbox": "box", "namespace": "default", "command": "echo", "args": ["rpc"] });
    let call =
        json!({ "jsonrpc": "2.0", "method": "sandbox.command.run", "params": params, "id": 1 });
    let answer = woke(client.post(RPC, &call), 200).json();
    assert!(answer["result"].is_object(), "{answer}");
    until_asleep(&client);
    let mut mcp = Web::open(Client::new(server.url()), VERSION);
    let arguments = json!({ "sandbox": "box", "command": "echo mcp" });
    let result = mcp.call("shell_execute", &arguments);
    assert!(result.to_string().contains("mcp"), "{result}");
    assert!(result["_meta"]["burrow/woke_ms"].as_u64().is_some_and(|ms| ms > 0), "{result}");
    until_asleep(&client);
    let output = server.run(&["exec", "box", "--", "echo", "verb"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "verb\n");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("box was asleep and woke in "), "{stderr}");
    until_asleep(&client);
    let record = server.ok(&["inspect", "--json", "box"]);
    assert!(
        record.contains("\"by_idle\":true") || record.contains("\"by_idle\": true"),
        "{record}"
    );
}

#[test]
fn a_context_keeps_its_variables_while_it_sleeps() {
    let Some((_server, client)) = sleepy() else { return };
    let run = |code: &str| client.post(&format!("{BOX}/run"), &json!({ "code": code }));
    let first = run("x = 41").expect(200).json();
    assert_eq!(first["exit"]["state"].as_str().unwrap_or("ok"), "ok", "{first}");
    until_asleep(&client);
    let ran = woke(run("print(x + 1)"), 200).json();
    assert_eq!(ran["stdout"], "42\n");
}

#[test]
fn those_who_only_look_wake_nobody() {
    let Some((server, client)) = sleepy() else { return };
    client.post(&format!("{BOX}/shell"), &json!({ "script": "echo seen" })).expect(200);
    until_asleep(&client);
    for path in ["", "/logs", "/sessions", "/sessions?recorded=true", "/ports"] {
        let answer = client.get(&format!("{BOX}{path}")).expect(200);
        assert_eq!(answer.header(WOKE), None, "{path}");
    }
    client.get("/v1/sandboxes").expect(200);
    client.get("/metrics").expect(200);
    let refused = client.get(&format!("{BOX}/metrics")).expect(409).json();
    assert_eq!(refused["details"]["reason"], "paused");
    client.get(&format!("{BOX}/contexts")).expect(409);
    for verb in [&["ps"][..], &["inspect", "box"], &["logs", "box"]] {
        server.ok(verb);
    }
    server.run(&["stats", "box"]);
    let record = client.get(BOX).expect(200).json();
    assert_eq!((&record["state"], &record["asleep"]), (&json!("paused"), &json!(true)));
}

#[test]
fn a_key_that_may_not_use_it_wakes_it_not() {
    let server = Server::with_keys();
    let key = |options: &[&str]| {
        let made = server.ok(&[&["keygen", "--json"], options].concat());
        let made: Value = serde_json::from_str(&made).expect("JSON");
        Client::new(server.url()).key(made["key"].as_str().expect("a key"))
    };
    let own = key(&["--namespace", "default", "--scope", "run"]);
    let stranger = key(&["--namespace", "other", "--scope", "run"]);
    let reader = key(&["--namespace", "default", "--scope", "read"]);
    if !make(&own, "box", 500) {
        return;
    }
    until_asleep(&own);
    let run = json!({ "script": "echo on" });
    for client in [&stranger, &reader, &Client::new(server.url())] {
        let refused = client.post(&format!("{BOX}/shell"), &run);
        assert!([401, 403, 404].contains(&refused.status), "{}", refused.status);
        assert_eq!(refused.header(WOKE), None);
    }
    assert_eq!(own.get(BOX).expect(200).json()["asleep"], true);
    woke(own.post(&format!("{BOX}/shell"), &run), 200);
}

#[test]
fn a_connection_to_a_forwarded_port_wakes_it_and_an_open_one_keeps_its_bytes() {
    let Some((server, client)) = sleepy() else { return };
    // A server that outlives the command that starts it, so that nothing is at work.
    let echo = "import socket\nserver = socket.create_server(('127.0.0.1', 8123))\nwhile True:\n peer = server.accept()[0]\n while data := peer.recv(65536): peer.sendall(data)\n peer.close()\n";
    let script = format!("setsid python3 -c \"{echo}\" >/dev/null 2>&1 < /dev/null &");
    server.ok(&["exec", "box", "--", "sh", "-c", &script]);
    let forwarded =
        client.post(&format!("{BOX}/ports"), &json!({ "port": 8123 })).expect(201).json();
    let port = forwarded["host_port"].as_u64().expect("a port") as u16;
    for round in 0..3 {
        until_asleep(&client);
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let text = format!("round {round}");
        stream.write_all(text.as_bytes()).expect("taken");
        let mut heard = vec![0; text.len()];
        stream.read_exact(&mut heard).expect("it is sent back");
        assert_eq!(heard, text.as_bytes());
        if round < 2 {
            continue;
        }
        // Paused by hand, what is sent waits, and comes when it goes on.
        client.post(&format!("{BOX}/pause"), &json!({})).expect(200);
        stream.write_all(b"while it is paused").expect("taken");
        client.post(&format!("{BOX}/resume"), &json!({})).expect(200);
        let mut heard = [0; 18];
        stream.read_exact(&mut heard).expect("it is sent back");
        assert_eq!(&heard, b"while it is paused");
    }
}

#[test]
fn a_hundred_clients_wake_it_once_and_each_is_answered() {
    let Some((server, client)) = sleepy() else { return };
    until_asleep(&client);
    let clients = (0..100).map(|number| {
        let client = Client::new(server.url());
        thread::spawn(move || {
            let script = format!("echo {number} >> /tmp/seen; echo {number}");
            let ran = client.post(&format!("{BOX}/shell"), &json!({ "script": script }));
            assert_eq!(ran.expect(200).json()["stdout"], format!("{number}\n"));
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.join().expect("it was answered");
    }
    let count = json!({ "script": "sort -n /tmp/seen | uniq | wc -l; wc -l < /tmp/seen" });
    let seen = client.post(&format!("{BOX}/shell"), &count).expect(200).json();
    assert_eq!(seen["stdout"], "100\n100\n");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let refused = |more: Value, status: u16, words: &str| {
        let mut spec = json!({ "name": "box" });
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        let answer = client.post("/v1/sandboxes", &spec).expect(status);
        assert!(answer.text().contains(words), "{}", answer.text());
    };
    refused(json!({ "on_idle": "pause" }), 400, "idle_ttl_ms");
    refused(json!({ "on_idle": "snapshot" }), 400, "idle_ttl_ms");
    refused(json!({ "on_idle": "snapshot", "idle_ttl_ms": 1000 }), 422, "`pause`");
    refused(json!({ "on_idle": "doze", "idle_ttl_ms": 1000 }), 400, "doze");
}

#[test]
fn what_one_has_cost_is_known_though_it_never_wakes_for_long() {
    let Some((_server, client)) = sleepy() else { return };
    let busy = json!({ "script": "timeout 0.4 sh -c 'while :; do :; done' || true" });
    // It is asked for its samples each ten seconds, after two of a wake or, where it slept again by then, at the next wake.
    let is_counted = (0..WAKES_MAX).any(|_| {
        until_asleep(&client);
        client.post(&format!("{BOX}/shell"), &busy).expect(200);
        until_asleep(&client);
        let usage = client.get(&format!("{BOX}/usage")).expect(200).json();
        usage["cpu_seconds"].as_f64().is_some_and(|used| used > 0.3)
    });
    assert!(is_counted, "nothing was collected in {WAKES_MAX} wakes");
    assert_eq!(client.get(BOX).expect(200).json()["asleep"], true);
}
