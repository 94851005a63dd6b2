//! Templates that are kept warm on machines with memory snapshots: one machine is booted and made ready, and others
//! are restored from its snapshot, which goes with its template and its bridge.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tests::http::Client;
use tests::machines::machines_or_skip;
use tests::server::Server;
use tests::{Burrow, eventually};

const TEMPLATE: &str = "/v1/templates/ci/app";
/// Notes what only this one process knows, and stays. The sleep stands for the work of a real one.
const START: &str = "cat /proc/sys/kernel/random/uuid > /tmp/born.new; sleep 0.5; echo $$ > /tmp/process; \
                     mv /tmp/born.new /tmp/born; exec sleep 100000";
/// For a machine that is booted under emulation on a busy host, made ready and written.
const READY_MAX: Duration = Duration::from_secs(120);
/// How far off a clock may be that was just set, including the time to ask.
const CLOCK_SECONDS_OFF_MAX: u64 = 3;

fn put(client: &Client) {
    let template = json!({
        "machine": "qemu", "image": "python", "memory_mib": 256, "warm": 1, "env": { "COLOUR": "red" },
        "start": START, "ready": "test -s /tmp/born", "ready_timeout_ms": 60_000,
    });
    client.send_json("PUT", TEMPLATE, &template).expect(200);
}

/// Waits longer than [`eventually`] does: machines boot.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() + tests::PATIENCE < READY_MAX && !condition() {
        // Polled until the deadline above.
        std::thread::sleep(Duration::from_millis(50));
    }
    eventually(what, condition);
}

fn made(client: &Client, name: &str) -> Value {
    let body = json!({
        "namespace": "ci", "name": name, "template": "app", "env": { "MINE": name },
    });
    client.post("/v1/sandboxes", &body).expect(201).json()
}

fn shell(client: &Client, name: &str, script: &str) -> String {
    let path = format!("/v1/sandboxes/ci/{name}/shell");
    let ran = client.post(&path, &json!({ "script": script })).expect(200).json();
    assert_eq!(ran["exit_code"], 0, "{ran}");
    ran["stdout"].as_str().unwrap().trim().to_owned()
}

/// What the pool has of the template.
fn shelf(server: &Server) -> Value {
    let shelves: Value = serde_json::from_str(&server.ok(&["pool", "--json"])).unwrap();
    shelves[0].clone()
}

fn is_ready(server: &Server) -> bool {
    let shelf = shelf(server);
    shelf["ready"] == 1 && shelf["snapshot_bytes"].as_u64().is_some_and(|bytes| bytes > 0)
}

/// The directories of snapshots without a name.
fn nameless(server: &Server) -> Vec<PathBuf> {
    let all = fs::read_dir(server.state().join("snapshots")).into_iter().flatten().flatten();
    let is_nameless = |path: &PathBuf| path.join("machine").is_dir();
    all.map(|entry| entry.path()).filter(is_nameless).collect()
}

