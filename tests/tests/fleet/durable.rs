//! Output that outlives a node: what was shown is in the fleet's log, and the log says where it ends.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::fleet::limits::LOG_SHARDS;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::eventually;
use tests::fleet::{Member, Nats, open};
use tests::http::{Client, Incoming};

const BOX: &str = "/v1/sandboxes/default/box";
/// Longer than any test is without NATS.
const PATIENT: &[&str] = &["--dev", "--set", "fleet.grace=60s"];
/// Longer than NATS is away, and short enough to wait for the end of a lease.
const BRIEF: &[&str] = &["--dev", "--set", "fleet.grace=8s"];
const RAW: &[(&str, &str)] = &[("accept", "application/octet-stream")];

/// A flood that says where it is: every number from 1 on, one on each line.
fn flood(client: &Client, last: u64) {
    let started = json!({ "argv": ["seq", "1", last.to_string()], "session": "flood" });
    client.post(&format!("{BOX}/sessions"), &started).expect(201);
}

fn output(from: usize) -> String {
    format!("{BOX}/sessions/flood/output?channel=stdout&follow=true&from={from}")
}

/// Whether bytes are the beginning of the flood. Each line follows the one before it.
fn check_flood(bytes: &[u8]) {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    for (number, line) in (1_u64..).zip(lines) {
        let expected = format!("{number}\n");
        assert!(
            expected.as_bytes().starts_with(line),
            "{:?} is not {number}",
            String::from_utf8_lossy(line)
        );
    }
}

/// Reads until the answer ends or breaks off, and counts what it has.
fn read_all(mut answer: Incoming<'_>, count: &AtomicUsize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    while let Ok(read @ 1..) = answer.read(&mut buffer) {
        all.extend_from_slice(&buffer[..read]);
        count.store(all.len(), Ordering::Relaxed);
    }
    all
}

/// The records of the fleet's logs, each with the track that it is in. Nobody is asked but the store, because a node shows
/// what it has before that is durable.
fn stored(nats: &Nats) -> Vec<(String, Vec<u8>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("an event loop").block_on(async {
        // What does not answer on a busy host has nothing yet; who polls asks again.
        let Ok(client) = async_nats::connect(nats.url()).await else { return Vec::new() };
        let context = async_nats::jetstream::new(client);
        let mut records = Vec::new();
        for shard in 0..LOG_SHARDS {
            let found = context.get_stream(format!("burrow-log-{shard}")).await;
            let Ok(stream) = found else { continue };
            let state = stream.cached_info().state.clone();
            for sequence in state.first_sequence.max(1)..=state.last_sequence {
                // One that was removed is no record.
                let Ok(record) = stream.get_raw_message(sequence).await else { continue };
                records.push((record.subject.to_string(), record.payload.to_vec()));
            }
        }
        records
    })
}

/// How many lines of a kind are stored.
fn count_of(records: &[(String, Vec<u8>)], kind: &str) -> usize {
    let lines = records.iter().filter(|(track, _)| track.rsplit('.').next() == Some("lines"));
    let lines = lines.map(|(_, line)| serde_json::from_slice::<Value>(line).expect("a line"));
    lines.filter(|line| line["type"] == kind).count()
}

/// What is stored of an output.
fn output_of(records: &[(String, Vec<u8>)], session: &str, channel: &str) -> Vec<u8> {
    let part = format!(".out.{session}.");
    let own = records.iter().filter(|(track, _)| track.contains(&part) && track.ends_with(channel));
    own.flat_map(|(_, bytes)| bytes.clone()).collect()
}

