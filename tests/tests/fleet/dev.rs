//! `fleet dev`: a fleet on one machine, which ends as a whole.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::fleet::nats_program;
use tests::http::Client;
use tests::{Burrow, children, eventually};

/// Ends with the test: what it has started ends with it.
struct Dev(Child);

impl Drop for Dev {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A `fleet dev` of two nodes, and what it says.
fn start(burrow: &Burrow) -> Option<(Dev, Value)> {
    let nats = nats_program()?;
    let mut command = burrow.command(&["fleet", "dev", "--nodes", "2", "--json"]);
    command.env("BURROW_NATS_SERVER", nats).env_remove("BURROW_SERVER_LISTEN");
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    Some((Dev(child), serde_json::from_str(&line).expect("JSON")))
}

fn is_there(pid: Pid) -> bool {
    kill(pid, None).is_ok()
}

fn ends_with_all_that_it_has_started(signal: Signal) {
    let burrow = Burrow::new();
    let Some((mut dev, started)) = start(&burrow) else { return };
    let pid = Pid::from_raw(dev.0.id() as i32);
    let parts = children(pid);
    assert_eq!(parts.len(), 3, "a NATS server and two bridges");
    let nodes = started["nodes"].as_array().expect("nodes");
    let clients: Vec<_> = nodes
        .iter()
        .map(|node| Client::new(node["address"].as_str().expect("an address")))
        .collect();
    clients[0].post("/v1/sandboxes", &json!({ "name": "one" })).expect(201);
    let shown = clients[1].get("/v1/sandboxes/default/one").expect(200).json();
    assert_eq!(shown["state"], "running");
    kill(pid, signal).expect("it is ours");
    dev.0.wait().expect("it is ours");
    eventually("all of it has ended", || parts.iter().all(|part| !is_there(*part)));
    if signal == Signal::SIGTERM {
        let directory = started["directory"].as_str().expect("a directory");
        assert!(!std::path::Path::new(directory).exists(), "its directory is left");
    } else {
        std::fs::remove_dir_all(started["directory"].as_str().expect("a directory")).ok();
    }
}

#[test]
fn a_fleet_for_trying_out_ends_in_order() {
    ends_with_all_that_it_has_started(Signal::SIGTERM);
}

#[test]
fn a_fleet_for_trying_out_ends_with_its_starter() {
    ends_with_all_that_it_has_started(Signal::SIGKILL);
}

#[test]
fn without_nats_it_says_how_to_get_it() {
    let burrow = Burrow::new();
    let mut command = burrow.command(&["fleet", "dev"]);
    let output = command.env("PATH", burrow.scratch()).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("BURROW_NATS_SERVER"), "{stderr}");
}
