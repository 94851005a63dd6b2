//! What the bridge keeps of what sandboxes use: history and costs, compared with loads that are known, over
//! bridges that are killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics, with the line")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;
use tests::{eventually, skip};

const BOX: &str = "/v1/sandboxes/bill/work";

/// Busy for some seconds, and then what the kernel says of it: user and system time of the children.
const LOAD: &str = "timeout 6 sh -c 'while :; do :; done'; times";

/// How much figures may differ from what the kernel says, and what the agent itself may use meanwhile, in seconds.
const TOLERANCE: f64 = 0.02;
const AGENT_SECONDS: f64 = 0.1;

fn usage(client: &Client) -> Value {
    client.get(&format!("{BOX}/usage")).expect(200).json()
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("no {field} in {value}"))
}

fn history(client: &Client, query: &str) -> Value {
    client.get(&format!("{BOX}/metrics?{query}")).expect(200).json()
}

fn sum(history: &Value, field: &str) -> f64 {
    history["points"].as_array().unwrap().iter().map(|point| number(point, field)).sum()
}

/// The seconds of `0m5.98s`.
fn seconds(text: &str) -> f64 {
    let (minutes, seconds) = text.trim_end_matches('s').split_once('m').unwrap();
    minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
}

/// What the load has used, from the log, which costs the sandbox nothing; `None` while it runs.
fn used_by_load(client: &Client) -> Option<f64> {
    let page = client.get(&format!("{BOX}/logs?session=load")).expect(200).json();
    let entries = page["entries"].as_array().unwrap();
    entries.iter().find(|entry| entry["type"] == "exited")?;
    let text: String = entries.iter().filter_map(|entry| entry["text"].as_str()).collect();
    let children = text.lines().nth(1).unwrap().split_whitespace().map(seconds);
    Some(children.sum())
}

fn assert_near(answer: f64, really: f64) {
    let least = really * (1.0 - TOLERANCE);
    let most = really * (1.0 + TOLERANCE) + AGENT_SECONDS;
    assert!((least..most).contains(&answer), "{answer} s are counted of {really} s");
}

