//! Any node is a gateway: calls go to the node that has the sandbox, with what the caller's key allows and no more.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats};
use tests::http::Client;

/// Two nodes, of which the second has the sandbox `there`, made through the first.
fn with_one_there(nats: &Nats, options: &[&str]) -> (Member, Member) {
    let first = Member::join(nats, "n1", options);
    let second = Member::join(nats, "n2", options);
    first.knows(2);
    second.knows(2);
    first.server.ok(&["node", "cordon", "n1"]);
    eventually("it is cordoned", || {
        second.nodes().iter().any(|node| node["name"] == "n1" && node["readiness"] == "cordoned")
    });
    (first, second)
}

fn open(nats: &Nats) -> (Member, Member) {
    let members = with_one_there(nats, &["--dev"]);
    members.0.client.post("/v1/sandboxes", &json!({ "name": "there" })).expect(201);
    members.1.server.ok(&["inspect", "there"]);
    members
}

const THERE: &str = "/v1/sandboxes/default/there";

/// What a program in the sandbox `there` says, started over JSON-RPC through a node.
fn said_by_rpc(member: &Member) -> String {
    let params = json!({ "namespace": "default", "sandbox": "there", "command": "sh", "args": ["-c", "echo $LIFE"] });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.command.run", "params": params });
    member.client.post("/api/v1/rpc", &body).expect(200).json().to_string()
}

/// The same by the command line.
fn said_by_verb(member: &Member) -> String {
    member.server.ok(&["exec", "there", "--", "sh", "-c", "echo $LIFE"])
}

#[test]
fn calls_streams_files_and_sockets_reach_a_sandbox_of_another_node() {
    let Some(nats) = Nats::start() else { return };
    let (first, second) = open(&nats);
    let client = &first.client;
    let shown = client.get(THERE).expect(200).json();
    assert_eq!(shown["id"], second.client.get(THERE).expect(200).json()["id"]);
    let ran = json!({ "argv": ["sh", "-c", "echo out; exit 3"] });
    let ran = client.post(&format!("{THERE}/exec"), &ran).expect(200).json();
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("out\n"), &json!(3)), "{ran}");
    // A megabyte there and back, byte for byte.
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
    let file = format!("{THERE}/files/content?path=/tmp/big");
    let octets = [("content-type", "application/octet-stream")];
    let written = client.send("PUT", &file, &octets, &bytes);
    assert!(written.status < 300, "{} {}", written.status, written.text());
    assert_eq!(client.get(&file).expect(200).body, bytes);
    // A stream, whose first line comes while the program waits.
    let slow = json!({ "argv": ["sh", "-c", "echo begun; sleep 1; echo done"] });
    let lines = client.lines(&format!("{THERE}/exec"), Some(&slow));
    let mut texts = Vec::new();
    for event in lines {
        texts.extend(event["text"].as_str().map(str::to_owned));
    }
    assert_eq!(texts, ["begun\n", "done\n"], "they came together");
    // A socket both ways.
    let mut socket = client.websocket(&format!("{THERE}/exec"), &["burrow.v1"]);
    assert_eq!(socket.headers.get("sec-websocket-protocol"), Some("burrow.v1"));
    socket.tell(&json!({ "argv": ["cat"] }));
    assert_eq!(socket.hear_value()["type"], "started");
    socket.tell(&json!({ "type": "stdin", "text": "typed\n" }));
    assert_eq!(socket.hear_value()["text"], "typed\n");
    socket.close();
    client.delete(&format!("{THERE}?force=true")).expect(200);
    second.client.get(THERE).expect(404);
    client.get(THERE).expect(404);
}