fn disk_used(client: &Client) -> u64 {
    let shown = client.get("/v1/caps?namespace=ci").expect(200).json();
    let caps = shown["scopes"][0]["caps"].as_array().unwrap().clone();
    caps.iter().find(|one| one["cap"] == "disk_bytes").unwrap()["used"].as_u64().unwrap()
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn sandboxes_of_a_warm_template_are_restored_ready_from_a_snapshot_that_ends_with_its_bridge() {
    if !machines_or_skip() {
        return;
    }
    let mut server = Server::dev();
    let client = Client::new(server.url());
    let booting = Instant::now();
    put(&client);
    until("one is ready, and on disk", || is_ready(&server));
    println!("booted, made ready and written in {:?}", booting.elapsed());
    assert!(disk_used(&client) > 0, "the snapshot counts for nobody");
    // The first is the machine that the snapshot was taken of, the second is restored for its sandbox.
    made(&client, "one");
    let restoring = Instant::now();
    let two = made(&client, "two");
    println!("restored in {:?}", restoring.elapsed());
    assert!(!two["warnings"].to_string().contains("restored"), "{two}");
    // The third was restored for the pool.
    until("the pool has restored another", || is_ready(&server));
    made(&client, "three");
    assert!(shelf(&server)["restored"].as_u64().unwrap() >= 2, "{}", shelf(&server));
    let mut own = BTreeSet::new();
    let born = shell(&client, "one", "cat /tmp/born");
    for name in ["one", "two", "three"] {
        assert_eq!(shell(&client, name, "cat /tmp/born"), born, "{name} was booted by itself");
        shell(&client, name, "kill -0 $(cat /tmp/process)");
        assert_eq!(shell(&client, name, "echo $COLOUR $MINE"), format!("red {name}"));
        let clock: u64 = shell(&client, name, "date +%s").parse().unwrap();
        assert!(seconds().abs_diff(clock) <= CLOCK_SECONDS_OFF_MAX, "{clock} in {name}");
        let sessions = client.get(&format!("/v1/sandboxes/ci/{name}/sessions")).expect(200);
        assert!(sessions.text().contains("template-start"), "{}", sessions.text());
        own.insert(shell(&client, name, "hostname"));
        own.insert(shell(&client, name, "cat /proc/sys/kernel/random/uuid"));
        own.insert(shell(&client, name, "head -c 16 /dev/urandom | od -An -tx1"));
    }
    assert_eq!(own.len(), 9, "some have the same identity: {own:?}");
    // It goes with the bridge. One that is killed leaves the same files, and the next bridge removes them.
    let files = nameless(&server).remove(0);
    let copy = server.scratch().join("left");
    let copied = Command::new("cp").arg("-al").arg(&files).arg(&copy).status().unwrap();
    assert!(copied.success());
    assert_eq!(server.end(), Some(0));
    assert_eq!(nameless(&server), Vec::<PathBuf>::new());
    fs::rename(&copy, &files).unwrap();
    server.serve_again();
    assert!(!files.exists(), "the next bridge keeps what a killed one has left");
    assert_eq!(shell(&Client::new(server.url()), "two", "cat /tmp/born"), born);
}

#[test]
fn what_cannot_be_restored_or_written_is_booted_and_says_so() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::new();
    let config = burrow.scratch().join("burrow.toml");
    fs::write(&config, "[caps.namespace.ci]\ndisk = \"4GiB\"\n").unwrap();
    let server = Server::start_in(burrow, &["--dev", "--config", config.to_str().unwrap()]);
    let client = Client::new(server.url());
    put(&client);
    until("one is ready", || is_ready(&server));
    let broken = nameless(&server).remove(0);
    fs::write(broken.join("machine/manifest.json"), "{}").unwrap();
    made(&client, "one");
    let two = made(&client, "two");
    let warnings = two["warnings"].to_string();
    assert!(warnings.contains("could not be restored"), "{two}");
    assert_ne!(shell(&client, "two", "cat /tmp/born"), shell(&client, "one", "cat /tmp/born"));
    let log = || fs::read_to_string(server.log()).unwrap();
    assert!(log().contains("its snapshot cannot be restored"), "{}", log());
    // Another machine is booted, and a snapshot of it is written.
    until("it is made again", || is_ready(&server));
    assert!(!broken.exists());
    // A cap that leaves no room for it.
    let small = json!({
        "machine": "qemu", "image": "python", "memory_mib": 4096, "warm": 1,
        "start": START, "ready": "test -s /tmp/born",
    });
    client.delete(TEMPLATE).expect(200);
    eventually("its files are gone", || nameless(&server).is_empty());
    client.send_json("PUT", TEMPLATE, &small).expect(200);
    until("one is ready without a snapshot", || {
        shelf(&server)["ready"] == 1 && log().contains("no snapshot of the template ci/app")
    });
    assert!(shelf(&server)["snapshot_bytes"].is_null());
    assert_eq!(nameless(&server), Vec::<PathBuf>::new());
}
