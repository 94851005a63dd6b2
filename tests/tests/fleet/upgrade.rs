//! A rolling upgrade: bridge after bridge is ended and another file of the program takes its place, while what runs in
//! the sandboxes goes on.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tests::fleet::{Member, Nats};
use tests::http::Client;
use tests::{bridge_path, eventually};

/// A bridge of an unoptimized build starts within it on a busy machine.
const OPTIONS: [&str; 3] = ["--dev", "--set", "fleet.grace=15s"];
/// Counts on until it is ended.
const COUNT: &str = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done";

/// What a client that asks for a sandbox again and again is answered.
fn watch(url: String, path: String, is_over: Arc<AtomicBool>) -> thread::JoinHandle<BTreeSet<u16>> {
    thread::spawn(move || {
        let mut seen = BTreeSet::new();
        while !is_over.load(Ordering::Relaxed) {
            let client = Client::new(&url);
            let answer = client.try_send("GET", &path, &[], &[], Duration::from_secs(5));
            seen.extend(answer.map(|answer| answer.status));
            // Polled until it is over.
            thread::sleep(Duration::from_millis(20));
        }
        seen
    })
}

/// What the program in its sandbox has written, from its first line on.
fn counted(member: &Member) -> Vec<u64> {
    let name = format!("of-{}", member.name);
    let text = member.server.ok(&["logs", "--session", "count", &name]);
    let numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(numbers.first(), Some(&1), "{text}");
    numbers
}

#[test]
fn bridges_are_upgraded_one_after_the_other_and_no_sandbox_notices() {
    let Some(nats) = Nats::start() else { return };
    let mut members: Vec<_> =
        ["n1", "n2", "n3"].map(|name| Member::join(&nats, name, &OPTIONS)).into();
    for member in &members {
        member.knows(3);
    }
    let mut ids = Vec::new();
    for member in &members {
        let name = format!("of-{}", member.name);
        // At this node, whichever has most room: the node itself is asked what it counts.
        member.start(&["--name", &name]);
        let started = json!({ "argv": ["sh", "-c", COUNT], "session": "count" });
        let path = format!("/v1/sandboxes/default/{name}");
        member.client.post(&format!("{path}/sessions"), &started).expect(201);
        ids.push(member.client.get(&path).expect(200).json()["id"].clone());
    }
    for at in 0..members.len() {
        let name = members[at].name.clone();
        let path = format!("/v1/sandboxes/default/of-{name}");
        let is_over = Arc::new(AtomicBool::new(false));
        // At another node, which must not say that it is lost or was never there.
        let gateway = members[(at + 1) % members.len()].server.url().to_owned();
        let watching = watch(gateway.clone(), path.clone(), Arc::clone(&is_over));
        let program = members[at].server.scratch().join("host-bridge-next");
        fs::copy(bridge_path(), &program).expect("a copy");
        members[at].server.upgrade(program.clone());
        members[at].client = Client::new(members[at].server.url());
        let pid = members[at].server.daemon_pid();
        let runs = fs::read_link(format!("/proc/{pid}/exe")).expect("it runs");
        assert_eq!(runs, program);
        eventually("it is in the fleet again", || {
            let nodes = members[at].nodes();
            nodes.iter().any(|node| node["here"] == true && node["trouble"].is_null())
        });
        let client = Client::new(&gateway);
        let run = json!({ "argv": ["echo", "still here"] });
        eventually("the gateway reaches it", || {
            client.post(&format!("{path}/exec"), &run).status == 200
        });
        let before = counted(&members[at]).len();
        eventually("it counts on", || counted(&members[at]).len() > before + 5);
        is_over.store(true, Ordering::Relaxed);
        let seen = watching.join().expect("it ends");
        let away: BTreeSet<u16> = [200, 502, 503, 504].into();
        assert!(seen.is_subset(&away), "{name}: {seen:?}");
    }
    // The same sandboxes, in which the same programs have counted on, and new ones at every node.
    for (member, id) in members.iter().zip(&ids) {
        let path = format!("/v1/sandboxes/default/of-{}", member.name);
        let gateway = &members[0].client;
        assert_eq!(gateway.get(&path).expect(200).json()["id"], *id);
        let sessions: Value = gateway.get(&format!("{path}/sessions")).expect(200).json();
        assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1), "{sessions}");
        let counted = counted(member);
        assert!(counted.windows(2).all(|pair| pair[1] == pair[0] + 1), "{counted:?}");
        let figures = member.client.get("/metrics").expect(200).text();
        assert!(figures.contains("burrow_fleet_names_lost_total 0"), "{figures}");
        member.start(&["--name", &format!("new-{}", member.name)]);
    }
}
