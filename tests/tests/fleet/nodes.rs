//! Joining, and what nodes know of each other.

use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats};
use tests::http::Client;
use tests::server::Server;

#[test]
fn nodes_know_each_other_and_can_be_marked_from_anywhere() {
    let Some(nats) = Nats::start() else { return };
    let first = Member::join(&nats, "n1", &["--dev", "--set", "fleet.labels=zone=a"]);
    let second = Member::open(&nats, "n2");
    first.knows(2);
    second.knows(2);
    let listed = second.client.get("/v1/nodes").expect(200).json();
    let nodes = listed["nodes"].as_array().expect("a list");
    assert_eq!([&nodes[0]["name"], &nodes[1]["name"]], ["n1", "n2"]);
    assert_eq!((&nodes[0]["here"], &nodes[1]["here"]), (&json!(false), &json!(true)));
    assert_eq!(nodes[0]["labels"], json!({ "node": "n1", "zone": "a" }));
    assert_eq!(nodes[0]["address"], first.server.url());
    assert!(nodes[0]["memory_mib"].as_u64() > Some(0), "{}", nodes[0]);
    let marked = json!({ "readiness": "cordoned" });
    let answer = second.client.send_json("PATCH", "/v1/nodes/n1", &marked).expect(200).json();
    assert_eq!(answer["readiness"], "cordoned");
    let state = |member: &Member, name: &str| {
        let shown = member.server.ok(&["node", "inspect", name]);
        serde_json::from_str::<Value>(&shown).expect("JSON")["readiness"].clone()
    };
    eventually("both see it", || {
        state(&first, "n1") == "cordoned" && state(&second, "n1") == "cordoned"
    });
    // Nobody is placed there; the other takes all.
    for number in 0..3 {
        let made = json!({ "name": format!("s{number}") });
        first.client.post("/v1/sandboxes", &made).expect(201);
        second.server.ok(&["inspect", &format!("s{number}")]);
    }
    first.server.ok(&["node", "ready", "n1"]);
    eventually("it takes sandboxes again", || state(&second, "n1") == "ready");
    second.client.send_json("PATCH", "/v1/nodes/n9", &marked).expect(404);
    let text = first.server.ok(&["node", "ls"]);
    assert!(text.contains("n1 *") && text.contains("zone=a"), "{text}");
}

#[test]
fn a_mark_outlives_the_bridge() {
    let Some(nats) = Nats::start() else { return };
    let mut member = Member::open(&nats, "n1");
    member.server.ok(&["node", "cordon", "n1"]);
    eventually("it is cordoned", || member.nodes()[0]["readiness"] == "cordoned");
    member.server.end_and_serve_again();
    eventually("it is still cordoned", || {
        let nodes = member.nodes();
        nodes[0]["readiness"] == "cordoned" && nodes[0]["trouble"].is_null()
    });
}

#[test]
fn a_bridge_of_its_own_says_that_it_is_in_no_fleet() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let refused = client.get("/v1/nodes").expect(422).json();
    assert_eq!(refused["code"], "unsupported");
    let output = server.run(&["node", "ls"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("in no fleet"), "{stderr}");
    assert!(!server.state().join("fleet").exists(), "it has made itself a node");
    // And it makes sandboxes as ever, without a name in a fleet.
    client.post("/v1/sandboxes", &json!({ "name": "own" })).expect(201);
    let record: Value = serde_json::from_str(&server.ok(&["inspect", "--json", "own"])).unwrap();
    assert!(record.get("incarnation").is_none(), "{record}");
}

#[test]
fn a_bridge_that_cannot_reach_nats_serves_and_says_why_it_creates_nothing() {
    // Nobody listens at the port of a server that has ended.
    let Some(mut nats) = Nats::start() else { return };
    nats.kill();
    let url = nats.url();
    let server = Server::start(&["--dev", "--fleet", &url, "--set", "fleet.node=n1"]);
    let client = Client::new(server.url());
    let refused = client.post("/v1/sandboxes", &json!({ "name": "none" })).expect(503).json();
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("nothing was created"), "{message}");
    let nodes: Value = serde_json::from_str(&server.ok(&["node", "ls", "--json"])).unwrap();
    assert!(nodes[0]["trouble"].as_str().is_some_and(|why| why.contains("NATS")), "{nodes}");
    nats.start_again();
    eventually("it joins when NATS is there", || {
        client.post("/v1/sandboxes", &json!({ "name": "one" })).status == 201
    });
}

#[test]
fn only_a_key_that_may_do_everything_sees_and_marks_nodes() {
    let Some(nats) = Nats::start() else { return };
    let member = Member::join(&nats, "n1", &[]);
    let key = |scopes: &str| member.server.ok(&["keygen", "--scope", scopes]).trim().to_owned();
    let with = |key: &str| Client::new(member.server.url()).key(key);
    with(&key("admin")).get("/v1/nodes").expect(200);
    let lesser = with(&key("run"));
    lesser.get("/v1/nodes").expect(403);
    lesser.get("/v1/nodes/n1").expect(403);
    let marked = json!({ "readiness": "draining" });
    lesser.send_json("PATCH", "/v1/nodes/n1", &marked).expect(403);
    member.client.get("/v1/nodes").expect(401);
    assert_eq!(member.nodes()[0]["readiness"], "ready");
}

#[test]
fn each_figure_of_a_fleet_in_the_rules_and_the_dashboard_is_one_that_a_node_has() {
    let Some(nats) = Nats::start() else { return };
    let member = Member::open(&nats, "n1");
    let text = member.client.get("/metrics").expect(200).text();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist");
    let mut used = 0;
    for file in ["prometheus/burrow.rules.yml", "grafana/burrow.json"] {
        let named = std::fs::read_to_string(root.join(file)).expect("the file");
        let words = named.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("burrow_fleet_")) {
            assert!(text.contains(&format!("# TYPE {name} ")), "{file}: no node has {name}");
            used += 1;
        }
    }
    assert!(used > 4, "{used}");
}
