//! The core of the server's door, with the real server: what holds for every call, whatever it is
//! for. What single resources do is tested in files of their own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

mod bodies;
mod connections;
mod heads;
mod idempotency;
mod journal;
mod limits;
mod origins;
mod own;
mod pages;
mod raw;
mod sandboxes;
mod shutdown;
mod tls;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::eventually;
use tests::http::{Answer, Client};

/// Within which a server answers that has nothing else to do, on a busy machine.
const USUAL: Duration = Duration::from_secs(3);

/// Makes a sandbox, which must succeed.
fn create(client: &Client, name: &str) -> Value {
    client.post("/v1/sandboxes", &json!({ "name": name })).expect(201).json()
}

/// The path of a sandbox in the namespace that is used by default.
fn path_of(name: &str) -> String {
    format!("/v1/sandboxes/default/{name}")
}

/// Runs bash code in a sandbox, to its end.
fn bash(client: &Client, name: &str, code: &str) -> Answer {
    client.post(&format!("{}/run", path_of(name)), &json!({ "language": "bash", "code": code }))
}

/// Waits until the server is at work on a run.
fn a_run_is_under_way(client: &Client) {
    eventually("a run is under way", || {
        client.get("/metrics").text().lines().any(|line| line == "burrow_runs 1")
    });
}

/// Asserts that the server answers others as usual.
fn answers_as_usual(client: &Client) {
    let began = Instant::now();
    client.get("/v1/sandboxes").expect(200);
    assert!(began.elapsed() < USUAL, "another client waited {:?}", began.elapsed());
}
