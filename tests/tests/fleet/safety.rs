//! What runs on a node that is gone: nothing, before anybody says so.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use host::instant::now_ms;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::fleet::{Member, Nats, open};
use tests::http::Client;
use tests::{Burrow, eventually};

/// A process of this machine that has not ended. One that nobody has reaped has.
pub(super) fn lives(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The processes of a sandbox that are seen from outside: its supervisor, and what that has started.
pub(super) fn processes(burrow: &Burrow, name: &str) -> Vec<u64> {
    let shown = burrow.ok(&["inspect", "--json", name]);
    let record: Value = serde_json::from_str(&shown).expect("a record");
    let supervisor = record["pid"].as_u64().expect("it runs");
    let path = format!("/proc/{supervisor}/task/{supervisor}/children");
    let children = fs::read_to_string(path).expect("it runs");
    let children = children.split_whitespace().map(|pid| pid.parse().expect("a pid"));
    let all: Vec<u64> = children.chain([supervisor]).collect();
    assert!(all.len() >= 2 && all.iter().all(|pid| lives(*pid)), "{all:?}");
    all
}

/// Three nodes, of which the last has a sandbox `doomed`, and the processes of that.
fn with_a_doomed_node(nats: &Nats) -> (Vec<Member>, Vec<u64>) {
    let members = open(nats, 3);
    members[0].server.ok(&["node", "cordon", "n1"]);
    members[0].server.ok(&["node", "cordon", "n2"]);
    eventually("they are cordoned", || {
        members[0].nodes().iter().filter(|node| node["readiness"] == "cordoned").count() == 2
    });
    members[0].client.post("/v1/sandboxes", &json!({ "name": "doomed" })).expect(201);
    let processes = processes(&members[2].server, "doomed");
    for name in ["n1", "n2"] {
        members[0].server.ok(&["node", "ready", name]);
    }
    (members, processes)
}

/// Polls without a pause, and says when what was awaited has come and whether anything still lived then.
fn when_lost(member: &Member, processes: &[u64]) -> Duration {
    let began = Instant::now();
    loop {
        let answer = member.client.get("/v1/sandboxes/default/doomed");
        let living: Vec<_> = processes.iter().filter(|pid| lives(**pid)).collect();
        if answer.status == 410 {
            // It was so when the answer was made, or later: the processes were looked at afterwards, and what is
            // gone stays gone.
            assert!(living.is_empty(), "it is reported lost, and {living:?} run");
            let body = answer.json();
            let details = &body["details"];
            assert_eq!((&body["code"], &details["node"]), (&json!("gone"), &json!("n3")));
            let at_ms = details["at_ms"].as_u64().expect("when it was declared lost");
            assert!(now_ms().abs_diff(at_ms) < 60_000, "{details}");
            // Nothing of it was durable, and the answer says so.
            assert_eq!(details.get("last_durable_offset"), Some(&Value::Null), "{details}");
            return began.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it stays {}", answer.status);
        thread::yield_now();
    }
}

/// When all processes of a sandbox have ended.
fn watch_end(processes: Vec<u64>) -> thread::JoinHandle<Instant> {
    thread::spawn(move || {
        let deadline = Instant::now() + Duration::from_secs(30);
        while processes.iter().any(|pid| lives(*pid)) {
            assert!(Instant::now() < deadline, "{processes:?} run on");
            thread::yield_now();
        }
        Instant::now()
    })
}

fn node_dies_by(signal: Signal) {
    let Some(nats) = Nats::start() else { return };
    let (members, processes) = with_a_doomed_node(&nats);
    let ended = watch_end(processes.clone());
    members[2].signal(signal);
    let at_signal = Instant::now();
    when_lost(&members[0], &processes);
    let lost_at = Instant::now();
    let ended_at = ended.join().expect("they end");
    assert!(ended_at < lost_at, "it was lost {:?} before it ended", ended_at - lost_at);
    let grace = Duration::from_secs(2);
    assert!(
        ended_at > at_signal + grace,
        "it ended long before its lease: {:?}",
        ended_at - at_signal
    );
    // The name is free for another life.
    let again = json!({ "name": "doomed" });
    eventually("the name is free", || {
        members[1].client.post("/v1/sandboxes", &again).status == 201
    });
}

#[test]
fn a_sandbox_has_ended_before_it_is_reported_lost_when_its_bridge_is_killed() {
    node_dies_by(Signal::SIGKILL);
}

#[test]
fn a_sandbox_has_ended_before_it_is_reported_lost_when_its_bridge_is_stopped() {
    node_dies_by(Signal::SIGSTOP);
}

#[test]
fn a_bridge_without_nats_ends_its_sandboxes_at_the_end_of_its_lease_and_comes_back() {
    let Some(mut nats) = Nats::start() else { return };
    // Its sandboxes are paused after half of it.
    let member = Member::join(&nats, "n1", &["--dev", "--set", "fleet.grace=8s"]);
    member.client.post("/v1/sandboxes", &json!({ "name": "one" })).expect(201);
    let processes = processes(&member.server, "one");
    let pid = member.server.daemon_pid();
    nats.kill();
    // At first it runs on, and takes calls; nothing is created.
    let ran = json!({ "argv": ["echo", "still here"] });
    member.client.post("/v1/sandboxes/default/one/exec", &ran).expect(200);
    let refused = member.client.post("/v1/sandboxes", &json!({ "name": "two" })).expect(503).json();
    assert_eq!(refused["code"], "unavailable", "{refused}");
    let ended = watch_end(processes);
    ended.join().expect("it ends");
    nats.start_again();
    eventually("it takes sandboxes again", || {
        member.client.post("/v1/sandboxes", &json!({ "name": "one" })).status == 201
    });
    assert!(lives(pid.as_raw() as u64), "its bridge was ended, too");
}

#[test]
fn a_bridge_that_comes_back_within_its_lease_keeps_its_sandboxes() {
    let Some(nats) = Nats::start() else { return };
    let mut member = Member::open(&nats, "n1");
    member.client.post("/v1/sandboxes", &json!({ "name": "kept" })).expect(201);
    let processes = processes(&member.server, "kept");
    member.server.kill_and_serve_again();
    let client = Client::new(member.server.url());
    eventually("it is in the fleet again", || member.nodes()[0]["trouble"].is_null());
    // Longer than the lease that it had before.
    let deadline = Instant::now() + Duration::from_secs(5);
    eventually("the old lease is over", || Instant::now() > deadline);
    assert!(processes.iter().all(|pid| lives(*pid)), "the guardian has ended it");
    let ran = json!({ "argv": ["true"] });
    client.post("/v1/sandboxes/default/kept/exec", &ran).expect(200);
    client.delete("/v1/sandboxes/default/kept?force=true").expect(200);
    client.post("/v1/sandboxes", &json!({ "name": "kept" })).expect(201);
}

#[test]
fn what_is_removed_before_its_node_has_reached_nats_again_frees_its_name() {
    let Some(mut nats) = Nats::start() else { return };
    // Longer than this test.
    let mut member = Member::join(&nats, "n1", &["--dev", "--set", "fleet.grace=60s"]);
    member.client.post("/v1/sandboxes", &json!({ "name": "one" })).expect(201);
    nats.kill();
    member.server.kill_and_serve_again();
    let client = Client::new(member.server.url());
    client.delete("/v1/sandboxes/default/one?force=true").expect(200);
    nats.start_again();
    eventually("its name is free", || {
        client.post("/v1/sandboxes", &json!({ "name": "one" })).status == 201
    });
}

#[test]
fn what_was_removed_without_nats_is_not_lost_when_its_bridge_dies() {
    let Some(mut nats) = Nats::start() else { return };
    // Longer than this test.
    let mut member = Member::join(&nats, "n1", &["--dev", "--set", "fleet.grace=60s"]);
    for (name, on_lost) in [("one", "lose"), ("two", "restart")] {
        let made = json!({ "name": name, "on_lost": on_lost });
        member.client.post("/v1/sandboxes", &made).expect(201);
    }
    nats.kill();
    for name in ["one", "two"] {
        member.client.delete(&format!("/v1/sandboxes/default/{name}?force=true")).expect(200);
    }
    member.server.kill_daemon_for_a_moment(|| nats.start_again());
    let client = Client::new(member.server.url());
    for name in ["one", "two"] {
        eventually("its name is free", || {
            client.post("/v1/sandboxes", &json!({ "name": name })).status == 201
        });
    }
    let figures = client.get("/metrics").expect(200).text();
    assert!(figures.contains("burrow_fleet_names_lost_total 0"), "{figures}");
}

#[test]
fn what_was_removed_without_nats_is_not_lost_any_more_when_its_node_is_back() {
    let Some(mut nats) = Nats::start() else { return };
    let mut members = open(&nats, 2);
    members[0].start(&["--name", "one"]);
    let [gone, other] = &mut members[..] else { unreachable!("there are two") };
    let path = "/v1/sandboxes/default/one";
    nats.kill();
    gone.client.delete(&format!("{path}?force=true")).expect(200);
    gone.server.kill_daemon_for_a_moment(|| {
        nats.start_again();
        eventually("it is reported lost", || other.client.get(path).status == 410);
    });
    eventually("it is reported removed", || other.client.get(path).status == 404);
}

#[test]
fn a_bridge_that_was_stopped_for_longer_than_its_lease_starts_nothing_when_it_goes_on() {
    let Some(nats) = Nats::start() else { return };
    let member = Member::open(&nats, "n1");
    member.client.post("/v1/sandboxes", &json!({ "name": "one" })).expect(201);
    let ended = watch_end(processes(&member.server, "one"));
    let pid = member.server.daemon_pid().as_raw() as u64;
    member.signal(Signal::SIGSTOP);
    ended.join().expect("it ends");
    eventually("its bridge is killed before it can go on", || !lives(pid));
}
