//! Where new sandboxes are made: by every door at the node that has room, and by labels of nodes.

use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats, open};
use tests::http::Client;
use tests::mcp::{VERSION, Web, text};
use tests::server::Server;

/// Two nodes, of which the first takes no sandboxes: what is asked of it is made at the second.
fn with_a_full_gateway(nats: &Nats) -> Vec<Member> {
    let members = open(nats, 2);
    members[0].server.ok(&["node", "cordon", "n1"]);
    eventually("it is cordoned", || {
        members[0].nodes().iter().any(|node| node["readiness"] == "cordoned")
    });
    members
}

fn names_at(member: &Member) -> Vec<String> {
    let page = member.client.get("/v1/sandboxes").expect(200).json();
    let sandboxes = page["sandboxes"].as_array().expect("a list").iter();
    sandboxes.map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn every_door_of_a_gateway_makes_its_sandbox_at_the_node_that_has_room() {
    let Some(nats) = Nats::start() else { return };
    let members = with_a_full_gateway(&nats);
    let (here, client) = (&members[0].server, &members[0].client);
    assert_eq!(here.ok(&["start", "--name", "verb", "--memory", "64"]), "verb\n");
    assert_eq!(here.ok(&["exec", "verb", "--", "echo", "hi"]), "hi\n");
    client.post("/v1/sandboxes", &json!({ "name": "native" })).expect(201);
    client.post("/a2a/v1/sandboxes", &json!({ "name": "a2a" })).expect(201);
    let e2b = client.post("/v2/sandboxes", &json!({ "templateID": "base" })).expect(201).json();
    let e2b = e2b["sandboxID"].as_str().expect("an id");
    client.get(&format!("/sandboxes/{e2b}")).expect(200);
    let asked = json!({ "name": "daytona" });
    let daytona = client.post("/daytona/sandbox", &asked).expect(200).json();
    let daytona = daytona["id"].as_str().expect("an id");
    client.get(&format!("/daytona/sandbox/{daytona}")).expect(200);
    let kernel = client.post("/api/kernels", &json!({ "name": "python3" })).expect(201).json();
    let kernel = kernel["id"].as_str().expect("an id");
    client.get(&format!("/api/kernels/{kernel}")).expect(200);
    let mut web = Web::open(Client::new(here.url()), VERSION);
    let made = web.call("sandbox_create", &json!({ "name": "tool", "labels": { "of": "mcp" } }));
    assert_eq!(made["structuredContent"]["sandbox"], "tool", "{made}");
    let ran = web.call("shell_execute", &json!({ "sandbox": "tool", "command": "echo tool" }));
    assert!(text(&ran).contains("tool"), "{ran}");
    let start = json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.start",
        "params": { "sandbox": "rpc", "config": { "memory": 64 } } });
    // A start of one that runs is as good.
    for _ in 0..2 {
        let answer = client.post("/api/v1/rpc", &start).expect(200).json();
        assert!(answer.get("error").is_none(), "{answer}");
    }
    assert_eq!(names_at(&members[0]), Vec::<String>::new());
    let there = names_at(&members[1]);
    for name in ["verb", "native", "a2a", "daytona", "tool", "rpc"] {
        assert!(there.iter().any(|known| known == name), "{name} is not in {there:?}");
    }
    assert!(there.iter().any(|name| name.starts_with("e2b-")), "{there:?}");
    assert!(there.iter().any(|name| name.contains(kernel)), "{there:?}");
    let tool = members[1].client.get("/v1/sandboxes/default/tool").expect(200).json();
    assert_eq!(tool["labels"], json!({ "of": "mcp" }));
    // A sandbox for one run is made there as well, and nothing is left of it.
    let ran = client.post("/a2a/v1/run_shell", &json!({ "script": "echo once" })).expect(200);
    assert_eq!(ran.json()["stdout"], "once\n");
    assert_eq!(names_at(&members[1]).len(), there.len());
}

#[test]
fn what_no_machine_has_is_refused_at_the_gateway_and_not_left_out_at_the_other_node() {
    let Some(nats) = Nats::start() else { return };
    let members = with_a_full_gateway(&nats);
    let client = &members[0].client;
    let start = |config: &Value| {
        let start = json!({ "jsonrpc": "2.0", "id": 1, "method": "sandbox.start",
            "params": { "sandbox": "rpc", "config": config } });
        client.post("/api/v1/rpc", &start).expect(200).json()
    };
    let asked = [
        ("volumes", json!({ "volumes": ["/srv:/data"] })),
        ("ports", json!({ "ports": ["80:80"] })),
    ];
    for (option, config) in &asked {
        let answer = start(config);
        let why = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(why.contains(option), "{option}: {answer}");
    }
    let volume = json!({ "id": "d", "volumes": [{ "volumeId": "v", "mountPath": "/data" }] });
    let refused = client.post("/daytona/sandbox", &volume);
    assert!(refused.status >= 400 && refused.text().contains("volume"), "{}", refused.text());
    for member in &members {
        assert_eq!(names_at(member), Vec::<String>::new());
    }
    // Nor is one that is there already taken for what was asked.
    assert!(start(&json!({})).get("error").is_none());
    for (option, config) in &asked {
        let answer = start(config);
        let why = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(why.contains(option), "{option}: {answer}");
    }
    assert_eq!(names_at(&members[1]), ["rpc"]);
}

