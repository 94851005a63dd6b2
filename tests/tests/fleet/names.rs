//! Names: one sandbox under each in the whole fleet, through whatever door it is made.

use std::thread;

use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats, open};

#[test]
fn a_name_that_many_want_at_once_is_one_sandbox() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 3);
    for round in 0..5 {
        let made = json!({ "name": format!("s{round}") });
        let statuses: Vec<u16> = thread::scope(|scope| {
            let racing = members
                .iter()
                .map(|member| scope.spawn(|| member.client.post("/v1/sandboxes", &made).status));
            let racing: Vec<_> = racing.collect();
            racing.into_iter().map(|one| one.join().expect("an answer")).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| [201, 409].contains(status)), "{statuses:?}");
    }
    let here = |member: &Member| member.server.ok(&["ps", "--quiet"]).lines().count();
    assert_eq!(members.iter().map(here).sum::<usize>(), 5);
}

#[test]
fn a_name_that_the_command_line_has_taken_is_taken_everywhere_until_it_is_removed() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    members[0].start(&["--name", "mine"]);
    let made = json!({ "name": "mine" });
    let refused = members[1].client.post("/v1/sandboxes", &made).expect(409).json();
    assert!(refused["message"].as_str().is_some_and(|why| why.contains("taken")), "{refused}");
    let output = members[1].server.run(&["start", "--name", "mine"]);
    assert!(!output.status.success());
    members[0].server.ok(&["rm", "--force", "mine"]);
    // Its removal has freed the name before it was answered.
    members[1].client.post("/v1/sandboxes", &made).expect(201);
}

#[test]
fn a_create_that_is_repeated_at_another_node_is_the_same_sandbox() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    let body = json!({ "name": "once" }).to_string();
    let headers = [("content-type", "application/json"), ("idempotency-key", "k1")];
    let create = |member: &Member| {
        member.client.send("POST", "/v1/sandboxes", &headers, body.as_bytes()).expect(201).json()
    };
    let made = create(&members[0]);
    assert_eq!(create(&members[1])["id"], made["id"]);
    assert_eq!(create(&members[0])["id"], made["id"]);
}

#[test]
fn a_create_that_fails_leaves_its_name_free() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    let broken = json!({ "name": "x", "image": "no-such-image" });
    let answer = members[0].client.post("/v1/sandboxes", &broken);
    assert!(answer.status >= 400, "{}", answer.text());
    eventually("the name is free", || {
        members[1].client.post("/v1/sandboxes", &json!({ "name": "x" })).status == 201
    });
}

#[test]
fn what_a_restart_makes_again_has_another_life_under_its_name() {
    let Some(nats) = Nats::start() else { return };
    let member = Member::open(&nats, "n1");
    member.start(&["--name", "again"]);
    let life = || {
        let record: Value =
            serde_json::from_str(&member.server.ok(&["inspect", "--json", "again"]))
                .expect("a record");
        record["incarnation"].as_str().expect("a life in the fleet").to_owned()
    };
    let first = life();
    member.server.ok(&["restart", "again"]);
    assert_ne!(life(), first);
}
