//! Sandboxes that are made again when their node is gone, and those that are not.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats, at, open};

/// What NATS needs for the few records of a test, and little more.
const NATS_DISK_KIB: u32 = 32 * 1024;

fn create(member: &Member, name: &str, on_lost: &str) -> Value {
    let body = json!({
        "name": name,
        "env": { "COLOUR": "green" },
        "labels": { "of": "test" },
        "on_lost": on_lost,
    });
    member.client.post("/v1/sandboxes", &body).expect(201).json()
}

/// What the sandbox of a name is now, once it is another than that.
fn another(member: &Member, name: &str, than: &Value) -> Value {
    let mut found = Value::Null;
    eventually("another is made", || {
        let answer = member.client.get(&format!("/v1/sandboxes/default/{name}"));
        found = if answer.status == 200 { answer.json() } else { Value::Null };
        found["id"].is_string() && found["id"] != than["id"] && found["state"] == "running"
    });
    found
}

fn is_lost(member: &Member, name: &str) -> Value {
    let mut refusal = Value::Null;
    eventually("it is lost", || {
        let answer = member.client.get(&format!("/v1/sandboxes/default/{name}"));
        refusal = answer.json();
        answer.status == 410
    });
    refusal
}

/// Kills the node's bridge, whose guardian ends with its lease what is there.
fn kill(member: &Member) {
    member.signal(Signal::SIGKILL);
}

#[test]
fn a_sandbox_is_made_again_at_another_node_as_it_was_asked_for() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 3);
    let first = at(&members, 2, |node| create(node, "phoenix", "restart"));
    let gone = at(&members, 2, |node| create(node, "mortal", "lose"));
    assert_eq!((&first["on_lost"], gone.get("on_lost")), (&json!("restart"), None));
    let put = "/v1/sandboxes/default/phoenix/files/content?path=/tmp/old";
    members[2].client.send("PUT", put, &[], b"old").expect(200);
    // What was changed since stays so.
    let change = json!({ "egress": ["example.org"], "idle_ttl_ms": 3_600_000 });
    members[0].client.send_json("PATCH", "/v1/sandboxes/default/phoenix", &change).expect(200);
    members[0].server.ok(&["node", "cordon", "n2"]);
    eventually("it is known", || {
        members[0].nodes().iter().any(|node| node["readiness"] == "cordoned")
    });
    kill(&members[2]);

    // Another life, which says whose it follows; with the name, the labels and the environment, and without the files.
    let second = another(&members[1], "phoenix", &first);
    let follows =
        json!({ "id": first["id"], "node": "n3", "incarnation": second["follows"]["incarnation"] });
    assert_eq!(second["follows"], follows, "{second}");
    assert_eq!(
        (&second["egress"], &second["idle_ttl_ms"]),
        (&json!(["example.org"]), &json!(3_600_000))
    );
    // Who holds the first one by its id does not get the second for it.
    let id = [("burrow-sandbox-id", first["id"].as_str().unwrap())];
    for (member, path) in [(&members[0], ""), (&members[1], "/sessions")] {
        let path = format!("/v1/sandboxes/default/phoenix{path}");
        let refusal = member.client.send("GET", &path, &id, b"").expect(410).json();
        assert_eq!((&refusal["code"], &refusal["details"]["node"]), (&json!("gone"), &json!("n3")));
    }
    let id = [("burrow-sandbox-id", second["id"].as_str().unwrap())];
    members[0].client.send("GET", "/v1/sandboxes/default/phoenix", &id, b"").expect(200);
    assert_eq!((&second["on_lost"], &second["labels"]), (&json!("restart"), &first["labels"]));
    let shown = "echo $COLOUR; cat /tmp/old 2>&1 || true";
    let ran = json!({ "argv": ["sh", "-c", shown] });
    let ran = members[1].client.post("/v1/sandboxes/default/phoenix/exec", &ran).expect(200).json();
    let said = ran["stdout"].as_str().expect("it is text");
    assert!(said.starts_with("green\n") && said.contains("No such file"), "{said}");
    let words = members[0].server.ok(&["inspect", "phoenix"]);
    let followed = format!("{}, which was lost with the node n3", first["id"].as_str().unwrap());
    assert!(words.contains("if lost") && words.contains(&followed), "{words}");
    // The other one is gone for good.
    let refusal = is_lost(&members[1], "mortal");
    assert_eq!(refusal["details"]["returns"], false, "{refusal}");

    // It is lost once more, and follows the second.
    members[0].server.ok(&["node", "ready", "n2"]);
    kill(&members[0]);
    let third = another(&members[1], "phoenix", &second);
    assert_eq!(third["follows"]["id"], second["id"], "{third}");
    assert_eq!(third["follows"]["node"], "n1");
}

