//! What a sandbox that sleeps costs, and how long a request waits that wakes it, beside one that starts a sandbox.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::http::Client;
use tests::machines::machines_or_skip;
use tests::server::Server;
use tests::{eventually, resident_bytes, skip};

use super::{MIB, Report, beside, median};

/// Wakes and cold starts of which the medians are taken: of processes, and of machines.
const WAKES: usize = 20;
const MACHINE_WAKES: usize = 5;
/// The shortest idle time with which one is still found asleep before it is woken.
const IDLE_MS: u64 = 300;
/// Sandboxes that sleep on one host.
const SLEEPERS: usize = 1000;
/// What each does before it sleeps: its link's buffers were in use.
const WORK: &str = "head -c 262144 /dev/zero | tr '\\0' x";
/// How long they are looked at.
const LOOK: Duration = Duration::from_secs(30);
/// After the last has fallen asleep, what is left to do is over by then: its ends are looked for at two looks, ten seconds
/// apart.
const SETTLING: Duration = Duration::from_secs(30);

/// A kind of machine, and what happens to its idle sandboxes.
const WAYS: [(&str, &str, usize); 3] = [
    ("process", "pause", WAKES),
    ("qemu", "pause", MACHINE_WAKES),
    ("qemu", "snapshot", MACHINE_WAKES),
];

/// How many sleepers there are; fewer for a trial.
fn sleepers() -> usize {
    let fewer = std::env::var("BURROW_BENCH_SLEEPERS").ok();
    fewer.and_then(|text| text.parse().ok()).unwrap_or(SLEEPERS)
}

pub fn figures(report: &mut Report) {
    for (machine, on_idle, wakes) in WAYS {
        if machine != "qemu" || machines_or_skip() {
            wakes_of(machine, on_idle, wakes);
        }
    }
    many(report);
}

/// A specification of a sandbox that sleeps; `None` where this host cannot have one.
fn make(client: &Client, name: &str, machine: &str, on_idle: Option<&str>) -> Option<()> {
    let mut spec = json!({ "name": name, "machine": machine });
    if machine == "qemu" {
        (spec["image"], spec["memory_mib"]) = (json!("python"), json!(256));
    }
    if let Some(on_idle) = on_idle {
        (spec["idle_ttl_ms"], spec["on_idle"]) = (json!(IDLE_MS), json!(on_idle));
    }
    let made = client.post("/v1/sandboxes", &spec);
    if made.status == 422 {
        skip(&made.text());
        return None;
    }
    made.expect(201);
    Some(())
}

fn path(name: &str) -> String {
    format!("/v1/sandboxes/default/{name}")
}

fn sleeps(client: &Client, name: &str) -> bool {
    let record = client.get(&path(name)).expect(200).json();
    record["asleep"] == true
}

/// From a request to its answer: the first byte of it is the last, too.
fn asked(client: &Client, name: &str) -> Duration {
    let begun = Instant::now();
    let ran = client.post(&format!("{}/shell", path(name)), &json!({ "script": "echo on" }));
    assert_eq!(ran.expect(200).json()["stdout"], "on\n");
    begun.elapsed()
}

/// A request to one that sleeps, beside a start and the same request.
fn wakes_of(machine: &str, on_idle: &str, count: usize) {
    let server = Server::dev();
    let client = Client::new(server.url());
    let (mut woken, mut cold) = (Vec::new(), Vec::new());
    if make(&client, "sleeper", machine, Some(on_idle)).is_none() {
        return;
    }
    for number in 0..count {
        eventually("it sleeps", || sleeps(&client, "sleeper"));
        woken.push(asked(&client, "sleeper"));
        let name = format!("cold-{number}");
        let begun = Instant::now();
        if make(&client, &name, machine, None).is_none() {
            return;
        }
        asked(&client, &name);
        cold.push(begun.elapsed());
        client.delete(&format!("{}?force=true", path(&name))).expect(200);
    }
    let name = format!("a request to a {machine} that sleeps ({on_idle}), beside a start");
    beside(&name, median(woken), median(cold));
}

/// What many that sleep take of the bridge and of the processors.
fn many(report: &mut Report) {
    let server = Server::dev();
    let client = Client::new(server.url());
    let (bridge, count) = (server.daemon_pid(), sleepers());
    let before = resident_bytes(bridge).expect("it runs");
    for number in 0..count {
        let name = format!("box-{number}");
        if make(&client, &name, "process", Some("pause")).is_none() {
            return;
        }
        client.post(&format!("{}/shell", path(&name)), &json!({ "script": WORK })).expect(200);
    }
    let asleep = || {
        let listed = client.get("/v1/sandboxes?limit=1000").expect(200).json();
        let listed = listed["sandboxes"].as_array().cloned().unwrap_or_default();
        listed.iter().filter(|one: &&Value| one["asleep"] == true).count()
    };
    eventually("all sleep", || asleep() == count);
    // What the last have left to do is over by then.
    thread::sleep(SETTLING);
    let (agents, own) = super::server::idle::spent(bridge, LOOK);
    let percent = |time: Duration| time.as_secs_f64() / LOOK.as_secs_f64() * 100.0;
    let named = |what: &str| format!("{count} that sleep, {what}");
    report.bound(&named("their processes, of one CPU"), percent(agents), "%", 0.01);
    report.bound(&named("the bridge, of one CPU"), percent(own), "%", 0.5);
    let grown = resident_bytes(bridge).expect("it runs").saturating_sub(before);
    let each = grown as f64 / MIB / count as f64;
    report.bound("  what each takes of the bridge's memory", each, "MiB", 0.1);
    let processes = super::server::idle::descendants(bridge);
    let private: u64 = processes.iter().filter_map(|pid| tests::anonymous_bytes(*pid)).sum();
    println!(
        "{:<52} {:>9.2} MiB",
        "  and of its own processes",
        private as f64 / MIB / count as f64
    );
    let begun = Instant::now();
    asked(&client, "box-0");
    println!("{:<52} {:>12.1?}", "  a request that wakes one of them", begun.elapsed());
}
