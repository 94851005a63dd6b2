//! Caps: what the sandboxes of a namespace, or of a key, may have together, at once and on one day.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::thread;

use serde_json::{Value, json};
use tests::http::{Answer, Client};
use tests::machines::machines_or_skip;
use tests::server::Server;
use tests::{Burrow, eventually, skip};

const CAPS: &str = "
[caps.per_key]
sandboxes = 3
[caps.per_namespace]
memory_mib = 512
ttl = \"1h\"
[caps.namespace.large]
memory_mib = 4096
";

fn serving(caps: &str, options: &[&str]) -> Server {
    let burrow = Burrow::new();
    let config = burrow.scratch().join("burrow.toml");
    fs::write(&config, caps).unwrap();
    let options = [&["--config", config.to_str().unwrap()], options].concat();
    Server::start_in(burrow, &options)
}

/// The key's id, and a client that has it.
fn made_key(server: &Server, namespace: &str) -> (String, Client) {
    let made = server.ok(&["keygen", "--json", "--namespace", namespace]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let client = Client::new(server.url()).key(made["key"].as_str().unwrap());
    (made["id"].as_str().unwrap().to_owned(), client)
}

fn key(server: &Server, namespace: &str) -> Client {
    made_key(server, namespace).1
}

fn body_of(namespace: &str, name: &str, mib: u64) -> Value {
    json!({ "namespace": namespace, "name": name, "memory_mib": mib })
}

/// What a client's namespace or key has of something, and what it may have.
fn used(client: &Client, namespace: &str, scope: &str, cap: &str) -> (u64, Option<u64>) {
    let shown = client.get(&format!("/v1/caps?namespace={namespace}")).expect(200).json();
    let find = |all: &Value, field: &str, value: &str| {
        all.as_array().unwrap().iter().find(|one| one[field] == value).unwrap().clone()
    };
    let row = find(&find(&shown["scopes"], "scope", scope)["caps"], "cap", cap);
    (row["used"].as_u64().unwrap(), row["allowed"].as_u64())
}

fn state(client: &Client, which: &str) -> Value {
    client.get(&format!("/v1/sandboxes/{which}")).expect(200).json()
}

fn exceeded(answer: Answer) -> Value {
    let answer = answer.expect(429);
    assert_eq!(answer.code(), "cap_exceeded");
    answer.json()["details"].clone()
}

#[test]
fn a_key_and_a_namespace_each_have_their_own_over_restarts() {
    let mut server = serving(CAPS, &[]);
    let (first, second) = (key(&server, "*"), key(&server, "*"));
    first.post("/v1/sandboxes", &body_of("small", "a", 300)).expect(201);
    let refused = exceeded(first.post("/v1/sandboxes", &body_of("small", "b", 213)));
    let expected = json!({ "scope": "namespace", "name": "small", "cap": "memory_mib",
        "used": 300, "asked": 213, "allowed": 512 });
    assert_eq!(refused, expected);
    // The other key is of the same namespace, and another namespace has its own.
    second.post("/v1/sandboxes", &body_of("small", "b", 213)).expect(429);
    for name in ["b", "c"] {
        first.post("/v1/sandboxes", &body_of("large", name, 600)).expect(201);
    }
    let refused = exceeded(first.post("/v1/sandboxes", &body_of("large", "d", 16)));
    assert_eq!((&refused["scope"], &refused["used"]), (&json!("key"), &json!(3)));
    second.post("/v1/sandboxes", &body_of("large", "d", 16)).expect(201);
    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.start", "params": {
        "namespace": "large", "sandbox": "e", "config": { "memory": 16 } } });
    let refused = first.post("/api/v1/rpc", &rpc).expect(429).json();
    assert_eq!(refused["error"]["data"]["reason"], "cap_exceeded");
    assert_eq!(refused["error"]["data"]["details"]["cap"], "sandboxes");
    let output = server.run(&["start", "--name", "small/z", "--memory", "300", "--cpus", "1"]);
    let output = String::from_utf8(output.stderr).unwrap();
    assert!(
        output
            .contains("may use 512 of memory_mib: 300 are in use, and this call asks for 300 more"),
        "{output}"
    );
    let output = server.run(&["start", "--name", "small/z"]);
    let output = String::from_utf8(output.stderr).unwrap();
    assert!(output.contains("must set a limit"), "{output}");

    // The next bridge counts what this one has made.
    server.kill_and_serve_again();
    let first = Client::new(server.url()).key(first.sent_key());
    first.post("/v1/sandboxes", &body_of("large", "e", 16)).expect(429);
    assert_eq!(used(&first, "small", "namespace", "memory_mib"), (300, Some(512)));
    assert_eq!(used(&first, "small", "key", "sandboxes"), (3, Some(3)));
    let shown = server.ok(&["caps", "--namespace", "small", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown[0]["scope"], &shown[0]["name"]), (&json!("namespace"), &json!("small")));
    let memory = json!({ "cap": "memory_mib", "used": 300, "allowed": 512 });
    assert_eq!(shown[0]["caps"][1], memory);

    // What has stopped gives back what it had, though its name is still taken.
    first.post("/v1/sandboxes/small/a/kill", &json!({})).expect(200);
    first.post("/v1/sandboxes", &body_of("small", "b", 512)).expect(201);

    let log = server.ok(&["audit", "--json", "-n", "1000"]);
    let mut records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let refused = records.find(|record| record["code"] == "cap_exceeded").unwrap();
    assert_eq!((&refused["policy"], &refused["outcome"]), (&json!("cap"), &json!("refused")));
    let metrics = first.get("/metrics").expect(200).text();
    for line in [
        "burrow_cap_used{scope=\"namespace\",name=\"small\",cap=\"memory_mib\"} 512",
        "burrow_cap_allowed{scope=\"namespace\",name=\"large\",cap=\"memory_mib\"} 4096",
        "burrow_cap_refusals_total{cap=\"sandboxes\"} 1",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line} is not in\n{metrics}");
    }
}