#[test]
fn a_key_reaches_on_another_node_what_it_reaches_here_and_nothing_more() {
    let Some(nats) = Nats::start() else { return };
    let (first, second) = with_one_there(&nats, &[]);
    let key = |options: &[&str]| {
        let all = [&["keygen"], options].concat();
        Client::new(first.server.url()).key(first.server.ok(&all).trim())
    };
    let team = key(&["--namespace", "team", "--scope", "run"]);
    let made = team.post("/v1/sandboxes", &json!({ "name": "there" })).expect(201).json();
    assert_eq!(made["namespace"], "team");
    let there = "/v1/sandboxes/team/there";
    let record: Value =
        serde_json::from_str(&second.server.ok(&["inspect", "--json", "team/there"])).unwrap();
    assert!(record["key"].is_string(), "its key's caps do not count it: {record}");
    let run = json!({ "argv": ["true"] });
    team.post(&format!("{there}/exec"), &run).expect(200);
    // Another namespace learns what it would learn at home.
    let other = key(&["--namespace", "other", "--scope", "run"]);
    let refused = other.get(there).expect(403).json();
    let unknown = other.get("/v1/sandboxes/team/none").expect(403).json();
    assert_eq!(refused["message"], unknown["message"]);
    other.post(&format!("{there}/exec"), &run).expect(403);
    // Who may only read does not run.
    let reader = key(&["--namespace", "team", "--scope", "read"]);
    reader.get(there).expect(200);
    reader.post(&format!("{there}/exec"), &run).expect(403);
    // The second node does not know the keys of the first: only what the first says of them counts.
    let elsewhere = Client::new(second.server.url()).key(team.sent_key());
    elsewhere.get(there).expect(401);
    Client::new(first.server.url()).get(there).expect(401);
}

#[test]
fn a_mark_of_a_client_is_refused_and_never_sent_on() {
    let Some(nats) = Nats::start() else { return };
    let (first, second) = open(&nats);
    for member in [&first, &second] {
        for mark in ["", "x", "e30.e30"] {
            let refused = member.client.send("GET", THERE, &[("burrow-mark", mark)], &[]);
            assert_eq!(refused.status, 401, "{mark:?} {}", refused.text());
        }
    }
    // A bridge of its own takes no mark either.
    let alone = tests::server::Server::dev();
    let client = Client::new(alone.url());
    assert_eq!(client.send("GET", "/v1/sandboxes", &[("burrow-mark", "x")], &[]).status, 401);
}

#[test]
fn a_node_that_asks_for_keys_takes_nobody_from_one_that_does_not() {
    let Some(nats) = Nats::start() else { return };
    let open = Member::join(&nats, "n1", &["--dev"]);
    let closed = Member::join(&nats, "n2", &[]);
    open.knows(2);
    closed.knows(2);
    closed.start(&["--name", "there"]);
    let refused = open.client.get(THERE).expect(401).json();
    assert!(refused["message"].as_str().is_some_and(|why| why.contains("keys")), "{refused}");
}

#[test]
fn a_stream_whose_node_dies_is_cut_off_and_not_ended() {
    let Some(nats) = Nats::start() else { return };
    let (first, second) = open(&nats);
    let endless = json!({ "argv": ["sh", "-c", "echo begun; sleep 60"] });
    let headers = [("accept", "application/x-ndjson"), ("content-type", "application/json")];
    let body = endless.to_string();
    let answer = first.client.open("POST", &format!("{THERE}/exec"), &headers, body.as_bytes());
    assert_eq!(answer.status, 200);
    second.signal(Signal::SIGKILL);
    let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| answer.whole()));
    assert!(cut.is_err(), "a part was taken for the whole");
    let gone = first.client.get(THERE);
    assert!([503, 410].contains(&gone.status), "{}", gone.text());
}

#[test]
fn calls_of_a_node_are_recorded_at_both_with_who_called() {
    let Some(nats) = Nats::start() else { return };
    let (first, second) = open(&nats);
    let ran = json!({ "argv": ["true"] });
    first.client.post(&format!("{THERE}/exec"), &ran).expect(200);
    let recorded = |member: &Member, fact: &str, node: &str| {
        let text = member.server.ok(&["audit", "--json"]);
        text.lines().any(|line| {
            line.contains("\"exec\"") && line.contains(&format!("\"{fact}\":\"{node}\""))
        })
    };
    eventually("the gateway says where it went", || recorded(&first, "node", "n2"));
    eventually("the owner says whence it came", || recorded(&second, "gateway", "n1"));
}

