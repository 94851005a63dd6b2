//! The stream of events: over every door, over restarts and kills of the bridge, for readers that are
//! slow, and on a disk that is full.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};
use tests::http::Client;
use tests::server::Server;
use tests::small_disk::SmallDisk;
use tests::{Burrow, eventually, have_or_skip, resident_bytes};

const ALL: &str = "/v1/sandboxes";
const EVENTS: &str = "/v1/events";
/// The whole stream of a namespace, as one page or as lines.
const WHOLE: &str = "/v1/events?limit=1000";

fn client(server: &Server) -> Client {
    Client::new(server.url())
}

fn page(client: &Client, path: &str) -> Vec<Value> {
    client.get(path).expect(200).json()["events"].as_array().expect("a list").clone()
}

fn make(client: &Client, name: &str) -> Value {
    client.post(ALL, &json!({ "name": name })).expect(201).json()
}

fn remove(client: &Client, name: &str) {
    client.delete(&format!("{ALL}/default/{name}?force=true")).expect(200);
}

/// All events of the default namespace, page by page.
fn whole(client: &Client) -> Vec<Value> {
    let mut found = Vec::new();
    loop {
        let next =
            found.last().map_or(0, |event: &Value| event["offset"].as_u64().expect("a number") + 1);
        let more = page(client, &format!("{WHOLE}&since={next}"));
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Waits until the stream has an event of this kind about this sandbox, and returns the stream.
fn once(client: &Client, kind: &str, sandbox: &str) -> Vec<Value> {
    let mut found = Vec::new();
    eventually(&format!("{sandbox} is {kind} in the stream"), || {
        found = whole(client);
        found.iter().any(|event| event["kind"] == kind && event["sandbox"] == sandbox)
    });
    found
}

fn kinds<'a>(events: &'a [Value], sandbox: &str) -> Vec<&'a str> {
    let of = events.iter().filter(|event| event["sandbox"] == sandbox);
    of.map(|event| event["kind"].as_str().expect("text")).collect()
}

/// Uses a CPU for a second, and says the kernel's count of it: user and system time of the shell and its children.
const LOAD: &str = "timeout 2 sh -c 'while :; do :; done'; times";

/// The seconds of `0m1.98s`.
fn seconds(text: &str) -> f64 {
    let (minutes, seconds) = text.trim_end_matches('s').split_once('m').expect("minutes");
    minutes.parse::<f64>().expect("a number") * 60.0 + seconds.parse::<f64>().expect("a number")
}

#[test]
fn an_end_has_the_cost_of_its_program_once_over_a_killed_bridge() {
    /// What the figures may differ by, and the kernel's tick, once for each of the four numbers of `times`.
    const TOLERANCE: f64 = 0.02;
    const TICKS_S: f64 = 0.04;
    let burrow = Burrow::new().variable("BURROW_EVENTS_PROGRAMS", "true");
    let mut server = Server::start_in(burrow, &["--dev"]);
    let client = client(&server);
    make(&client, "work");
    let work = format!("{ALL}/default/work");
    let begin = |client: &Client, name: &str| {
        let start = json!({ "argv": ["sh", "-c", LOAD], "session": name });
        client.post(&format!("{work}/sessions"), &start).expect(201);
    };
    begin(&client, "over");
    server.kill_and_serve_again();
    let client = Client::new(server.url());
    begin(&client, "after");
    let ends = |client: &Client| -> Vec<Value> {
        let events = whole(client).into_iter();
        events.filter(|event| event["kind"] == "command_ended").collect()
    };
    eventually("both have ended", || ends(&client).len() == 2);
    server.kill_and_serve_again();
    let client = Client::new(server.url());
    let ended = ends(&client);
    assert_eq!(ended.len(), 2, "an end is counted once: {ended:?}");
    for name in ["over", "after"] {
        let event = ended.iter().find(|event| event["session"] == name).expect("its end");
        let page = client.get(&format!("{work}/logs?session={name}")).expect(200).json();
        let entries = page["entries"].as_array().expect("entries").iter();
        let text: String = entries.filter_map(|entry| entry["text"].as_str()).collect();
        let really: f64 = text.split_whitespace().map(seconds).sum();
        let counted = event["cpu_us"].as_f64().expect("its CPU time") / 1e6;
        assert!(really > 0.2, "it was busy: {text}");
        let error = (counted - really).abs();
        assert!(error <= really * TOLERANCE + TICKS_S, "{counted} s are counted of {really} s");
        assert!(event["memory_bytes_peak"].as_u64() > Some(100_000), "{event}");
        assert!(event["written_bytes"].is_u64(), "{event}");
        // The session says the same.
        let session = client.get(&format!("{work}/sessions/{name}")).expect(200).json();
        let usage = &session["exit"]["usage"];
        let sum = ["user_us", "system_us"].map(|part| usage[part].as_u64().expect("its part"));
        assert_eq!(event["cpu_us"].as_u64(), Some(sum[0] + sum[1]), "{session}");
    }
}