#[test]
fn what_only_one_host_has_is_made_there_or_refused() {
    let Some(nats) = Nats::start() else { return };
    let members = with_a_full_gateway(&nats);
    let here = &members[0].server;
    // A directory of this host, whose node takes nothing.
    let output = here.run(&["start", "--name", "own", "--image", "/"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("only the node n1"), "{stderr}");
    here.ok(&["node", "ready", "n1"]);
    eventually("it takes sandboxes", || {
        here.run(&["start", "--name", "own", "--image", "/"]).status.success()
    });
    assert_eq!(names_at(&members[0]), ["own"]);
    let body = json!({ "name": "b", "image": "/usr", "node_labels": { "node": "n2" } });
    let refused = members[0].client.post("/v1/sandboxes", &body).expect(422).json();
    let why = refused["message"].as_str().unwrap_or_default();
    assert!(why.contains("only the node n1 has") && why.contains("node=n2"), "{refused}");
}

#[test]
fn labels_select_the_nodes_that_may_have_a_sandbox() {
    let Some(nats) = Nats::start() else { return };
    let join = |name: &str, zone: &str| {
        Member::join(&nats, name, &["--dev", "--set", &format!("fleet.labels=zone={zone}")])
    };
    let members = [join("n1", "a"), join("n2", "b")];
    for member in &members {
        member.knows(2);
    }
    for number in 0..3 {
        let name = format!("s{number}");
        let body = json!({ "name": name, "node_labels": { "zone": "b" } });
        members[0].client.post("/v1/sandboxes", &body).expect(201);
        let verb = format!("v{number}");
        members[1].server.ok(&["start", "--name", &verb, "--node-label", "zone=a"]);
    }
    let own = ["--node-label", "zone=a", "--node-label", "node=n1"];
    members[1].server.ok(&[&["start", "--name", "both"][..], &own].concat());
    assert_eq!(names_at(&members[0]), ["both", "v0", "v1", "v2"]);
    assert_eq!(names_at(&members[1]), ["s0", "s1", "s2"]);
    let body = json!({ "name": "none", "node_labels": { "zone": "c" } });
    let refused = members[0].client.post("/v1/sandboxes", &body).expect(422).json();
    let why = refused["message"].as_str().unwrap_or_default();
    assert!(why.contains("no node of this fleet is zone=c"), "{refused}");
    assert!(why.contains("n2 has node=n2, zone=b"), "{refused}");
    let output = members[1].server.run(&["start", "--node-label", "zone=c"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("zone=c"), "{stderr}");
    // One of the right kind that takes nothing now is another reason.
    members[0].server.ok(&["node", "cordon", "n2"]);
    let body = json!({ "name": "later", "node_labels": { "zone": "b" } });
    let mut last = Value::Null;
    eventually("it is full", || {
        let answer = members[0].client.post("/v1/sandboxes", &body);
        last = answer.json();
        answer.status == 429
    });
    assert!(last["message"].as_str().is_some_and(|why| why.contains("zone=b")), "{last}");
}

#[test]
fn a_bridge_of_its_own_refuses_labels_of_nodes() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let body = json!({ "name": "a", "node_labels": { "zone": "a" } });
    let refused = client.post("/v1/sandboxes", &body).expect(422).json();
    assert!(refused["message"].as_str().is_some_and(|why| why.contains("in none")), "{refused}");
    assert_eq!(refused["details"]["field"], "node_labels");
    let output = server.run(&["start", "--node-label", "zone=a"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("--node-label"), "{stderr}");
}

#[test]
fn the_audit_log_says_which_node_and_which_life() {
    let Some(nats) = Nats::start() else { return };
    let members = with_a_full_gateway(&nats);
    members[0].server.ok(&["start", "--name", "verb"]);
    members[0].client.post("/v1/sandboxes", &json!({ "name": "native" })).expect(201);
    let life = |name: &str| {
        let shown = members[1].server.ok(&["inspect", "--json", name]);
        let record: Value = serde_json::from_str(&shown).expect("a record");
        record["incarnation"].as_str().expect("a life").to_owned()
    };
    let lives = ["verb", "native"].map(life);
    let recorded = |member: &Member, name: &str| {
        let lines = member.server.ok(&["audit", "--json"]);
        let records = lines.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let mut records: Vec<Value> = records.collect();
        records.retain(|one| one["operation"] == "create_sandbox" && one["sandbox"] == name);
        records
    };
    for (name, life) in ["verb", "native"].into_iter().zip(&lives) {
        let mut found = Vec::new();
        eventually("it is recorded", || {
            found = recorded(&members[1], name);
            !found.is_empty()
        });
        assert_eq!(found[0]["node"], "n2", "{found:?}");
        assert_eq!(found[0]["incarnation"], life.as_str(), "{found:?}");
        assert_eq!(found[0]["facts"]["gateway"], "n1", "{found:?}");
        eventually("the gateway has a record of its own", || {
            recorded(&members[0], name).iter().any(|one| one["node"] == "n1")
        });
    }
}
