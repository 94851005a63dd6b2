//! Bytes that calls collect and followers leave unread: what one key can make the bridge hold, what its
//! neighbour feels of it, and whether the memory goes back afterwards.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::http::{Answer, Client, Incoming};
use tests::server::Server;
use tests::{anonymous_bytes, eventually, resident_bytes, resident_bytes_peak, slowed};

const MIB: u64 = 1024 * 1024;
/// As many calls as the attack had.
const CALLS: usize = 120;
/// What each of them collects, all of it bytes that are six in JSON.
const OUTPUT_BYTES: u64 = 2 * MIB;
/// What the bridge may grow by in all while it is flooded: the budget of the test's bridge, and what
/// is on its way through the links to three sandboxes, through threads and through the allocator.
const GROWTH_BYTES_MAX: u64 = BUDGET_BYTES + 96 * MIB;
/// The budget that the test's bridge is given; one key has a quarter of it.
const BUDGET_BYTES: u64 = 128 * MIB;
/// Followers that do not read, and what each may cost.
const FOLLOWERS: usize = 200;
const FOLLOWER_BYTES_MAX: u64 = 384 * 1024;
/// What the bridge may have more than before when all of them are gone: what a first call makes it
/// allocate once, and what it grows by before it looks at itself.
const LEFT_BYTES_MAX: u64 = 16 * MIB;
/// How long the bridge may keep it.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(60);
/// Commands of which the median is taken.
const LATENCIES: usize = 30;
/// How many times as long a neighbour's command may take beside followers that do not read.
const BESIDE_FOLLOWERS_MAX: u32 = 4;
/// How long a neighbour's command may take at the median.
const NEIGHBOUR_MAX: Duration = Duration::from_secs(1);

fn server() -> Server {
    let budget = format!("server.memory_bytes_max={}MiB", BUDGET_BYTES / MIB);
    // A key has room for two of the largest bodies, whatever the budget.
    Server::start(&["--set", &budget, "--set", "server.body_bytes_max=4MiB"])
}

/// A client with a key of one namespace, and a sandbox there.
fn tenant(server: &Server, namespace: &str) -> Client {
    let key = server.ok(&["keygen", "--namespace", namespace]);
    let client = Client::new(server.url()).key(key.trim());
    client.post("/v1/sandboxes", &json!({ "name": "box" })).expect(201);
    client
}

/// A client that may look at the bridge's own figures.
fn admin(server: &Server) -> Client {
    let key = server.ok(&["keygen", "--namespace", "*"]);
    Client::new(server.url()).key(key.trim())
}

fn own_bytes(server: &Server) -> u64 {
    anonymous_bytes(server.daemon_pid()).unwrap()
}

/// The bridge looks at its own memory at least each forty seconds.
fn goes_back(server: &Server, before: u64) {
    let begun = Instant::now();
    while own_bytes(server) >= before + LEFT_BYTES_MAX {
        assert!(begun.elapsed() < GIVEN_BACK_WITHIN, "the memory does not go back");
        // Between two looks.
        thread::sleep(Duration::from_millis(100));
    }
}

/// A script whose output is control characters.
fn flood(bytes: u64) -> Value {
    json!({ "script": format!("head -c {bytes} /dev/zero"), "output_bytes_max": bytes })
}