fn assert_offsets_grow_by_one(events: &[Value]) {
    for pair in events.windows(2) {
        let [one, other] =
            [&pair[0], &pair[1]].map(|event| event["offset"].as_u64().expect("a number"));
        assert_eq!(one + 1, other, "{pair:?}");
    }
}

#[test]
fn programs_and_runs_are_in_the_stream_if_the_operator_says_so() {
    let burrow = Burrow::new().variable("BURROW_EVENTS_PROGRAMS", "true");
    let server = Server::start_in(burrow, &["--dev"]);
    let client = client(&server);
    make(&client, "work");
    let shell = |script: &str| {
        let path = format!("{ALL}/default/work/shell");
        client.post(&path, &json!({ "script": script })).expect(200);
    };
    shell("exit 7");
    shell("kill -9 $$");
    let start = json!({ "argv": ["true"], "session": "own" });
    client.post(&format!("{ALL}/default/work/sessions"), &start).expect(201);
    for code in ["1 + 1", "1 / 0"] {
        client.post(&format!("{ALL}/default/work/run"), &json!({ "code": code })).expect(200);
    }
    let of = |events: &[Value], kind: &str| -> Vec<Value> {
        events.iter().filter(|event| event["kind"] == kind).cloned().collect()
    };
    let mut events = Vec::new();
    eventually("all is in the stream", || {
        events = whole(&client);
        of(&events, "run_ended").len() == 2 && of(&events, "command_ended").len() == 3
    });
    let ended = of(&events, "command_ended");
    let how = |event: &Value| (event["reason"].clone(), event["code"].clone());
    assert_eq!(how(&ended[0]), (json!("exited"), json!(7)));
    assert_eq!(how(&ended[1]), (json!("signaled"), Value::Null));
    assert_eq!(
        (how(&ended[2]), &ended[2]["session"]),
        ((json!("exited"), json!(0)), &json!("own"))
    );
    // Each has begun before it ended, and nothing is there twice.
    for (begun, ended, name) in
        [("command_begun", "command_ended", "session"), ("run_begun", "run_ended", "run")]
    {
        let numbers = |kind: &str| -> BTreeMap<String, u64> {
            let events = of(&events, kind).into_iter();
            events
                .map(|event| (event[name].to_string(), event["offset"].as_u64().unwrap()))
                .collect()
        };
        let (begun_at, ended_at) = (numbers(begun), numbers(ended));
        assert_eq!(begun_at.len(), of(&events, begun).len(), "{events:?}");
        assert_eq!(ended_at.len(), of(&events, ended).len(), "{events:?}");
        assert!(ended_at.iter().all(|(name, at)| begun_at[name] < *at), "{events:?}");
    }
    let reasons: Vec<_> =
        of(&events, "run_ended").iter().map(|one| one["reason"].clone()).collect();
    assert_eq!(reasons, [json!("ok"), json!("error")]);
    for event in of(&events, "run_ended") {
        assert!(event["duration_us"].as_u64() > Some(0) && event["cpu_us"].is_u64(), "{event}");
    }

    // Without the option there are none.
    let server = Server::dev();
    let client = Client::new(server.url());
    make(&client, "work");
    client.post(&format!("{ALL}/default/work/shell"), &json!({ "script": "true" })).expect(200);
    remove(&client, "work");
    let events = once(&client, "removed", "work");
    assert!(of(&events, "command_begun").is_empty() && of(&events, "command_ended").is_empty());
}

