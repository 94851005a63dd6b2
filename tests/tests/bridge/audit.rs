//! The audit log: what each door leaves in it, who may read it, and what becomes of it when the bridge
//! or the disk fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};
use tests::http::Client;
use tests::mcp::Lines;
use tests::server::Server;
use tests::{Burrow, eventually, skip};

/// All that is in the log, whole lines alone.
fn records(burrow: &Burrow) -> Vec<Value> {
    let output = burrow.ok(&["audit", "--json", "-n", "100000"]);
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for a record of this operation, and returns the last one. Records are written behind the answers.
pub fn record(burrow: &Burrow, operation: &str) -> Value {
    record_that(burrow, operation, |_| true)
}

/// The same, for an operation that has been recorded before: the last one that is like this.
pub fn record_that(burrow: &Burrow, operation: &str, is_meant: impl Fn(&Value) -> bool) -> Value {
    let mut found = None;
    eventually(&format!("{operation} is recorded"), || {
        let is_meant = |record: &Value| record["operation"] == operation && is_meant(record);
        found = records(burrow).into_iter().rfind(is_meant);
        found.is_some()
    });
    found.unwrap()
}

fn verified(burrow: &Burrow) -> Value {
    serde_json::from_str(&burrow.ok(&["audit", "verify", "--json"])).unwrap()
}

fn key(server: &Server, options: &[&str]) -> (String, Client) {
    let made = server.ok(&[&["keygen", "--json"], options].concat());
    let made: Value = serde_json::from_str(&made).unwrap();
    let client = Client::new(server.url()).key(made["key"].as_str().unwrap());
    (made["id"].as_str().unwrap().to_owned(), client)
}

#[test]
fn every_door_leaves_a_record_of_who_did_what() {
    let server = Server::start(&["--set", "audit.chain=true"]);
    let (id, client) = key(&server, &["--name", "ci", "--namespace", "*"]);
    let body = json!({ "name": "a", "namespace": "team", "labels": { "job": "7" }, "env": { "A": "hunter2" } });
    client.post("/v1/sandboxes", &body).expect(201);
    let made = record(&server, "create_sandbox");
    assert_eq!(made["who"], json!({ "kind": "key", "id": id, "name": "ci" }), "{made}");
    for (field, expected) in [
        ("door", json!("rest")),
        ("outcome", json!("ok")),
        ("status", json!(201)),
        ("namespace", json!("team")),
        ("sandbox", json!("a")),
        ("labels", json!({ "job": "7" })),
    ] {
        assert_eq!(made[field], expected, "{made}");
    }
    assert!(made["id"].is_string() && made["request"].is_string(), "{made}");
    assert!(made["remote"].as_str().unwrap().starts_with("127.0.0.1:"), "{made}");
    assert!(made["duration_us"].as_u64().unwrap() > 0, "{made}");

    let exec = json!({ "argv": ["echo", "hunter2"] });
    client.post("/v1/sandboxes/team/a/exec", &exec).expect(200);
    let ran = record(&server, "exec");
    assert_eq!((&ran["program"], &ran["id"]), (&json!("echo"), &made["id"]), "{ran}");
    let run = json!({ "language": "bash", "code": "echo hunter2" });
    client.post("/v1/sandboxes/team/a/run", &run).expect(200);

    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.command.run", "params": {
        "namespace": "team", "sandbox": "a", "command": "ls", "args": ["hunter2"] } });
    client.post("/api/v1/rpc", &rpc).expect(200);
    let called = record(&server, "sandbox.command.run");
    assert_eq!((&called["door"], &called["program"]), (&json!("rpc"), &json!("ls")), "{called}");
    assert_eq!(
        (&called["id"], &called["who"]["id"]),
        (&made["id"], &made["who"]["id"]),
        "{called}"
    );

    server.ok(&["start", "--name", "b"]);
    let started = record_that(&server, "create_sandbox", |record| record["sandbox"] == "b");
    assert_eq!((&started["door"], &started["sandbox"]), (&json!("cli"), &json!("b")), "{started}");
    assert_eq!(started["who"]["uid"], nix::unistd::geteuid().as_raw(), "{started}");
    server.ok(&["exec", "b", "--", "true"]);
    let dialled = record(&server, "dial_sandbox");
    assert_eq!((&dialled["sandbox"], &dialled["program"]), (&json!("b"), &json!("true")));
    assert_eq!(dialled["facts"], json!({ "for": "exec" }), "{dialled}");
    server.ok(&["kill", "b"]);
    assert_eq!(record(&server, "sandbox.stopped")["who"], json!({ "kind": "bridge" }));

    client.delete("/v1/sandboxes/team/a?force=true").expect(200);
    let removed = record(&server, "remove_sandbox");
    assert_eq!((&removed["id"], &removed["status"]), (&made["id"], &json!(200)), "{removed}");
    // What only looks is not there, and neither is what was given to programs.
    client.get("/v1/sandboxes").expect(200);
    let all = records(&server);
    assert!(!all.iter().any(|record| record["operation"] == "list_sandboxes"));
    assert!(!json!(all).to_string().contains("hunter2"));
    assert_eq!(verified(&server)["fault"], Value::Null);
}

