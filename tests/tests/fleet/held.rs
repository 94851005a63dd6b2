//! What sandboxes do while their node cannot renew its lease: from half of the grace on nothing, until it can.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::fleet::{Member, Nats};
use tests::{eventually, skip};

/// Half of it is longer than the calls before NATS is away take, and NATS is back before the whole.
const OPTIONS: &[&str] = &["--dev", "--set", "fleet.grace=16s"];

/// Makes a sandbox, if this host can pause it.
fn make(member: &Member, name: &str) -> bool {
    let spec = json!({ "name": name, "idle_ttl_ms": 3_600_000, "on_idle": "pause" });
    let made = member.client.post("/v1/sandboxes", &spec);
    if made.status != 201 {
        assert_eq!(made.code(), "unsupported", "{}", made.text());
        skip(&made.text());
        return false;
    }
    true
}

fn state(member: &Member, name: &str) -> Value {
    // The bridge's record: an agent that is asked while its sandbox is paused answers when it goes on.
    let listed = member.server.ok(&["ps", "--all", "--json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed).expect("records");
    listed.into_iter().find(|one| one["name"] == name).expect("it is there")
}

fn figure(member: &Member, name: &str) -> u64 {
    let text = member.client.get("/metrics").expect(200).text();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).expect("a figure");
    line.rsplit_once(' ').expect("a value").1.parse().expect("a number")
}

fn events(member: &Member, name: &str) -> Vec<(String, Value)> {
    let page = member.client.get("/v1/events?limit=100").expect(200).json();
    let all = page["events"].as_array().expect("events").iter();
    let of_it = all.filter(|event| event["sandbox"] == name || event["name"] == name);
    of_it
        .map(|event| (event["kind"].as_str().expect("a kind").to_owned(), event["reason"].clone()))
        .collect()
}

#[test]
fn sandboxes_pause_at_half_of_the_grace_and_go_on_when_the_lease_is_renewed() {
    let Some(mut nats) = Nats::start() else { return };
    let member = Member::join(&nats, "n1", OPTIONS);
    if !make(&member, "runs") || !make(&member, "halted") {
        return;
    }
    let script = "while :; do cut -d' ' -f1 /proc/uptime; sleep 0.1; done";
    member.server.ok(&["exec", "-d", "--session", "clock", "runs", "--", "sh", "-c", script]);
    member.server.ok(&["pause", "halted"]);
    nats.kill();
    let away = Instant::now();
    let run = json!({ "argv": ["true"] });
    member.client.post("/v1/sandboxes/default/runs/exec", &run).expect(200);
    eventually("it is paused", || state(&member, "runs")["state"] == "paused");
    assert!(away.elapsed() > Duration::from_secs(6), "after {:?}", away.elapsed());
    assert_eq!(state(&member, "runs")["by_lease"], true);
    assert_eq!(state(&member, "halted").get("by_lease"), None);
    assert_eq!(figure(&member, "burrow_fleet_held_sandboxes"), 1);
    // Nobody has it go on, and the refusal says why.
    for name in ["runs", "halted"] {
        let refused =
            member.client.post(&format!("/v1/sandboxes/default/{name}/resume"), &json!({}));
        let refused = refused.expect(503).json();
        assert!(refused["message"].as_str().is_some_and(|why| why.contains("lease")), "{refused}");
    }
    let refused = member.client.post("/v1/sandboxes/default/runs/exec", &run).expect(503).json();
    assert_eq!(refused["code"], "unavailable", "{refused}");
    let ticks = || member.server.ok(&["logs", "--session", "clock", "runs"]);
    let before = ticks();
    // Time passes in which it could write something.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(ticks(), before, "its programs go on");
    nats.start_again();
    eventually("it goes on", || state(&member, "runs")["state"] == "running");
    assert!(away.elapsed() < Duration::from_secs(16), "it went on after {:?}", away.elapsed());
    member.client.post("/v1/sandboxes/default/runs/exec", &run).expect(200);
    eventually("its programs go on", || ticks().len() > before.len());
    assert_eq!(figure(&member, "burrow_fleet_held_sandboxes"), 0);
    assert_eq!(figure(&member, "burrow_fleet_holds_total"), 1);
    // The other was paused by hand, and is resumed by hand.
    assert_eq!(state(&member, "halted")["state"], "paused");
    member.server.ok(&["resume", "halted"]);
    let happened = events(&member, "runs");
    let kinds: Vec<_> = happened.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["created", "ready", "paused", "resumed"]);
    assert_eq!(happened[2].1, "lease");
    let log = fs::read_to_string(member.server.log()).expect("its log");
    assert!(log.contains("could not renew its lease for 8 s"), "{log}");
}

#[test]
fn what_an_earlier_bridge_has_paused_goes_on_with_the_next_lease() {
    let Some(mut nats) = Nats::start() else { return };
    // Two bridges begin within the other half of it.
    let mut member = Member::join(&nats, "n1", &["--dev", "--set", "fleet.grace=24s"]);
    if !make(&member, "runs") {
        return;
    }
    nats.kill();
    // The bridge that comes back pauses what the one before it left running.
    member.server.kill_and_serve_again();
    eventually("it is paused", || state(&member, "runs")["by_lease"] == true);
    member.server.kill_and_serve_again();
    assert_eq!(state(&member, "runs")["state"], "paused");
    nats.start_again();
    eventually("it goes on", || state(&member, "runs")["state"] == "running");
    assert_eq!(member.server.ok(&["exec", "runs", "--", "echo", "on"]), "on\n");
}