#[test]
fn the_life_of_a_sandbox_is_in_the_stream_in_order_at_every_door() {
    let server = Server::dev();
    let client = client(&server);
    let labels = json!({ "job": "7" });
    let made = client.post(ALL, &json!({ "name": "work", "labels": labels })).expect(201).json();
    client.send_json("PATCH", &format!("{ALL}/default/work"), &json!({ "ttl_ms": 3_600_000 }));
    client.post(&format!("{ALL}/default/work/stop"), &json!({})).expect(200);
    client.delete(&format!("{ALL}/default/work")).expect(200);
    make(&client, "other");
    once(&client, "removed", "work");
    let events = once(&client, "ready", "other");
    let expected = ["created", "ready", "changed", "exited", "removed"];
    assert_eq!(kinds(&events, "work"), expected);
    assert_offsets_grow_by_one(&events);
    let of = |kind: &str| events.iter().find(|event| event["kind"] == kind).unwrap().clone();
    assert_eq!((&of("created")["labels"], &of("created")["machine"]), (&labels, &json!("process")));
    assert_eq!(of("exited")["reason"], "asked");
    assert_eq!(of("exited")["cause"], "as asked");
    assert!(events.iter().filter(|event| event["sandbox"] == "work").all(|event| {
        event["id"] == made["id"] && event["namespace"] == "default" && event["late"].is_null()
    }));

    // The same at the other doors.
    let lines: Vec<Value> = client.lines(EVENTS, None).collect();
    assert_eq!(lines, events);
    let mut socket = client.websocket(EVENTS, &[]);
    let heard: Vec<_> = events.iter().map(|_| socket.hear_value()).collect();
    assert_eq!(heard, events);
    let printed = server.ok(&["events", "--json"]);
    let printed: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(printed, events);
    let table = server.ok(&["events", "--kind", "exited", "work"]);
    let rows: Vec<_> = table.lines().collect();
    assert_eq!(rows.len(), 2, "{table}");
    assert!(
        rows[1].contains("work") && rows[1].ends_with("exited         as asked reason=asked"),
        "{table}"
    );

    let silent = server.run(&["events", "nobody"]);
    let note = String::from_utf8_lossy(&silent.stderr).into_owned();
    assert!(silent.stdout.is_empty() && note.contains("no matching events of nobody"), "{note}");

    // By sandbox, by kind, by time, from an offset on.
    let only = |query: &str| page(&client, &format!("{EVENTS}?{query}")).len();
    assert_eq!(only("sandbox=work"), 5);
    assert_eq!(only(&format!("sandbox={}", made["id"].as_str().unwrap())), 5);
    assert_eq!(only("kind=created&kind=ready"), 4);
    assert_eq!(only("since=5"), 2);
    let since_ms = of("removed")["at_ms"].as_u64();
    let later = events.iter().filter(|event| event["at_ms"].as_u64() >= since_ms).count();
    assert_eq!(only(&format!("since_ms={}", of("removed")["at_ms"])), later);
    assert_eq!(only("limit=3"), 3);
    assert_eq!(client.get(&format!("{EVENTS}?limit=3")).expect(200).json()["next"], 3);
    remove(&client, "other");
}

