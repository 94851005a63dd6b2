//! Sandboxes of other nodes at doors beside the native API.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats, open};
use tests::http::Client;
use tests::mcp::{VERSION, Web, text};

fn call(client: &Client, method: &str, params: &Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    client.post("/api/v1/rpc", &body).json()
}

fn with_one_there(nats: &Nats) -> Vec<Member> {
    let members = open(nats, 2);
    members[1].start(&["--name", "there"]);
    members
}

#[test]
fn json_rpc_of_any_node_runs_in_a_sandbox_of_another() {
    let Some(nats) = Nats::start() else { return };
    let members = with_one_there(&nats);
    let client = &members[0].client;
    let run =
        json!({ "namespace": "default", "sandbox": "there", "command": "echo", "args": ["hi"] });
    let answer = call(client, "sandbox.command.run", &run);
    assert_eq!(answer["id"], 7, "{answer}");
    assert!(answer["result"].to_string().contains("hi"), "{answer}");
    let own = call(&members[1].client, "sandbox.command.run", &run);
    assert!(own["result"].to_string().contains("hi"), "{own}");
    // A batch has one answer, and it is of this node.
    let batch =
        json!([{ "jsonrpc": "2.0", "id": 1, "method": "sandbox.command.run", "params": run }]);
    let batch = client.post("/api/v1/rpc", &batch).json();
    let why = batch[0]["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("n2") && why.contains("batch"), "{batch}");
    let stop = json!({ "namespace": "default", "sandbox": "there" });
    assert!(call(client, "sandbox.stop", &stop).get("error").is_none());
    let gone = call(client, "sandbox.command.run", &run);
    assert_eq!(gone["error"]["code"], -32001, "{gone}");
}

#[test]
fn json_rpc_says_in_its_own_words_that_a_node_does_not_answer() {
    let Some(nats) = Nats::start() else { return };
    let members = with_one_there(&nats);
    members[1].signal(Signal::SIGKILL);
    let run = json!({ "namespace": "default", "sandbox": "there", "command": "true" });
    let answer = call(&members[0].client, "sandbox.command.run", &run);
    assert_eq!(answer["id"], 7, "{answer}");
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("n2"), "{answer}");
}

#[test]
fn tools_of_mcp_work_in_a_sandbox_of_another_node_at_any_node() {
    let Some(nats) = Nats::start() else { return };
    let members = with_one_there(&nats);
    let mut web = Web::open(Client::new(members[0].server.url()), VERSION);
    let run = json!({ "sandbox": "there", "command": "echo from there; yes | head -c 200000" });
    let ran = web.call("shell_execute", &run);
    assert_ne!(ran["isError"], true, "{ran}");
    assert!(text(&ran).contains("from there"), "{ran}");
    // What was cut is kept where it ran, and read from here.
    let handle = ran["structuredContent"]["run"].as_str().expect("a handle").to_owned();
    assert!(handle.ends_with("@n2"), "{handle}");
    let more = web.call("read_output", &json!({ "run": handle, "offset": 100_000 }));
    assert!(text(&more).contains("y\ny\n"), "{more}");
    // A session is at the node where it began, and reached at the other.
    let mut moved = Web::new(Client::new(members[1].server.url()), VERSION);
    moved.session.clone_from(&web.session);
    let own = moved.call("shell_execute", &json!({ "command": "echo own" }));
    assert!(text(&own).contains("own"), "{own}");
    let sandboxes = members[0].server.ok(&["ps", "--quiet"]);
    assert!(sandboxes.contains("mcp-"), "its sandbox is elsewhere: {sandboxes}");
    members[1].signal(Signal::SIGKILL);
    let away = web.call("shell_execute", &json!({ "sandbox": "there", "command": "true" }));
    assert!(away["isError"] == true && text(&away).contains("n2"), "{away}");
}

#[test]
fn a_session_of_mcp_whose_node_takes_no_sandboxes_says_how_to_get_one_elsewhere() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    members[0].server.ok(&["node", "cordon", "n1"]);
    let cordoned = |node: &Value| node["name"] == "n1" && node["readiness"] == "cordoned";
    eventually("it is known", || members[0].nodes().iter().any(cordoned));
    let mut web = Web::open(Client::new(members[0].server.url()), VERSION);
    let refused = web.call("shell_execute", &json!({ "command": "true" }));
    let said = text(&refused);
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(said.contains("n1") && said.contains("`sandbox_create`"), "{said}");
    let made = web.call("sandbox_create", &json!({ "name": "elsewhere" }));
    assert_ne!(made["isError"], true, "{made}");
    let run = json!({ "sandbox": "elsewhere", "command": "echo placed" });
    let ran = web.call("shell_execute", &run);
    assert!(text(&ran).contains("placed"), "{ran}");
    assert!(members[1].server.ok(&["ps", "--quiet"]).contains("elsewhere"));
}