#[test]
fn costs_and_history_are_those_of_a_known_load_over_a_killed_bridge() {
    let mut server = Server::dev();
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "namespace": "bill", "name": "work" })).expect(201);
    // What the agent used to begin with is not the load's.
    let mut before = Value::Null;
    eventually("the first samples are counted", || {
        before = usage(&client);
        number(&before, "seconds") > 1.0
    });
    let load = json!({ "argv": ["sh", "-c", LOAD], "session": "load" });
    let _ = client.post(&format!("{BOX}/sessions"), &load).expect(201);
    let begun = number(&before, "cpu_seconds");
    eventually("a part of the load is counted", || {
        number(&usage(&client), "cpu_seconds") > begun + 1.0
    });
    server.kill_and_serve_again();
    let client = Client::new(server.url());
    let mut really = 0.0;
    eventually("the load is over", || used_by_load(&client).map(|used| really = used).is_some());
    let mut after = usage(&client);
    eventually("samples come in which nothing is used", || {
        let before = std::mem::replace(&mut after, usage(&client));
        let grown = |field| number(&after, field) - number(&before, field);
        grown("seconds") > 0.3 && grown("cpu_seconds") < 0.1
    });
    assert_near(number(&after, "cpu_seconds") - begun, really);

    // The history has the same, and no gap: what was sampled while there was no bridge came later.
    let seen = history(&client, "step=1000");
    let total = number(&usage(&client), "cpu_seconds");
    assert_near(sum(&seen, "cpu_us") / 1e6, total);
    let inner: Vec<&Value> = seen["gaps"].as_array().unwrap().iter().skip(1).collect();
    assert!(inner.is_empty(), "a gap between samples: {inner:?}");
    let busy = seen["points"].as_array().unwrap().iter();
    // A first sample has no share.
    let shares = busy.filter_map(|point| point["cpu_percent"]["max"].as_f64());
    let busiest = shares.fold(0.0, f64::max);
    assert!(busiest > 30.0, "{busiest} %");
    let coarse = history(&client, "step=60000");
    assert_near(sum(&coarse, "cpu_us") / 1e6, number(&usage(&client), "cpu_seconds"));
    // GiB-seconds are the same integral as the mean memory over time.
    let integral: f64 = seen["points"]
        .as_array()
        .unwrap()
        .iter()
        .map(|point| number(&point["memory_bytes"], "mean") * number(point, "covered_ms"))
        .sum::<f64>()
        / (1024.0_f64.powi(3) * 1000.0);
    let counted = number(&usage(&client), "gib_seconds");
    assert!((integral - counted).abs() < 0.1 * counted, "{integral} and {counted}");

    // It works for one that has stopped, and its namespace keeps what it has used when it is removed.
    client.post(&format!("{BOX}/stop"), &json!({})).expect(200);
    let stopped = usage(&client);
    assert!(number(&stopped, "cpu_seconds") >= total);
    let kept = history(&client, "step=1000");
    assert!(sum(&kept, "cpu_us") >= sum(&seen, "cpu_us"));
    client.delete(BOX).expect(200);
    server.end_and_serve_again();
    let client = Client::new(server.url());
    let report = client.get("/v1/usage?namespace=bill").expect(200).json();
    let row = &report["namespaces"][0];
    assert_eq!((&row["namespace"], &row["usage"]), (&json!("bill"), &stopped));
    let shown = server.ok(&["usage", "--namespace", "bill", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let cpu_us = (number(&stopped, "cpu_seconds") * 1e6).round();
    assert_eq!(shown[0]["cpu_us"].as_u64(), Some(cpu_us as u64));
    let table = server.ok(&["usage", "--namespace", "bill"]);
    assert!(table.lines().nth(1).is_some_and(|line| line.starts_with("bill ")), "{table}");
}

#[test]
fn what_cannot_be_shown_is_refused_and_other_namespaces_are_not_shown() {
    let server = Server::with_keys();
    let made = server.ok(&["keygen", "--json", "--namespace", "bill"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let client = Client::new(server.url()).key(made["key"].as_str().unwrap());
    client.post("/v1/sandboxes", &json!({ "namespace": "bill", "name": "work" })).expect(201);
    for (query, why) in [
        ("from=5&to=5", "from (5) must be before to (5)"),
        ("from=0&to=86400000&step=1000", "step must be at least 21600"),
        ("since=0&step=1000", "since is about the newest samples"),
    ] {
        let refused = client.get(&format!("{BOX}/metrics?{query}")).expect(400).text();
        assert!(refused.contains(why), "{refused}");
    }
    let past = history(&client, "from=1000&to=9000");
    assert_eq!(past["points"], json!([]));
    assert_eq!(past["gaps"], json!([{ "from_ms": 1000, "to_ms": 9000 }]));
    client.get("/v1/usage?namespace=other").expect(403);
    // Nor what its programs have cost: another key's program has ended there, and one of ours.
    let other = server.ok(&["keygen", "--namespace", "other"]);
    let other = Client::new(server.url()).key(other.trim());
    other.post("/v1/sandboxes", &json!({ "namespace": "other", "name": "work" })).expect(201);
    other.post("/v1/sandboxes/other/work/exec", &json!({ "argv": ["id"] })).expect(200);
    client.post(&format!("{BOX}/exec"), &json!({ "argv": ["true"] })).expect(200);
    let of = |client: &Client| {
        let report = client.get("/v1/usage?programs=true").expect(200).json();
        let rows = report["programs"].as_array().unwrap().clone();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    eventually("the other's end is counted", || of(&other) == ["id"]);
    assert_eq!(of(&client), ["true"]);
    client.get("/v1/usage?namespace=other&programs=true").expect(403);
    client.get("/v1/sandboxes/other/work/usage").expect(403);
    client.get("/v1/sandboxes/other/work/metrics?step=1000").expect(403);
    client.get("/v1/usage?from=7&to=7").expect(400);
    client.get("/v1/sandboxes/bill/none/usage").expect(404);
}

/// The only directory below `boxes`, with its metrics.
fn metrics_of(server: &Server) -> PathBuf {
    let boxes = server.state().join("boxes");
    let mut all = std::fs::read_dir(boxes).unwrap().map(|entry| entry.unwrap().path());
    all.next().unwrap().join("metrics")
}

#[test]
fn damaged_files_are_set_aside_and_stop_nothing() {
    let mut server = Server::dev();
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "namespace": "bill", "name": "work" })).expect(201);
    eventually("something is kept", || {
        !history(&client, "step=1000")["points"].as_array().unwrap().is_empty()
    });
    let (metrics, costs) = (metrics_of(&server), server.state().join("costs"));
    server.kill_daemon_for_a_moment(|| {
        std::fs::write(metrics.join("seconds"), "no records of ours").unwrap();
        std::fs::create_dir_all(&costs).unwrap();
        std::fs::write(costs.join("current.json"), "[").unwrap();
    });
    let client = Client::new(server.url());
    eventually("something is kept again", || {
        !history(&client, "step=1000")["points"].as_array().unwrap().is_empty()
    });
    assert!(metrics.join("seconds.damaged").exists() && costs.join("current.damaged").exists());
    assert!(number(&usage(&client), "cpu_seconds") >= 0.0);
}

/// Busy in programs, then in the kernel, and then what the kernel says of either.
const PARTED_LOAD: &str = "timeout 4 sh -c 'while :; do :; done'; \
                           timeout 4 dd if=/dev/zero of=/dev/null bs=1M 2>/dev/null; times";

/// User and system time of the children of the load, in seconds, from its log.
fn parts_of_load(client: &Client) -> Option<[f64; 2]> {
    let page = client.get(&format!("{BOX}/logs?session=load")).expect(200).json();
    let entries = page["entries"].as_array().unwrap();
    entries.iter().find(|entry| entry["type"] == "exited")?;
    let text: String = entries.iter().filter_map(|entry| entry["text"].as_str()).collect();
    let mut parts = text.lines().nth(1).unwrap().split_whitespace().map(seconds);
    Some([parts.next().unwrap(), parts.next().unwrap()])
}

fn newest(client: &Client) -> Value {
    let page = client.get(&format!("{BOX}/metrics")).expect(200).json();
    page["samples"][0].clone()
}

#[test]
fn time_of_programs_and_of_the_kernel_are_those_of_a_known_load() {
    let server = Server::dev();
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "namespace": "bill", "name": "work" })).expect(201);
    let mut before = Value::Null;
    eventually("there is a sample", || {
        before = newest(&client);
        before["cpu_user_us"].is_u64()
    });
    let load = json!({ "argv": ["sh", "-c", PARTED_LOAD], "session": "load" });
    let _ = client.post(&format!("{BOX}/sessions"), &load).expect(201);
    let mut really = [0.0; 2];
    eventually("the load is over", || parts_of_load(&client).map(|parts| really = parts).is_some());
    let ended = number(&newest(&client), "number");
    let mut after = Value::Null;
    eventually("there is a later sample", || {
        after = newest(&client);
        number(&after, "number") > ended
    });
    let grown = |field| (number(&after, field) - number(&before, field)) / 1e6;
    assert_near(grown("cpu_user_us"), really[0]);
    assert_near(grown("cpu_system_us"), really[1]);
    assert!(really.iter().all(|part| *part > 0.3), "a load of one kind alone: {really:?}");
    let sum = number(&after, "cpu_user_us") + number(&after, "cpu_system_us");
    let whole = number(&after, "cpu_us");
    assert!((sum - whole).abs() < whole * TOLERANCE, "{sum} and {whole}");

    let seen = history(&client, "step=1000");
    let points = seen["points"].as_array().unwrap().iter();
    let kept: f64 = points.filter_map(|point| point["cpu_user_us"].as_f64()).sum();
    assert!((kept - number(&newest(&client), "cpu_user_us")).abs() < 0.2e6, "{kept}: {after}");
}