#[test]
fn questions_that_cannot_be_answered_are_refused_with_the_reason() {
    let server = Server::dev();
    let client = client(&server);
    make(&client, "work");
    once(&client, "ready", "work");
    for (query, status, words) in [
        ("since=3", 416, "next event of default gets 2"),
        ("since=0&since_ms=1", 400, "exclude each other"),
        ("limit=0", 400, "limit must be from 1 to 1000"),
        ("kind=born", 400, "unknown variant `born`"),
        ("sandbox=a/b", 400, "sandbox"),
        ("namespace=", 400, "no value"),
        ("after=1", 400, "unknown field"),
    ] {
        let refused = client.get(&format!("{EVENTS}?{query}"));
        assert_eq!(refused.status, status, "{query}: {}", refused.text());
        assert!(refused.text().contains(words), "{query}: {}", refused.text());
    }
    assert!(page(&client, &format!("{EVENTS}?namespace=nobody")).is_empty());
    let several = server.run(&["events", "--since", "1"]);
    let stderr = String::from_utf8_lossy(&several.stderr);
    assert!(stderr.contains("give --namespace"), "{stderr}");
    remove(&client, "work");
}

#[test]
fn a_key_reads_the_events_of_its_own_namespaces_alone() {
    let server = Server::with_keys();
    let key = |options: &[&str]| {
        let made = server.ok(&[&["keygen", "--json"], options].concat());
        let made: Value = serde_json::from_str(&made).unwrap();
        Client::new(server.url()).key(made["key"].as_str().unwrap())
    };
    let all = key(&["--namespace", "*"]);
    let mine = key(&["--namespace", "mine", "--scope", "read"]);
    for namespace in ["mine", "theirs"] {
        all.post(ALL, &json!({ "name": "a", "namespace": namespace })).expect(201);
    }
    let of = |client: &Client, query: &str| page(client, &format!("{EVENTS}{query}"));
    eventually("both are in the stream", || {
        of(&all, "?namespace=theirs").len() == 2 && of(&all, "?namespace=mine").len() == 2
    });
    // It is its own without being named.
    assert_eq!(of(&mine, ""), of(&all, "?namespace=mine"));
    mine.get("/v1/events?namespace=theirs").expect(403);
    mine.get("/v1/events?namespace=theirs&follow=true").expect(403);
    // There are no such events to tell from those of a namespace that is not there.
    assert_eq!(mine.get("/v1/events?namespace=nobody").status, 403);
    Client::new(server.url()).get(EVENTS).expect(401);
    for namespace in ["mine", "theirs"] {
        all.delete(&format!("{ALL}/{namespace}/a?force=true")).expect(200);
    }
}

/// Makes and removes sandboxes until the server is gone or it is enough.
fn live(client: &Client, worker: usize, count: usize) {
    for number in 0..count {
        let name = format!("s{worker}-{number}");
        let Ok(made) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            client.post(ALL, &json!({ "name": name })).status
        })) else {
            return;
        };
        if made != 201 {
            return;
        }
        let path = format!("{ALL}/default/{name}?force=true");
        // Every third stays.
        if number % 3 != 0
            && std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.delete(&path)))
                .is_err()
        {
            return;
        }
    }
}