/// Three nodes, the last of which has `box` with a flood, and what a reader at `reader` saw before that node was killed.
fn seen_before_the_end(nats: &Nats, durability: &str, reader: usize) -> (Vec<Member>, Vec<u8>) {
    let members = open(nats, 3);
    members[2].start(&["--name", "box", "--durability", durability]);
    let shown = members[0].client.get(BOX).expect(200).json();
    assert_eq!(shown["durability"], durability, "{shown}");
    flood(&members[2].client, 999_999_999);
    let count = AtomicUsize::new(0);
    let seen = thread::scope(|scope| {
        let client = Client::new(members[reader].server.url());
        let count = &count;
        let reading =
            scope.spawn(move || read_all(client.open("GET", &output(0), RAW, &[]), count));
        eventually("the flood is under way", || count.load(Ordering::Relaxed) > 2_000_000);
        members[2].signal(Signal::SIGKILL);
        reading.join().expect("it ends")
    });
    check_flood(&seen);
    eventually("it is lost", || members[0].client.get(BOX).status == 410);
    let lost = members[0].client.get(BOX).expect(410).json();
    let last = &lost["details"]["last_durable_offset"]["flood"]["stdout"];
    assert_eq!(*last, last_durable(&gone(&members[1], usize::MAX >> 1)), "{lost}");
    (members, seen)
}

/// All of the flood that is durable, from an offset on. The answer says where that ends.
fn rest(member: &Member, from: usize) -> Vec<u8> {
    let answer = member.client.send("GET", &output(from), RAW, &[]).expect(200);
    let end = answer.header("burrow-last-durable-offset").expect("it was lost");
    assert_eq!(end, (from + answer.body.len()).to_string());
    answer.body
}

/// The refusal that follows the last durable byte.
fn gone(member: &Member, from: usize) -> Value {
    let refused = member.client.send("GET", &output(from), RAW, &[]).expect(410).json();
    assert_eq!((&refused["code"], &refused["details"]["reason"]), (&json!("gone"), &json!("lost")));
    assert_eq!(refused["details"]["node"], "n3", "{refused}");
    assert!(
        refused["details"]["at_ms"].as_u64().is_some_and(|ms| ms > 1_700_000_000_000),
        "{refused}"
    );
    refused
}

fn last_durable(refused: &Value) -> usize {
    refused["details"]["last_durable_offset"]["stdout"].as_u64().expect("an offset") as usize
}

#[test]
fn under_sync_whatever_a_reader_saw_is_read_on_at_another_node() {
    let Some(nats) = Nats::start() else { return };
    // The reader is at a gateway, and loses its stream with the owner.
    let (members, seen) = seen_before_the_end(&nats, "sync", 1);
    let end = last_durable(&gone(&members[0], 1_000_000_000));
    assert!(end >= seen.len(), "{} bytes were shown, and {end} are durable", seen.len());
    for member in &members[..2] {
        let rest = if seen.len() < end { rest(member, seen.len()) } else { Vec::new() };
        assert_eq!(seen.len() + rest.len(), end);
        check_flood(&[&seen[..], &rest].concat());
        assert_eq!(last_durable(&gone(member, end)), end);
    }
}

#[test]
fn under_async_the_reported_offset_is_where_the_log_ends() {
    let Some(nats) = Nats::start() else { return };
    let (members, _) = seen_before_the_end(&nats, "async", 2);
    let all = rest(&members[0], 0);
    check_flood(&all);
    assert!(!all.is_empty(), "nothing was durable");
    for member in &members[..2] {
        assert_eq!(last_durable(&gone(member, all.len())), all.len());
    }
    // Events end with the same words.
    let events =
        members[1].client.lines(&output(all.len() - 10).replace("channel=stdout&", ""), None);
    let last = events.last().expect("events");
    assert_eq!(last["type"], "problem", "{last}");
    assert_eq!(
        last["problem"]["details"]["last_durable_offset"]["stdout"],
        json!(all.len()),
        "{last}"
    );
}