/// A layer on disk, so that what is synced reaches it.
#[test]
fn disk_bytes_are_those_of_a_known_load() {
    const MIB: f64 = 1024.0 * 1024.0;
    const LOAD_BYTES: f64 = 64.0 * MIB;
    let server = Server::dev();
    let client = Client::new(server.url());
    let wanted = json!({ "namespace": "bill", "name": "work", "scratch_bytes": 2_u64 << 30 });
    client.post("/v1/sandboxes", &wanted).expect(201);
    let mut before = Value::Null;
    eventually("a first sample", || {
        before = newest(&client);
        before["number"].as_u64() > Some(1)
    });
    let Some(disk_before) = before["disk_bytes"].as_f64() else {
        return skip("no disk of a sandbox is counted here");
    };
    let load = "dd if=/dev/urandom of=/var/load bs=1M count=64 conv=fsync 2>/dev/null";
    let answer = client.post(&format!("{BOX}/shell"), &json!({ "script": load })).expect(200);
    assert_eq!(answer.json()["exit_code"], 0);
    let mut grown = 0.0;
    eventually("the file is counted within two per cent", || {
        grown = number(&newest(&client), "disk_bytes") - disk_before;
        (grown - LOAD_BYTES).abs() <= LOAD_BYTES * TOLERANCE
    });
    println!("{grown} bytes are counted of {LOAD_BYTES}");
    let Some(written_before) = before["written_bytes"].as_f64() else {
        return skip("no control group counts what a sandbox writes to block devices here");
    };
    eventually("what was written is counted within two per cent", || {
        let written = number(&newest(&client), "written_bytes") - written_before;
        (written - LOAD_BYTES).abs() <= LOAD_BYTES * TOLERANCE
    });
}