#[test]
fn a_killed_bridge_forgets_and_renumbers_nothing_that_a_reader_has_seen() {
    let mut server = Server::dev();
    let mut seen: BTreeMap<u64, Value> = BTreeMap::new();
    for round in 0..3 {
        let url = server.url().to_owned();
        let heard: Mutex<Vec<Value>> = Mutex::default();
        let count = AtomicU64::new(0);
        let since = seen.last_key_value().map_or(0, |(offset, _)| offset + 1);
        thread::scope(|scope| {
            for worker in 0..3 {
                let client = Client::new(&url);
                scope.spawn(move || live(&client, round * 10 + worker, 40));
            }
            let reader = Client::new(&url);
            let (heard, count) = (&heard, &count);
            scope.spawn(move || {
                let path = format!("{EVENTS}?follow=true&since={since}");
                let headers = [("accept", "application/x-ndjson")];
                let mut lines = BufReader::new(reader.open("GET", &path, &headers, &[]));
                let mut line = String::new();
                // It ends wherever the bridge is killed.
                while lines.read_line(&mut line).is_ok_and(|count| count > 0) {
                    let Ok(event) = serde_json::from_str(&line) else { return };
                    heard.lock().unwrap().push(event);
                    count.fetch_add(1, Ordering::Relaxed);
                    line.clear();
                }
            });
            eventually("some events are seen", || count.load(Ordering::Relaxed) > 40);
            server.kill_and_serve_again();
        });
        for event in heard.into_inner().unwrap() {
            let offset = event["offset"].as_u64().unwrap();
            assert!(seen.insert(offset, event).is_none(), "{offset} came twice");
        }
    }
    let client = client(&server);
    let listed = client.get(&format!("{ALL}?limit=1000")).expect(200).json();
    let mut there: Vec<String> = listed["sandboxes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect();
    there.sort();
    let mut events = Vec::new();
    // What the stream says is there is what is there, whatever the killed bridges had no time to write.
    eventually("the stream and the list agree", || {
        events = whole(&client);
        let mut alive: BTreeMap<String, String> = BTreeMap::new();
        for event in &events {
            let id = event["id"].as_str().unwrap().to_owned();
            match event["kind"].as_str().unwrap() {
                "removed" | "failed" => drop(alive.remove(&id)),
                "created" => {
                    alive.insert(id, event["sandbox"].as_str().unwrap().to_owned());
                }
                _ => {}
            }
        }
        let mut alive: Vec<_> = alive.into_values().collect();
        alive.sort();
        alive == there
    });
    assert_offsets_grow_by_one(&events);
    assert_eq!(events[0]["offset"], 0);
    for (offset, event) in &seen {
        assert_eq!(&events[*offset as usize], event);
    }
    assert!(seen.len() > 120, "{} were seen", seen.len());
    for name in there {
        remove(&client, &name);
    }
}

#[test]
fn a_reader_that_does_not_read_delays_nobody_and_misses_nothing() {
    const COUNT: u64 = 1000;
    let server = Server::dev();
    let client = client(&server);
    make(&client, "work");
    let mut slow = client.raw();
    slow.write_all(b"GET /v1/events?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let patch = |ttl_ms: u64| {
        let body = json!({ "ttl_ms": ttl_ms });
        client.send_json("PATCH", &format!("{ALL}/default/work"), &body).expect(200);
    };
    let before = resident_bytes(server.daemon_pid()).unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..COUNT).for_each(|number| patch(3_600_000 + number));
            is_done.store(true, Ordering::Relaxed);
        });
        // Another one reads all of them meanwhile.
        let reader = Client::new(server.url());
        let lines = reader.lines("/v1/events?follow=true&kind=changed", None);
        assert_eq!(lines.take(COUNT as usize).count(), COUNT as usize);
    });
    assert!(is_done.load(Ordering::Relaxed));
    let grown = resident_bytes(server.daemon_pid()).unwrap().saturating_sub(before);
    assert!(grown < 64 * 1024 * 1024, "{grown} bytes");
    // What waited on the disk comes when it reads, in order.
    let mut read = BufReader::new(slow);
    let mut offsets = Vec::new();
    while (offsets.len() as u64) < COUNT + 2 {
        let mut line = String::new();
        read.read_line(&mut line).unwrap();
        if let Ok(event) = serde_json::from_str::<Value>(&line)
            && let Some(offset) = event["offset"].as_u64()
        {
            offsets.push(offset);
        }
    }
    assert_eq!(offsets, (0..COUNT + 2).collect::<Vec<_>>());
    remove(&client, "work");
}

/// Adds events until the next one does not fit into the last page of their file, which a full disk would
/// still have room for.
fn fill_page(server: &Server, client: &Client) {
    const PAGE_BYTES: u64 = 4096;
    let log = server.state().join("events/default/events-000000000000.jsonl");
    let mut ttl_ms = 3_600_000;
    loop {
        let end = whole(client).len();
        if PAGE_BYTES - std::fs::metadata(&log).expect("a file").len() % PAGE_BYTES < 110 {
            return;
        }
        ttl_ms += 1;
        let body = json!({ "ttl_ms": ttl_ms });
        client.send_json("PATCH", &format!("{ALL}/default/b"), &body).expect(200);
        eventually("the change is in the stream", || whole(client).len() > end);
    }
}