#[test]
fn verbs_at_any_node_work_on_a_sandbox_of_another() {
    let Some(nats) = Nats::start() else { return };
    let members = with_one_there(&nats);
    let here = &members[0].server;
    let shown: Value = serde_json::from_str(&here.ok(&["inspect", "--json", "there"])).unwrap();
    assert_eq!(shown["name"], "there");
    let id = shown["id"].as_str().expect("an id");
    assert!(here.ok(&["inspect", "--json", id]).contains("\"there\""), "by its id");
    assert_eq!(here.ok(&["exec", "there", "--", "echo", "hi"]), "hi\n");
    let output = here.feed(&["exec", "-i", "there", "--", "sh", "-c", "cat; exit 7"], b"typed");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &b"typed"[..]));
    let file = here.scratch().join("sent");
    std::fs::write(&file, "a file").unwrap();
    here.ok(&["cp", file.to_str().unwrap(), "there:/tmp/sent"]);
    assert_eq!(here.ok(&["exec", "there", "--", "cat", "/tmp/sent"]), "a file");
    let recorded = members[1].server.ok(&["audit", "--json"]);
    let from_here =
        |line: &str| line.contains("dial_sandbox") && line.contains("\"gateway\":\"n1\"");
    assert!(recorded.lines().any(from_here), "{recorded}");
    assert_eq!(here.ok(&["logs", "there"]), members[1].server.ok(&["logs", "there"]));
    members[0].start(&["--name", "here"]);
    for member in &members {
        let listed = member.server.ok(&["ps", "--all-nodes", "--json"]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let pair = |at: usize| (listed[at]["node"].clone(), listed[at]["name"].clone());
        assert_eq!(
            [pair(0), pair(1)],
            [(json!("n1"), json!("here")), (json!("n2"), json!("there"))]
        );
    }
    here.ok(&["update", "there", "--idle-ttl", "1h"]);
    let shown = members[1].client.get("/v1/sandboxes/default/there").expect(200).json();
    assert_eq!(shown["idle_ttl_ms"], 3_600_000, "{shown}");
    here.ok(&["stop", "there"]);
    here.ok(&["rm", "there"]);
    let output = here.run(&["inspect", "there"]);
    assert!(!output.status.success(), "it is there still");
}

#[test]
fn a_verb_whose_node_is_killed_ends_and_says_so() {
    let Some(nats) = Nats::start() else { return };
    let members = with_one_there(&nats);
    let mut command =
        members[0].server.command(&["exec", "there", "--", "sh", "-c", "echo begun; sleep 60"]);
    let mut running =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(running.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "begun\n");
    members[1].signal(Signal::SIGKILL);
    let mut ended = None;
    eventually("the verb ends", || {
        ended = running.try_wait().expect("it is ours");
        ended.is_some()
    });
    assert!(ended.is_some_and(|status| !status.success()), "a cut was taken for the end");
    let output = members[0].server.run(&["exec", "there", "--", "true"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("n2"), "{stderr}");
    let output = members[0].server.run(&["ps", "--all-nodes"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("n2"), "{stderr}");
}

#[test]
fn nobody_but_a_node_reaches_the_control_of_another() {
    let Some(nats) = Nats::start() else { return };
    let members = with_one_there(&nats);
    let inspect = json!({ "inspect": { "sandbox": "default/there" } });
    for mark in [None, Some("x")] {
        let kind = ("content-type", "application/json");
        let headers: Vec<_> =
            mark.map(|mark| ("burrow-mark", mark)).into_iter().chain([kind]).collect();
        let body = inspect.to_string();
        let refused = members[1].client.send("POST", "/.fleet/control", &headers, body.as_bytes());
        assert_eq!(refused.status, if mark.is_some() { 401 } else { 404 }, "{}", refused.text());
    }
    members[1].client.get("/.fleet/agent/default/there").expect(404);
}