#[test]
fn the_log_of_a_lost_sandbox_is_read_at_any_node_by_all_who_may() {
    let Some(nats) = Nats::start() else { return };
    let first = Member::join(&nats, "n1", &[]);
    let second = Member::join(&nats, "n2", &[]);
    first.knows(2);
    second.start(&["--name", "team/box", "--durability", "async"]);
    let key = |member: &Member, namespace: &str| {
        let key = member.server.ok(&["keygen", "--namespace", namespace, "--scope", "run"]);
        Client::new(member.server.url()).key(key.trim())
    };
    let (there, here, other) = (key(&second, "team"), key(&first, "team"), key(&first, "other"));
    let run = |argv: Value, session: &str| {
        let started = json!({ "argv": argv, "session": session });
        there.post("/v1/sandboxes/team/box/sessions", &started).expect(201);
    };
    let logs = "/v1/sandboxes/team/box/logs";
    let kinds = |page: &Value| -> Vec<String> {
        let entries = page["entries"].as_array().expect("entries").iter();
        entries.map(|entry| entry["type"].as_str().expect("a type").to_owned()).collect()
    };
    run(json!(["sh", "-c", "echo one; echo two >&2; exit 3"]), "done");
    eventually("the fleet's log has the session that ended", || {
        let records = stored(&nats);
        (count_of(&records, "started"), count_of(&records, "exited")) == (1, 1)
            && output_of(&records, "done", ".stdout") == b"one\n"
            && output_of(&records, "done", ".stderr") == b"two\n"
    });
    // The other begins after that one has ended, so that the log has one order.
    run(json!(["sh", "-c", "echo three; sleep 1000"]), "cut");
    eventually("the fleet's log has the other", || {
        let records = stored(&nats);
        count_of(&records, "started") == 2 && output_of(&records, "cut", ".stdout") == b"three\n"
    });
    // Its node has its timeline, and any node shows it.
    let timeline = "/v1/sandboxes/team/box/timeline?kind=output&kind=exited";
    let shown = here.get(timeline).expect(200).json();
    assert_eq!(shown, there.get(timeline).expect(200).json());
    assert_eq!(shown["entries"].as_array().expect("entries").len(), 4, "{shown}");
    assert!(matches!(other.get(timeline).status, 403 | 404));
    second.signal(Signal::SIGKILL);
    eventually("it is lost", || here.get("/v1/sandboxes/team/box").status == 410);
    here.get(timeline).expect(410);
    let page = here.get(logs).expect(200).json();
    let shown = kinds(&page);
    assert_eq!(shown.iter().filter(|kind| *kind == "started").count(), 2, "{page}");
    assert_eq!(shown.iter().filter(|kind| *kind == "output").count(), 3, "{page}");
    let exited = page["entries"].as_array().unwrap().iter().find(|entry| entry["type"] == "exited");
    assert_eq!(exited.expect("an end")["exit"]["exit_code"], 3, "{page}");
    let last = page["entries"].as_array().unwrap().last().unwrap();
    assert_eq!(last["problem"]["details"]["last_durable_offset"]["cut"]["stdout"], 6, "{last}");
    // Pages, by their places.
    let begin = here.get(&format!("{logs}?limit=2")).expect(200).json();
    let after = begin["next"].as_str().expect("more");
    let rest = here.get(&format!("{logs}?after={after}")).expect(200).json();
    assert_eq!([kinds(&begin), kinds(&rest)].concat(), shown);
    let tail = here.get(&format!("{logs}?tail=1")).expect(200).json();
    let texts =
        tail["entries"].as_array().unwrap().iter().filter_map(|entry| entry["text"].as_str());
    assert_eq!(texts.collect::<Vec<_>>(), ["three\n"], "{tail}");
    // A place in the log that was on the host's disk is of no use.
    here.get(&format!("{logs}?after=1-100-0")).expect(410);
    let mut socket = here.websocket(&format!("{logs}?session=done"), &[]);
    assert_eq!(socket.hear_value()["type"], "started");
    // One that had ended says how, as if its node were there.
    let ended = "/v1/sandboxes/team/box/sessions/done";
    assert_eq!(here.get(ended).expect(200).json()["exit"]["exit_code"], 3);
    let events: Vec<_> = here.lines(&format!("{ended}/output"), None).collect();
    assert_eq!(events.last().expect("an end")["type"], "exited", "{events:?}");
    assert_eq!(
        here.get("/v1/sandboxes/team/box/sessions").expect(200).json()["sessions"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // Another namespace's key learns nothing, not even that there was one.
    for path in [logs.to_owned(), format!("{ended}/output"), ended.to_owned()] {
        let refused = other.get(&path);
        assert!([403, 404].contains(&refused.status), "{path}: {}", refused.text());
        assert!(!refused.text().contains("n2"), "{}", refused.text());
    }
    let printed = first.server.run(&["logs", "team/box"]);
    assert_eq!(String::from_utf8_lossy(&printed.stdout), "one\nthree\n");
    let words = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert!(words.contains("two\n") && words.contains("lost with its node n2"), "{words}");
    assert!(words.contains("cut stdout 6") && !printed.status.success(), "{words}");
    assert_eq!(
        first.server.run(&["logs", "--tail", "1", "--stdout", "team/box"]).stdout,
        b"three\n"
    );
}

/// Reads a flood to its end as events, and says whether its reader had to wait.
fn read_events(client: &Client) -> (Vec<u8>, bool, Value) {
    let (mut bytes, mut waited) = (Vec::new(), false);
    for event in client.lines(&output(0), None) {
        match event["type"].as_str() {
            Some("output") => {
                assert_eq!(event["offset"], json!(bytes.len()), "it comes twice, or not at all");
                bytes.extend_from_slice(event["text"].as_str().expect("numbers").as_bytes());
            }
            Some("waiting") => waited = true,
            _ => return (bytes, waited, event),
        }
    }
    panic!("the stream has no end after {} bytes", bytes.len());
}

#[test]
fn under_sync_a_program_waits_for_nats_and_goes_on_without_a_byte_twice() {
    let Some(mut nats) = Nats::start() else { return };
    let member = Member::join(&nats, "n1", PATIENT);
    member
        .client
        .post("/v1/sandboxes", &json!({ "name": "box", "durability": "sync" }))
        .expect(201);
    flood(&member.client, 1_000_000);
    let reader = Client::new(member.server.url());
    let reading = thread::spawn(move || read_events(&reader));
    let recorded = |from: usize| {
        member.client.send("GET", &output(from).replace("follow=true&", ""), RAW, &[])
    };
    eventually("the flood is under way", || recorded(0).body.len() > 500_000);
    nats.kill();
    // What was shown before is still shown. Nothing is added.
    let mut durable = 0;
    eventually("nothing more is shown", || {
        let before = std::mem::replace(&mut durable, recorded(0).body.len());
        // What is in flight may still arrive.
        thread::sleep(Duration::from_millis(300));
        before == durable
    });
    // Time passes in which something could be shown.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(recorded(0).body.len(), durable, "something was shown that is not durable");
    nats.start_again();
    let (bytes, waited, end) = reading.join().expect("it ends");
    assert!(waited, "the reader got no event about it");
    assert_eq!((&end["type"], &end["exit"]["exit_code"]), (&json!("exited"), &json!(0)), "{end}");
    check_flood(&bytes);
    assert!(bytes.ends_with(b"\n1000000\n"), "it ends early, after {} bytes", bytes.len());
}

#[test]
fn under_async_a_program_does_not_wait_for_nats_and_its_output_follows() {
    let Some(mut nats) = Nats::start() else { return };
    let members = [Member::join(&nats, "n1", PATIENT), Member::join(&nats, "n2", BRIEF)];
    members[0].knows(2);
    members[1].start(&["--name", "box", "--durability", "async"]);
    nats.kill();
    // Within its lease.
    flood(&members[1].client, 20_000);
    let (bytes, waited, end) = read_events(&members[1].client);
    assert_eq!((waited, &end["type"]), (false, &json!("exited")), "{end}");
    nats.start_again();
    // The end of the session is the last that becomes durable. The agent keeps the session until then.
    let sessions = format!("{BOX}/sessions");
    eventually("all of it is durable", || {
        members[1].client.get(&sessions).json()["sessions"].as_array().is_some_and(Vec::is_empty)
    });
    members[1].signal(Signal::SIGKILL);
    eventually("it is lost", || members[0].client.get(BOX).status == 410);
    let (durable, _, end) = read_events(&members[0].client);
    assert_eq!((durable, &end["exit"]["exit_code"]), (bytes, &json!(0)), "{end}");
}

#[test]
fn a_bridge_that_is_started_again_goes_on_where_the_log_ends() {
    let Some(nats) = Nats::start() else { return };
    let mut member = Member::join(&nats, "n1", PATIENT);
    for durability in ["sync", "async"] {
        let made = json!({ "name": "box", "durability": durability });
        member.client.post("/v1/sandboxes", &made).expect(201);
        flood(&member.client, 1_500_000);
        let seen = AtomicUsize::new(0);
        let client = Client::new(member.server.url());
        let before = thread::scope(|scope| {
            let seen = &seen;
            let reading =
                scope.spawn(move || read_all(client.open("GET", &output(0), RAW, &[]), seen));
            eventually("the flood is under way", || seen.load(Ordering::Relaxed) > 1_000_000);
            member.server.kill_and_serve_again();
            reading.join().expect("it ends")
        });
        let client = Client::new(member.server.url());
        eventually("it is there again", || client.get(BOX).status == 200);
        let after = read_all(client.open("GET", &output(before.len()), RAW, &[]), &seen);
        let all = [before, after].concat();
        check_flood(&all);
        assert!(all.ends_with(b"\n1500000\n"), "{durability}: {} bytes", all.len());
        client.delete(&format!("{BOX}?force=true")).expect(200);
        member.client = client;
    }
}

#[test]
fn every_program_of_a_durable_sandbox_is_recorded_and_what_cannot_be_is_refused() {
    let Some(nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    for durability in ["sync", "async"] {
        members[1].start(&["--name", durability, "--durability", durability]);
        let path = format!("/v1/sandboxes/default/{durability}");
        let run = json!({ "argv": ["sh", "-c", "echo out; echo err >&2; exit 4"] });
        let ran = members[0].client.post(&format!("{path}/exec"), &run).expect(200).json();
        assert_eq!((&ran["stdout"], &ran["stderr"]), (&json!("out\n"), &json!("err\n")), "{ran}");
        eventually("it is recorded, too", || {
            let page = members[0].client.get(&format!("{path}/logs")).expect(200).json();
            page["entries"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["type"] == "exited"))
        });
        let context = json!({ "language": "python", "context": "py" });
        let refused =
            members[0].client.post(&format!("{path}/contexts"), &context).expect(422).json();
        assert!(
            refused["message"].as_str().is_some_and(|why| why.contains("not durable")),
            "{refused}"
        );
        assert!(members[1].server.ok(&["inspect", durability]).contains(durability));
    }
    // The command line reads at the agent itself, where nothing is durable yet.
    assert_eq!(members[1].server.ok(&["exec", "async", "--", "echo", "hi"]), "hi\n");
    let refused = members[1].server.run(&["exec", "sync", "--", "echo", "hi"]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{words}");
    assert!(words.contains("durability \"sync\""), "{words}");
    members[1].server.ok(&["exec", "-d", "--session", "later", "sync", "--", "echo", "hi"]);
    eventually("it is in the log", || {
        members[1].server.ok(&["logs", "--session", "later", "sync"]) == "hi\n"
    });
}

#[test]
fn durability_is_refused_where_no_log_keeps_it() {
    let server = tests::server::Server::dev();
    let client = Client::new(server.url());
    let made = json!({ "name": "box", "durability": "sync" });
    let refused = client.post("/v1/sandboxes", &made).expect(422).json();
    assert_eq!(
        (&refused["code"], &refused["details"]["field"]),
        (&json!("unsupported"), &json!("durability"))
    );
    assert!(
        refused["message"].as_str().is_some_and(|why| why.contains("in no fleet")),
        "{refused}"
    );
    client.get(BOX).expect(404);
    let refused = server.run(&["start", "--name", "box", "--durability", "async"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in no fleet"));
    let wrong =
        client.post("/v1/sandboxes", &json!({ "name": "box", "durability": "always" })).expect(400);
    assert!(wrong.text().contains("is not a durability"), "{}", wrong.text());
    let off = json!({ "name": "box", "durability": "off" });
    client.post("/v1/sandboxes", &off).expect(201);
}

#[test]
fn the_default_of_the_configuration_is_for_doors_that_have_the_option() {
    let Some(nats) = Nats::start() else { return };
    let member = Member::join(&nats, "n1", &["--dev", "--set", "defaults.durability=async"]);
    let shown = member.client.post("/v1/sandboxes", &json!({ "name": "box" })).expect(201).json();
    assert_eq!(shown["durability"], "async");
    let made =
        member.client.post("/sandboxes", &json!({ "templateID": "base" })).expect(201).json();
    let id = made["sandboxID"].as_str().expect("an id");
    let all = member.client.get("/v1/sandboxes").expect(200).json();
    let theirs = all["sandboxes"].as_array().unwrap().iter().find(|one| one["id"] == id);
    assert_eq!(theirs.expect("it is there").get("durability"), None);
}

/// Readers of a sandbox whose node is killed again and again, and what they saw. A short form of a long run: with
/// `BURROW_CHAOS_SECONDS` it goes on for as long.
#[test]
fn no_byte_that_was_shown_under_sync_is_missing_whatever_is_killed() {
    let seconds = std::env::var("BURROW_CHAOS_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(5));
    let Some(mut nats) = Nats::start() else { return };
    let members = open(&nats, 2);
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        rounds += 1;
        let owner = Member::join(&nats, &format!("doomed{rounds}"), BRIEF);
        for member in &members {
            let knows = |node: &Value| node["name"] == owner.name.as_str();
            eventually("it is known", || member.nodes().iter().any(knows));
        }
        owner.start(&["--name", "box", "--durability", "sync"]);
        flood(&owner.client, 999_999_999);
        let is_over = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> =
            [members[0].server.url(), members[1].server.url(), owner.server.url()]
                .map(|url| {
                    let (client, is_over) = (Client::new(url), Arc::clone(&is_over));
                    // Each comes back where it was, as long as there is anything to read.
                    thread::spawn(move || {
                        let mut seen = Vec::new();
                        while !is_over.load(Ordering::Relaxed) {
                            let answer = client.open("GET", &output(seen.len()), RAW, &[]);
                            if answer.status != 200 {
                                break;
                            }
                            seen.extend(read_all(answer, &AtomicUsize::new(0)));
                        }
                        seen
                    })
                })
                .into();
        // It floods for a while, with a cut in the middle that is shorter than the lease.
        thread::sleep(Duration::from_millis(700));
        nats.kill();
        // The cut.
        thread::sleep(Duration::from_millis(300));
        nats.start_again();
        // It goes on after it.
        thread::sleep(Duration::from_millis(700));
        is_over.store(true, Ordering::Relaxed);
        owner.signal(Signal::SIGKILL);
        let seen: Vec<_> =
            readers.into_iter().map(|reader| reader.join().expect("it ends")).collect();
        eventually("it is lost", || members[1].client.get(BOX).status == 410);
        let durable = rest(&members[0], 0);
        check_flood(&durable);
        for seen in seen {
            assert!(
                durable.starts_with(&seen),
                "{} bytes were shown, {} are durable",
                seen.len(),
                durable.len()
            );
        }
        // Its name is another's from here on.
        let made = json!({ "name": "box" });
        eventually("the name is free", || {
            members[0].client.post("/v1/sandboxes", &made).status == 201
        });
        members[0].client.delete(&format!("{BOX}?force=true")).expect(200);
    }
}

#[test]
fn a_flood_arrives_whole_under_every_durability() {
    const BYTES: usize = 50_000_000;
    let Some(nats) = Nats::start() else { return };
    let member = Member::join(&nats, "n1", PATIENT);
    for durability in ["off", "async", "sync"] {
        let made = json!({ "name": "box", "durability": durability });
        member.client.post("/v1/sandboxes", &made).expect(201);
        let began = Instant::now();
        let started =
            json!({ "argv": ["head", "-c", BYTES.to_string(), "/dev/zero"], "session": "flood" });
        member.client.post(&format!("{BOX}/sessions"), &started).expect(201);
        let seen = member.client.send("GET", &output(0), RAW, &[]).expect(200).body;
        let seconds = began.elapsed().as_secs_f64();
        assert_eq!(seen.len(), BYTES, "{durability}");
        println!("{durability}: {:.0} MB/s", BYTES as f64 / 1e6 / seconds);
        member.client.delete(&format!("{BOX}?force=true")).expect(200);
    }
}
