//! Everything that a sandbox did, on one clock: over HTTP, and as `replay` shows it.

use serde_json::{Value, json};
use tests::door::{BOX, open};
use tests::http::Client;
use tests::server::Server;
use tests::{Burrow, eventually, have_or_skip};

const TIMELINE: &str = "/v1/sandboxes/default/box/timeline";

fn entries(client: &Client, query: &str) -> Vec<Value> {
    let page = client.get(&format!("{TIMELINE}?{query}")).expect(200).json();
    page["entries"].as_array().expect("a list").clone()
}

fn kinds(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["kind"].as_str().expect("a kind")).collect()
}

/// Waits until so many sessions have ended.
fn settle(client: &Client, count: usize) {
    eventually("the ends are recorded", || entries(client, "kind=exited").len() >= count);
}

fn text(entries: &[Value]) -> String {
    entries.iter().filter_map(|entry| entry["text"].as_str()).collect()
}

#[test]
fn a_timeline_has_all_that_happened_in_the_order_of_time() {
    if !have_or_skip("python3") {
        return;
    }
    let burrow = Burrow::new().variable("BURROW_EVENTS_PROGRAMS", "true");
    let server = Server::start_in(burrow, &["--dev"]);
    let client = Client::new(server.url());
    client.post("/v1/sandboxes", &json!({ "name": "box" })).expect(201);
    let ran = server.run(&["exec", "box", "--", "sh", "-c", "echo first; exit 3"]);
    assert_eq!(ran.status.code(), Some(3));
    settle(&client, 1);
    client.post(&format!("{BOX}/run"), &json!({ "code": "1 / 0" })).expect(200);
    server.ok(&["exec", "box", "--", "echo", "second"]);
    settle(&client, 2);
    server.ok(&["stop", "box"]);
    let is_over = |one: &Value| one["kind"] == "lifecycle" && one["event"] == "exited";
    eventually("the end is in the stream", || entries(&client, "").iter().any(is_over));
    let all = entries(&client, "limit=10000");
    let times: Vec<_> = all.iter().map(|entry| entry["at_ms"].as_u64().expect("a time")).collect();
    assert!(times.is_sorted(), "{times:?}");
    let told: Vec<_> = all.iter().filter(|entry| entry["kind"] != "metrics").cloned().collect();
    assert_eq!((&told[0]["event"], &told[1]["event"]), (&json!("created"), &json!("ready")));
    assert!(is_over(told.last().expect("entries")), "{told:?}");
    assert_eq!(text(&all), "first\nsecond\n");
    let place =
        |wanted: &dyn Fn(&Value) -> bool| told.iter().position(wanted).expect("it is there");
    let first = place(&|one| one["text"] == "first\n");
    let failed = place(&|one| one["kind"] == "exited" && one["exit_code"] == 3);
    let raised = place(&|one| one["kind"] == "run" && one["result"] == "error");
    let second = place(&|one| one["text"] == "second\n");
    assert!(first < failed && failed < second && raised < second, "{told:?}");
    let failures: Vec<_> = told.iter().filter(|one| one["failed"] == true).collect();
    assert_eq!(failures, [&told[failed], &told[raised]]);
    // What programs of a session do is there once.
    assert!(told.iter().all(|one| one["event"] != "command_ended"));

    // Pages, lines and messages are the same.
    let mut pages = Vec::new();
    let mut query = "limit=3".to_owned();
    loop {
        let page = client.get(&format!("{TIMELINE}?{query}")).expect(200).json();
        pages.extend(page["entries"].as_array().expect("a list").clone());
        let Some(next) = page["next"].as_str() else { break };
        query = format!("limit=3&after={next}");
    }
    assert_eq!(pages, all);
    assert_eq!(client.lines(TIMELINE, None).collect::<Vec<Value>>(), all);
    let mut socket = client.websocket(TIMELINE, &[]);
    assert_eq!(socket.hear_value(), all[0]);

    // A part of it.
    assert_eq!(
        kinds(&entries(&client, "kind=output&kind=exited")),
        ["output", "exited", "output", "exited"]
    );
    let session = told[first]["session"].as_str().expect("a session");
    let one = entries(&client, &format!("session={session}&kind=output&kind=lifecycle"));
    assert_eq!(text(&one), "first\n");
    assert!(kinds(&one).contains(&"lifecycle"));
    let at = told[failed]["at_ms"].as_u64().expect("a time");
    assert_eq!(text(&entries(&client, &format!("to_ms={at}"))), "first\n");
    assert!(!text(&entries(&client, &format!("from_ms={}", at + 1))).contains("first"));
    let refused = client.get(&format!("{TIMELINE}?session=nobody")).expect(404);
    assert_eq!(refused.code(), "not_found");
    for wrong in ["kind=x", "limit=0", "after=x", "after=1", "from_ms=-1", "other=1"] {
        assert_eq!(
            client.get(&format!("{TIMELINE}?{wrong}")).expect(400).code(),
            "invalid",
            "{wrong}"
        );
    }
    // After all, and beyond.
    assert_eq!(entries(&client, "after=999999999999999-1"), Vec::<Value>::new());
    server.ok(&["rm", "box"]);
    client.get(TIMELINE).expect(404);
}

