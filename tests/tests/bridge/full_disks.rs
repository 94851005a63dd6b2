//! A disk without room: what was answered is there after a restart, and what could not be kept was
//! refused with the reason.

use std::collections::BTreeSet;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tests::http::{Answer, Client};
use tests::server::Server;
use tests::small_disk::{Filler, SmallDisk};
use tests::{Burrow, eventually, have_or_skip};

const ALL: &str = "/v1/sandboxes";
const WORK: &str = "/v1/sandboxes/default/work";
const NOTEBOOK: &str = "/v1/notebooks/default/a";

/// A server whose state directory is a small disk.
struct FullDisk {
    server: Server,
    disk: SmallDisk,
}

impl FullDisk {
    fn new_or_skip(kib: u32) -> Option<Self> {
        let burrow = Burrow::new();
        let disk = SmallDisk::mount_or_skip(&burrow.state(), kib)?;
        Some(Self { server: Server::start_in(burrow, &["--dev"]), disk })
    }

    fn client(&self) -> Client {
        Client::new(self.server.url())
    }

    fn fill(&self) -> Filler {
        self.disk.fill()
    }

    fn get(&self, path: &str) -> Value {
        self.client().get(path).expect(200).json()
    }

    fn names(&self) -> BTreeSet<String> {
        let listed = self.get(ALL);
        let all = listed["sandboxes"].as_array().expect("a list").iter();
        all.map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Ends everything that is left, and then the disk.
    fn end(self) {
        for name in self.names() {
            self.client().delete(&format!("{ALL}/default/{name}?force=true")).expect(200);
        }
        drop(self.server);
    }
}

fn assert_no_room(answer: &Answer) {
    assert_eq!(
        (answer.status, &*answer.code()),
        (507, "insufficient_storage"),
        "{}",
        answer.text()
    );
}

#[test]
fn every_sandbox_that_was_answered_is_there_after_a_restart_and_no_other() {
    let Some(mut place) = FullDisk::new_or_skip(1024) else { return };
    let client = place.client();
    let (mut answered, mut refused) = (BTreeSet::new(), 0);
    // Wherever in a creation the disk runs out of room.
    for pages in 0..12 {
        let name = format!("s{pages}");
        let filler = place.fill();
        filler.leave(pages);
        let made = client.post(ALL, &json!({ "name": name }));
        if made.status == 201 {
            answered.insert(name);
        } else {
            assert_no_room(&made);
            refused += 1;
        }
        filler.remove();
        assert_eq!(place.names(), answered, "with {pages} pages");
    }
    assert!(refused > 0 && !answered.is_empty(), "{refused} of 12 were refused");
    place.server.kill_and_serve_again();
    assert_eq!(place.names(), answered);
    for name in &answered {
        let state = place.get(&format!("{ALL}/default/{name}"))["state"].clone();
        assert_eq!(state, "running", "{name}");
    }
    place.end();
}

#[test]
fn a_creation_on_a_full_disk_is_refused_at_every_door() {
    let Some(place) = FullDisk::new_or_skip(1024) else { return };
    let filler = place.fill();
    assert_no_room(&place.client().post(ALL, &json!({ "name": "work" })));
    let params = json!({ "sandbox": "work", "config": { "image": "microsandbox/python" } });
    let body = json!({ "jsonrpc": "2.0", "method": "sandbox.start", "params": params, "id": "1" });
    let refused = place.client().post("/api/v1/rpc", &body).expect(507).json();
    assert_eq!(refused["error"]["data"]["reason"], "insufficient_storage", "{refused}");
    let result = place.server.run(&["start", "--name", "work"]);
    let stderr = String::from_utf8_lossy(&result.stderr);
    assert_eq!(result.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("No space left on device") && stderr.contains("free some space"),
        "{stderr}"
    );
    let mut calls = String::new();
    for call in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" }
        } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "sandbox_create", "arguments": { "name": "work" }
        } }),
    ] {
        calls.push_str(&call.to_string());
        calls.push('\n');
    }
    let result = place.server.feed(&["mcp"], calls.as_bytes());
    let stderr = String::from_utf8_lossy(&result.stdout);
    assert!(stderr.contains("insufficient_storage"), "{stderr}");
    filler.remove();
    assert_eq!(place.names(), BTreeSet::new());
    place.end();
}

#[test]
fn what_is_kept_of_a_sandbox_is_refused_on_a_full_disk_at_every_door() {
    let Some(place) = FullDisk::new_or_skip(2048) else { return };
    let client = place.client();
    client.post(ALL, &json!({ "name": "work" })).expect(201);
    let script = json!({ "script": "echo bytes > /tmp/file" });
    client.post(&format!("{WORK}/shell"), &script).expect(200);
    let filler = place.fill();
    let app = json!({ "type": "command", "command": ["sleep", "9"], "name": "app" });
    for (what, body) in [
        ("artifacts", json!({ "path": "/tmp/file" })),
        ("fork", json!({})),
        ("apps", app),
        ("previews", json!({ "port": 8000 })),
    ] {
        assert_no_room(&client.post(&format!("{WORK}/{what}"), &body));
    }
    assert_no_room(&client.send_json("PUT", "/v1/templates/default/t", &json!({})));
    for verb in [&["fork", "work"][..], &["template", "create", "t"]] {
        let stderr = String::from_utf8_lossy(&place.server.run(verb).stderr).into_owned();
        assert!(stderr.contains("free some space"), "{verb:?}: {stderr}");
    }
    filler.remove();
    let client = place.client();
    client.post(&format!("{WORK}/artifacts"), &json!({ "path": "/tmp/file" })).expect(201);
    assert_eq!(place.names(), BTreeSet::from(["work".to_owned()]));
    place.end();
}