#[test]
fn what_has_stopped_or_was_removed_is_not_made_again() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    at(&members, 1, |node| {
        for name in ["stopped", "removed", "running"] {
            create(node, name, "restart");
        }
        node.server.ok(&["stop", "stopped"]);
        node.server.ok(&["rm", "--force", "removed"]);
    });
    let before = members[0].client.get("/v1/sandboxes/default/running").expect(200).json();
    kill(&members[1]);
    another(&members[0], "running", &before);
    let refusal = is_lost(&members[0], "stopped");
    assert_eq!(refusal["code"], "gone");
    members[0].client.get("/v1/sandboxes/default/removed").expect(404);
    // Nothing comes later.
    std::thread::sleep(Duration::from_secs(3));
    is_lost(&members[0], "stopped");
}

#[test]
fn one_that_waits_for_room_is_given_up_by_its_removal() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    let kept = at(&members, 1, |node| {
        for name in ["unwanted", "dropped"] {
            create(node, name, "restart");
        }
        create(node, "kept", "restart")
    });
    members[0].server.ok(&["node", "cordon", "n1"]);
    kill(&members[1]);
    for name in ["kept", "unwanted", "dropped"] {
        let refusal = is_lost(&members[0], name);
        assert_eq!(refusal["details"]["returns"], true, "{refusal}");
        assert!(refusal["hint"].as_str().unwrap().contains("another of this name"), "{refusal}");
    }
    let removed = members[0].client.delete("/v1/sandboxes/default/unwanted");
    assert_eq!(removed.status, 410);
    assert_eq!(removed.json()["hint"], "it is not made again");
    // The command line says the same of it, and gives it up as well.
    let refused = |verb: &[&str]| {
        let output = members[0].server.run(verb);
        assert!(!output.status.success(), "{verb:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for verb in [&["inspect", "dropped"][..], &["stop", "dropped"], &["exec", "dropped", "true"]] {
        let words = refused(verb);
        assert!(words.contains("dropped was lost with its node n2"), "{verb:?} {words}");
        assert!(words.contains("another of this name is being made"), "{verb:?} {words}");
    }
    let words = refused(&["rm", "dropped"]);
    assert!(words.contains("dropped was lost with its node n2"), "{words}");
    assert!(words.contains("it is not made again"), "{words}");
    assert!(refused(&["rm", "none"]).contains("there is no sandbox none"));
    members[0].server.ok(&["node", "ready", "n1"]);
    another(&members[0], "kept", &kept);
    for name in ["unwanted", "dropped"] {
        is_lost(&members[0], name);
    }
}

/// Has the record of a lost life be that of one which was to be made of it, as if its node had died before that began.
fn claim_in_its_place(nats: &Nats, name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("an event loop").block_on(async {
        let client = async_nats::connect(nats.url()).await.expect("a client");
        let store = async_nats::jetstream::new(client);
        let names = store.get_key_value("burrow-sandboxes").await.expect("the names");
        let key = format!("default.{name}");
        let entry = names.entry(&key).await.expect("an answer").expect("a record");
        let mut record: Value = serde_json::from_slice(&entry.value).expect("it is JSON");
        let lost = record["incarnation"].as_str().expect("its life").to_owned();
        record["request"] = json!(format!("return:{lost}"));
        record["incarnation"] = json!(lost.chars().rev().collect::<String>());
        let record = serde_json::to_vec(&record).expect("JSON");
        names.update(&key, record.into(), entry.revision).await.expect("nobody else wrote it");
    });
}

