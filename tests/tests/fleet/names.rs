//! Names: one sandbox under each in the whole fleet, through whatever door it is made.

use std::sync::{Arc, Barrier};
use std::thread;

use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats, open};

/// How many names are raced for; `BURROW_RACED_NAMES` says another number.
const RACED: usize = 100;
/// Races at once, each with a client of every gateway.
const RACES: usize = 4;

/// What one client has seen of a name: the answer to its create, and whose the name was when all had answers.
#[derive(Debug, PartialEq)]
struct Raced {
    status: u16,
    winner: Value,
}

/// Wants each name at the same moment as the clients of the other gateways, and removes what it has won.
fn race(member: &Member, names: impl Iterator<Item = usize>, together: &Barrier) -> Vec<Raced> {
    let want = |at: usize| {
        let path = format!("/v1/sandboxes/default/r{at}");
        together.wait();
        let status =
            member.client.post("/v1/sandboxes", &json!({ "name": format!("r{at}") })).status;
        together.wait();
        let winner = member.client.get(&path).json()["id"].clone();
        together.wait();
        if status == 201 {
            member.client.delete(&format!("{path}?force=true"));
        }
        Raced { status, winner }
    };
    names.map(want).collect()
}

#[test]
fn a_name_that_a_client_of_each_gateway_wants_at_once_has_one_winner() {
    let Some(nats) = Nats::start() else { return };
    // A lease outlives a busy moment of this machine.
    let options = ["--dev", "--set", "fleet.grace=20s"];
    let members = ["n1", "n2", "n3"].map(|name| Member::join(&nats, name, &options));
    for member in &members {
        member.knows(3);
    }
    let names = std::env::var("BURROW_RACED_NAMES").ok();
    let names = names.map_or(RACED, |names| names.parse().expect("a number of names"));
    let mut won = vec![0; members.len()];
    let races: Vec<_> = thread::scope(|scope| {
        let together = [(); RACES].map(|()| Arc::new(Barrier::new(members.len())));
        let racing = (0..RACES).flat_map(|at| members.iter().map(move |member| (at, member)));
        let racing = racing.map(|(at, member)| {
            let together = Arc::clone(&together[at]);
            scope.spawn(move || race(member, (at..names).step_by(RACES), &together))
        });
        let racing: Vec<_> = racing.collect();
        racing.into_iter().map(|one| one.join().expect("it does not fail")).collect()
    });
    for name in 0..names {
        let clients = &races[name % RACES * members.len()..][..members.len()];
        let seen: Vec<_> = clients.iter().map(|of| &of[name / RACES]).collect();
        let winners: Vec<_> = (0..seen.len()).filter(|at| seen[*at].status == 201).collect();
        assert_eq!(winners.len(), 1, "r{name}: {seen:?}");
        assert!(seen.iter().all(|one| [201, 409].contains(&one.status)), "r{name}: {seen:?}");
        let is_same = |one: &&Raced| one.winner.is_string() && one.winner == seen[0].winner;
        assert!(seen.iter().all(is_same), "r{name}: {seen:?}");
        won[winners[0]] += 1;
    }
    // A race that one gateway always wins is none.
    assert!(won.iter().all(|count| *count > 0), "{won:?} of {names}");
    let here = |member: &Member| member.server.ok(&["ps", "--all", "--quiet"]).lines().count();
    assert_eq!(members.iter().map(here).sum::<usize>(), 0);
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