#[test]
fn a_time_to_live_that_cannot_be_written_is_refused_and_not_granted() {
    let Some(mut place) = FullDisk::new_or_skip(1024) else { return };
    let client = place.client();
    client.post(ALL, &json!({ "name": "work", "ttl_ms": 3_600_000 })).expect(201);
    let before = place.get(WORK)["ttl_ms"].clone();
    let filler = place.fill();
    assert_no_room(&client.send_json("PATCH", WORK, &json!({ "ttl_ms": 7_200_000 })));
    assert_eq!(place.get(WORK)["ttl_ms"], before);
    filler.remove();
    place.server.kill_and_serve_again();
    assert_eq!(place.get(WORK)["ttl_ms"], before);
    let client = place.client();
    client.send_json("PATCH", WORK, &json!({ "ttl_ms": 7_200_000 })).expect(200);
    place.server.kill_and_serve_again();
    assert_ne!(place.get(WORK)["ttl_ms"], before);
    place.end();
}

#[test]
fn a_stop_that_cannot_be_written_says_so_and_is_written_when_there_is_room() {
    let Some(mut place) = FullDisk::new_or_skip(1024) else { return };
    let client = place.client();
    client.post(ALL, &json!({ "name": "work" })).expect(201);
    let id = place.get(WORK)["id"].as_str().expect("an id").to_owned();
    let record = place.server.state().join("boxes").join(id).join("box.json");
    let filler = place.fill();
    let refused = client.post(&format!("{WORK}/stop"), &json!({}));
    assert_no_room(&refused);
    assert!(refused.text().contains("work is stopped"), "{}", refused.text());
    assert_eq!(place.get(WORK)["state"], "stopped");
    assert_no_room(&client.post(&format!("{WORK}/stop"), &json!({})));
    let result = place.server.run(&["stop", "work"]);
    let stderr = String::from_utf8_lossy(&result.stderr);
    assert_eq!(result.status.code(), Some(125), "{stderr}");
    assert!(
        stderr.contains("No space left on device") && stderr.contains("free some space"),
        "{stderr}"
    );
    filler.remove();
    eventually("the record is written again", || {
        let text = std::fs::read_to_string(&record).expect("the record");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        answer["record"]["state"] == "stopped"
    });
    place.server.kill_and_serve_again();
    let found = place.get(WORK);
    assert_eq!((&found["state"], &found["reason"]), (&json!("stopped"), &json!("as asked")));
    place.end();
}

/// The samples of the last minutes, and the gaps between them.
fn history(place: &FullDisk) -> (u64, Vec<Value>) {
    let seen = place.get(&format!("{WORK}/metrics?step=1000"));
    let points = seen["points"].as_array().expect("a list").iter();
    let samples = points.map(|point| point["samples"].as_u64().expect("a number")).sum();
    // Before the first sample there is nothing to know.
    let first = seen["points"][0]["at_ms"].as_u64().unwrap_or(u64::MAX);
    let gaps = seen["gaps"].as_array().expect("a list").iter();
    let inner = gaps.filter(|gap| gap["from_ms"].as_u64().expect("a time") > first);
    (samples, inner.cloned().collect())
}

#[test]
fn samples_wait_for_room_on_a_full_disk_and_nothing_else_minds() {
    let Some(mut place) = FullDisk::new_or_skip(1024) else { return };
    let client = place.client();
    client.post(ALL, &json!({ "name": "work" })).expect(201);
    // Samples come every second while something runs.
    let busy = json!({ "argv": ["sleep", "1000"], "session": "busy" });
    client.post(&format!("{WORK}/sessions"), &busy).expect(201);
    eventually("something is kept", || history(&place).0 > 2);
    let metrics =
        format!("boxes/{}/metrics/seconds", place.get(WORK)["id"].as_str().expect("an id"));
    let metrics = place.server.state().join(metrics);
    let length = || std::fs::metadata(&metrics).expect("the file").len();
    let filler = place.fill();
    // What the last page of the file still has room for is written: 19 records, so these are more.
    let before = history(&place).0;
    eventually("samples come that find no room", || history(&place).0 > before + 22);
    let full = length();
    let ran = client.post(&format!("{WORK}/exec"), &json!({ "argv": ["echo", "alive"] }));
    assert!(ran.expect(200).text().contains("alive"));
    let (waiting, gaps) = history(&place);
    assert!(gaps.is_empty(), "{gaps:?}");
    filler.remove();
    eventually("what has waited is written", || {
        history(&place);
        length() > full
    });
    place.server.kill_and_serve_again();
    eventually("the next bridge has gone on", || history(&place).0 > waiting);
    let gaps = history(&place).1;
    assert!(gaps.is_empty(), "what has waited is in the file: {gaps:?}");
    place.end();
}