/// The control groups of a sandbox, whichever hierarchies have them.
fn groups_of(id: &str) -> Vec<PathBuf> {
    fn walk(directory: &Path, name: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(name) {
                found.push(entry.path());
            }
            walk(&entry.path(), name, found);
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), id, &mut found);
    found
}

/// The number after a name in a file of one of the groups, in either version's words.
fn kernels_number(groups: &[PathBuf], sources: &[(&str, &str, f64)]) -> Option<f64> {
    sources.iter().find_map(|(file, name, unit)| {
        let texts =
            groups.iter().filter_map(|group| std::fs::read_to_string(group.join(file)).ok());
        let found = texts.filter_map(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<f64>().ok()
        });
        found.map(|number| number * unit).reduce(f64::max)
    })
}

#[test]
fn throttling_and_memory_are_those_of_the_control_groups_files() {
    let server = Server::dev();
    let client = Client::new(server.url());
    let wanted = json!({ "namespace": "bill", "name": "work", "memory_mib": 256, "cpus": 0.1 });
    let record = client.post("/v1/sandboxes", &wanted).expect(201).json();
    let id = record["id"].as_str().unwrap().to_owned();
    let throttled = [("cpu.stat", "throttled_usec ", 1.0), ("cpu.stat", "throttled_time ", 1e-3)];
    let peak = [("memory.peak", "", 1.0), ("memory.max_usage_in_bytes", "", 1.0)];
    let groups = groups_of(&id);
    if kernels_number(&groups, &throttled).is_none() || kernels_number(&groups, &peak).is_none() {
        return skip("no control group holds the processors and memory of a sandbox here");
    }
    let load = "head -c 50000000 /dev/zero | tail -c 40000000 >/dev/null; \
                timeout 4 sh -c 'while :; do :; done'";
    let load = json!({ "argv": ["sh", "-c", load], "session": "load" });
    let _ = client.post(&format!("{BOX}/sessions"), &load).expect(201);
    eventually("the load is over", || {
        let page = client.get(&format!("{BOX}/logs?session=load")).expect(200).json();
        page["entries"].as_array().unwrap().iter().any(|entry| entry["type"] == "exited")
    });
    // The kernel's own numbers move on; they are compared where they have not between two looks.
    let mut compared = Vec::new();
    eventually("both agree while the kernel's numbers rest", || {
        let kernels = || [&throttled[..], &peak].map(|of| kernels_number(&groups, of).unwrap());
        let before = kernels();
        let first = number(&newest(&client), "number");
        let mut sample = newest(&client);
        eventually("the next sample", || {
            sample = newest(&client);
            number(&sample, "number") > first
        });
        let ours = ["cpu_throttled_us", "memory_bytes_peak"].map(|field| number(&sample, field));
        compared = vec![before, ours, kernels()];
        let near = |at: usize| (ours[at] - before[at]).abs() <= before[at] * TOLERANCE;
        near(0) && near(1)
    });
    assert!(compared[1][0] > 0.2e6, "a tenth of a processor throttles: {compared:?}");
    assert!(compared[1][1] > 40e6, "{compared:?}");
    let sample = newest(&client);
    assert_eq!(sample["oom_kills"], 0, "{sample}");
    assert_eq!(sample["memory_bytes_max"], 256 << 20);
    assert!(sample["cache_bytes"].is_u64(), "{sample}");
    // The history has them, and a sandbox without limits has no figure where the kernel has none.
    let seen = history(&client, "step=1000");
    let last = seen["points"].as_array().unwrap().last().unwrap().clone();
    let peak = number(&last, "memory_bytes_peak");
    assert!((peak - compared[1][1]).abs() <= 1024.0, "{peak}, in whole KiB: {compared:?}");
    let points = seen["points"].as_array().unwrap().iter();
    let kept: f64 = points.filter_map(|point| point["cpu_throttled_us"].as_f64()).sum();
    assert!((kept - compared[1][0]).abs() <= compared[1][0] * TOLERANCE, "{kept}: {compared:?}");
}

/// Holds so much memory for a moment.
const HOLD: &str = "import time\nheld = bytearray(200 << 20)\ntime.sleep(0.5)";
const HELD_GIB: f64 = 200.0 / 1024.0;
/// Ends when it has used half a second of CPU time.
const BURN: &str = "import time\nwhile time.process_time() < 0.5: pass";
const BURN_IN_CONTEXT: &str =
    "import time; begun = time.process_time()\nwhile time.process_time() < begun + 0.5: pass";
