//! What becomes of names, connections and records when a running sandbox may reach something else than before.

use serde_json::{Value, json};
use tests::eventually;
use tests::http::Answer;

use super::life::Keeper;
use super::{NAME, Scene};

const BOX: &str = "/v1/sandboxes/default/a";

fn change(scene: &Scene, rules: &[&str]) -> Answer {
    scene.client().send_json("PATCH", BOX, &json!({ "egress": rules }))
}

fn rules(scene: &Scene) -> Value {
    scene.client().get(BOX).expect(200).json()["egress"].clone()
}

fn fetch(host: &str) -> String {
    format!("curl -fsS -m 20 http://{host}/hello")
}

#[test]
fn rules_of_a_running_sandbox_hold_at_once_for_connections_too() {
    let Some(mut scene) = Scene::or_skip(&["*.example.com:5432", "example.org"]) else { return };
    let (mut ends, mut stays) =
        (Keeper::start(&scene, "ends.example.com"), Keeper::start(&scene, "stays.example.com"));
    for keeper in [&mut ends, &mut stays] {
        assert!(keeper.line().starts_with("198.18."));
        keeper.again();
        assert!(keeper.line().starts_with("b'"), "the server speaks first");
    }
    let new = ["stays.example.com:5432", "example.net"];
    assert_eq!(change(&scene, &new).expect(200).json()["egress"], json!(new));
    let how = ends.line();
    assert!(how == "ended" || how == "ConnectionResetError", "{how}");
    scene.is_audited("the end", |record| {
        record["operation"] == "egress.ended"
            && record["facts"]["host"] == "ends.example.com"
            && record["facts"]["why"] == "no rule allows it any more"
    });
    ends.again();
    let how = ends.line();
    assert!(how == "ended" || how.ends_with("Error"), "{how}");
    scene.is_refused("ends.example.com", "no rule allows it");
    assert_eq!(scene.run(&fetch("example.net")).ok(), "hello from example.net\n");
    scene.run(&fetch("example.org")).fails();
    let ended = |record: &Value| {
        record["operation"] == "egress.ended" && record["facts"]["host"] == "stays.example.com"
    };
    assert!(!scene.audited().iter().any(ended), "what may stay is not ended");
    let events = scene.client().get("/v1/events?kind=changed").expect(200).json();
    assert_eq!(
        events["events"][0]["cause"], "it may reach stays.example.com:5432, example.net",
        "{events}"
    );

    // The next bridge has the new rules.
    scene.server.end_and_serve_again();
    assert_eq!(rules(&scene), json!(new));
    eventually("it is reached again", || scene.run(&fetch("example.net")).code == Some(0));
    scene.run(&fetch("example.org")).fails();
    ends.end();
    stays.end();
    scene.only_the_internet_was_reached();
}

#[test]
fn a_sandbox_without_a_way_out_gets_one_and_loses_it() {
    let Some(scene) = Scene::or_skip(&[]) else { return };
    scene.run(&fetch("example.org")).fails();
    change(&scene, &["example.org"]).expect(200);
    assert_eq!(scene.run(&fetch("example.org")).ok(), "hello from example.org\n");
    for wrong in ["https://example.org", "10.0.0.1", "@nobody"] {
        let refused = change(&scene, &["example.net", wrong]).expect(400).json();
        assert_eq!(refused["code"], "invalid", "{refused}");
        assert_eq!(rules(&scene), json!(["example.org"]), "nothing is changed by half");
    }
    // A name that has its address gets another port there.
    let address = scene.run("getent ahostsv4 example.org | awk 'NR==1 {print $1}'").ok();
    change(&scene, &["example.org", "example.org:5432"]).expect(200);
    let ask = format!(
        "import socket\npeer = socket.create_connection(({:?}, 5432), 20)\nprint(len(peer.recv(100)) > 0)",
        address.trim()
    );
    eventually("the new port is open", || scene.python(&ask).stdout == "True\n");
    change(&scene, &["none"]).expect(200);
    assert_eq!(rules(&scene), json!([]));
    scene.run(&fetch("example.org")).fails();
    scene.server.ok(&["stop", NAME]);
    let refused = change(&scene, &["example.org"]).expect(409).json();
    assert_eq!(refused["details"]["reason"], "not_running", "{refused}");
    scene.only_the_internet_was_reached();
}

#[test]
fn a_sandbox_that_sleeps_wakes_for_new_rules() {
    let Some(scene) = Scene::or_skip(&[]) else { return };
    let client = scene.client();
    let spec = json!({ "name": "sleeper", "idle_ttl_ms": 500, "on_idle": "pause" });
    let made = client.post("/v1/sandboxes", &spec);
    if made.status != 201 {
        return tests::skip(&made.text());
    }
    let state = || client.get("/v1/sandboxes/default/sleeper").expect(200).json()["state"].clone();
    eventually("it sleeps", || state() == "paused");
    let rules = json!({ "egress": ["example.org"], "idle_ttl_ms": 0 });
    let changed = client.send_json("PATCH", "/v1/sandboxes/default/sleeper", &rules);
    assert_eq!(changed.expect(200).json()["state"], "running");
    let hello = scene.run_in("sleeper", &fetch("example.org"), &[]).ok();
    assert_eq!(hello, "hello from example.org\n");
}
