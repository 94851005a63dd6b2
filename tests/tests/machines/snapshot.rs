//! Machines that are paused, saved, and restored from a snapshot, more than once.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tests::completion::offered;
use tests::http::Client;
use tests::machines::machines_or_skip;
use tests::server::Server;
use tests::{Burrow, eventually};

/// A sandbox that is a machine with its own disk.
const SOURCE: [&str; 12] = [
    "start",
    "--name",
    "source",
    "--machine",
    "qemu",
    "--image",
    "python",
    "--memory",
    "256",
    "--scratch",
    "200M",
    "--json",
];

/// Counts until it is stopped, so fast that it is always in the middle of it.
const COUNT: &str = "i=0; while [ ! -e /var/enough ]; do echo $i; echo $i > /var/count; i=$((i+1)); \
                     sleep 0.02; done";

/// How far off a clock may be that was just set, including the time to ask.
const CLOCK_SECONDS_OFF_MAX: u64 = 3;

fn exec(burrow: &Burrow, name: &str, script: &str) -> String {
    burrow.ok(&["exec", name, "--", "sh", "-c", script]).trim_end().to_owned()
}

fn python(burrow: &Burrow, name: &str, code: &str) -> String {
    burrow.ok(&["repl", name, "-c", code]).trim_end().to_owned()
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn assert_clock_is_right(burrow: &Burrow, name: &str) {
    let there: u64 = exec(burrow, name, "date +%s").parse().expect("seconds");
    assert!(seconds().abs_diff(there) <= CLOCK_SECONDS_OFF_MAX, "{there} in {name}");
}

fn begin(burrow: &Burrow, arguments: &[&str]) -> Child {
    let mut command = burrow.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Its output, when it has succeeded.
fn end(mut child: Child) -> String {
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("UTF-8");
    let mut complaint = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut complaint).expect("UTF-8");
    assert!(child.wait().expect("it is ours").success(), "{complaint}");
    text
}

/// Whether something counts there.
fn assert_counts(burrow: &Burrow, name: &str) {
    let count = || exec(burrow, name, "cat /var/count");
    let before = count();
    eventually("it counts on", || count() != before);
}

/// The memory of a snapshot that is being written.
fn draft(burrow: &Burrow) -> Option<PathBuf> {
    let drafts = std::fs::read_dir(burrow.state().join("snapshots")).ok()?;
    let memories = drafts.flatten().map(|entry| entry.path().join("machine/memory"));
    memories.into_iter().find(|memory| memory.exists())
}

fn counted(text: &str) -> usize {
    let numbers: Vec<usize> = text.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(numbers.iter().enumerate().all(|(at, number)| at == *number), "{numbers:?}");
    numbers.len()
}

#[test]
fn a_machine_is_paused_snapshotted_and_cloned_and_loses_nothing() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::serving();
    burrow.ok(&SOURCE);
    exec(&burrow, "source", "echo kept > /var/kept");
    python(&burrow, "source", "kept = 41; import random; random.seed(7)");
    let counter = begin(&burrow, &["exec", "source", "--", "sh", "-c", COUNT]);
    eventually("it counts", || {
        burrow.run(&["exec", "source", "--", "test", "-s", "/var/count"]).status.success()
    });

    // A pause: callers get an error, and afterwards everything continues with the clock set.
    burrow.ok(&["pause", "source"]);
    burrow.ok(&["pause", "source"]);
    assert!(burrow.ok(&["ps"]).contains("paused"));
    let refused = burrow.run(&["exec", "source", "--", "true"]);
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("paused") && refused.contains("host-bridge resume"), "{refused}");
    let refused = burrow.run(&["snapshot", "source", "base"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("paused"));
    let paused = Instant::now();
    eventually("some seconds have passed", || paused.elapsed() > Duration::from_secs(5));
    burrow.ok(&["resume", "source"]);
    assert_clock_is_right(&burrow, "source");

    // A snapshot: the machine continues, and so does the counter.
    burrow.ok(&["snapshot", "source", "base"]);
    assert_clock_is_right(&burrow, "source");
    let taken = burrow.run(&["snapshot", "source", "base"]);
    assert!(String::from_utf8_lossy(&taken.stderr).contains("base already exists"));
    assert!(burrow.ok(&["snapshot", "ls"]).contains("source"));
    assert_eq!(offered(&burrow, &["start", "--snapshot", "b"]), ["base"]);
    assert_eq!(python(&burrow, "source", "print(kept)"), "41");

    // Two clones at once. Each has the source's state, and its own identity.
    let clones = ["one", "two"];
    let starts = clones.map(|name| {
        begin(
            &burrow,
            &["start", "--snapshot", "base", "--name", name, "-e", &format!("MINE={name}")],
        )
    });
    for start in starts {
        end(start);
    }
    let mut drawn = Vec::new();
    for name in ["source", "one", "two"] {
        assert_clock_is_right(&burrow, name);
        assert_eq!(exec(&burrow, name, "cat /var/kept"), "kept");
        assert_eq!(python(&burrow, name, "print(kept)"), "41", "the interpreter lives on");
        drawn.push(exec(&burrow, name, "hostname"));
        drawn.push(exec(&burrow, name, "head -c 16 /dev/urandom | od -An -tx1"));
        drawn.push(exec(&burrow, name, "cat /proc/sys/kernel/random/uuid"));
        drawn.push(exec(
            &burrow,
            name,
            "python3 -c 'import random, uuid; print(random.random(), uuid.uuid4())'",
        ));
        drawn.push(exec(&burrow, name, "echo mine-${MINE:-none}"));
        exec(&burrow, name, &format!("echo {name} > /var/own"));
    }
    let total = drawn.len();
    drawn.sort();
    drawn.dedup();
    assert_eq!(drawn.len(), total, "{drawn:?}");
    for name in ["source", "one", "two"] {
        assert_eq!(exec(&burrow, name, "cat /var/own"), name, "each has a disk of its own");
        // The counter of the snapshot counts in each of them.
        assert_counts(&burrow, name);
        exec(&burrow, name, "touch /var/enough");
    }
    assert!(counted(&end(counter)) > 100);
    burrow.ok(&["snapshot", "rm", "base"]);
    assert!(!burrow.ok(&["snapshot", "ls"]).contains("base"));
    burrow.ok(&["rm", "-f", "source", "one", "two"]);
}