#[test]
fn one_whose_successor_never_began_is_made_again_and_can_be_given_up() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    let kept = at(&members, 1, |node| {
        create(node, "dropped", "restart");
        create(node, "kept", "restart")
    });
    members[0].server.ok(&["node", "cordon", "n1"]);
    kill(&members[1]);
    for name in ["kept", "dropped"] {
        claim_in_its_place(&nats, name);
        assert_eq!(is_lost(&members[0], name)["details"]["returns"], true);
    }
    let removed = members[0].client.delete("/v1/sandboxes/default/dropped");
    assert_eq!(
        (removed.status, removed.json()["hint"].as_str()),
        (410, Some("it is not made again"))
    );
    members[0].server.ok(&["node", "ready", "n1"]);
    let made = another(&members[0], "kept", &kept);
    assert_eq!(made["follows"]["id"], kept["id"], "{made}");
    is_lost(&members[0], "dropped");
}

#[test]
fn a_create_while_the_disk_of_nats_is_full_is_refused_and_leaves_nothing() {
    let Some(mut nats) = Nats::start_on_a_small_disk(NATS_DISK_KIB) else { return };
    let members = open(&nats, 2);
    let filler = nats.fill_disk();
    // Room for what is small, as leases and names are, and none for what the sandbox is made of again.
    filler.leave(8);
    let large = "x".repeat(100 * 1024);
    for (name, value) in [("large", large.as_str()), ("small", "x")] {
        let body = json!({ "name": name, "on_lost": "restart", "env": { "VALUE": value } });
        let refused = members[0].client.post("/v1/sandboxes", &body).expect(503).json();
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(message.contains("nothing was"), "{refused}");
    }
    let nothing_is_there = || {
        for member in &members {
            let page = member.client.get("/v1/sandboxes").expect(200).json();
            assert_eq!(page["sandboxes"], json!([]), "{page}");
        }
    };
    nothing_is_there();
    filler.remove();
    // It keeps no streams any more until it starts again.
    nats.kill();
    nats.start_again();
    for name in ["large", "small"] {
        nothing_is_there();
        let body = json!({ "name": name, "on_lost": "restart" });
        eventually("it can be made", || {
            members[0].client.post("/v1/sandboxes", &body).status == 201
        });
        let made = members[1].client.get(&format!("/v1/sandboxes/default/{name}")).expect(200);
        assert_eq!(made.json()["state"], "running");
        members[1].client.delete(&format!("/v1/sandboxes/default/{name}?force=true")).expect(200);
    }
}

#[test]
fn what_cannot_be_made_again_is_refused() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 1);
    let refused = |body: Value| members[0].client.post("/v1/sandboxes", &body).expect(422).json();
    let body = refused(json!({ "name": "a", "on_lost": "restart", "workspace": "/tmp" }));
    assert_eq!(body["code"], "unsupported", "{body}");
    let message = "cannot be restart: only this host has its workspace";
    assert!(body["message"].as_str().unwrap().contains(message), "{body}");
    let large = "x".repeat(300 * 1024);
    let body = json!({ "name": "a", "on_lost": "restart", "env": { "LARGE": large } });
    let answer = members[0].client.post("/v1/sandboxes", &body);
    assert!(matches!(answer.status, 400 | 413 | 422), "{}", answer.text());
    let body = json!({ "name": "a", "on_lost": "reborn" });
    let wrong = members[0].client.post("/v1/sandboxes", &body).expect(400);
    assert!(wrong.text().contains("lose"), "{}", wrong.text());
    members[0].client.get("/v1/sandboxes/default/a").expect(404);
}