#[test]
fn a_gateway_knows_for_a_moment_where_a_sandbox_is_also_without_nats() {
    let Some(mut nats) = Nats::start() else { return };
    let (first, _second) = open(&nats);
    let ran = json!({ "argv": ["echo", "on"] });
    let exec = format!("{THERE}/exec");
    first.client.post(&exec, &ran).expect(200);
    nats.kill();
    first.client.post(&exec, &ran).expect(200);
    first.client.get(THERE).expect(200);
    assert!(said_by_rpc(&first).contains("result"));
    said_by_verb(&first);
    // What nobody has looked for cannot be found now.
    first.client.get("/v1/sandboxes/default/unknown").expect(503);
}

#[test]
fn a_stream_goes_on_and_ends_in_order_while_nats_is_away() {
    let Some(mut nats) = Nats::start() else { return };
    // Longer than this test.
    let (first, second) = with_one_there(&nats, &["--dev", "--set", "fleet.grace=60s"]);
    first.client.post("/v1/sandboxes", &json!({ "name": "there" })).expect(201);
    let slow = "echo begun; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo done";
    let run = json!({ "argv": ["sh", "-c", slow] });
    let exec = format!("{THERE}/exec");
    let mut streams = [&first, &second].map(|member| member.client.lines(&exec, Some(&run)));
    for stream in &mut streams {
        assert!(stream.any(|event| event["text"] == "begun\n"));
    }
    nats.kill();
    let touch = json!({ "argv": ["touch", "/tmp/go"] });
    second.client.post(&exec, &touch).expect(200);
    for stream in streams {
        let events: Vec<_> = stream.collect();
        assert!(events.iter().any(|event| event["text"] == "done\n"), "{events:?}");
        assert_eq!(events.last().expect("an end")["type"], "exited", "{events:?}");
    }
}

#[test]
fn a_call_finds_a_sandbox_that_is_at_another_node_than_a_moment_ago() {
    let Some(nats) = Nats::start() else { return };
    let (first, second) = open(&nats);
    let third = Member::open(&nats, "n3");
    third.knows(3);
    first.knows(3);
    let exec = format!("{THERE}/exec");
    for (from, to) in [(&second, &third), (&third, &second), (&second, &third)] {
        // The gateway has been there.
        let shown = first.client.get(THERE).expect(200).json();
        from.client.delete(&format!("{THERE}?force=true")).expect(200);
        let body = json!({ "name": "there", "node_labels": { "node": to.name } });
        let made = to.client.post("/v1/sandboxes", &body).expect(201).json();
        assert_ne!(made["id"], shown["id"]);
        let ran = json!({ "argv": ["hostname"] });
        let ran = first.client.post(&exec, &ran).expect(200).json();
        assert_eq!(ran["stdout"], "there\n");
        assert_eq!(first.client.get(THERE).expect(200).json()["id"], made["id"]);
        // A large one, which is not sent twice.
        let large = vec![b'x'; 300 * 1024];
        let octets = [("content-type", "application/octet-stream")];
        let file = format!("{THERE}/files/content?path=/tmp/large");
        assert!(first.client.send("PUT", &file, &octets, &large).status < 300);
        assert_eq!(to.client.get(&file).expect(200).body, large);
    }
    // The command line and JSON-RPC are sent to where it was as well.
    let mut at = &third;
    for (life, to) in [("life-1", &second), ("life-2", &third), ("life-3", &second)] {
        for door in [said_by_rpc, said_by_verb] {
            door(&first);
            at.client.delete(&format!("{THERE}?force=true")).expect(200);
            let labels = json!({ "node": to.name });
            let body = json!({ "name": "there", "node_labels": labels, "env": { "LIFE": life } });
            to.client.post("/v1/sandboxes", &body).expect(201);
            at = to;
            let said = door(&first);
            assert!(said.contains(life), "{said}");
        }
    }
    // One that is nowhere is not looked for where it was.
    at.client.delete(&format!("{THERE}?force=true")).expect(200);
    first.client.get(THERE).expect(404);
}