#[test]
fn commands_without_a_daemon_share_the_audit_log() {
    let server = Server::start(&["--set", "audit.chain=true"]);
    let (id, client) = key(&server, &["--name", "ci"]);
    let made = record(&server, "issue_key");
    assert_eq!((&made["facts"]["key"], &made["door"]), (&json!(id), &json!("cli")), "{made}");
    assert_eq!(made["who"]["uid"], nix::unistd::geteuid().as_raw(), "{made}");
    let ran = server.run(&["run", "--", "sh", "-c", "exit 7"]);
    assert_eq!(ran.status.code(), Some(7), "{ran:?}");
    let ran = record(&server, "run");
    assert_eq!((&ran["program"], &ran["facts"]["exit_code"]), (&json!("sh"), &json!(7)), "{ran}");
    assert!(ran["arguments"].is_null(), "nobody wants them: {ran}");

    // The daemon and others at once: each record is there once, and the chain is whole.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5).for_each(|_| drop(server.ok(&["keygen"]))));
        }
        scope.spawn(|| {
            for number in 0..20 {
                client.delete(&format!("/v1/sandboxes/default/none-{number}")).expect(404);
            }
        });
    });
    eventually("all is written", || {
        let all = records(&server);
        let count = |word: &str| all.iter().filter(|record| record["operation"] == word).count();
        (count("issue_key"), count("remove_sandbox")) == (21, 20)
    });
    let verified = verified(&server);
    let chained = verified["chained"].as_u64().unwrap() + 1;
    assert_eq!((&verified["fault"], &verified["records"]), (&Value::Null, &json!(chained)));
    let refused = server.run(&["keys", "revoke", "000000000000"]);
    assert!(!refused.status.success());
    assert_eq!(record(&server, "revoke_keys")["outcome"], "failed");
}

#[test]
fn a_session_that_began_before_the_daemon_keeps_the_log_as_the_daemon_says() {
    let mut burrow = Burrow::new();
    let mut early = Lines::open(&burrow, &[]);
    early.call("sandbox_stop", &json!({ "sandbox": "none" }));
    let first = record(&burrow, "sandbox_stop");
    assert_eq!(first["prev"], Value::Null, "nobody wants a chain yet: {first}");
    burrow.serve_with(&["--set", "audit.chain=true", "--set", "audit.file_bytes_max=256KiB"]);
    let output = || -> Value {
        serde_json::from_slice(&fs::read(burrow.state().join("audit/lock")).unwrap()).unwrap()
    };
    let wanted = output()["options"].clone();
    assert_eq!((&wanted["chain"], &wanted["file_bytes_max"]), (&json!(true), &json!(256 * 1024)));
    // More than one file of them, while others write as well.
    let files = || {
        let names = fs::read_dir(burrow.state().join("audit")).unwrap().flatten();
        names.filter(|entry| entry.file_name().to_string_lossy().ends_with(".jsonl")).count()
    };
    let mut called = 1;
    std::thread::scope(|scope| {
        scope.spawn(|| (0..5).for_each(|_| drop(burrow.ok(&["keygen"]))));
        while files() < 2 {
            assert!(called < 3000, "no file is begun at the size that the daemon says");
            early.call("sandbox_stop", &json!({ "sandbox": "none" }));
            called += 1;
        }
    });
    assert_eq!(early.close(), Some(0));
    let all = records(&burrow);
    let count = |word: &str| all.iter().filter(|record| record["operation"] == word).count();
    assert_eq!((count("sandbox_stop"), count("issue_key")), (called, 5));
    let mut after = all.iter().skip_while(|record| record["operation"] != "audit.chain").peekable();
    assert!(after.peek().is_some() && after.all(|record| record["prev"].is_string()));
    assert_eq!(output()["options"], wanted, "what the daemon has said still stands");
    assert_eq!(verified(&burrow)["fault"], Value::Null);
}