#[test]
fn no_race_of_several_keys_exceeds_a_cap() {
    let server =
        serving("[caps.per_key]\nsandboxes = 3\n[caps.per_namespace]\nmemory_mib = 500\n", &[]);
    let clients = [key(&server, "small"), key(&server, "small")];
    let statuses = thread::scope(|scope| {
        let create = |number: usize| {
            let (client, body) =
                (&clients[number % 2], body_of("small", &format!("s{number}"), 100));
            scope.spawn(move || client.post("/v1/sandboxes", &body).status)
        };
        let asking: Vec<_> = (0..24).map(create).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(statuses.iter().all(|status| [201, 429].contains(status)), "{statuses:?}");
    let made = statuses.iter().filter(|status| **status == 201).count();
    // Three by each key would be six, for which the namespace has no memory.
    assert_eq!(made, 5, "{statuses:?}");
    assert_eq!(used(&clients[0], "small", "namespace", "memory_mib"), (500, Some(500)));
    let of_keys = clients.each_ref().map(|client| used(client, "small", "key", "sandboxes").0);
    assert!(of_keys.iter().all(|count| *count <= 3) && of_keys.iter().sum::<u64>() == 5);
}

#[test]
fn a_creation_that_fails_gives_everything_back() {
    let server =
        serving("[caps.per_namespace]\nsandboxes = 1\n[caps.per_key]\nmemory_mib = 100\n", &[]);
    let client = key(&server, "small");
    for _ in 0..3 {
        let mut body = body_of("small", "a", 100);
        body["workspace"] = json!("nowhere");
        client.post("/v1/sandboxes", &body).expect(422);
        let body =
            json!({ "namespace": "small", "name": "a", "memory_mib": 100, "secrets": ["none"] });
        client.post("/v1/sandboxes", &body).expect(422);
    }
    assert_eq!(used(&client, "small", "namespace", "sandboxes"), (0, Some(1)));
    client.post("/v1/sandboxes", &body_of("small", "a", 100)).expect(201);
    client.delete("/v1/sandboxes/small/a?force=true").expect(200);
    assert_eq!(used(&client, "small", "namespace", "sandboxes"), (0, Some(1)));
    assert_eq!(used(&client, "small", "namespace", "disk_bytes").0, 0, "nothing is kept of it");
}

#[test]
fn every_door_and_what_it_makes_by_itself_counts() {
    let server = serving("[caps.per_key]\nsandboxes = 1\n", &["--set", "pool.entries=python=1"]);
    let (id, client) = made_key(&server, "default");
    eventually("the pool has one", || {
        let shelves: Value = serde_json::from_str(&server.ok(&["pool", "--json"])).unwrap();
        shelves[0]["ready"] == 1
    });
    // Nobody has what is kept ready; who takes it has it.
    assert_eq!(used(&client, "default", "key", "sandboxes"), (0, Some(1)));
    client.post("/v1/sandboxes", &json!({ "name": "a", "image": "python" })).expect(201);
    let shelves: Value = serde_json::from_str(&server.ok(&["pool", "--json"])).unwrap();
    assert_eq!(shelves[0]["claimed"], 1, "{shelves}");
    assert_eq!(used(&client, "default", "key", "sandboxes"), (1, Some(1)));

    // A notebook's own sandbox is its key's.
    let run = json!({ "code": "1" });
    let refused = exceeded(client.post("/v1/notebooks/default/work/run", &run));
    assert_eq!((&refused["scope"], &refused["name"]), (&json!("key"), &json!(id)));
    // So is that of a session of tools, and of a run without a sandbox.
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } } });
    let accept = ("accept", "application/json, text/event-stream");
    let kind = ("content-type", "application/json");
    let begun =
        client.send("POST", "/mcp", &[accept, kind], hello.to_string().as_bytes()).expect(200);
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "execute", "arguments": { "code": "1" } } });
    let headers = [accept, kind, ("mcp-session-id", session.as_str())];
    let answer =
        client.send("POST", "/mcp", &headers, call.to_string().as_bytes()).expect(200).text();
    assert!(answer.contains("may use 1 of sandboxes: 1 are in use"), "{answer}");

    client.delete("/v1/sandboxes/default/a?force=true").expect(200);
    client.post("/v1/notebooks/default/work/run", &run).expect(200);
    assert_eq!(used(&client, "default", "key", "sandboxes"), (1, Some(1)));
    exceeded(client.post("/v1/sandboxes", &json!({ "name": "b" })));
}