#[test]
fn the_next_page_goes_on_where_the_last_one_ended_and_reads_nothing_before_it_again() {
    let (server, client) = open();
    for n in 1..=6 {
        server.ok(&["exec", "box", "--", "echo", &format!("line {n}")]);
        settle(&client, n);
    }
    let page = |after: &str| {
        let query = format!("{TIMELINE}?kind=output&limit=2{after}");
        let page = client.get(&query).expect(200).json();
        let lines = text(page["entries"].as_array().expect("a list"));
        (lines, page["next"].as_str().map(|next| format!("&after={next}")))
    };
    let (first, next) = page("");
    assert_eq!(first, "line 1\nline 2\n");
    // A reader from the beginning finds nothing any more. A timeline that is open does.
    let boxes = std::fs::read_dir(server.state().join("boxes")).expect("sandboxes");
    let logs = boxes.map(|entry| entry.expect("an entry").path().join("log/0000000001.seg"));
    let segment = logs.filter(|log| log.is_file()).last().expect("a log");
    std::fs::remove_file(&segment).expect("it is removed");
    let next = next.expect("there is more");
    let (second, after_second) = page(&next);
    assert_eq!(second, "line 3\nline 4\n");
    // A place to which nobody has read just now is looked for.
    assert_eq!(page(&next).0, "");
    let (third, after_third) = page(&after_second.expect("there is more"));
    assert_eq!(third, "line 5\nline 6\n");
    assert_eq!(page(&after_third.expect("the end is not known yet")), (String::new(), None));
}

#[test]
fn runs_of_notebooks_are_in_the_timeline_of_their_sandbox() {
    if !have_or_skip("python3") {
        return;
    }
    let server = Server::dev();
    let client = Client::new(server.url());
    for code in ["x = 1", "raise ValueError('no <b>good</b>')"] {
        client.post("/v1/notebooks/default/a/run", &json!({ "code": code })).expect(200);
    }
    let path = "/v1/sandboxes/default/notebook-a/timeline?kind=run";
    let page = client.get(path).expect(200).json();
    let runs = page["entries"].as_array().expect("a list");
    assert_eq!(runs.len(), 2, "{page}");
    assert_eq!((&runs[0]["result"], &runs[0]["failed"]), (&json!("ok"), &Value::Null));
    assert_eq!((&runs[1]["notebook"], &runs[1]["run"]), (&json!("a"), &json!(2)));
    assert_eq!((&runs[1]["result"], &runs[1]["failed"]), (&json!("error"), &json!(true)));
    assert_eq!(runs[1]["error"], "ValueError: no <b>good</b>");
}

#[test]
fn a_timeline_is_for_keys_of_its_namespace() {
    let server = Server::with_keys();
    let key = |options: &[&str]| {
        let key = server.ok(&[&["keygen"], options].concat());
        Client::new(server.url()).key(key.trim())
    };
    let own = key(&["--namespace", "team", "--scope", "run"]);
    own.post("/v1/sandboxes", &json!({ "name": "box", "namespace": "team" })).expect(201);
    let path = "/v1/sandboxes/team/box/timeline";
    own.get(path).expect(200);
    key(&["--namespace", "team", "--scope", "read"]).get(path).expect(200);
    let other = key(&["--namespace", "other", "--scope", "admin"]);
    let logs = other.get("/v1/sandboxes/team/box/logs");
    let refused = other.get(path);
    assert_eq!((refused.status, refused.code()), (logs.status, logs.code()));
    assert!(matches!(refused.status, 403 | 404), "{}", refused.text());
    Client::new(server.url()).get(path).expect(401);
}

#[test]
fn a_replay_notes_what_happened_and_leaves_the_output_alone() {
    let (server, client) = open();
    let script = "printf '\\033[31mred\\n'; echo oops >&2; exit 7";
    let hostile = "printf '\\033]0;x\\007'";
    server.run(&["exec", "--session", "bad", "box", "--", "sh", "-c", script]);
    server.ok(&["exec", "--session", "good", "box", "--", "sh", "-c", hostile]);
    settle(&client, 2);
    let replay = |options: &[&str]| {
        let played = server.run(&[&["replay", "--speed", "0"], options].concat());
        assert!(played.status.success(), "{played:?}");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (text(&played.stdout), text(&played.stderr))
    };
    let both = "\u{1b}[31mred\n\u{1b}]0;x\u{7}";
    let (stdout, stderr) = replay(&["box"]);
    assert_eq!(stdout, both);
    for wanted in
        ["sandbox created", "session bad started", "oops", "session bad ended with code 7"]
    {
        assert!(stderr.contains(wanted), "{wanted}: {stderr}");
    }
    assert!(!stderr.contains('\u{1b}') && !stderr.contains('\u{7}'), "{stderr:?}");
    assert_eq!(replay(&["--no-events", "box"]), (both.to_owned(), "oops\n".to_owned()));
    assert_eq!(replay(&["box", "bad"]), ("\u{1b}[31mred\n".to_owned(), "oops\n".to_owned()));
    assert!(replay(&["--events", "box", "bad"]).1.contains("ended with code 7"));
    // From one failure to the next, of which there is one.
    let (_, stderr) = replay(&["--errors", "box"]);
    assert!(stderr.contains("failure 1 of 1: session bad ended with code 7"), "{stderr}");
    let none = server.run(&["replay", "--errors=2", "box"]);
    assert!(!none.status.success() && none.stdout.is_empty(), "{none:?}");
    let (stdout, stderr) = replay(&["--errors", "box", "good"]);
    assert!(stdout.is_empty() && stderr.contains("nothing failed"), "{stderr}");
    // The same after the end, without the daemon's sandbox.
    server.ok(&["stop", "box"]);
    assert_eq!(replay(&["box"]).0, both);
}