#[test]
fn a_log_that_another_process_holds_is_reported_and_not_waited_for() {
    let burrow = Burrow::new();
    burrow.ok(&["keygen"]);
    let lock = fs::File::open(burrow.state().join("audit/lock")).unwrap();
    let held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).unwrap();
    let made = burrow.run(&["keygen"]);
    let stderr = String::from_utf8(made.stderr).unwrap();
    assert!(made.status.success() && stderr.contains("another process has held it"), "{stderr}");
    let mut refusing = burrow.command(&["keygen"]);
    let refused = refusing.env("BURROW_AUDIT_ON_FAILURE", "refuse").output().unwrap();
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{stderr}");
    assert!(stderr.contains("cannot write the audit log"), "{stderr}");
    drop(held);
    burrow.ok(&["keygen"]);
    let issued = records(&burrow).into_iter().filter(|record| record["operation"] == "issue_key");
    assert_eq!(issued.count(), 2, "and not the one for which it was held");
}

#[test]
fn tools_of_agents_are_recorded_by_their_names() {
    let server = Server::start(&["--set", "audit.arguments=true"]);
    let (id, client) = key(&server, &["--namespace", "team"]);
    let call = |session: Option<&str>, method: &str, params: Value| {
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-06-18"),
        ];
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        client.send("POST", "/mcp", &headers, message.to_string().as_bytes()).expect(200)
    };
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } });
    let session = call(None, "initialize", hello).header("mcp-session-id").unwrap().to_owned();
    let session = Some(session.as_str());
    call(session, "tools/call", json!({ "name": "sandbox_create", "arguments": { "name": "a" } }));
    let made = record(&server, "sandbox_create");
    assert_eq!((&made["door"], &made["who"]["id"]), (&json!("mcp"), &json!(id)), "{made}");
    assert_eq!((&made["namespace"], &made["sandbox"]), (&json!("team"), &json!("a")), "{made}");
    assert!(made["id"].is_string(), "{made}");
    let line = json!({ "command": "echo hunter2", "sandbox": "a" });
    call(session, "tools/call", json!({ "name": "shell_execute", "arguments": line }));
    let ran = record(&server, "shell_execute");
    assert_eq!((&ran["program"], &ran["sandbox"]), (&json!("sh"), &json!("a")), "{ran}");
    assert!(!ran.to_string().contains("hunter2"), "{ran}");
    call(
        session,
        "tools/call",
        json!({ "name": "sandbox_remove", "arguments": { "sandbox": "other/x" } }),
    );
    let refused = record(&server, "sandbox_remove");
    assert_eq!(
        (&refused["outcome"], &refused["policy"]),
        (&json!("refused"), &json!("scope")),
        "{refused}"
    );
    assert!(!records(&server).iter().any(|record| record["operation"] == "mcp_post"));
}

#[test]
fn refusals_name_their_policy() {
    let server = Server::with_keys();
    let (_, reads) = key(&server, &["--scope", "read"]);
    let stranger = Client::new(server.url());
    stranger.get("/v1/sandboxes").expect(401);
    let refused = record(&server, "list_sandboxes");
    assert_eq!((&refused["who"]["kind"], &refused["policy"]), (&json!("anybody"), &json!("key")));
    reads.post("/v1/sandboxes", &json!({ "name": "a" })).expect(403);
    let refused = record(&server, "create_sandbox");
    assert_eq!((&refused["outcome"], &refused["policy"]), (&json!("refused"), &json!("scope")));
    let (_, runs) = key(&server, &[]);
    runs.post("/v1/sandboxes", &json!({ "name": "a", "secrets": ["none"] })).expect(422);
    let mut refused = Value::Null;
    eventually("the second refusal is recorded", || {
        refused = record(&server, "create_sandbox");
        refused["code"] == "unknown_secret"
    });
    assert_eq!(refused["policy"], "secret");
    assert_eq!(refused["secrets"], json!(["none"]));
    // Failed logins do not push out other records.
    for _ in 0..200 {
        stranger.get("/v1/sandboxes").expect(401);
    }
    runs.post("/v1/sandboxes", &json!({ "name": "a", "image": "/none" })).expect(403);
    record(&server, "create_sandbox");
    let knocks =
        records(&server).iter().filter(|record| record["who"]["kind"] == "anybody").count();
    assert!((1..=61).contains(&knocks), "{knocks}");
}