/// Reads an answer to its end. Of a good one it says how long it is, and whether it says that it was cut.
fn swallowed(mut answer: Incoming<'_>) -> Result<(u64, bool), Answer> {
    if answer.status != 200 {
        return Err(answer.whole());
    }
    let mut text = String::new();
    answer.read_to_string(&mut text).unwrap();
    Ok((text.len() as u64, text.contains(r#""truncated":true"#)))
}

/// How long a command takes at the median of a few.
fn usual(client: &Client, path: &str) -> Duration {
    let one = |_| latencies(client, path, &AtomicBool::new(true))[0];
    let mut took: Vec<_> = (0..LATENCIES).map(one).collect();
    took.sort();
    took[took.len() / 2]
}

/// How long a command takes, again and again until `done`.
fn latencies(client: &Client, path: &str, done: &AtomicBool) -> Vec<Duration> {
    let mut took = Vec::new();
    while !done.load(Ordering::Relaxed) || took.is_empty() {
        let began = Instant::now();
        client.post(path, &json!({ "argv": ["true"] })).expect(200);
        took.push(began.elapsed());
    }
    took.sort();
    took
}

#[test]
fn a_flood_of_one_key_is_refused_at_its_budget_and_its_neighbour_goes_on() {
    let server = server();
    let (flooding, neighbour) = (tenant(&server, "a"), tenant(&server, "b"));
    let (shell, exec) = ("/v1/sandboxes/a/box/shell", "/v1/sandboxes/b/box/exec");
    let before = own_bytes(&server);
    let resident = resident_bytes(server.daemon_pid()).unwrap();
    let body = flood(OUTPUT_BYTES).to_string();
    let kind = [("content-type", "application/json")];
    let (done, all_answered) = (AtomicBool::new(false), Barrier::new(CALLS));
    let call = || {
        let answer = flooding.open("POST", shell, &kind, body.as_bytes());
        // Nobody reads before all have been answered.
        all_answered.wait();
        swallowed(answer)
    };
    let (outcomes, took) = thread::scope(|scope| {
        let feeling = scope.spawn(|| latencies(&neighbour, exec, &done));
        let calls: Vec<_> = (0..CALLS).map(|_| scope.spawn(call)).collect();
        let outcomes: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        (outcomes, feeling.join().unwrap())
    });
    let peak = resident_bytes_peak(server.daemon_pid()).unwrap();
    let answered = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    println!(
        "{answered} of {CALLS} answered; resident {} MiB before, {} MiB at the peak; the neighbour's \
         median {:?}, worst {:?}",
        resident / MIB,
        peak / MIB,
        took[took.len() / 2],
        took[took.len() - 1],
    );
    assert!(peak - resident < GROWTH_BYTES_MAX, "{} MiB", (peak - resident) / MIB);
    assert!(took[took.len() / 2] < slowed(NEIGHBOUR_MAX), "{:?}", took[took.len() / 2]);
    assert!(answered > 0, "a key has its own share");
    for outcome in outcomes {
        match outcome {
            // Where there was no memory for the last of it, it is cut, and says so.
            Ok((bytes, is_cut)) => {
                assert!(is_cut || bytes > 6 * OUTPUT_BYTES, "all of it comes: {bytes}");
            }
            Err(refused) => {
                let refused = refused.expect(429);
                assert!(refused.header("retry-after").is_some());
                let problem = refused.json();
                assert_eq!(problem["code"], "limit_reached");
                assert_eq!(problem["details"]["of"], "key", "{problem}");
                assert_eq!(problem["details"]["limit"], BUDGET_BYTES / 4, "{problem}");
                assert!(problem["hint"].as_str().unwrap().contains("stream"), "{problem}");
            }
        }
    }
    // All of it is given back: the same key may collect as much as ever.
    let again = flooding.open("POST", shell, &kind, body.as_bytes());
    assert!(swallowed(again).unwrap().0 > 6 * OUTPUT_BYTES);
    goes_back(&server, before);
}

#[test]
fn programs_of_a_refused_call_are_ended() {
    let server = server();
    let client = tenant(&server, "a");
    let script = json!({
        "script": "head -c 16777216 /dev/zero; sleep 1000", "output_bytes_max": 64 * MIB,
    });
    let refused = client.post("/v1/sandboxes/a/box/shell", &script).expect(429);
    assert_eq!(refused.json()["details"]["of"], "key");
    let look =
        json!({ "script": "for one in /proc/[0-9]*; do tr '\\0' ' ' < $one/cmdline; echo; done" });
    eventually("nothing of it runs on", || {
        let seen = client.post("/v1/sandboxes/a/box/shell", &look).expect(200).json();
        !seen["stdout"].as_str().unwrap().contains("sleep 1000")
    });
}

#[test]
fn calls_that_are_given_up_half_way_hold_nothing() {
    let server = server();
    let client = tenant(&server, "a");
    let all = admin(&server);
    let kind = [("content-type", "application/json")];
    let body = json!({ "script": "head -c 2097152 /dev/zero; sleep 1000" }).to_string();
    for _ in 0..4 {
        // Each takes some 14 MiB of 32 and is left by its client while it holds them.
        for _ in 0..2 {
            let mut stream = client.raw();
            send(&client, &mut stream, "POST", "/v1/sandboxes/a/box/shell", body.as_bytes());
            eventually("it has collected", || used(&all) >= 2 * OUTPUT_BYTES);
            drop(stream);
        }
        eventually("all of it is given back", || used(&all) < MIB);
    }
    let again = client.open(
        "POST",
        "/v1/sandboxes/a/box/shell",
        &kind,
        flood(OUTPUT_BYTES).to_string().as_bytes(),
    );
    assert!(swallowed(again).is_ok());
}

#[test]
fn followers_that_do_not_read_cost_little_delay_nobody_and_leave_nothing() {
    let server = server();
    let client = tenant(&server, "a");
    let (neighbour, exec) = (tenant(&server, "b"), "/v1/sandboxes/b/box/exec");
    let all = admin(&server);
    let alone = usual(&neighbour, exec);
    let started = json!({
        // More than a follower holds, and less than the log keeps however long this takes.
        "script": "for n in $(seq 640); do head -c 65536 /dev/zero | tr '\\0' x; sleep 0.01; done; sleep 1000",
        "session": "talk",
    });
    client.post("/v1/sandboxes/a/box/sessions", &started).expect(201);
    let path = "/v1/sandboxes/a/box/sessions/talk/output?follow=true";
    // What a first follower makes the bridge allocate once is not theirs.
    drop(follow(&client, path));
    let before = own_bytes(&server);
    let followers: Vec<_> = (0..FOLLOWERS).map(|_| follow(&client, path)).collect();
    let (mut each, began) = (u64::MAX, Instant::now());
    eventually("what waits for them is let go of", || {
        each = own_bytes(&server).saturating_sub(before) / FOLLOWERS as u64;
        // Until then all of them are full.
        began.elapsed() > Duration::from_secs(3) && each < FOLLOWER_BYTES_MAX
    });
    println!("{} KiB for each of {FOLLOWERS}", each / 1024);
    let beside = usual(&neighbour, exec);
    println!("a neighbour's command takes {alone:?}, and {beside:?} beside them");
    assert!(beside < alone * BESIDE_FOLLOWERS_MAX, "{beside:?} beside {alone:?}");
    // One of them reads again, and goes on without a break.
    let mut late = &followers[0];
    let mut seen = vec![0; 4 * MIB as usize];
    late.read_exact(&mut seen).unwrap();
    assert!(!String::from_utf8_lossy(&seen).contains(r#""type":"gap""#), "the log has it all");
    assert!(used(&all) > 0, "they are counted");
    drop(followers);
    eventually("what they held is given back", || used(&all) == 0);
    goes_back(&server, before);
}

/// A client that asks for a stream and reads nothing of it.
fn follow(client: &Client, path: &str) -> TcpStream {
    let mut stream = client.raw();
    send(client, &mut stream, "GET", path, b"");
    // The first byte says that the stream has begun.
    stream.peek(&mut [0]).unwrap();
    stream
}

fn send(client: &Client, stream: &mut TcpStream, method: &str, path: &str, body: &[u8]) {
    let key = client.sent_key();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\naccept: \
         {accept}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        accept = if method == "GET" { "application/x-ndjson" } else { "application/json" },
    );
    io::Write::write_all(stream, &[head.as_bytes(), body].concat()).unwrap();
}

/// What calls hold, as the bridge's own figures say.
fn used(client: &Client) -> u64 {
    let metrics = client.get("/metrics").expect(200).text();
    let value = |line: &str| line.strip_prefix("burrow_calls_memory_bytes ")?.parse().ok();
    metrics.lines().find_map(value).expect("a gauge of the calls' memory")
}