#[test]
fn a_full_disk_loses_no_event_silently_and_none_that_was_seen() {
    let burrow = Burrow::new();
    let Some(disk) = SmallDisk::mount_or_skip(&burrow.state(), 1024) else { return };
    let mut server = Server::start_in(burrow, &["--dev"]);
    let client = client(&server);
    for name in ["a", "b"] {
        make(&client, name);
    }
    once(&client, "ready", "b");
    fill_page(&server, &client);
    let before = whole(&client);
    let filler = disk.fill();
    client.post(&format!("{ALL}/default/a/stop"), &json!({})).expect(507);
    let failures = || {
        let log = std::fs::read_to_string(server.log()).unwrap();
        log.matches("events cannot be written: No space left on device").count()
    };
    eventually("the bridge has tried to write it", || failures() == 1);
    // It is not written, so nobody sees it.
    assert_eq!(whole(&client), before);
    filler.remove();
    let after = once(&client, "exited", "a");
    assert_eq!(after[..before.len()], before);
    assert_offsets_grow_by_one(&after);
    eventually("the bridge says that it writes again", || {
        std::fs::read_to_string(server.log()).unwrap().contains("events can be written again")
    });
    // A bridge that is killed on a full disk has not forgotten what it could not write.
    fill_page(&server, &client);
    let after = whole(&client);
    let filler = disk.fill();
    client.post(&format!("{ALL}/default/b/stop"), &json!({})).expect(507);
    eventually("the bridge has tried to write it", || failures() == 2);
    server.kill_daemon_for_a_moment(|| filler.remove());
    let client = Client::new(server.url());
    let found = once(&client, "exited", "b");
    assert_eq!(found[..after.len()], after);
    assert_eq!(found.last().unwrap()["reason"], "bridge_away");
    for name in ["a", "b"] {
        remove(&client, name);
    }
    drop(server);
}

#[test]
fn a_follower_leaves_with_the_bridge_and_goes_on_with_the_next() {
    let mut server = Server::dev();
    make(&client(&server), "work");
    let first = client(&server);
    let mut lines = first.lines("/v1/events?follow=true", None);
    let seen: Vec<_> = lines.by_ref().take(2).collect();
    assert_eq!(kinds(&seen, "work"), ["created", "ready"]);
    server.end_and_serve_again();
    // The stream ends in order, and is not cut off.
    assert!(lines.next().is_none());
    let next = client(&server);
    let mut lines = next.lines("/v1/events?follow=true&since=2", None);
    remove(&next, "work");
    let seen: Vec<_> = lines.by_ref().take(2).collect();
    assert_eq!(kinds(&seen, "work"), ["exited", "removed"]);
    assert_eq!(seen[0]["reason"], "killed");
}

#[test]
fn a_program_that_runs_out_of_memory_is_in_the_stream_once_with_the_limit() {
    if !have_or_skip("python3") {
        return;
    }
    let server = Server::dev();
    let client = client(&server);
    let body = json!({ "name": "work", "memory_mib": 64 });
    let made = client.post(ALL, &body).expect(201).json();
    let code = ["python3", "-c", "bytearray(300 << 20)"];
    let path = format!("{ALL}/default/work/exec");
    let ended = client.post(&path, &json!({ "argv": code })).expect(200).json();
    if ended["cause"]["type"] == "out_of_memory" {
        let events = once(&client, "out_of_memory", "work");
        let event = events.last().unwrap();
        assert_eq!(event["session"], ended["session"]);
        assert_eq!(event["limit_bytes"], 64 * 1024 * 1024);
        assert_eq!(kinds(&events, "work"), ["created", "ready", "out_of_memory"]);
    } else {
        tests::skip(&format!("memory is not limited here: {}", made["warnings"]));
    }
    remove(&client, "work");
}