#[test]
fn the_log_is_for_those_who_may_do_everything() {
    let server = Server::with_keys();
    let (_, admin) = key(&server, &["--scope", "admin", "--namespace", "*"]);
    let (_, one) = key(&server, &["--scope", "admin", "--namespace", "team"]);
    let (_, runs) = key(&server, &[]);
    for namespace in ["team", "other"] {
        admin.post("/v1/sandboxes", &json!({ "name": "a", "namespace": namespace })).expect(201);
    }
    record(&server, "create_sandbox");
    runs.get("/v1/audit").expect(403);
    let seen = |client: &Client, query: &str| {
        let page = client.get(&format!("/v1/audit{query}")).expect(200).json();
        page["records"].as_array().unwrap().clone()
    };
    eventually("both are recorded", || seen(&admin, "?operation=create_sandbox").len() == 2);
    assert_eq!(seen(&one, "?operation=create_sandbox")[0]["namespace"], "team");
    assert!(seen(&one, "").iter().all(|record| record["namespace"] == "team"));
    one.get("/v1/audit?namespace=other").expect(403);
    assert_eq!(seen(&admin, "?outcome=refused&who=anybody").len(), 0);
    // Page by page.
    let first = admin.get("/v1/audit?limit=2").expect(200).json();
    let next = first["next"].as_u64().unwrap();
    let second = seen(&admin, &format!("?limit=2&after={next}"));
    assert_eq!(second[0]["seq"], next + 1);
    assert_eq!(admin.get("/v1/audit?limit=0").status, 400);
}

#[test]
fn the_log_outlives_a_bridge_that_is_killed() {
    let mut server = Server::start(&["--dev", "--set", "audit.chain=true"]);
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "name": "a" })).expect(201);
    let made = record(&server, "create_sandbox");
    server.kill_and_serve_again();
    // What the dead one has torn off.
    let path = server.state().join("audit/audit-000000000001.jsonl");
    server.kill_daemon_for_a_moment(|| {
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{{\"seq\":99")).unwrap();
    });
    assert_eq!(record(&server, "audit.repaired")["facts"]["cut_bytes"], 9);
    assert_eq!(record(&server, "sandbox.adopted")["sandbox"], "a");
    assert_eq!(record(&server, "create_sandbox"), made);
    assert_eq!(verified(&server)["fault"], Value::Null);
}

#[test]
fn follow_shows_what_comes() {
    let server = Server::dev();
    let mut child = server
        .command(&["audit", "--json", "--follow", "-n", "1", "--operation", "create_sandbox"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let client = Client::new(server.url());
    for name in ["a", "b"] {
        client.post("/v1/sandboxes", &json!({ "name": name })).expect(201);
        let answer: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["sandbox"], name);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A small disk, which goes away with this.
struct Disk(std::path::PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).ok();
    }
}

#[test]
fn a_full_disk_stops_what_must_be_recorded_until_there_is_room() {
    let burrow = Burrow::new();
    let place = burrow.state().join("audit");
    fs::create_dir_all(&place).unwrap();
    let size = Some("size=64k");
    if let Err(error) = mount(Some("tmpfs"), &place, Some("tmpfs"), MsFlags::empty(), size) {
        return skip(&format!("no disk can be mounted here: {error}"));
    }
    let disk = Disk(place.clone());
    let server = Server::start_in(burrow, &["--dev", "--set", "audit.on_failure=refuse"]);
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "name": "a" })).expect(201);
    let fill = place.join("fill");
    let mut full = vec![0_u8; 128 << 10];
    while fs::write(&fill, &full).is_err() && full.len() > 4096 {
        full.truncate(full.len() - 4096);
    }
    // What is left of a page is filled by records.
    eventually("an operation is refused", || {
        client.delete("/v1/sandboxes/default/none").status == 503
    });
    let refused = client.post("/v1/sandboxes", &json!({ "name": "b" })).expect(503);
    assert_eq!(refused.code(), "unavailable");
    // To look is allowed, and so is to read the log.
    client.get("/v1/sandboxes/default/a").expect(200);
    client.get("/v1/audit").expect(200);
    fs::remove_file(&fill).unwrap();
    eventually("it goes on", || client.delete("/v1/sandboxes/default/none").status == 404);
    assert_eq!(verified(&server)["fault"], Value::Null);
    drop(server);
    drop(disk);
}

#[test]
fn a_bridge_that_cannot_record_says_where_to_look_and_can_be_ended() {
    let burrow = Burrow::new();
    fs::create_dir_all(burrow.state()).unwrap();
    fs::write(burrow.state().join("audit"), "no directory").unwrap();
    let server = Server::start_in(burrow, &["--dev", "--set", "audit.on_failure=refuse"]);
    let refused = server.run(&["start", "--name", "a"]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("the audit log cannot be written"), "{stderr}");
    assert!(stderr.contains("`host-bridge doctor` says why"), "{stderr}");
    let doctor = server.run(&["doctor"]);
    let shown = String::from_utf8_lossy(&doctor.stdout);
    assert!(shown.contains("audit is not a directory"), "{shown}");
    server.ok(&["daemon", "stop"]);
}
