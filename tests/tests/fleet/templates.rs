//! Templates of the fleet: put at one node, found and used at every other.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::fleet::{Member, Nats, open};
use tests::images::{busybox, tar, write_root, write_saved};
use tests::{Burrow, eventually};

const APP: &str = "/v1/templates/ci/app:v1.2";

fn put(member: &Member, path: &str, template: &Value) -> Value {
    member.client.send_json("PUT", path, template).expect(200).json()
}

fn revision(member: &Member, path: &str) -> Option<String> {
    let answer = member.client.get(path);
    let is_there = answer.status == 200;
    is_there.then(|| answer.json()["revision"].as_str().expect("a revision").to_owned())
}

fn said(member: &Member, name: &str, script: &str) -> String {
    let path = format!("/v1/sandboxes/ci/{name}/shell");
    let ran = member.client.post(&path, &json!({ "script": script })).expect(200).json();
    ran["stdout"].as_str().expect("a text").to_owned()
}

#[test]
fn a_template_of_one_node_is_found_and_started_at_every_node() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    let template = json!({
        "env": { "COLOUR": "vermilion" }, "start": "echo $COLOUR >/tmp/ready; exec sleep 1000",
        "ready": "test -s /tmp/ready"
    });
    let kept = put(&members[0], APP, &template);
    // At once, at the other node, whichever gets the sandbox.
    for number in 0..4 {
        let name = format!("s{number}");
        let body = json!({ "namespace": "ci", "name": name, "template": "app:v1.2" });
        members[1].client.post("/v1/sandboxes", &body).expect(201);
        assert_eq!(said(&members[number % 2], &name, "cat /tmp/ready"), "vermilion\n");
    }
    let first = revision(&members[0], APP);
    assert_eq!(first.as_deref(), kept["revision"].as_str());
    eventually("the other has it", || revision(&members[1], APP) == first);
    // Another in its place, put at the other node.
    put(&members[1], APP, &json!({ "env": { "COLOUR": "blue" } }));
    let body = json!({ "namespace": "ci", "name": "blue", "template": "app:v1.2" });
    members[0].client.post("/v1/sandboxes", &body).expect(201);
    assert_eq!(said(&members[1], "blue", "echo $COLOUR"), "blue\n");
    let listed = members[0].server.ok(&["template", "ls", "--json"]);
    assert!(listed.contains("app:v1.2") && !listed.contains("blue"), "{listed}");
    // Removed at one node, it is gone at all.
    members[0].client.delete(APP).expect(200);
    eventually("the other has no more of it", || revision(&members[1], APP).is_none());
    let gone = members[1].client.post(
        "/v1/sandboxes",
        &json!({ "namespace": "ci", "name": "gone", "template": "app:v1.2" }),
    );
    assert_eq!(gone.status, 404, "{}", gone.text());
    members[1].client.delete(APP).expect(404);
}

#[test]
fn a_node_that_joins_gives_the_fleet_its_templates_and_takes_those_of_the_fleet() {
    let Some(nats) = Nats::start() else { return };
    let first = Member::open(&nats, "n1");
    put(&first, "/v1/templates/ci/both", &json!({ "env": { "OF": "fleet" } }));
    // A bridge of its own, with templates, which joins.
    let alone = tests::server::Server::dev();
    let client = tests::http::Client::new(alone.url());
    client.send_json("PUT", "/v1/templates/ci/own", &json!({})).expect(200);
    client
        .send_json("PUT", "/v1/templates/ci/both", &json!({ "env": { "ALONE": "1" } }))
        .expect(200);
    let burrow = Burrow::new();
    fs::create_dir_all(burrow.state()).expect("a directory");
    let mut copy = std::process::Command::new("cp");
    copy.arg("-r").arg(alone.state().join("templates")).arg(burrow.state());
    assert!(copy.status().expect("cp runs").success());
    let mut second = Member::join_in(burrow, &nats, "n2", &["--dev"]);
    eventually("the first has the template of the second", || {
        revision(&first, "/v1/templates/ci/own").is_some()
    });
    let names = |member: &Member| {
        member.client.get("/v1/templates/ci/both").expect(200).json()["env_names"].clone()
    };
    eventually("the fleet's own template stays", || names(&second) == json!(["OF"]));
    assert_eq!(names(&first), json!(["OF"]));
    // What is removed while a node is away is gone when it comes back, and not given again.
    second.server.kill_daemon_for_a_moment(|| {
        first.client.delete("/v1/templates/ci/own").expect(200);
    });
    let back = tests::http::Client::new(second.server.url());
    eventually("it is gone there too", || back.get("/v1/templates/ci/own").status == 404);
    assert_eq!(revision(&first, "/v1/templates/ci/own"), None);
}

#[test]
fn without_nats_templates_are_read_and_not_changed() {
    let Some(mut nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    put(&members[0], APP, &json!({}));
    eventually("the other has it", || revision(&members[1], APP).is_some());
    nats.kill();
    eventually("no change is taken", || {
        let refused = members[1].client.send_json("PUT", APP, &json!({ "memory_mib": 128 }));
        refused.status == 503
    });
    members[0].client.delete(APP).expect(503);
    for member in &members {
        assert!(revision(member, APP).is_some());
    }
    nats.start_again();
    // Of a write that was cut off nobody knows whether it was stored.
    eventually("it can be changed again", || {
        [200, 404].contains(&members[1].client.delete(APP).status)
    });
    eventually("it is gone at the other", || revision(&members[0], APP).is_none());
}

#[test]
fn a_sandbox_of_a_template_is_made_where_its_image_is() {
    let Some(nats) = Nats::start() else { return };
    let Some(busybox) = busybox() else { return };
    let members = open(&nats, 2);
    let scratch = members[0].server.scratch();
    write_root(&scratch.join("root"), &busybox, &["sh", "cat", "sleep"]);
    fs::write(scratch.join("root/mark"), "from the image\n").expect("a file");
    tar(&scratch.join("root"), &scratch.join("layer.tar"), &[]);
    let config = json!({ "Env": ["PATH=/bin"], "Cmd": ["sh"] });
    let saved = write_saved(scratch, "only:here", &[scratch.join("layer.tar")], &config);
    members[0].server.ok(&["image", "import", saved.to_str().expect("UTF-8")]);
    put(&members[0], APP, &json!({ "image": "only:here" }));
    eventually("the other has it", || revision(&members[1], APP).is_some());
    // By both doors of the node that has not got the image.
    for number in 0..3 {
        let name = format!("s{number}");
        let body = json!({ "namespace": "ci", "name": name, "template": "app:v1.2" });
        let answer = members[1].client.post("/v1/sandboxes", &body);
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(said(&members[1], &name, "cat /mark"), "from the image\n");
        members[0].server.ok(&["inspect", &format!("ci/{name}")]);
    }
    put(&members[0], "/v1/templates/default/app", &json!({ "image": "only:here" }));
    let made = members[1].client.post("/v2/sandboxes", &json!({ "templateID": "app" }));
    let made = made.expect(201).json();
    let id = made["sandboxID"].as_str().expect("an id");
    members[0].server.ok(&["inspect", id]);
    // Where its only node is away, nothing is made, and the refusal has the reason.
    members[0].signal(Signal::SIGKILL);
    let body = json!({ "namespace": "ci", "name": "none", "template": "app:v1.2" });
    eventually("the node is buried", || {
        let refused = members[1].client.post("/v1/sandboxes", &body);
        assert_ne!(refused.status, 201, "{}", refused.text());
        refused.status == 429 && refused.text().contains("only:here")
    });
}
