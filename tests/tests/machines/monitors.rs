//! The verbs of Firecracker and Cloud Hypervisor with the real programs and a real kernel. `just monitors` runs
//! them, for the kinds in `BURROW_TEST_MONITORS`, with the kit of `BURROW_IMAGES`; the bridge's half has tests
//! against a stand-in (`host-bridge/tests/integration/monitors.rs`), which run everywhere.

use std::time::{Duration, Instant};

use tests::{Burrow, skip};

/// The memory of these machines, in MiB: little, because some hosts take long to fill it. The writable layer does
/// not fit half of it, so it is on a disk.
const MEMORY_MIB: &str = "96";
const SCRATCH: &str = "64M";
const IMAGE: &str = "python";

/// How long a program may take to be seen in a guest, on a host that interprets the guest's kernel.
const PATIENCE: Duration = Duration::from_secs(180);

/// Counts, and writes how far it is.
const COUNT: &str =
    "i=0; while :; do i=$((i+1)); echo $i > /var/new; mv /var/new /var/count; sleep 2; done";

/// The kinds whose programs this run tests.
fn kinds() -> Vec<String> {
    let named = std::env::var("BURROW_TEST_MONITORS").unwrap_or_default();
    if named.is_empty() {
        skip("BURROW_TEST_MONITORS names no monitor: `just monitors` tests those on the PATH");
    }
    named.split_whitespace().map(str::to_owned).collect()
}

fn start(burrow: &Burrow, kind: &str, name: &str) {
    burrow.ok(&[
        "start",
        "--name",
        name,
        "--machine",
        kind,
        "--image",
        IMAGE,
        "--memory",
        MEMORY_MIB,
        "--scratch",
        SCRATCH,
    ]);
}

/// The standard output of a program there. A guest that is slow to answer is asked again.
fn exec(burrow: &Burrow, name: &str, program: &[&str]) -> String {
    let arguments = [&["exec", name, "--"], program].concat();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = burrow.run(&arguments);
        if output.status.success() {
            return String::from_utf8(output.stdout).expect("UTF-8").trim_end().to_owned();
        }
        let message = String::from_utf8_lossy(&output.stderr);
        let is_late = message.contains("does not answer");
        assert!(is_late && Instant::now() < deadline, "{arguments:?}: {message}");
    }
}

fn count(burrow: &Burrow, name: &str) -> u64 {
    exec(burrow, name, &["cat", "/var/count"]).parse().expect("a number")
}

fn assert_counts(burrow: &Burrow, name: &str) {
    let (before, deadline) = (count(burrow, name), Instant::now() + PATIENCE);
    while count(burrow, name) == before {
        assert!(Instant::now() < deadline, "{name} does not count on");
    }
}

#[test]
fn a_paused_machine_takes_new_connections_when_it_goes_on() {
    for kind in kinds() {
        let mut burrow = Burrow::serving();
        start(&burrow, &kind, "box");
        for _ in 0..2 {
            burrow.ok(&["pause", "box"]);
            let refused = burrow.run(&["exec", "box", "--", "true"]);
            assert!(String::from_utf8_lossy(&refused.stderr).contains("paused"), "{kind}");
            burrow.ok(&["resume", "box"]);
            // Each of these is a connection of its own.
            assert_eq!(exec(&burrow, "box", &["echo", "awake"]), "awake", "{kind}");
        }
        burrow.ok(&["pause", "box"]);
        burrow.kill_daemon();
        burrow.serve();
        burrow.ok(&["resume", "box"]);
        assert_eq!(exec(&burrow, "box", &["echo", "again"]), "again", "{kind}");
        // A request that was logged would have the path of the kernel.
        let mut boxes = std::fs::read_dir(burrow.state().join("boxes")).expect("a sandbox");
        let state = boxes.next().expect("a sandbox").expect("readable").path();
        let console = std::fs::read_to_string(state.join("console.log")).unwrap_or_default();
        assert!(!console.contains("/machine-config"), "{kind}: {console}");
        burrow.ok(&["rm", "--force", "box"]);
    }
}

#[test]
fn clones_and_forks_go_on_from_their_source_and_part_from_it() {
    for kind in kinds() {
        let burrow = Burrow::serving();
        start(&burrow, &kind, "source");
        burrow.ok(&["exec", "-d", "source", "--", "sh", "-c", COUNT]);
        assert_eq!(exec(&burrow, "source", &["sh", "-c", "echo mine > /var/whose; echo on"]), "on");
        let written = burrow.run(&["snapshot", "source", "base"]);
        let said = String::from_utf8_lossy(&written.stderr);
        if said.contains("GetNestedState") {
            skip(&format!("{kind} writes no snapshot on a KVM that does not say its nested state"));
            continue;
        }
        assert!(written.status.success(), "{kind}: {said}");
        burrow.ok(&["start", "--snapshot", "base", "--name", "clone"]);
        burrow.ok(&["fork", "source", "fork"]);
        for name in ["clone", "fork"] {
            assert_eq!(exec(&burrow, name, &["cat", "/var/whose"]), "mine", "{kind}");
            // The program runs on in each, and its host is called otherwise.
            assert_counts(&burrow, name);
            let changed = "hostname; echo its > /var/whose; sync";
            assert_eq!(exec(&burrow, name, &["sh", "-c", changed]), name, "{kind}");
        }
        assert_counts(&burrow, "source");
        assert_eq!(exec(&burrow, "source", &["cat", "/var/whose"]), "mine", "{kind}");
        // A clone does not need what it was made from.
        burrow.ok(&["rm", "--force", "source"]);
        burrow.ok(&["snapshot", "rm", "base"]);
        assert_eq!(exec(&burrow, "clone", &["cat", "/var/whose"]), "its", "{kind}");
        burrow.ok(&["snapshot", "fork", "again"]);
        burrow.ok(&["start", "--snapshot", "again", "--name", "clone-of-fork"]);
        assert_eq!(exec(&burrow, "clone-of-fork", &["cat", "/var/whose"]), "its", "{kind}");
    }
}

#[test]
fn a_memory_beyond_the_hosts_is_refused_before_a_start() {
    for kind in kinds() {
        let burrow = Burrow::new();
        let began = Instant::now();
        let arguments = ["run", "--machine", &kind, "--image", IMAGE, "--memory", "8T"];
        let refused = burrow.run(&[&arguments[..], &["--", "true"]].concat());
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(message.contains("does not fit this host"), "{kind}: {message}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