#[test]
fn a_bridge_that_dies_in_the_midst_of_a_snapshot_leaves_a_machine_that_goes_on() {
    if !machines_or_skip() {
        return;
    }
    let mut burrow = Burrow::serving();
    burrow.ok(&SOURCE);
    exec(&burrow, "source", &format!("({COUNT}) > /dev/null 2>&1 &"));
    python(&burrow, "source", "kept = 41");
    let mut snapshot = begin(&burrow, &["snapshot", "source", "base"]);
    eventually("the memory is being written", || draft(&burrow).is_some());
    burrow.kill_daemon();
    assert!(!snapshot.wait().expect("it is ours").success());

    burrow.serve();
    assert!(burrow.ok(&["ps"]).contains("running"), "{}", burrow.ok(&["ps"]));
    assert!(draft(&burrow).is_none() && !burrow.ok(&["snapshot", "ls"]).contains("base"));
    assert_clock_is_right(&burrow, "source");
    assert_eq!(python(&burrow, "source", "print(kept)"), "41");
    assert_counts(&burrow, "source");

    // A paused machine stays paused for the next bridge, until it is resumed.
    burrow.ok(&["pause", "source"]);
    burrow.kill_daemon();
    burrow.serve();
    assert!(burrow.ok(&["ps"]).contains("paused"), "{}", burrow.ok(&["ps"]));
    burrow.ok(&["resume", "source"]);
    assert_clock_is_right(&burrow, "source");
    assert_eq!(python(&burrow, "source", "print(kept)"), "41");
    burrow.ok(&["snapshot", "source", "base"]);
    burrow.ok(&["rm", "-f", "source"]);
}