#[test]
fn a_stopped_sandbox_keeps_its_log_on_the_disk() {
    let server = serving("[caps.per_namespace]\ndisk = \"1GiB\"\n", &[]);
    let client = key(&server, "small");
    let mut body = body_of("small", "a", 256);
    body["scratch_bytes"] = json!(100 << 20);
    client.post("/v1/sandboxes", &body).expect(201);
    let log_bytes = 68 << 20;
    let disk = || used(&client, "small", "namespace", "disk_bytes");
    assert_eq!(disk(), ((100 << 20) + log_bytes, Some(1 << 30)));
    let mut large = body_of("small", "b", 2048);
    large["scratch_bytes"] = json!(900 << 20);
    assert_eq!(exceeded(client.post("/v1/sandboxes", &large))["cap"], "disk_bytes");
    client.post("/v1/sandboxes/small/a/stop", &json!({})).expect(200);
    let (left, _) = disk();
    assert!(left > 0 && left < log_bytes, "{left} bytes of its log");
    client.post("/v1/sandboxes", &large).expect(201);
}

#[test]
fn paused_saved_and_cloned_sandboxes_keep_their_usage() {
    if !machines_or_skip() {
        return;
    }
    let server = serving(
        "[caps.per_namespace]\nsandboxes = 2\nmemory_mib = 800\n[caps.per_key]\ndisk = \"8GiB\"\n",
        &[],
    );
    let client = key(&server, "small");
    let body = json!({ "name": "a", "machine": "qemu", "image": "python", "memory_mib": 256,
        "scratch_bytes": 64 << 20 });
    client.post("/v1/sandboxes", &body).expect(201);
    let has = || {
        let of = |cap: &str| used(&client, "small", "namespace", cap).0;
        (of("sandboxes"), of("memory_mib"))
    };
    let disk = || used(&client, "small", "key", "disk_bytes").0;
    let alone = disk();
    assert_eq!(has(), (1, 256));
    // A paused sandbox keeps its usage, so it may always resume.
    client.post("/v1/sandboxes/small/a/pause", &json!({})).expect(200);
    assert_eq!(has(), (1, 256));
    let mut other = body_of("small", "b", 545);
    assert_eq!(exceeded(client.post("/v1/sandboxes", &other))["used"], 256);
    client.post("/v1/sandboxes/small/a/resume", &json!({})).expect(200);
    client.post("/v1/sandboxes/small/a/snapshots", &json!({ "name": "base" })).expect(201);
    let written = disk();
    assert!(written > alone, "a snapshot takes {} bytes", written - alone);
    // Clones are as any other: of many that race, one finds room.
    let statuses = thread::scope(|scope| {
        let clone = |number: usize| {
            let client = &client;
            let body = json!({ "name": format!("clone{number}"), "snapshot": "base" });
            scope.spawn(move || client.post("/v1/sandboxes", &body).status)
        };
        let asking: Vec<_> = (0..4).map(clone).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 3, "{statuses:?}");
    assert_eq!(has(), (2, 512));
    assert!(disk() > written, "a clone has a layer and a log of its own");
    // Its source gives back what it had, and the snapshot stays.
    client.delete("/v1/sandboxes/small/a?force=true").expect(200);
    assert_eq!(has(), (1, 256));
    other["memory_mib"] = json!(544);
    client.post("/v1/sandboxes", &other).expect(201);
    client.delete("/v1/sandboxes/small/b?force=true").expect(200);
    let before = disk();
    client.delete("/v1/snapshots/small/base").expect(200);
    assert_eq!(before - disk(), written - alone, "and gives back its own");
}

#[test]
fn of_a_day_that_is_over_nothing_goes_on_from_a_pause() {
    if !machines_or_skip() {
        return;
    }
    let server = serving("[caps.per_namespace]\nrun_time_per_day = \"20s\"\n", &[]);
    let client = key(&server, "small");
    let body = json!({ "name": "a", "machine": "qemu", "image": "python", "memory_mib": 256 });
    let made = client.post("/v1/sandboxes", &body);
    if made.status != 201 {
        return skip("a machine takes more than the time of this day to come up");
    }
    client.post("/v1/sandboxes/small/a/pause", &json!({})).expect(200);
    let spent = || used(&client, "small", "namespace", "run_ms_per_day").0;
    let paused = spent();
    client.post("/v1/sandboxes", &body_of("small", "b", 16)).expect(201);
    // Several use up the rest of the day sooner. Whether each finds some left does not matter.
    for name in ["c", "d", "e"] {
        let _ = client.post("/v1/sandboxes", &body_of("small", name, 16));
    }
    eventually("the day is over", || state(&client, "small/b")["state"] == "stopped");
    assert!(spent() > paused);
    let refused = exceeded(client.post("/v1/sandboxes/small/a/resume", &json!({})));
    assert_eq!(refused["cap"], "run_ms_per_day");
}

#[test]
fn nothing_outlives_the_time_that_it_may() {
    let server = serving(CAPS, &[]);
    let client = key(&server, "small");
    let made = client.post("/v1/sandboxes", &body_of("small", "a", 16)).expect(201).json();
    assert_eq!(made["ttl_ms"], 3_600_000, "it is given what it may have");
    let mut long = body_of("small", "b", 16);
    long["ttl_ms"] = json!(3_600_001);
    assert_eq!(exceeded(client.post("/v1/sandboxes", &long))["cap"], "ttl_ms");
    for ttl_ms in [0, 3_600_000] {
        let body = json!({ "ttl_ms": ttl_ms });
        exceeded(client.send_json("PATCH", "/v1/sandboxes/small/a", &body));
    }
    let body = json!({ "ttl_ms": 60_000 });
    client.send_json("PATCH", "/v1/sandboxes/small/a", &body).expect(200);
}

#[test]
fn a_used_up_day_ends_running_sandboxes_and_survives_restarts() {
    let mut server = serving("[caps.per_namespace]\nrun_time_per_day = \"2s\"\n", &[]);
    let client = key(&server, "*");
    for name in ["a", "b"] {
        client.post("/v1/sandboxes", &body_of("small", name, 16)).expect(201);
    }
    client.post("/v1/sandboxes", &body_of("other", "a", 16)).expect(201);
    eventually("what runs is ended", || {
        ["small/a", "small/b"].iter().all(|which| state(&client, which)["state"] == "stopped")
    });
    let why = state(&client, "small/a")["reason"].to_string();
    assert!(why.contains("used all of its run time for today"), "{why}");
    let answer = client.post("/v1/sandboxes", &body_of("small", "c", 16)).expect(429);
    // When it can be asked again, which no other sandbox changes.
    let pause: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&pause), "{pause}");
    let json = answer.json();
    let hint = json["hint"].as_str().unwrap();
    assert!(hint.contains("T00:00:00.000Z") && !hint.contains("remove"), "{json}");
    assert!(!json["message"].as_str().unwrap().contains("0 more"), "{json}");
    assert_eq!(exceeded(answer)["cap"], "run_ms_per_day");
    let by_hand = server.run(&["start", "--name", "small/d", "--memory", "16", "--cpus", "0.1"]);
    let by_hand = String::from_utf8(by_hand.stderr).unwrap();
    assert!(by_hand.contains("the limit resets at the end of the day (UTC), at"), "{by_hand}");
    let before = used(&client, "small", "namespace", "run_ms_per_day").0;
    assert!(before >= 2000, "{before}");
    server.end_and_serve_again();
    let client = Client::new(server.url()).key(client.sent_key());
    assert_eq!(used(&client, "small", "namespace", "run_ms_per_day").0, before);
    exceeded(client.post("/v1/sandboxes", &body_of("small", "c", 16)));
}