const BURNT: f64 = 0.5;
/// What an interpreter takes to start and to end.
const STARTED: f64 = 0.2;

/// What has ended, how often, and the CPU time of that.
fn programs(client: &Client) -> Vec<(String, String, u64, f64)> {
    let report = client.get("/v1/usage?namespace=bill&programs=true").expect(200).json();
    let rows = report["programs"].as_array().unwrap().iter();
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    rows.map(|row| {
        assert_eq!(row["namespace"], "bill");
        assert_eq!(row["read_bytes"].is_u64(), row["kind"] != "run", "{row}");
        let ends = row["ends"].as_u64().unwrap();
        (text(row, "kind"), text(row, "name"), ends, number(row, "cpu_seconds"))
    })
    .collect()
}

#[test]
fn programs_runs_and_apps_are_counted_once_over_killed_bridges() {
    let mut server = Server::dev();
    let mut client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "namespace": "bill", "name": "work" })).expect(201);
    let burn = json!({ "argv": ["/usr/bin/env", "python3", "-c", BURN], "session": "recorded" });
    let _ = client.post(&format!("{BOX}/sessions"), &burn).expect(201);
    let burn = json!({ "argv": ["python3", "-c", BURN] });
    for _ in 0..2 {
        client.post(&format!("{BOX}/exec"), &burn).expect(200);
    }
    let hold = json!({ "argv": ["/usr/bin/nice", "python3", "-c", HOLD] });
    client.post(&format!("{BOX}/exec"), &hold).expect(200);
    let run = json!({ "language": "python", "code": BURN_IN_CONTEXT });
    client.post(&format!("{BOX}/contexts/main/run"), &run).expect(200);
    // By a process of its own.
    server.ok(&["repl", "bill/work", "--context", "main", "-c", BURN_IN_CONTEXT]);
    let serve = "exec python3 -m http.server $PORT --bind 127.0.0.1";
    let app = json!({ "type": "command", "command": serve, "name": "web" });
    client.post(&format!("{BOX}/apps"), &app).expect(201);
    client.delete(&format!("{BOX}/apps/web")).expect(204);
    // Killed at once: nothing of it is saved.
    server.kill_and_serve_again();
    client = Client::new(server.url());
    let mut found = Vec::new();
    eventually("all ends are counted", || {
        found = programs(&client);
        found.iter().map(|row| row.2).sum::<u64>() == 7
    });
    let of = |kind: &str, name: &str| {
        let row = found.iter().find(|row| row.0 == kind && row.1 == name);
        let row = row.unwrap_or_else(|| panic!("no {kind} {name}: {found:?}"));
        (row.2, row.3)
    };
    let assert_burnt = |(ends, seconds): (u64, f64), expected: u64| {
        assert_eq!(ends, expected, "{found:?}");
        let least = BURNT * expected as f64;
        assert!((least * 0.98..least + STARTED * expected as f64).contains(&seconds), "{found:?}");
    };
    assert_burnt(of("command", "env"), 1);
    assert_burnt(of("command", "python3"), 2);
    assert_burnt(of("run", "main"), 2);
    assert_eq!(of("app", "web").0, 1);
    let report = client.get("/v1/usage?programs=true").expect(200).json();
    for row in report["programs"].as_array().unwrap() {
        let gib = number(row, "peak_gib_seconds") / number(row, "seconds");
        let expected = if row["name"] == "nice" { HELD_GIB..HELD_GIB * 1.5 } else { 0.001..0.1 };
        assert!(expected.contains(&gib), "{row}");
    }
    for _ in 0..2 {
        server.kill_and_serve_again();
        client = Client::new(server.url());
        assert_eq!(programs(&client), found);
    }
    // By the command line, and after the sandbox and its files are gone.
    client.delete(&format!("{BOX}?force=true")).expect(200);
    server.end_and_serve_again();
    assert_eq!(programs(&Client::new(server.url())), found);
    let shown = server.ok(&["usage", "--programs", "--namespace", "bill", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let ends = shown.as_array().unwrap().iter().map(|row| row["ends"].as_u64().unwrap());
    assert_eq!(ends.sum::<u64>(), 7, "{shown}");
    let table = server.ok(&["usage", "--programs"]);
    assert!(table.lines().any(|line| line.contains(" run ") && line.contains(" main ")), "{table}");
    let none = Client::new(server.url()).get("/v1/usage?programs=true&namespace=other");
    assert_eq!(none.expect(200).json()["programs"], json!([]));
}