#[test]
fn what_programs_have_cost_on_a_full_disk_is_counted_once_there_is_room() {
    /// More than what is left of the file's last page.
    const ENDS: u64 = 100;
    let Some(mut place) = FullDisk::new_or_skip(2048) else { return };
    let client = place.client();
    client.post(ALL, &json!({ "name": "work" })).expect(201);
    let end = || client.post(&format!("{WORK}/exec"), &json!({ "argv": ["true"] })).expect(200);
    let counted = |place: &FullDisk| {
        let rows = place.get("/v1/usage?programs=true")["programs"].clone();
        let of = |row: &Value| row["ends"].as_u64().expect("a number");
        rows.as_array().expect("a list").iter().map(of).sum::<u64>()
    };
    end();
    eventually("the first is counted", || counted(&place) == 1);
    let filler = place.fill();
    (0..ENDS).for_each(|_| drop(end()));
    assert!(counted(&place) < 1 + ENDS, "there was room for them");
    filler.remove();
    // Without another end.
    eventually("all are counted", || counted(&place) == 1 + ENDS);
    place.server.end_and_serve_again();
    assert_eq!(counted(&place), 1 + ENDS);
    place.end();
}

/// A notebook with one run that is saved.
fn notebook_or_skip() -> Option<FullDisk> {
    if !have_or_skip("python3") {
        return None;
    }
    let place = FullDisk::new_or_skip(4096)?;
    run(&place, "x = 1").expect(200);
    save(&place).expect(200);
    Some(place)
}

fn run(place: &FullDisk, code: &str) -> Answer {
    place.client().post(&format!("{NOTEBOOK}/run"), &json!({ "code": code }))
}

fn save(place: &FullDisk) -> Answer {
    place.client().post(&format!("{NOTEBOOK}/save"), &json!({}))
}

/// Runs that change the variable, on a disk that fills meanwhile: how many were answered, and how many
/// were refused.
fn run_on_a_full_disk(place: &FullDisk) -> (u64, u64) {
    let (mut answered, mut refused) = (0, 0);
    for at in 0..12_u64 {
        let ran = run(place, &format!("x = {at} + 2 # {}", "-".repeat(6000)));
        if ran.status == 200 {
            answered += 1;
            let ran = ran.json();
            assert_eq!(ran["notebook"]["number"], 1 + answered, "each has its number: {ran}");
        } else {
            assert_no_room(&ran);
            refused += 1;
        }
    }
    (answered, refused)
}

#[test]
fn a_notebook_on_a_full_disk_counts_its_runs_and_owns_up_to_what_is_unsaved() {
    let Some(place) = notebook_or_skip() else { return };
    let filler = place.fill();
    filler.leave(3);
    let (answered, refused) = run_on_a_full_disk(&place);
    assert!(answered > 0 && refused > 0, "{answered} were answered, {refused} refused");
    let answer = place.get(NOTEBOOK);
    assert_eq!(answer["runs"], 1 + answered, "{answer}");
    assert_ne!(answer["unsaved_runs"], 0, "{answer}");
    assert_no_room(&save(&place));
    filler.remove();
    // Without anybody asking.
    eventually("what was unsaved is saved", || place.get(NOTEBOOK)["unsaved_runs"] == 0);
    let history = place.get(&format!("{NOTEBOOK}/history"));
    assert_eq!(history["runs"].as_array().expect("a list").len() as u64, 1 + answered);
    place.client().delete(&format!("{ALL}/default/notebook-a?force=true")).expect(200);
    let ran = run(&place, "print(x)").expect(200).json();
    assert_eq!(ran["stdout"], format!("{}\n", answered + 1), "{ran}");
    place.end();
}

#[test]
fn runs_that_a_full_disk_kept_from_the_history_are_unsaved_for_the_next_bridge_too() {
    let Some(mut place) = notebook_or_skip() else { return };
    let filler = place.fill();
    filler.leave(3);
    let (answered, _) = run_on_a_full_disk(&place);
    let answer = place.get(NOTEBOOK);
    let pid = place.server.run(&["inspect", "--json", "notebook-a"]).stdout;
    let pid: Value = serde_json::from_slice(&pid).expect("JSON");
    let pid = Pid::from_raw(pid["pid"].as_i64().expect("a process") as i32);
    place.server.kill_daemon_for_a_moment(|| {
        kill(pid, nix::sys::signal::SIGKILL).expect("it is ours");
        filler.remove();
    });
    assert_eq!(place.get(NOTEBOOK)["unsaved_runs"], answer["unsaved_runs"]);
    let ran = run(&place, "print(x)").expect(200).json();
    let reopened = &ran["notebook"]["reopened"];
    let saved = reopened["as_of_run"].as_u64().expect("a number");
    assert_eq!(reopened["unsaved_runs"], 1 + answered - saved, "{ran}");
    assert_eq!(ran["stdout"], format!("{saved}\n"), "{ran}");
    place.end();
}