/// Whether the monitor says that the machine's processors run.
fn runs(burrow: &Burrow, id: &str) -> bool {
    let orders = burrow.runtime().join("boxes").join(id).join("orders");
    let mut writer = UnixStream::connect(orders).expect("its monitor");
    let mut reader = BufReader::new(writer.try_clone().expect("a second handle"));
    let orders = ["{\"execute\":\"qmp_capabilities\"}\n", "{\"execute\":\"query-status\"}\n"];
    for order in orders {
        writer.write_all(order.as_bytes()).expect("it reads");
    }
    let mut line = String::new();
    while !line.contains("\"running\"") {
        line.clear();
        assert!(reader.read_line(&mut line).expect("it answers") > 0);
    }
    line.contains("\"running\": true")
}

#[test]
fn nothing_stays_paused_for_a_snapshot_that_nobody_waits_for_any_more() {
    if !machines_or_skip() {
        return;
    }
    let mut burrow = Burrow::serving();
    let record: Value = serde_json::from_str(&burrow.ok(&SOURCE)).expect("a record");
    let id = record["id"].as_str().expect("an id").to_owned();
    exec(&burrow, "source", &format!("({COUNT}) > /dev/null 2>&1 &"));

    // A bridge that is stopped leaves it running, before any client comes back for it.
    let mut snapshot = begin(&burrow, &["snapshot", "source", "base"]);
    eventually("the memory is being written", || draft(&burrow).is_some());
    assert_eq!(burrow.end_daemon(), Some(0));
    assert!(!snapshot.wait().expect("it is ours").success());
    assert!(runs(&burrow, &id));
    burrow.serve();
    assert_counts(&burrow, "source");

    // A stop is graceful: the machine is resumed for it.
    let mut snapshot = begin(&burrow, &["snapshot", "source", "base"]);
    eventually("the memory is being written", || draft(&burrow).is_some());
    burrow.ok(&["stop", "source"]);
    assert!(!snapshot.wait().expect("it is ours").success());
    let inspected = burrow.ok(&["inspect", "source"]);
    assert!(inspected.contains("stopped") && !inspected.contains("killed"), "{inspected}");
    assert!(draft(&burrow).is_none());
    burrow.ok(&["rm", "source"]);
}

/// What the operator allows by default is for sandboxes that say nothing of their own.
#[test]
fn a_copy_that_e2bs_clients_ask_for_reaches_no_more_than_its_original() {
    if !machines_or_skip() {
        return;
    }
    let burrow = Burrow::new().variable("BURROW_DEFAULTS_EGRESS", "open.example");
    let server = Server::start_in(burrow, &["--dev"]);
    server.ok(&[&SOURCE[..], &["--egress", "own.example", "--idle", "1h"]].concat());
    let inspected = |name: &str| -> Value {
        serde_json::from_str(&server.ok(&["inspect", "--json", name])).expect("JSON")
    };
    let source = inspected("source");
    assert_eq!(source["egress"], json!(["own.example"]));
    let id = source["id"].as_str().expect("an id");
    let client = Client::new(server.url());
    let headers = [("x-api-key", "e2b_00000000"), ("content-type", "application/json")];
    let forked = client.send("POST", &format!("/sandboxes/{id}/fork"), &headers, b"{}");
    let copies = forked.expect(201).json();
    let copy = inspected(copies[0]["sandbox"]["sandboxID"].as_str().expect("an id"));
    for field in ["egress", "idle_ttl_ms", "user"] {
        assert_eq!(copy[field], source[field], "{field}: {copy}");
    }
    assert_ne!(copy["id"], source["id"]);
    assert_eq!(server.ok(&["snapshot", "ls", "--json"]).trim(), "[]", "none is left of it");
}