#[test]
fn output_of_programs_and_of_code_is_counted_once_and_has_an_end() {
    let caps = "[caps.namespace.small]\noutput_per_day = \"1MiB\"\n";
    let mut server = serving(caps, &[]);
    let client = key(&server, "*");
    client.post("/v1/sandboxes", &body_of("small", "a", 256)).expect(201);
    let output = || used(&client, "small", "namespace", "output_bytes_per_day").0;
    let exec = |bytes: u32, more: Value| {
        let mut body = json!({ "argv": ["head", "-c", bytes.to_string(), "/dev/zero"] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.post("/v1/sandboxes/small/a/exec", &body)
    };
    exec(10_000, json!({})).expect(200);
    assert_eq!(output(), 10_000);
    // One that is recorded beside its client is counted by the log alone.
    exec(10_000, json!({ "on_disconnect": "detach" })).expect(200);
    eventually("the log has it", || output() == 20_000);
    let code = json!({ "language": "python", "code": "print('x' * 10_000)" });
    client.post("/v1/sandboxes/small/a/run", &code).expect(200);
    let after = output();
    assert!((30_000..40_000).contains(&after), "{after}");

    server.end_and_serve_again();
    let client = Client::new(server.url()).key(client.sent_key());
    let output = || used(&client, "small", "namespace", "output_bytes_per_day");
    assert_eq!(output(), (after, Some(1 << 20)), "the next bridge goes on from there");
    let flood =
        json!({ "argv": ["head", "-c", "3000000", "/dev/zero"], "on_disconnect": "detach" });
    client.post("/v1/sandboxes/small/a/exec", &flood);
    eventually("it is ended", || state(&client, "small/a")["state"] == "stopped");
    let why = state(&client, "small/a")["reason"].to_string();
    assert!(why.contains("wrote all of its output for today"), "{why}");
    assert_eq!(
        exceeded(client.post("/v1/sandboxes", &body_of("small", "b", 16)))["scope"],
        "namespace"
    );
    client.post("/v1/sandboxes", &body_of("large", "b", 16)).expect(201);
}
